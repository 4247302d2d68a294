/* Mixed precision: what is bf16 and what stays f32, conversions, and training whose losses stay
 * near those of f32 over many steps. */
#include "base/bf16.h"
#include "base/isa.h"
#include "data/prefetch.h"
#include "kernel/select/families.h"
#include "kolo/models.h"
#include "pass/mix_labels.h"
#include "pass/pass.h"
#include "support/fewer.h"
#include "support/graph_eval.h"
#include "support/kernel_check.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int steps(void) { return getenv("KOLO_SOAK") ? 200 : TEST_FEWER(20, 80); }

/* ---- numbers ---- */

static void numbers_round_to_nearest_even(void **state) {
    static const struct {
        float number;
        uint16_t half;
    } cases[] = {
        {0.0F, 0x0000},
        {-0.0F, 0x8000},
        {1.0F, 0x3F80},
        {1.00390625F, 0x3F80} /* half way: down */,
        {1.01171875F, 0x3F82} /* half way: up */,
        {1.00390637F, 0x3F81},
        {3.4028235e38F, 0x7F80},
        {-INFINITY, 0xFF80},
        {1e-45F, 0x0000},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        assert_int_equal(kolo_bf16_narrow(cases[i].number), cases[i].half);
    }
    assert_true(isnan(kolo_bf16_widen(kolo_bf16_narrow(NAN))));
    for (uint32_t half = 0; half < 0x10000; half++) {
        float wide = kolo_bf16_widen((uint16_t)half);
        if (!isnan(wide)) assert_int_equal(kolo_bf16_narrow(wide), half);
    }
}

/* Every instruction set converts as the scalar functions do, the reference too. */
static void kernels_convert_alike(void **state) {
    enum { N = 77 };
    static const kolo_dtype to[] = {KOLO_DTYPE_BF16, KOLO_DTYPE_F32};
    float numbers[N], widened[N];
    uint16_t halves[N];
    for (int i = 0; i < N; i++) numbers[i] = (float)(i - 30) * 1.2345F;
    for (int i = 0; i < 6 * ((int)kolo_isa_best() + 1); i++) {
        bool ref = i % 3 == 0;
        kolo_isa_pin(i / 6);
        for (int d = 0; d < 2; d++) {
            const kolo_kernel *kernel = test_kernel(ref ? "ref_convert" : "simd_convert");
            kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CONVERT_DTYPE].i = to[d]};
            kolo_kernel_spec spec = {
                .op = &kolo_op_convert, .attr = attr, .n_in = 1, .n_out = 1, .threads = 1 + i % 2};
            spec.in[0] = kolo_tensor_plain(to[!d], kolo_shape_1(N));
            spec.out[0] = kolo_tensor_plain(to[d], kolo_shape_1(N));
            kolo_call call = {.spec = &spec,
                              .in = {d ? (void *)halves : numbers},
                              .out = {d ? (void *)widened : halves}};
            size_t scratch;
            assert_true(kernel->fit(&spec) >= 0);
            ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch));
            call.scratch = kolo_alloc(scratch + 1);
            kernel->run(&call);
            kolo_free(call.scratch);
            if (call.state) kernel->release(call.state);
        }
        for (int k = 0; k < N; k++) {
            assert_int_equal(halves[k], kolo_bf16_narrow(numbers[k]));
            assert_true(widened[k] == kolo_bf16_widen(halves[k]));
        }
    }
    kolo_isa_pin(-1);
}

/* ---- the pass ---- */

static kolo_graph *lenet_in_bf16(bool train, bool mixes) {
    kolo_graph *g;
    const kolo_model *model;
    kolo_model_opts how = {.batch = 2, .sample = {3, {1, 28, 28}}, .classes = 10};
    kolo_pipeline_opts opts = {.train = train,
                               .precision = KOLO_PRECISION_BF16,
                               .kernels = KOLO_KERNELS_REF,
                               .bucket_bytes = 1};
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(kolo_model_find("lenet", &model));
    ASSERT_OK(model->build(g, &how));
    if (mixes) ASSERT_OK(kolo_pass_mix_labels(g, "target"));
    ASSERT_OK(kolo_pipeline_run(g, &opts));
    return g;
}

/* Parameters and their gradients are f32; a parameter that is multiplied is narrowed once, for all
 * its readers, where kernels multiply bf16. */
static void check_parameters(const kolo_graph *g, bool multiplies) {
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_PARAM) continue;
        int narrowed = 0;
        for (int32_t i = 0; i < g->n_nodes; i++) {
            const kolo_node *n = g->nodes[i];
            narrowed += n->op == &kolo_op_convert && n->in[0].id == v;
        }
        assert_int_equal(info->tensor.dtype, KOLO_DTYPE_F32);
        assert_int_equal(kolo_info(g, info->grad)->tensor.dtype, KOLO_DTYPE_F32);
        assert_int_equal(narrowed, multiplies && info->tensor.shape.rank > 1);
    }
}

/* Activations and their gradients are bf16; losses are f32. */
static void check_activations(const kolo_graph *g) {
    int halves = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        kolo_dtype out = kolo_info(g, n->out[0])->tensor.dtype;
        if (n->op == &kolo_op_max_pool2d || n->op == &kolo_op_max_pool2d_bwd ||
            n->op == &kolo_op_linear || n->op == &kolo_op_linear_bwd_data) {
            assert_int_equal(out, KOLO_DTYPE_BF16);
            halves++;
        }
    }
    assert_true(halves >= 6);
    assert_int_equal(kolo_info(g, kolo_graph_output(g, "loss"))->tensor.dtype, KOLO_DTYPE_F32);
    assert_false(kolo_value_ok(kolo_graph_output(g, "logits"))); /* which a step does not report */
}

static void types_are_where_they_belong(void **state) {
    kolo_graph *g;
    for (int multiplies = 0; multiplies < 2; multiplies++) {
        kolo_kernel_pin_bf16(multiplies);
        if (kolo_kernel_has_bf16() != multiplies) continue; /* a processor that does */
        g = lenet_in_bf16(true, false);
        check_parameters(g, multiplies);
        check_activations(g);
        kolo_graph_destroy(g);
    }
    kolo_kernel_pin_bf16(false);
    g = lenet_in_bf16(false, false);
    assert_int_equal(kolo_info(g, kolo_graph_output(g, "logits"))->tensor.dtype, KOLO_DTYPE_F32);
    kolo_graph_destroy(g);
}

/* The logarithm of a softmax, of which a loss of soft labels consists, is f32, as is its gradient:
 * of logits that bf16 represents the loss has the digits of f32. */
static void logarithms_of_probabilities_are_f32(void **state) {
    enum { ROWS = 2, CLASSES = 5 };
    static const float logits[ROWS * CLASSES] = {0.5F, 6, 0.125F, 3, 1.5F, 9, 0.25F, 0.75F, 4, 2};
    static const float target[ROWS * CLASSES] = {0.3F, 0.7F, 0, 0, 0, 0, 0, 0.1F, 0, 0.9F};
    kolo_graph *g;
    graph_eval e;
    double want = 0;
    int found = 0;
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int c = 0; c < CLASSES; c++) sum += exp((double)logits[r * CLASSES + c]);
        for (int c = 0; c < CLASSES; c++) {
            const int i = r * CLASSES + c;
            want -= (double)target[i] * ((double)logits[i] - log(sum));
        }
    }
    ASSERT_OK(kolo_graph_create(NULL, &g));
    const kolo_shape shape = kolo_shape_2(ROWS, CLASSES);
    const kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, shape);
    const kolo_value t = kolo_input(g, "target", KOLO_DTYPE_F32, shape);
    const kolo_value twice = kolo_relu(g, kolo_relu(g, x)); /* what reads a relu reads bf16 */
    kolo_output(g, "loss", kolo_soft_xent(g, twice, t));
    ASSERT_OK(kolo_graph_check(g));
    ASSERT_OK(kolo_pass_precision(g, false));
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        const kolo_dtype out = kolo_info(g, n->out[0])->tensor.dtype;
        found += n->op == &kolo_op_relu && out == KOLO_DTYPE_BF16;
        if (n->op != &kolo_op_softmax) continue;
        assert_int_equal(kolo_info(g, n->in[0])->tensor.dtype, KOLO_DTYPE_F32);
        assert_int_equal(out, KOLO_DTYPE_F32);
        found++;
    }
    assert_int_equal(found, 2);
    ASSERT_OK(graph_eval_init(&e, g, KOLO_KERNELS_REF));
    memcpy(graph_eval_f32(&e, x), logits, sizeof logits);
    memcpy(graph_eval_f32(&e, t), target, sizeof target);
    graph_eval_run(&e, g->n_nodes);
    const double loss = (double)graph_eval_f32(&e, kolo_graph_output(g, "loss"))[0];
    if (!(fabs(loss - want) < 1e-6 * want)) fail_msg("%.9g, not %.9g", loss, want);
    graph_eval_fini(&e);
    kolo_graph_destroy(g);

    found = 0;
    g = lenet_in_bf16(true, true);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op != &kolo_op_softmax && n->op != &kolo_op_softmax_bwd) continue;
        assert_int_equal(kolo_info(g, n->out[0])->tensor.dtype, KOLO_DTYPE_F32);
        found++;
    }
    assert_int_equal(found, 2);
    kolo_graph_destroy(g);
}

/* ---- training ---- */

typedef struct setting {
    const char *model, *options;
    int64_t batch;
    kolo_kernel_set kernels;
    kolo_precision precision;
    kolo_dataset_opts windows; /* of models of tokens */
} setting;

/* The mean loss over all steps. */
static double train(const setting *s) {
    kolo_dataset *data;
    kolo_loader *loader;
    kolo_session *session;
    double sum = 0;
    if (s->windows.context > 0) {
        ASSERT_OK(kolo_dataset_open_for("synthetic-tokens:N=256,test=1", KOLO_SPLIT_TRAIN,
                                        &s->windows, &data));
    } else {
        ASSERT_OK(kolo_dataset_open("synthetic:N=256,test=1", KOLO_SPLIT_TRAIN, &data));
    }
    kolo_loader_opts batches = {
        .dataset = data, .global_batch = s->batch, .seed = 3, .end = steps()};
    ASSERT_OK(kolo_loader_create(&batches, &loader));
    kolo_session_config opts = {
        .model = s->model,
        .model_options = s->options,
        .sample = kolo_dataset_describe(data)->fields[KOLO_FIELD_X].shape,
        .label = kolo_dataset_describe(data)->fields[KOLO_FIELD_Y].shape,
        .classes = kolo_dataset_describe(data)->classes,
        .batch = s->batch,
        .plan = {.kernels = s->kernels, .precision = s->precision, .optimizer.momentum = 0.9},
    };
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    ASSERT_OK(kolo_session_init(session, 3));
    for (int k = 0; k < steps(); k++) {
        kolo_batch batch;
        kolo_sums sums;
        ASSERT_OK(kolo_loader_next(loader, &batch));
        ASSERT_OK(kolo_session_step_batch(session, &batch, 0.01, &sums));
        sum += sums.metric[KOLO_METRIC_LOSS] / (double)sums.samples / steps();
    }
    kolo_session_destroy(session);
    kolo_loader_destroy(loader);
    kolo_dataset_close(data);
    return sum;
}

/* `multiplies`: kernels compute in bf16, if by emulation, else they keep tensors in it alone. */
static void check_losses(bool multiplies) {
    static const struct {
        const char *model, *options;
        kolo_kernel_set kernels;
        int64_t batch, context;
    } cases[] = {
        {"mlp", "", KOLO_KERNELS_REF, 16, 0},
        {"mlp", "", KOLO_KERNELS_BEST, 16, 0},
        {"lenet", "", KOLO_KERNELS_REF, 8, 0},
        {"lenet", "", KOLO_KERNELS_BEST, 16, 0},
        {"resnet20", "width=4", KOLO_KERNELS_BEST, 16, 0},
        {"gpt2_tiny", "layers=2,width=32,heads=2,context=16,vocab=64", KOLO_KERNELS_BEST, 8, 16},
        {"lstm_lm", "width=32,hidden=32,context=16,vocab=64", KOLO_KERNELS_BEST, 8, 16},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = {.model = cases[i].model,
                     .options = cases[i].options,
                     .kernels = cases[i].kernels,
                     .batch = cases[i].batch,
                     .windows = {.context = cases[i].context, .vocabulary = 64}};
        if (multiplies && s.kernels == KOLO_KERNELS_REF) continue;
        double full = train(&s);
        s.precision = KOLO_PRECISION_BF16;
        kolo_kernel_pin_bf16(multiplies);
        double half = train(&s);
        kolo_kernel_pin_bf16(false);
        printf("%s, kernels %d: %.4f in f32, %.4f in bf16\n", s.model, (int)s.kernels, full, half);
        if (!(fabs(half - full) < 0.03 * full) || half == full) {
            fail_msg("%s, kernels %d: %g in f32, %g in bf16", s.model, (int)s.kernels, full, half);
        }
    }
}

static void losses_stay_near_those_of_f32(void **state) { check_losses(false); }

static void losses_stay_near_where_bf16_is_multiplied(void **state) {
    if (kolo_isa_best() < KOLO_ISA_AVX512) {
        puts("skip: no AVX-512");
        skip();
    }
    check_losses(true);
}

static void a_processor_without_vectors_has_none(void **state) {
    assert_int_equal(kolo_kernel_check_bf16(KOLO_ISA_BASELINE), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "use f32"));
    ASSERT_OK(kolo_kernel_check_bf16(KOLO_ISA_AVX2));
    ASSERT_OK(kolo_kernel_check_bf16(KOLO_ISA_AVX512));
}

TEST_MAIN(test_precision) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_round_to_nearest_even),
        cmocka_unit_test(kernels_convert_alike),
        cmocka_unit_test(types_are_where_they_belong),
        cmocka_unit_test(logarithms_of_probabilities_are_f32),
        cmocka_unit_test(losses_stay_near_those_of_f32),
        cmocka_unit_test(losses_stay_near_where_bf16_is_multiplied),
        cmocka_unit_test(a_processor_without_vectors_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
