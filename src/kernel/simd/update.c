/* Adam and parts of its momentum, and SGD with delayed momentum, when all tensors share one layout,
 * and the factor of gradient clipping (loops: pointwise.isa.c). */
#include "kernel/simd/pointwise.h"
#include "kernel/simd/simd.h"

#include <math.h>

enum { ADAM_W, ADAM_G, ADAM_LR, ADAM_UPDATE, ADAM_M, ADAM_V }; /* delayed_sgd: v, s at the end */

typedef struct update_state {
    kolo_kernel_loop loop;
    int64_t items;
} update_state;

static double fit(kolo_kernel_spec *spec) {
    double bytes = 0;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        bool scalar = t->shape.rank == 0;
        if (!scalar && !kolo_layout_equal(&t->layout, &spec->in[0].layout)) return -1;
        bytes += (double)kolo_tensor_bytes(t);
    }
    return kolo_kernel_seconds(0, bytes, 2);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_point_table *table = KOLO_ISA_PICK(kolo_simd_point);
    update_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->loop = spec->op == &kolo_op_adam          ? table->adam
              : spec->op == &kolo_op_delayed_sgd ? table->delayed_sgd
                                                 : table->momentum_part;
    s->items = kolo_tensor_elements(&spec->in[0]);
    *scratch_bytes = 0;
    *state = s;
    return KOLO_OK;
}

static void run_adam(const kolo_call *call) {
    const update_state *s = call->state;
    const kolo_attr *attr = call->spec->attr;
    double lr = (double)*(const float *)call->in[ADAM_LR];
    double update = (double)*(const float *)call->in[ADAM_UPDATE];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    double decay = attr[KOLO_ADAM_WEIGHT_DECAY].f;
    bool decoupled = attr[KOLO_ADAM_DECOUPLED].i != 0, frozen = attr[KOLO_ADAM_FROZEN].i > 0;
    double seen = frozen ? (double)attr[KOLO_ADAM_FROZEN].i : update; /* updates that v has */
    kolo_simd_adam_job job = {
        .w = call->in[ADAM_W],
        .g = kolo_simd_gradient(call, ADAM_G),
        .m = call->in[ADAM_M],
        .v = call->in[ADAM_V],
        .w_next = call->out[0],
        .m_next = call->out[1],
        .v_next = call->out[2],
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .eps = (float)attr[KOLO_ADAM_EPS].f,
        .keep = decoupled ? (float)(1 - lr * decay) : 1,
        .decay = decoupled ? 0 : (float)decay,
        .step = (float)(lr / (1 - pow(beta1, update))),
        .narrow = (float)(1 / sqrt(1 - pow(beta2, seen))),
        .frozen = frozen,
    };
    kolo_kernel_parallel(call->spec->threads, s->items, s->loop, &job);
}

static void run_delayed_sgd(const kolo_call *call) {
    const update_state *s = call->state;
    const kolo_attr *attr = call->spec->attr;
    const double momentum = attr[KOLO_DELAYED_SGD_MOMENTUM].f, c = attr[KOLO_DELAYED_SGD_AHEAD].f;
    const double n = (double)attr[KOLO_DELAYED_SGD_DELAY].i;
    const bool due = fmod((double)*(const float *)call->in[ADAM_UPDATE], n) == 0;
    kolo_simd_delayed_sgd_job job = {
        .w = call->in[ADAM_W],
        .g = call->in[ADAM_G],
        .v = call->in[ADAM_M],
        .s = call->in[ADAM_V],
        .w_next = call->out[0],
        .v_next = call->out[1],
        .s_next = call->out[2],
        .lr = *(const float *)call->in[ADAM_LR],
        .momentum = (float)momentum,
        .weight_decay = (float)attr[KOLO_DELAYED_SGD_WEIGHT_DECAY].f,
        .share = (float)(1 / n),
        .ahead = (float)(momentum * (due ? 1 - (n - 1) * c : c)),
        .due = due,
    };
    kolo_kernel_parallel(call->spec->threads, s->items, s->loop, &job);
}

static void run_momentum_part(const kolo_call *call) {
    const update_state *s = call->state;
    const kolo_attr *attr = call->spec->attr;
    kolo_simd_momentum_job job = {
        .g = call->in[0],
        .m = call->in[1],
        .w = call->spec->n_in == 3 ? call->in[2] : NULL,
        .part = call->out[0],
        .of_momentum = (float)attr[KOLO_MOMENTUM_PART].f,
        .of_gradient = (float)attr[KOLO_MOMENTUM_OF_GRADIENT].f,
        .of_weight = (float)attr[KOLO_MOMENTUM_OF_WEIGHT].f,
    };
    kolo_kernel_parallel(call->spec->threads, s->items, s->loop, &job);
}

static void run_clip_factor(const kolo_call *call) {
    double norm = sqrt((double)*(const float *)call->in[0]);
    double factor = call->spec->attr[KOLO_CLIP_NORM].f / (norm + 1e-6);
    *(float *)call->out[0] = factor < 1 ? (float)factor : 1;
}

const kolo_kernel kolo_simd_adam = {
    .name = "simd_adam",
    .op = &kolo_op_adam,
    .summands = ADAM_G,
    .fit = fit,
    .prepare = prepare,
    .run = run_adam,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_delayed_sgd = {
    .name = "simd_delayed_sgd",
    .op = &kolo_op_delayed_sgd,
    .fit = fit,
    .prepare = prepare,
    .run = run_delayed_sgd,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_momentum_part = {
    .name = "simd_momentum_part",
    .op = &kolo_op_momentum_part,
    .fit = fit,
    .prepare = prepare,
    .run = run_momentum_part,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_clip_factor = {
    .name = "simd_clip_factor", .op = &kolo_op_clip_factor, .fit = fit, .run = run_clip_factor};
