/* Runs one kernel on a spec and compares it with the reference kernel of the same op. */
#include "support/kernel_check.h"

#include "base/bf16.h"
#include "base/isa.h"
#include "base/rng.h"
#include "kernel/select/select.h"
#include "support/fewer.h"

#include <string.h>

enum { GUARD = 256 }; /* bytes after each buffer that must stay unchanged */

const kolo_op *test_op(const char *name) {
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        if (strcmp(op->name, name) == 0) return op;
    }
    fail_msg("there is no op %s", name);
    return NULL;
}

const kolo_kernel *test_kernel(const char *name) {
    const kolo_kernel *k;
    for (size_t i = 0; (k = kolo_kernel_at(i)); i++) {
        if (strcmp(k->name, name) == 0) return k;
    }
    return NULL;
}

static void set_layout(kolo_tensor *t, const char *text) {
    t->layout = kolo_layout_plain(t->shape.rank);
    if (!text) return;
    if (strcmp(text, "any") == 0) {
        t->layout = (kolo_layout){0};
    } else {
        ASSERT_OK(kolo_layout_parse(text, &t->layout));
    }
}

/* Labels, token ids, masks, indices of max pooling and random-number keys are integers, all else is
 * f32. */
static kolo_dtype dtype_of(const kolo_op *op, const kolo_attr *attr, int input) {
    bool labels = op == &kolo_op_softmax_xent || op == &kolo_op_softmax_xent_bwd ||
                  op == &kolo_op_accuracy || op == &kolo_op_confusion ||
                  op == &kolo_op_score_counts;
    bool ids = op == &kolo_op_embedding || op == &kolo_op_embedding_bwd ||
               op == &kolo_op_embedding_bwd_rows || op == &kolo_op_merge_rows ||
               op == &kolo_op_rotary;
    if (input == 2 && op == &kolo_op_cached_attention) return KOLO_DTYPE_I32;
    if (input == 2 && (op->in_place || op == &kolo_op_class_sums)) return KOLO_DTYPE_I32;
    if (input == 3 && op == &kolo_op_class_sums_bwd) return KOLO_DTYPE_I32;
    if (op == &kolo_op_ctc_loss && input > 0) return KOLO_DTYPE_I32;
    if (op == &kolo_op_ctc_loss_bwd && input % 2) return KOLO_DTYPE_I32;
    bool places = op == &kolo_op_expert_dispatch || op == &kolo_op_expert_combine;
    if (input == 1 && places) return KOLO_DTYPE_I32;
    if (input == 2 && op == &kolo_op_expert_products) return KOLO_DTYPE_I32;
    if (input > 0 && op == &kolo_op_dropout) return KOLO_DTYPE_I64;
    if (input == 1 && (labels || ids)) return KOLO_DTYPE_I32;
    const struct {
        const kolo_op *op;
        int more;
    } attentions[] = {{&kolo_op_attention, KOLO_ATTENTION_INPUTS},
                      {&kolo_op_attention_bwd, KOLO_ATTENTION_BWD_INPUTS},
                      {&kolo_op_attention_block, KOLO_ATTENTION_BLOCK_INPUTS},
                      {&kolo_op_attention_block_bwd, KOLO_ATTENTION_BLOCK_BWD_INPUTS}};
    for (size_t i = 0; i < KOLO_COUNT(attentions); i++) {
        const int more = attentions[i].more;
        if (op != attentions[i].op) continue;
        int mask = more + kolo_attention_draws(attr);
        if (input >= more && input < mask) return KOLO_DTYPE_I64;
        return input == mask ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32;
    }
    return input == 1 && op == &kolo_op_max_pool2d_bwd ? KOLO_DTYPE_U8 : KOLO_DTYPE_F32;
}

/* Selects inner kernels, for the spec of a fast kernel; notes a reference kernel. */
static _Thread_local const kolo_kernel *inner_reference;

static kolo_status select_inner(kolo_kernel_set set, kolo_tuner *tuner, kolo_kernel_spec *spec,
                                const kolo_kernel **kernel, double *seconds) {
    KOLO_TRY(kolo_kernel_select_tuned(set, tuner, spec, kernel, seconds));
    if (kolo_kernel_is_ref(*kernel)) inner_reference = *kernel;
    return KOLO_OK;
}

void test_kernel_spec(kolo_kernel_spec *spec, const kolo_op *op, const kolo_attr *attr, int n_in,
                      const kolo_shape *in, const char *const *in_layouts, int n_out,
                      const char *const *out_layouts, int threads) {
    static const kolo_attr none[KOLO_MAX_ATTRS];
    *spec = (kolo_kernel_spec){.op = op,
                               .attr = attr ? attr : none,
                               .n_in = n_in,
                               .threads = threads,
                               .select = select_inner};
    for (int i = 0; i < n_in; i++)
        spec->in[i] = kolo_tensor_plain(dtype_of(op, spec->attr, i), in[i]);
    kolo_shape_query query = {.attr = spec->attr, .n_in = n_in, .in = spec->in, .out = spec->out};
    ASSERT_OK(op->shape(&query));
    assert_int_equal(query.n_out, n_out);
    spec->n_out = n_out;
    for (int i = 0; i < n_in; i++) set_layout(&spec->in[i], in_layouts ? in_layouts[i] : NULL);
    for (int i = 0; i < n_out; i++) set_layout(&spec->out[i], out_layouts ? out_layouts[i] : NULL);
}

void test_kernel_in_bf16(kolo_kernel_spec *spec, int kept) {
    kolo_tensor out[KOLO_MAX_IO];
    for (int i = 0; i < spec->n_in; i++) {
        if (i != kept && spec->op->bf16 >> i & 1) spec->in[i].dtype = KOLO_DTYPE_BF16;
    }
    kolo_shape_query query = {.attr = spec->attr, .n_in = spec->n_in, .in = spec->in, .out = out};
    ASSERT_OK(spec->op->shape(&query));
    for (int i = 0; i < spec->n_out; i++) spec->out[i].dtype = out[i].dtype;
}

/* A call with its own buffers, each with a guard behind it. */
typedef struct test_call {
    const kolo_kernel *kernel;
    kolo_call call;
    size_t scratch_bytes;
} test_call;

static void *buffer(size_t bytes) {
    char *p = kolo_alloc(bytes + GUARD);
    assert_non_null(p);
    memset(p, 0x5a, bytes + GUARD);
    return p;
}

static bool untouched(const void *p, size_t from, size_t bytes) {
    const unsigned char *c = p;
    for (size_t i = from; i < from + bytes; i++) {
        if (c[i] != 0x5a) return false;
    }
    return true;
}

static test_call open_call(const kolo_kernel *kernel, const kolo_kernel_spec *spec) {
    test_call b = {.kernel = kernel, .call = {.spec = spec}};
    for (int i = 0; i < spec->n_in; i++) b.call.in[i] = buffer(kolo_tensor_bytes(&spec->in[i]));
    for (int i = 0; i < spec->n_out; i++) b.call.out[i] = buffer(kolo_tensor_bytes(&spec->out[i]));
    inner_reference = NULL;
    if (kernel->prepare) ASSERT_OK(kernel->prepare(spec, &b.call.state, &b.scratch_bytes));
    if (inner_reference && !kolo_kernel_is_ref(kernel)) { /* a fast kernel that only calls it */
        fail_msg("%s has the inner kernel %s", kernel->name, inner_reference->name);
    }
    b.call.scratch = buffer(b.scratch_bytes);
    return b;
}

static void close_call(test_call *b) {
    if (b->kernel->unbind) b->kernel->unbind(b->call.bound);
    if (b->kernel->release) b->kernel->release(b->call.state);
    for (int i = 0; i < b->call.spec->n_in; i++) kolo_free(b->call.in[i]);
    for (int i = 0; i < b->call.spec->n_out; i++) kolo_free(b->call.out[i]);
    kolo_free(b->call.scratch);
}

static void fill_random(const kolo_tensor *t, void *p, uint64_t seed) {
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_TEST, 0);
    bool half = t->dtype == KOLO_DTYPE_BF16;
    assert_true(half || t->dtype == KOLO_DTYPE_F32);
    for (int64_t i = 0; i < kolo_shape_count(&t->shape); i++) {
        float number = (float)kolo_rng_normal(&rng, (uint64_t)i);
        if (half) {
            ((uint16_t *)p)[i] = kolo_bf16_narrow(number);
        } else {
            ((float *)p)[i] = number;
        }
    }
}

/* Fails the test with the kernel and the spec in the message. */
static void fail_call(const test_call *b, const char *what, int i, double value) {
    const kolo_kernel_spec *spec = b->call.spec;
    kolo_text text = {0};
    for (int j = 0; j < spec->n_in + spec->n_out; j++) {
        const kolo_tensor *t = j < spec->n_in ? &spec->in[j] : &spec->out[j - spec->n_in];
        char shape[KOLO_SHAPE_TEXT], layout[KOLO_LAYOUT_TEXT];
        kolo_text_add(&text, "%s%s %s", j == spec->n_in ? " -> " : " ",
                      kolo_shape_text(&t->shape, shape), kolo_layout_text(&t->layout, layout));
    }
    print_error("%s, %d threads:%s\n", b->kernel->name, spec->threads, text.text);
    kolo_text_fini(&text);
    fail_msg("%s: output %d %s (%g)", b->kernel->name, i, what, value);
}

/* The relative L2 distance of two tensors of f32 or bf16. */
static double distance(const kolo_tensor *t, const void *got, const void *expected) {
    size_t n = (size_t)kolo_shape_count(&t->shape);
    if (t->dtype == KOLO_DTYPE_F32) return test_relative_l2_f32(got, expected, n);
    const uint16_t *half[2] = {got, expected};
    float *wide[2];
    for (int k = 0; k < 2; k++) {
        wide[k] = buffer(n * sizeof(float));
        for (size_t i = 0; i < n; i++) wide[k][i] = kolo_bf16_widen(half[k][i]);
    }
    double error = test_relative_l2_f32(wide[0], wide[1], n);
    kolo_free(wide[0]);
    kolo_free(wide[1]);
    return error;
}

/* Compares one output with the reference's, and its padding with zero. */
static void check_output(const test_call *b, int i, const void *expected, double tolerance) {
    const kolo_tensor *t = &b->call.spec->out[i];
    kolo_tensor plain = kolo_tensor_plain(t->dtype, t->shape);
    size_t bytes = kolo_tensor_bytes(t), plain_bytes = kolo_tensor_bytes(&plain);
    void *got = buffer(plain_bytes), *again = buffer(bytes);
    kolo_tensor_reorder(&plain, got, t, b->call.out[i]);
    bool half = t->dtype == KOLO_DTYPE_BF16;
    if (half || t->dtype == KOLO_DTYPE_F32) {
        double error = distance(t, got, expected);
        if (!(error <= tolerance + (half ? 2e-3 : 0))) fail_call(b, "is off by", i, error);
    } else {
        assert_memory_equal(got, expected, plain_bytes);
    }
    kolo_tensor_reorder(t, again, &plain, got); /* padding zero, the rest as it was */
    if (memcmp(again, b->call.out[i], bytes) != 0) {
        fail_call(b, "has padding that is not zero", i, 0);
    }
    if (!untouched(b->call.out[i], bytes, GUARD)) {
        fail_call(b, "is written past its end", i, 0);
    }
    kolo_free(got);
    kolo_free(again);
}

static void run_reference(test_call *ref) {
    if (ref->kernel->bind) ASSERT_OK(ref->kernel->bind(&ref->call));
    ref->kernel->run(&ref->call);
}

void test_kernel_against_reference(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                                   double tolerance) {
    test_kernel_on(kernel, spec, NULL, tolerance);
}

static kolo_kernel_spec plain_spec(const kolo_kernel_spec *spec) {
    kolo_kernel_spec plain = *spec;
    for (int i = 0; i < spec->n_in; i++) {
        plain.in[i].layout = kolo_layout_plain(spec->in[i].shape.rank);
    }
    for (int i = 0; i < spec->n_out; i++) {
        plain.out[i].layout = kolo_layout_plain(spec->out[i].shape.rank);
    }
    return plain;
}

/* Runs the kernel of `own` again with the output in place of each input that it may overwrite:
 * the same bits. */
static void check_overwriting(const test_call *own) {
    const kolo_kernel_spec *spec = own->call.spec;
    int w = spec->op->overwriter;
    for (int k = 0; k < spec->n_in && w < spec->n_out; k++) {
        size_t bytes = kolo_tensor_bytes(&spec->out[w]);
        if (!(spec->op->overwrite >> k & 1) || kolo_tensor_bytes(&spec->in[k]) != bytes) continue;
        if (spec->in[k].dtype != spec->out[w].dtype) continue;
        test_call over = open_call(own->kernel, spec);
        void *apart = over.call.out[w];
        for (int i = 0; i < spec->n_in; i++) {
            memcpy(over.call.in[i], own->call.in[i], kolo_tensor_bytes(&spec->in[i]));
        }
        over.call.out[w] = over.call.in[k];
        if (over.kernel->bind) ASSERT_OK(over.kernel->bind(&over.call));
        over.kernel->run(&over.call);
        for (int i = 0; i < spec->n_out; i++) {
            size_t each = kolo_tensor_bytes(&spec->out[i]);
            if (memcmp(over.call.out[i], own->call.out[i], each) != 0) {
                fail_call(own, "differs where an output lies on input", i, k);
            }
        }
        over.call.out[w] = apart;
        close_call(&over);
    }
}

void test_kernel_on(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                    const void *const *inputs, double tolerance) {
    kolo_kernel_spec plain = plain_spec(spec);
    const kolo_kernel *reference = NULL;
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &plain, &reference, NULL));
    test_call ref = open_call(reference, &plain), own = open_call(kernel, spec);
    for (int i = 0; i < spec->n_in; i++) {
        if (inputs && inputs[i]) {
            memcpy(ref.call.in[i], inputs[i], kolo_tensor_bytes(&plain.in[i]));
        } else {
            fill_random(&plain.in[i], ref.call.in[i], (uint64_t)i + 1);
        }
        kolo_tensor_reorder(&spec->in[i], own.call.in[i], &plain.in[i], ref.call.in[i]);
    }
    run_reference(&ref);

    if (kernel->bind) ASSERT_OK(kernel->bind(&own.call));
    for (int i = 0; i < spec->n_out; i++) {
        assert_true(untouched(own.call.out[i], 0, kolo_tensor_bytes(&spec->out[i]) + GUARD));
    }
    for (int round = 0; round < 2; round++) {
        memset(own.call.scratch, round ? 0xff : 0x5a, own.scratch_bytes); /* 0xff: NaN */
        for (int i = 0; i < spec->n_out; i++) {
            memset(own.call.out[i], round ? 0xff : 0x5a, kolo_tensor_bytes(&spec->out[i]));
        }
        kernel->run(&own.call);
        for (int i = 0; i < spec->n_out; i++) check_output(&own, i, ref.call.out[i], tolerance);
    }
    assert_true(untouched(own.call.scratch, own.scratch_bytes, GUARD));
    check_overwriting(&own);
    for (int i = 0; i < spec->n_in; i++) { /* inputs are as they were */
        size_t bytes = kolo_tensor_bytes(&spec->in[i]);
        void *before = buffer(bytes);
        kolo_tensor_reorder(&spec->in[i], before, &plain.in[i], ref.call.in[i]);
        assert_memory_equal(before, own.call.in[i], bytes);
        kolo_free(before);
    }
    close_call(&own);
    close_call(&ref);
}

void test_kernel_fitting(const kolo_kernel *kernel, kolo_kernel_spec *spec,
                         const void *const *inputs, double tolerance) {
    assert_true(kernel->fit(spec) >= 0);
    test_kernel_on(kernel, spec, inputs, tolerance);
}

int32_t *test_integers(int64_t count, int64_t from, int64_t below, uint64_t seed) {
    static int32_t numbers[4096];
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_TEST, 0);
    assert_in_range(count, 1, KOLO_COUNT(numbers));
    for (int64_t i = 0; i < count; i++) {
        numbers[i] =
            (int32_t)(from + (int64_t)kolo_rng_below(&rng, (uint64_t)i, (uint64_t)(below - from)));
    }
    return numbers;
}

static void *output_of(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                       const void *const *inputs, int output) {
    test_call own = open_call(kernel, spec);
    for (int i = 0; i < spec->n_in; i++) {
        kolo_tensor plain = kolo_tensor_plain(spec->in[i].dtype, spec->in[i].shape);
        void *numbers = buffer(kolo_tensor_bytes(&plain));
        if (inputs && inputs[i]) {
            memcpy(numbers, inputs[i], kolo_tensor_bytes(&plain));
        } else {
            fill_random(&plain, numbers, (uint64_t)i + 1);
        }
        kolo_tensor_reorder(&spec->in[i], own.call.in[i], &plain, numbers);
        kolo_free(numbers);
    }
    if (kernel->bind) ASSERT_OK(kernel->bind(&own.call));
    kernel->run(&own.call);
    void *result = own.call.out[output];
    own.call.out[output] = NULL;
    close_call(&own);
    return result;
}

void *test_kernel_result(const kolo_kernel *kernel, const kolo_kernel_spec *spec) {
    return output_of(kernel, spec, NULL, 0);
}

void *test_kernel_result_on(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                            const void *const *inputs) {
    return output_of(kernel, spec, inputs, 0);
}

void *test_kernel_output(const kolo_kernel *kernel, const kolo_kernel_spec *spec, int output) {
    return output_of(kernel, spec, NULL, output);
}

double test_kernel_error(const kolo_kernel *kernel, const kolo_kernel_spec *spec) {
    kolo_kernel_spec plain = plain_spec(spec);
    const kolo_kernel *reference = NULL;
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &plain, &reference, NULL));
    float *own = test_kernel_result(kernel, spec),
          *expected = test_kernel_result(reference, &plain);
    size_t bytes = kolo_tensor_bytes(&plain.out[0]);
    float *got = buffer(bytes);
    kolo_tensor_reorder(&plain.out[0], got, &spec->out[0], own);
    double error = test_relative_l2_f32(got, expected, bytes / sizeof(float));
    kolo_free(own);
    kolo_free(expected);
    kolo_free(got);
    return error;
}

void test_each_set(void (*body)(int threads)) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (int threads = 1; threads <= 3; threads += 2) {
            if (TEST_FEWER(isa % 2 != threads / 2, false)) continue;
            body(threads);
        }
    }
    kolo_isa_pin(-1);
}
