/* Reference kernels against numbers worked out by hand, in f64 and f32. (Other kernels are compared
 * with reference kernels; these with arithmetic.) */
#include "kernel/kernel.h"
#include "kernel/select/select.h"
#include "support/kernel_check.h"
#include "support/support.h"
#include "unit/op/forward_functions.h"
#include "unit/op/forward_layers.h"
#include "unit/op/forward_sequences.h"
#include "unit/op/forward_updates.h"

#include <math.h>
#include <string.h>

static const struct {
    const forward_case *cases;
    size_t n;
} tables[] = {
    {forward_layers, KOLO_COUNT(forward_layers)},
    {forward_functions, KOLO_COUNT(forward_functions)},
    {forward_sequences, KOLO_COUNT(forward_sequences)},
    {forward_updates, KOLO_COUNT(forward_updates)},
};

/* Case n of all tables; NULL: there are fewer. */
static const forward_case *case_at(size_t n) {
    for (size_t t = 0; t < KOLO_COUNT(tables); t++) {
        if (n < tables[t].n) return &tables[t].cases[n];
        n -= tables[t].n;
    }
    return NULL;
}

/* ---- running one ---- */

typedef union buffer {
    double f64[MAX_NUMBERS];
    float f32[MAX_NUMBERS];
    int32_t i32[MAX_NUMBERS];
    int64_t i64[MAX_NUMBERS];
    uint8_t u8[MAX_NUMBERS];
} buffer;

static void store(const kolo_tensor *t, buffer *to, const double *from) {
    for (int64_t i = 0; i < kolo_shape_count(&t->shape); i++) {
        switch (t->dtype) {
        case KOLO_DTYPE_F64:
            to->f64[i] = from[i];
            break;
        case KOLO_DTYPE_F32:
            to->f32[i] = (float)from[i];
            break;
        case KOLO_DTYPE_I32:
            to->i32[i] = (int32_t)from[i];
            break;
        case KOLO_DTYPE_I64:
            to->i64[i] = (int64_t)from[i];
            break;
        default:
            to->u8[i] = (uint8_t)from[i];
            break;
        }
    }
}

static double load(const kolo_tensor *t, const buffer *from, int64_t i) {
    switch (t->dtype) {
    case KOLO_DTYPE_F64:
        return from->f64[i];
    case KOLO_DTYPE_F32:
        return from->f32[i];
    case KOLO_DTYPE_I32:
        return from->i32[i];
    case KOLO_DTYPE_I64:
        return (double)from->i64[i];
    default:
        return from->u8[i];
    }
}

static kolo_kernel_spec spec_of(const forward_case *c, kolo_dtype dtype) {
    kolo_kernel_spec spec = {.op = test_op(c->op), .attr = c->attr, .n_in = c->n_in, .threads = 1};
    for (int i = 0; i < c->n_in; i++) {
        char type = c->types ? c->types[i] : 'f';
        kolo_dtype of = type == 'i'   ? KOLO_DTYPE_I32
                        : type == 'l' ? KOLO_DTYPE_I64
                        : type == 'b' ? KOLO_DTYPE_U8
                                      : dtype;
        spec.in[i] = kolo_tensor_plain(of, c->in[i]);
        assert_in_range(kolo_shape_count(&c->in[i]), 1, MAX_NUMBERS);
    }
    kolo_shape_query q = {.attr = c->attr, .n_in = c->n_in, .in = spec.in, .out = spec.out};
    ASSERT_OK(spec.op->shape(&q));
    spec.n_out = q.n_out;
    return spec;
}

static void run_case(const forward_case *c, kolo_dtype dtype, double tolerance) {
    kolo_kernel_spec spec = spec_of(c, dtype);
    const kolo_kernel *kernel;
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
    assert_true(kolo_kernel_is_ref(kernel));
    buffer in[MAX_INPUTS], out[MAX_OUTPUTS];
    memset(out, 0xA5, sizeof out);
    kolo_call call = {.spec = &spec};
    for (int i = 0; i < spec.n_in; i++) {
        store(&spec.in[i], &in[i], c->data[i]);
        call.in[i] = &in[i];
    }
    for (int i = 0; i < spec.n_out; i++) call.out[i] = &out[i];
    size_t scratch_bytes = 0;
    ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch_bytes));
    bool floats = !c->types || strchr(c->types, 'f');
    assert_true(dtype != KOLO_DTYPE_F32 || !floats || scratch_bytes > 0);
    call.scratch = kolo_alloc(scratch_bytes);
    assert_non_null(call.scratch);
    kernel->run(&call);
    for (int i = 0; i < spec.n_out; i++) {
        for (int64_t k = 0; k < kolo_shape_count(&spec.out[i].shape); k++) {
            double is = load(&spec.out[i], &out[i], k), should = c->out[i][k];
            if (!(fabs(is - should) <= tolerance * fmax(1, fabs(should)))) {
                fail_msg("%s, %s, %s: output %d element %d is %.17g, not %.17g", c->op, c->name,
                         kolo_dtype_name(dtype), i, (int)k, is, should);
            }
        }
    }
    kolo_free(call.scratch);
    kernel->release(call.state);
}

static void results_are_those_of_arithmetic(void **state) {
    const forward_case *c;
    for (size_t n = 0; (c = case_at(n)); n++) {
        run_case(c, KOLO_DTYPE_F64, 1e-14);
        run_case(c, KOLO_DTYPE_F32, 1e-6);
    }
}

/* Every op that a kernel runs has a case in a table of forward_*.h; reorder is below, in the
 * layouts that it is for; of those that read their outputs accumulate is in test_simd_pointwise.c,
 * accumulate_rows in test_rows.c; convert in test_precision.c; chain in test_chains.c; encode,
 * decode and those of PowerSGD in test_rounds.c. */
static void every_op_is_tested(void **state) {
    const forward_case *c;
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        bool found = op->view || op == &kolo_op_reorder || op == &kolo_op_accumulate ||
                     op == &kolo_op_accumulate_rows || op == &kolo_op_convert ||
                     op == &kolo_op_chain || op == &kolo_op_encode || op == &kolo_op_decode ||
                     strncmp(op->name, "power_", 6) == 0;
        for (size_t n = 0; (c = case_at(n)); n++) found |= strcmp(c->op, op->name) == 0;
        if (!found) fail_msg("%s has no case", op->name);
    }
}

/* ---- layouts ---- */

static void reorder_moves_between_layouts(void **state) {
    /* [1,3,1,2]: channels 1 2, 3 4, 5 6; NHWC; channels in blocks of two, the last half padding. */
    static const struct {
        const char *layout;
        int n;
        float data[8];
    } forms[] = {{"abcd", 6, {1, 2, 3, 4, 5, 6}},
                 {"acdb", 6, {1, 3, 5, 2, 4, 6}},
                 {"aBcd2b", 8, {1, 3, 2, 4, 5, 0, 6, 0}}};
    for (size_t from = 0; from < KOLO_COUNT(forms); from++) {
        for (size_t to = 0; to < KOLO_COUNT(forms); to++) {
            kolo_kernel_spec spec = {.op = &kolo_op_reorder, .n_in = 1, .n_out = 1, .threads = 1};
            spec.in[0] = spec.out[0] = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_4(1, 3, 1, 2));
            ASSERT_OK(kolo_layout_parse(forms[from].layout, &spec.in[0].layout));
            ASSERT_OK(kolo_layout_parse(forms[to].layout, &spec.out[0].layout));
            const kolo_kernel *kernel;
            ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
            float in[8], out[8];
            memcpy(in, forms[from].data, sizeof in);
            memset(out, 0xA5, sizeof out);
            kernel->run(&(kolo_call){.spec = &spec, .in = {in}, .out = {out}});
            assert_memory_equal(out, forms[to].data, sizeof(float) * (size_t)forms[to].n);
        }
    }
}

static void reference_kernels_take_plain_layouts_only(void **state) {
    const forward_case *c = case_at(0);
    kolo_kernel_spec spec = spec_of(c, KOLO_DTYPE_F32);
    const kolo_kernel *kernel;
    spec.in[1].layout = (kolo_layout){0}; /* open: it chooses plain */
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
    assert_true(kolo_spec_is_plain(&spec));
    ASSERT_OK(kolo_layout_parse("acdb", &spec.in[0].layout));
    assert_int_equal(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL),
                     KOLO_ERR_UNSUPPORTED);
    const char *text = kolo_last_error();
    assert_non_null(strstr(text, "conv2d: no reference kernel"));
    assert_non_null(strstr(text, "f32 [1,1,3,3] acdb, f32 [1,1,2,2] abcd -> f32 [1,1,2,2] abcd"));
}

/* ---- the list of kernels ---- */

static void best_is_a_reference_kernel_only_when_alone(void **state) {
    const forward_case *c;
    for (size_t n = 0; (c = case_at(n)); n++) {
        kolo_kernel_spec spec = spec_of(c, KOLO_DTYPE_F32);
        bool other_fits = false;
        const kolo_kernel *k;
        for (size_t i = 0; (k = kolo_kernel_at(i)); i++) {
            kolo_kernel_spec trial = spec;
            trial.select = kolo_kernel_select_tuned;
            if (k->op != spec.op || kolo_kernel_is_ref(k)) continue;
            other_fits |= k->fit(&trial) >= 0;
        }
        const kolo_kernel *best;
        double seconds = -1;
        ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_BEST, &spec, &best, &seconds));
        assert_ptr_equal(best->op, spec.op);
        assert_int_equal(kolo_kernel_is_ref(best), !other_fits);
        assert_true(seconds >= 0);
    }
}

static void kernels_have_names_and_pairs(void **state) {
    const kolo_kernel *k, *other;
    for (size_t i = 0; (k = kolo_kernel_at(i)); i++) {
        assert_true(k->fit && k->run);
        assert_int_equal(!k->prepare, !k->release);
        assert_int_equal(!k->bind, !k->unbind);
        assert_false(k->op->view);
        for (size_t j = i + 1; (other = kolo_kernel_at(j)); j++) {
            assert_string_not_equal(other->name, k->name);
        }
    }
}

TEST_MAIN(test_op_forward) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_arithmetic),
        cmocka_unit_test(every_op_is_tested),
        cmocka_unit_test(reorder_moves_between_layouts),
        cmocka_unit_test(reference_kernels_take_plain_layouts_only),
        cmocka_unit_test(best_is_a_reference_kernel_only_when_alone),
        cmocka_unit_test(kernels_have_names_and_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
