#include "support/sum_model.h"

float sum_u[SUM_SAMPLES * SUM_A], sum_v[SUM_SAMPLES * SUM_B], sum_target[SUM_SAMPLES];
const kolo_field sum_fields[] = {
    {"target", KOLO_DTYPE_F32, {1, {1}}, .mean = {0}},
    {"v", KOLO_DTYPE_F32, {1, {SUM_B}}, .mean = {0}},
    {"u", KOLO_DTYPE_F32, {1, {SUM_A}}, .mean = {0}},
};

int sum_fill(void **state) {
    for (int i = 0; i < SUM_SAMPLES * SUM_A; i++) sum_u[i] = (float)(i * 7 % 11) / 11 - 0.4F;
    for (int i = 0; i < SUM_SAMPLES * SUM_B; i++) sum_v[i] = (float)(i * 5 % 13) / 13 - 0.6F;
    for (int i = 0; i < SUM_SAMPLES; i++)
        sum_target[i] = 2 * sum_u[i * SUM_A] - sum_u[i * SUM_A + 2] + 3 * sum_v[i * SUM_B + 1];
    return 0;
}

kolo_status sum_build(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, SUM_A));
    kolo_value z = kolo_input(g, "v", KOLO_DTYPE_F32, kolo_shape_2(n, SUM_B));
    kolo_value t = kolo_input(g, "target", KOLO_DTYPE_F32, kolo_shape_2(n, 1));
    kolo_value a = kolo_param(g, "a", kolo_shape_2(1, SUM_A), kolo_init_fan_in(SUM_A));
    kolo_value b = kolo_param(g, "b", kolo_shape_2(1, SUM_B), kolo_init_fan_in(SUM_B));
    kolo_value y = kolo_add(g, kolo_linear(g, x, a), kolo_linear(g, z, b));
    kolo_output(g, "y", y);
    kolo_output(g, "loss", kolo_mse_loss(g, y, t));
    return KOLO_OK;
}

kolo_batch sum_batch(int64_t first, int64_t count) {
    return (kolo_batch){.count = count,
                        .n_fields = 3,
                        .fields = sum_fields,
                        .data = {sum_target + first, sum_v + first * SUM_B, sum_u + first * SUM_A}};
}
