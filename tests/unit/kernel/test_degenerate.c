/* Elementwise ops on numbers at the ends of the types: infinities, NaN, signed zeros, subnormal and
 * the largest numbers, and pairs of these, against the reference, on every instruction set. */
#include "base/bf16.h"
#include "base/compiler.h"
#include "graph/ops/chain.h"
#include "kernel/select/families.h"
#include "kernel/select/select.h"
#include "support/kernel_check.h"

#include <math.h>
#include <string.h>

static const float numbers[] = {
    NAN,
    INFINITY,
    -INFINITY,
    0,
    -0.0F,
    0x1p-149F,
    -0x1p-149F,
    0x1p-130F,
    -0x1p-130F,
    0x1p-126F,
    -0x1p-126F,
    1e-20F,
    -1e-20F,
    0x1p-12F,
    -0x1p-12F,
    0.2F,
    -0.2F,
    0.5F,
    -0.5F,
    1,
    -1,
    1.5F,
    -1.5F,
    2,
    3,
    -3,
    6,
    10.25F,
    -10.25F,
    20,
    -20,
    40,
    -40,
    87,
    -87.5F,
    88.5F,
    -88.5F,
    89,
    -89,
    -95,
    104,
    -104,
    -110,
    1e10F,
    -1e10F,
    1e20F,
    -1e20F,
    1e30F,
    -1e30F,
    3e38F,
    -3e38F,
    0x1.fffffep127F,
    -0x1.fffffep127F,
};
enum { NUMBERS = KOLO_COUNT(numbers), PAIRS = NUMBERS * NUMBERS };

/* Of an op: other attributes than zeros. */
static const struct {
    const char *op; /* and its gradient */
    kolo_attr attr[2];
} attributes[] = {
    {"pow", {{.f = 1.5}}},
    {"pow", {{.f = 2}}},
    {"pow", {{.f = 3}}},
    {"pow", {{.f = -1}}},
    {"offset", {{.f = 1.25}}},
    {"clamp", {{.f = -1.5}, {.f = 3}}},
    {"hardtanh", {{.f = 0}, {.f = 6}}},
    {"leaky_relu", {{.f = 0.25}}},
    {"elu", {{.f = 1.5}}},
    {"softplus", {{.f = 1}}},
    {"softplus", {{.f = 8}}},
    {"softplus", {{.f = 0.125}}},
    {"gelu", {{0}}},
    {"gelu", {{1}}},
    {"add", {{0}}},
    {"add", {{1}}},
    {"scale", {{.f = 3}}},
    {"scale", {{.f = -0.125}}},
    {"convert", {{KOLO_DTYPE_BF16}}},
};

static bool is_of(const kolo_op *op, const char *name) {
    const size_t n = strlen(name);
    return strncmp(op->name, name, n) == 0 &&
           (op->name[n] == 0 || strcmp(op->name + n, "_bwd") == 0);
}

static float number_at(const kolo_tensor *t, const void *p, int k) {
    return t->dtype == KOLO_DTYPE_BF16 ? kolo_bf16_widen(((const uint16_t *)p)[k])
                                       : ((const float *)p)[k];
}

/* Whether the op is defined there in f32: the range of roots, sigmoid and tanh is bounded, powers
 * and what an infinite gradient is multiplied with may be above or below all f32 numbers. */
static bool is_defined(const kolo_kernel_spec *spec, float a, float b) {
    const kolo_op *op = spec->op;
    if (spec->n_in < 2 || !strstr(op->name, "_bwd") || op == &kolo_op_relu_bwd) return true;
    if (op == &kolo_op_sqrt_bwd && b > 2e19F) return false;
    if ((op == &kolo_op_sigmoid_bwd || op == &kolo_op_tanh_bwd) && fabsf(b) > 1) return false;
    if (op == &kolo_op_pow_bwd && isfinite(b) && b != 0) {
        const double factor = pow(fabs((double)b), spec->attr[0].f - 1);
        if (factor > 3e38 || factor < 1e-37) return false;
    }
    return !isinf(a);
}

/* NaN for NaN, the same infinity; else to the error of the functions, in bf16 also of rounding.
 * What is at most `least` may be zero, and the largest numbers infinite. */
static bool agree(float is, float should, bool half, float least) {
    if (isnan(should) || isnan(is)) return isnan(should) && isnan(is);
    const float error = half ? 0x1p-7F : 2e-5F, size = fabsf(should);
    if (is == should) return true;
    if (isinf(is) || isinf(should)) {
        return (is > 0) == (should > 0) && fminf(size, fabsf(is)) > 0x1.fffffep127F * (1 - error);
    }
    return fabsf(is - should) <= error * size + least;
}

/* Element k: pair (k / NUMBERS, k % NUMBERS). */
static void fill(const kolo_tensor *t, void *p, int input) {
    for (int k = 0; k < PAIRS; k++) {
        const float number =
            numbers[input == 0 ? k / NUMBERS : (k * (input == 1 ? 1 : 5)) % NUMBERS];
        if (t->dtype == KOLO_DTYPE_BF16) {
            ((uint16_t *)p)[k] = kolo_bf16_narrow(number);
        } else {
            ((float *)p)[k] = number;
        }
    }
}

static int compare(const kolo_kernel *kernel, const kolo_kernel_spec *spec) {
    static float in[KOLO_MAX_IO][PAIRS];
    const void *inputs[KOLO_MAX_IO];
    const kolo_tensor *y = &spec->out[0];
    const bool half = y->dtype == KOLO_DTYPE_BF16;
    kolo_kernel_spec of_reference = *spec;
    const kolo_kernel *reference;
    int failures = 0;
    for (int i = 0; i < spec->n_in; i++) {
        fill(&spec->in[i], in[i], i);
        inputs[i] = in[i];
    }
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &of_reference, &reference, NULL));
    void *want = test_kernel_result_on(reference, &of_reference, inputs);
    void *ours = test_kernel_result_on(kernel, spec, inputs);
    for (int k = 0; k < PAIRS; k++) {
        const float is = number_at(y, ours, k), should = number_at(y, want, k);
        const float a = number_at(&spec->in[0], in[0], k);
        const float b = spec->n_in > 1 ? number_at(&spec->in[1], in[1], k) : 0;
        /* GELU is an approximation; factors of a gradient may be below the normal numbers. */
        const bool gelu = spec->op == &kolo_op_gelu || spec->op == &kolo_op_gelu_bwd;
        const float least =
            (gelu ? 1e-6F : 1e-36F) * fmaxf(1, spec->n_in > 1 && isfinite(a) ? fabsf(a) : 1);
        if (!is_defined(spec, a, b) || agree(is, should, half, least)) continue;
        if (failures++ == 0) {
            print_message("%s %g %g (%s) of %g, %g: %g, not %g\n", kernel->name, spec->attr[0].f,
                          spec->attr[1].f, half ? "bf16" : "f32", (double)a, (double)b, (double)is,
                          (double)should);
        }
    }
    kolo_free(want);
    kolo_free(ours);
    return failures > 0;
}

/* All vector kernels of an op with these attributes; returns how many disagree. */
static int check_op(const kolo_op *op, const kolo_attr *attr, int threads) {
    const kolo_shape shapes[] = {kolo_shape_1(PAIRS), kolo_shape_1(PAIRS), kolo_shape_1(PAIRS)};
    const int n_in = op == &kolo_op_scale ? 1 : op->max_in;
    const kolo_kernel *kernel;
    int failures = 0, checked = 0;
    for (size_t i = 0; (kernel = kolo_kernel_at(i)); i++) {
        if (kernel->op != op || kolo_kernel_is_ref(kernel)) continue;
        for (int half = 0; half < 2; half++) {
            kolo_kernel_spec spec;
            test_kernel_spec(&spec, op, attr, n_in, shapes, NULL, 1, NULL, threads);
            if (half && op != &kolo_op_convert) test_kernel_in_bf16(&spec, -1);
            if (kernel->fit(&spec) < 0) continue;
            failures += compare(kernel, &spec);
            checked++;
        }
    }
    if (checked == 0) fail_msg("%s has no vector kernel", op->name);
    return failures;
}

static void elementwise(int threads) {
    int failures = 0;
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        bool listed = false;
        if (!kolo_op_is_link(op)) continue;
        for (size_t a = 0; a < KOLO_COUNT(attributes); a++) {
            if (!is_of(op, attributes[a].op)) continue;
            kolo_attr attr[KOLO_MAX_ATTRS] = {attributes[a].attr[0], attributes[a].attr[1]};
            listed = true;
            failures += check_op(op, attr, threads);
        }
        const kolo_attr none[KOLO_MAX_ATTRS] = {{0}};
        if (listed) continue;
        if (op->attrs && op->attrs[0] && strncmp(op->attrs[0], "repeat", 6) != 0) {
            fail_msg("%s has attributes, and no row", op->name);
        }
        failures += check_op(op, none, threads);
    }
    assert_int_equal(failures, 0);
}

static void ends_of_the_types_are_as_in_the_reference(void **state) { test_each_set(elementwise); }

TEST_MAIN(test_degenerate) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_the_types_are_as_in_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
