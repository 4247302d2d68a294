/* ONNX export: networks that are exported and read again give the same logits. */
#include "support/support.h"

#ifdef KOLO_HAS_ONNX

#include "base/compiler.h"
#include "kolo/kolo.h"
#include "support/fewer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "test_onnx_export.onnx"

typedef struct net {
    const char *model, *options;
    kolo_shape sample;
    int64_t classes;
    bool tokens;
    int64_t values; /* logits of a sample */
    bool large;     /* files of more than 100 MB */
    int32_t mask;   /* all tokens are this one, which masking leaves as it is; 0: they are not */
} net;

/* Normalized groups, and layers in both directions with a state. */
static kolo_status build_recurrent(kolo_graph *g, int64_t samples, const net *n) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_3(samples, 5, 6));
    kolo_recurrent_opts both = {.bidirectional = true, .use_state = true};
    x = kolo_group_norm(g, x, "group", 1, 0);
    x = kolo_instance_norm(g, x, NULL, 1e-3);
    both.h = both.c = kolo_tanh(g, kolo_reduce_mean(g, x, (int[]){1}, 1, false));
    kolo_value h = kolo_gru(g, x, "gru", 0, 3, &both);
    h = kolo_lstm_opts(g, h, "lstm", 0, 3, &both);
    h = kolo_gru(g, h, "last", 0, n->classes, &(kolo_recurrent_opts){.reverse = true});
    h = kolo_slice(g, h, 1, 0, 1);
    kolo_output(g, "logits", kolo_reshape(g, h, kolo_shape_2(samples, n->classes)));
    return kolo_graph_check(g);
}

static kolo_status build(kolo_graph *g, int64_t samples, void *arg) {
    const net *n = arg;
    const kolo_model *model;
    if (!n->model) return build_recurrent(g, samples, n);
    const kolo_model_opts opts = {samples, n->sample, n->classes, n->options};
    kolo_status status = kolo_model_find(n->model, &model);
    return status == KOLO_OK ? kolo_model_add(model, g, &opts) : status;
}

enum { BATCH = 3, MOST = 1 << 17, DLRM_TABLES = 10 };

/* What is trained: the parameters, not the masks of attention. */
static int64_t trained(kolo_status (*builder)(kolo_graph *, int64_t, void *), void *arg) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(builder(g, BATCH, arg));
    int64_t n = kolo_graph_parameters(g);
    kolo_graph_destroy(g);
    return n;
}

/* The logits of a session for the same samples. A net that `masks` tokens reads labels for that. */
static void predict(kolo_session *s, const net *n, bool masks, float *logits, kolo_shape *shape) {
    static int32_t ids[MOST];
    static float image[MOST];
    for (int k = 0; k < MOST; k++) {
        ids[k] = n->mask ? n->mask : (int32_t)(k * 7 % n->classes);
        image[k] = (float)(k * 37 % 101) / 50 - 1;
    }
    kolo_field fields[] = {
        {.name = "x", .dtype = n->tokens ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32, .shape = n->sample},
        {.name = "y", .dtype = KOLO_DTYPE_I32, .shape = n->sample}};
    kolo_batch batch = {.count = BATCH, .n_fields = 1 + (n->mask && masks), .fields = fields};
    batch.data[0] = n->tokens ? (const void *)ids : image;
    batch.data[1] = ids;
    if (n->model && strcmp(n->model, "dlrm") == 0) {
        fields[1] = (kolo_field){
            .name = "ids", .dtype = KOLO_DTYPE_I32, .shape = kolo_shape_1(DLRM_TABLES)};
        batch.n_fields = 2;
    }
    ASSERT_OK(kolo_session_predict(s, &batch, "logits", logits,
                                   BATCH * (size_t)n->values * sizeof *logits, shape));
}

static void exported_nets_give_the_same_logits(void **state) {
    static net nets[] = {
        {"mlp", "hidden=16", {3, {1, 8, 8}}, 5, false, 5, false, 0},
        {"lenet", "", {3, {1, 28, 28}}, 10, false, 10, false, 0},
        {"resnet20", "", {3, {3, 16, 16}}, 10, false, 10, false, 0},
        {"alexnet", "", {3, {3, 64, 64}}, 4, false, 4, true, 0},
        {"googlenet", "aux=0", {3, {3, 64, 64}}, 4, false, 4, false, 0},
        {"mobilenet_v2", "", {3, {3, 32, 32}}, 4, false, 4, false, 0},
        {"vit_tiny", "patch=7", {3, {1, 28, 28}}, 10, false, 10, false, 0},
        {"gpt2_tiny", "", {1, {64}}, 256, true, 128 * 256, false, 0},
        {"bert_tiny",
         "vocab=128,mask=3,percent=1,context=32",
         {1, {32}},
         128,
         true,
         32 * 128,
         false,
         3},
        {"lstm_lm",
         "layers=2,hidden=16,width=16,context=8,vocab=256",
         {1, {8}},
         256,
         true,
         8 * 256,
         false,
         0},
        {NULL, "", {2, {5, 6}}, 4, false, 4, false, 0},
        {"llama_tiny", "layers=2", {1, {64}}, 256, true, 128 * 256, false, 0},
        {"dlrm",
         "tables=10,rows=7,dim=4,dense=3,bottom1=8,bottom2=0,bottom3=5,top1=6",
         {1, {3}},
         60,
         false,
         1,
         false,
         0},
        {"deeplabv3_resnet101", "", {3, {3, 33, 33}}, 3, false, 3 * 33 * 33, true, 0},
    };
    static float first[MOST], second[MOST];
    const kolo_session_opts opts = {.batch = BATCH, .evaluate_only = true, .seed = 5};
    for (size_t i = 0; i < KOLO_COUNT(nets); i++) {
        net *n = &nets[i];
        if (TEST_FEWER(n->large, false)) continue;
        kolo_session *s;
        kolo_onnx *onnx;
        kolo_shape shape, again;
        const kolo_model *model = NULL;
        if (n->model) ASSERT_OK(kolo_model_find(n->model, &model));
        if (n->tokens) ASSERT_OK(kolo_model_sample(model, n->options, &n->sample, &n->classes));
        ASSERT_OK(kolo_session_create(NULL, &opts, build, n, &s));
        predict(s, n, true, first, &shape);
        ASSERT_OK(kolo_session_export_onnx(s, FILE_NAME));
        kolo_session_destroy(s);
        ASSERT_OK(kolo_onnx_open(FILE_NAME, NULL, &onnx));
        ASSERT_OK(kolo_session_create(NULL, &opts, kolo_onnx_build, onnx, &s));
        predict(s, n, false, second, &again);
        assert_true(kolo_shape_equal(&shape, &again));
        assert_int_equal(trained(kolo_onnx_build, onnx), trained(build, n));
        for (int64_t k = 0; k < kolo_shape_count(&shape); k++) {
            if (fabsf(first[k] - second[k]) <= 1e-4f * (1 + fabsf(first[k]))) continue;
            fail_msg("%s: logit %lld is %g, not %g", n->model ? n->model : "recurrent",
                     (long long)k, (double)second[k], (double)first[k]);
        }
        kolo_session_destroy(s);
        kolo_onnx_close(onnx);
    }
    unlink(FILE_NAME);
}

static kolo_status build_even_lrn(kolo_graph *g, int64_t samples, void *arg) {
    const kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(samples, 4, 3, 2));
    const kolo_value y = kolo_lrn(g, x, &(kolo_lrn_opts){.size = 2});
    kolo_output(g, "logits", y);
    kolo_output(g, "loss", kolo_sum(g, y));
    return KOLO_OK;
}

/* An even window of ONNX is another one: no file that computes something else. */
static void an_even_lrn_is_refused(void **state) {
    const kolo_session_opts opts = {.batch = BATCH, .evaluate_only = true};
    kolo_session *s;
    ASSERT_OK(kolo_session_create(NULL, &opts, build_even_lrn, NULL, &s));
    assert_int_equal(kolo_session_export_onnx(s, FILE_NAME), KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "lrn over 2 channels cannot be exported"));
    assert_int_not_equal(access(FILE_NAME, F_OK), 0);
    kolo_session_destroy(s);
}

TEST_MAIN(test_onnx_export) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exported_nets_give_the_same_logits),
        cmocka_unit_test(an_even_lrn_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

TEST_MAIN(test_onnx_export) {
    printf("skip: built without ONNX\n");
    return 77;
}

#endif
