/* ONNX import: networks of PyTorch give ONNX Runtime's outputs; what cannot be read is named in one
 * line. */
#include "support/support.h"

#ifdef KOLO_HAS_ONNX

#include "base/memory.h"
#include "base/text.h"
#include "graph/graph.h"
#include "kolo/kolo.h"
#include "onnx/import/file.h"
#include "support/onnx_case.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NETS KOLO_SOURCE_DIR "/tests/onnx/nets/"

static void nets_give_the_outputs_of_onnx_runtime(void **state) {
    static const char *const nets[] = {"mlp",      "cnn",     "vit",       "gpt",      "rnn",
                                       "video",    "resized", "attention", "upsample", "constants",
                                       "windows",  "buffers", "bicubic",   "cells",    "scores",
                                       "selected", "losses",  "lengths"};
    for (size_t i = 0; i < KOLO_COUNT(nets); i++) {
        char op[ONNX_CASE_OP], *folder = kolo_format(NETS "%s", nets[i]);
        ASSERT_OK(onnx_case_run(folder, 1e-5, op));
        kolo_free(folder);
    }
}

/* ---- sessions ---- */

static void sessions_begin_with_the_weights_of_the_file(void **state) {
    kolo_onnx *net;
    kolo_session *s;
    kolo_shape shape;
    float x[8 * 64], logits[8 * 4], again[3 * 4];
    for (int k = 0; k < 8 * 64; k++) x[k] = (float)(k % 7) / 7;
    ASSERT_OK(kolo_onnx_open(NETS "cnn/model.onnx", NULL, &net));
    const kolo_session_opts opts = {.batch = 8};
    ASSERT_OK(kolo_session_create(NULL, &opts, kolo_onnx_build, net, &s));
    kolo_field fields[] = {{.name = "x", .dtype = KOLO_DTYPE_F32, .shape = {3, {1, 8, 8}}}};
    kolo_batch batch = {.count = 8, .n_fields = 1, .fields = fields, .data = {x}};
    ASSERT_OK(kolo_session_predict(s, &batch, "logits", logits, sizeof logits, &shape));
    batch.count = 3; /* other sizes of the batch have the same parameters */
    ASSERT_OK(kolo_session_predict(s, &batch, "logits", again, sizeof again, &shape));
    assert_true(shape.rank == 2 && shape.dim[0] == 3 && shape.dim[1] == 4);
    for (int k = 0; k < 12; k++) assert_true(fabsf(again[k] - logits[k]) < 1e-5f);
    float mean[4];
    ASSERT_OK(kolo_session_get(s, "first.1.running_mean", mean, sizeof mean));
    assert_true(mean[0] != 0 && fabsf(mean[0]) <= 0.5f);
    kolo_session_destroy(s);
    kolo_onnx_close(net);
}

/* The number of samples may equal another dimension: the three of q, k, v, or a 1. */
static void any_number_of_samples_gives_the_same_nodes(void **state) {
    static const char *const nets[] = {"cnn",       "vit",      "gpt",     "rnn",     "video",
                                       "attention", "windows",  "buffers", "bicubic", "cells",
                                       "scores",    "selected", "lengths"};
    for (size_t i = 0; i < KOLO_COUNT(nets); i++) {
        kolo_onnx *net;
        kolo_graph *want, *got;
        char *path = kolo_format(NETS "%s/model.onnx", nets[i]);
        ASSERT_OK(kolo_onnx_open(path, NULL, &net));
        ASSERT_OK(kolo_graph_create(NULL, &want));
        ASSERT_OK(kolo_onnx_build(want, 11, net));
        for (int64_t n = 1; n < 9; n++) {
            ASSERT_OK(kolo_graph_create(NULL, &got));
            ASSERT_OK(kolo_onnx_build(got, n, net));
            if (got->n_nodes != want->n_nodes) fail_msg("%s, %d samples", nets[i], (int)n);
            for (int32_t k = 0; k < want->n_nodes; k++) {
                assert_ptr_equal(got->nodes[k]->op, want->nodes[k]->op);
            }
            kolo_graph_destroy(got);
        }
        kolo_graph_destroy(want);
        kolo_onnx_close(net);
        kolo_free(path);
    }
}

/* What a file states to be no parameter is frozen: buffers, constants, and what the exporter has
 * computed from them. */
static void buffers_and_constants_are_frozen(void **state) {
    static const char *const trained[] = {"first.weight", "first.bias", "head.weight", "head.bias"};
    kolo_onnx *net;
    kolo_graph *g;
    int n_trained = 0, n_frozen = 0;
    ASSERT_OK(kolo_onnx_open(NETS "buffers/model.onnx", NULL, &net));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(kolo_onnx_build(g, 3, net));
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_PARAM) continue;
        n_frozen += info->frozen;
        n_trained += !info->frozen;
    }
    for (size_t i = 0; i < KOLO_COUNT(trained); i++) {
        const kolo_value v = kolo_graph_find(g, trained[i]);
        assert_true(kolo_value_ok(v) && !kolo_info(g, v)->frozen);
    }
    assert_int_equal(n_trained, KOLO_COUNT(trained));
    assert_true(n_frozen >= 2); /* shift, factors */
    kolo_graph_destroy(g);
    kolo_onnx_close(net);
}

/* Of files that name their parameters, where the exporter has folded some: transposed weights are
 * trained, factors of attention are not; a notice lists them. */
static void what_the_exporter_computes_is_trained(void **state) {
    static const char *const trained[] = {"val_12", "encoder.layers.0.self_attn.in_proj_bias"};
    kolo_onnx *net;
    kolo_graph *g;
    ASSERT_OK(kolo_onnx_open(NETS "vit/model.onnx", NULL, &net));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(kolo_onnx_build(g, 3, net));
    for (size_t i = 0; i < KOLO_COUNT(trained); i++) {
        const kolo_value v = kolo_graph_find(g, trained[i]);
        assert_true(kolo_value_ok(v) && !kolo_info(g, v)->frozen);
    }
    const kolo_value scale = kolo_graph_find(g, "val_80");
    assert_true(!kolo_value_ok(scale) || kolo_info(g, scale)->frozen);
    assert_non_null(kolo_onnx_notice(net));
    assert_non_null(strstr(kolo_onnx_notice(net), "val_12"));
    assert_null(strstr(kolo_onnx_notice(net), "val_80"));
    assert_non_null(strstr(kolo_onnx_notice(net), "self_attn.in_proj_weight"));
    kolo_graph_destroy(g);
    kolo_onnx_close(net);
    ASSERT_OK(kolo_onnx_open(NETS "buffers/model.onnx", NULL, &net));
    assert_null(kolo_onnx_notice(net));
    kolo_onnx_close(net);
}

static void predict(kolo_onnx *net, int64_t n, const float *x, float *logits) {
    const kolo_session_opts opts = {.batch = n, .evaluate_only = true};
    kolo_field fields[] = {{.name = "x", .dtype = KOLO_DTYPE_F32, .shape = {3, {1, 8, 8}}}};
    kolo_batch batch = {.count = n, .n_fields = 1, .fields = fields, .data = {x}};
    kolo_session *s;
    ASSERT_OK(kolo_session_create(NULL, &opts, kolo_onnx_build, net, &s));
    ASSERT_OK(
        kolo_session_predict(s, &batch, "logits", logits, (size_t)n * 4 * sizeof *logits, NULL));
    kolo_session_destroy(s);
}

/* The windows of all samples are one dimension, and slices of each are assigned. */
static void windows_of_several_samples_are_theirs(void **state) {
    kolo_onnx *net;
    float x[3 * 64], together[3 * 4], alone[4];
    for (int k = 0; k < 3 * 64; k++) x[k] = (float)(k * k % 17) / 8 - 1;
    ASSERT_OK(kolo_onnx_open(NETS "windows/model.onnx", NULL, &net));
    predict(net, 3, x, together);
    for (int64_t i = 0; i < 3; i++) {
        predict(net, 1, x + i * 64, alone);
        for (int k = 0; k < 4; k++) assert_true(fabsf(alone[k] - together[i * 4 + k]) < 1e-5F);
    }
    kolo_onnx_close(net);
}

/* ---- errors ---- */

/* A graph y = Relu(x) + w of [1,2], which each case damages. */
typedef struct small_net {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    Onnx__NodeProto node[2], *nodes[2];
    Onnx__TensorProto w, *initializers[1];
    Onnx__ValueInfoProto x, y, *inputs[1], *outputs[1];
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dim[2], *dims[2];
    Onnx__AttributeProto attribute, *attributes[1];
    Onnx__StringStringEntryProto entry, *entries[1];
    char *in0[1], *out0[1], *in1[2], *out1[1];
    int64_t w_dims[2], shape_data[3];
    float w_data[2];
} small_net;

static void make(small_net *n) {
    memset(n, 0, sizeof *n);
    onnx__model_proto__init(&n->model);
    onnx__graph_proto__init(&n->graph);
    onnx__operator_set_id_proto__init(&n->opset);
    onnx__tensor_proto__init(&n->w);
    onnx__value_info_proto__init(&n->x);
    onnx__value_info_proto__init(&n->y);
    onnx__type_proto__init(&n->type);
    onnx__type_proto__tensor__init(&n->tensor);
    onnx__tensor_shape_proto__init(&n->shape);
    onnx__attribute_proto__init(&n->attribute);
    onnx__string_string_entry_proto__init(&n->entry);
    for (int k = 0; k < 2; k++) {
        onnx__node_proto__init(&n->node[k]);
        onnx__tensor_shape_proto__dimension__init(&n->dim[k]);
        n->dim[k].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        n->dim[k].dim_value = k + 1;
        n->nodes[k] = &n->node[k];
        n->dims[k] = &n->dim[k];
        n->w_data[k] = (float)k;
        n->w_dims[k] = k + 1;
    }
    n->model.graph = &n->graph;
    n->model.n_opset_import = 1;
    n->model.opset_import = n->opsets;
    n->opsets[0] = &n->opset;
    n->opset.has_version = 1;
    n->opset.version = 18;
    n->graph.n_node = 2;
    n->graph.node = n->nodes;
    n->graph.n_initializer = 1;
    n->graph.initializer = n->initializers;
    n->initializers[0] = &n->w;
    n->graph.n_input = n->graph.n_output = 1;
    n->graph.input = n->inputs;
    n->graph.output = n->outputs;
    n->inputs[0] = &n->x;
    n->outputs[0] = &n->y;
    n->x.name = (char *)"x";
    n->y.name = (char *)"y";
    n->x.type = &n->type;
    n->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    n->type.tensor_type = &n->tensor;
    n->tensor.has_elem_type = 1;
    n->tensor.elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    n->tensor.shape = &n->shape;
    n->shape.n_dim = 2;
    n->shape.dim = n->dims;
    n->w.name = (char *)"w";
    n->w.has_data_type = 1;
    n->w.data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    n->w.n_dims = 2;
    n->w.dims = n->w_dims;
    n->w.n_float_data = 2;
    n->w.float_data = n->w_data;
    n->in0[0] = (char *)"x";
    n->out0[0] = n->in1[0] = (char *)"h";
    n->in1[1] = (char *)"w";
    n->out1[0] = (char *)"y";
    n->node[0].op_type = (char *)"Relu";
    n->node[1].op_type = (char *)"Add";
    n->node[0].name = (char *)"first";
    n->node[1].name = (char *)"second";
    n->node[0].n_input = n->node[0].n_output = n->node[1].n_output = 1;
    n->node[1].n_input = 2;
    n->node[0].input = n->in0;
    n->node[0].output = n->out0;
    n->node[1].input = n->in1;
    n->node[1].output = n->out1;
    n->attributes[0] = &n->attribute;
    n->entries[0] = &n->entry;
    n->entry.key = (char *)"location";
}

static kolo_status open_net(const small_net *n, size_t cut, kolo_onnx **onnx) {
    const size_t bytes = onnx__model_proto__get_packed_size(&n->model);
    uint8_t *packed = malloc(bytes);
    onnx__model_proto__pack(&n->model, packed);
    kolo_status status =
        onnx_open_bytes(packed, bytes - cut, "net.onnx", &(kolo_onnx_opts){.no_loss = true}, onnx);
    free(packed);
    return status;
}

/* Reshape(x, [-1]), of which Gather takes all elements in order: for the batch of 1 in the file. */
static void a_view_by_indices_is_of_any_number_of_samples(void **state) {
    small_net n;
    kolo_onnx *net;
    Onnx__TensorProto index = ONNX__TENSOR_PROTO__INIT, *initializers[] = {&n.w, &index};
    char *flat[] = {(char *)"x", (char *)"w"}, *gather[] = {(char *)"h", (char *)"i"};
    int64_t minus_1 = -1, elements[] = {0, 1}, dims[] = {1, 2, 1};
    make(&n);
    n.graph.n_initializer = 2;
    n.graph.initializer = initializers;
    n.w.data_type = index.data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    n.w.n_float_data = 0;
    n.w.n_dims = n.w.n_int64_data = 1;
    n.w.int64_data = &minus_1;
    index.name = (char *)"i";
    index.has_data_type = 1;
    index.dims = dims;
    index.n_dims = 3;
    index.int64_data = elements;
    index.n_int64_data = 2;
    n.node[0].op_type = (char *)"Reshape";
    n.node[0].n_input = 2;
    n.node[0].input = flat;
    n.node[1].op_type = (char *)"Gather";
    n.node[1].input = gather;
    ASSERT_OK(open_net(&n, 0, &net));
    for (int64_t samples = 1; samples < 6; samples++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        ASSERT_OK(kolo_onnx_build(g, samples, net));
        const kolo_shape y = kolo_value_shape(g, kolo_graph_output(g, "y"));
        const kolo_shape want = kolo_shape_3(samples, 2, 1);
        assert_true(kolo_shape_equal(&y, &want));
        kolo_graph_destroy(g);
    }
    kolo_onnx_close(net);
}

/* y = Einsum(Relu(x), second), of three samples of two numbers; w is [1,2]: 0, 1. */
static void einsum_is_read(void **state) {
    static const struct {
        const char *equation, *second;
        int values; /* of a sample */
        float want[3][4];
    } cases[] = {
        {"nk,mk->nm", "w", 1, {{2}, {0}, {5}}},
        {" nk , mj -> njk", "w", 4, {{0, 0, 1, 2}, {0, 0, 3, 0}, {0, 0, 0, 5}}},
        {"nk,nk->n", "x", 1, {{5}, {9}, {25}}},
        {"nk,nj->nkj", "x", 4, {{1, 2, 2, 4}, {9, -12, 0, 0}, {0, 0, 0, 25}}},
        {"nk->n", NULL, 1, {{3}, {3}, {5}}},
        {"ak", NULL, 2, {{1, 2}, {3, 0}, {0, 5}}},
        {"...k,...k->...", "x", 1, {{5}, {9}, {25}}},
        {"n...,m...->nm...", "w", 2, {{0, 2}, {0, 0}, {0, 5}}},
    };
    static const char *const refused[] = {"nn->n", "n...->n", "nk->nz", "nk,nk->n", "nkj->n", "n"};
    const float x[] = {1, 2, 3, -4, 0, 5};
    small_net n;
    kolo_onnx *net;
    make(&n);
    n.node[1].op_type = (char *)"Einsum";
    n.node[1].n_attribute = 1;
    n.node[1].attribute = n.attributes;
    n.attribute.name = (char *)"equation";
    n.attribute.has_type = n.attribute.has_s = 1;
    n.attribute.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const kolo_field field = {.name = "x", .shape = {1, {2}}};
        kolo_batch batch = {.count = 3, .n_fields = 1, .fields = &field, .data = {x}};
        const kolo_session_opts opts = {.batch = 3, .evaluate_only = true};
        kolo_session *s;
        float y[12];
        const size_t bytes = 3 * (size_t)cases[i].values * sizeof *y;
        n.attribute.s.data = (uint8_t *)(uintptr_t)cases[i].equation;
        n.attribute.s.len = strlen(cases[i].equation);
        n.in1[1] = (char *)(uintptr_t)cases[i].second;
        n.node[1].n_input = cases[i].second ? 2 : 1;
        ASSERT_OK(open_net(&n, 0, &net));
        ASSERT_OK(kolo_session_create(NULL, &opts, kolo_onnx_build, net, &s));
        ASSERT_OK(kolo_session_predict(s, &batch, "y", y, bytes, NULL));
        for (int k = 0; k < 3 * cases[i].values; k++) {
            const float want = cases[i].want[k / cases[i].values][k % cases[i].values];
            if (y[k] != want) fail_msg("%s: %d: %g, not %g", cases[i].equation, k, y[k], want);
        }
        kolo_session_destroy(s);
        kolo_onnx_close(net);
    }
    n.node[1].n_input = 1;
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        n.attribute.s.data = (uint8_t *)(uintptr_t)refused[i];
        n.attribute.s.len = strlen(refused[i]);
        assert_int_equal(open_net(&n, 0, &net), KOLO_ERR_UNSUPPORTED);
        assert_non_null(strstr(kolo_last_error(), "(Einsum): "));
    }
}

/* The output of a net of one input for `count` samples. */
static void run_net(const small_net *n, const kolo_field *field, int64_t count, const float *x,
                    float *y, size_t bytes) {
    const kolo_session_opts opts = {.batch = count, .evaluate_only = true};
    kolo_batch batch = {.count = count, .n_fields = 1, .fields = field, .data = {x}};
    kolo_session *s;
    kolo_onnx *net;
    ASSERT_OK(open_net(n, 0, &net));
    ASSERT_OK(kolo_session_create(NULL, &opts, kolo_onnx_build, net, &s));
    ASSERT_OK(kolo_session_predict(s, &batch, "y", y, bytes, NULL));
    kolo_session_destroy(s);
    kolo_onnx_close(net);
}

static kolo_status build_with_loss(kolo_graph *g, int64_t samples, void *net) {
    const kolo_status status = kolo_onnx_build(g, samples, net);
    if (status != KOLO_OK) return status;
    const kolo_value labels = kolo_input(g, "label", KOLO_DTYPE_I32, kolo_shape_1(samples));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_graph_output(g, "y"), labels));
    return KOLO_OK;
}

/* y = ThresholdedRelu(x + w): what a comparison decides has no gradient of its own. */
static void comparisons_do_not_stop_training(void **state) {
    static const kolo_field fields[] = {{.name = "x", .shape = {1, {2}}},
                                        {.name = "label", .dtype = KOLO_DTYPE_I32}};
    const float x[] = {0.5F, 0.25F};
    const int32_t label = 0;
    const kolo_batch batch = {.count = 1, .n_fields = 2, .fields = fields, .data = {x, &label}};
    const kolo_session_opts opts = {.batch = 1, .keep_gradients = true};
    char *in[] = {(char *)"x", (char *)"w"};
    float gradient[2];
    kolo_session *s;
    kolo_onnx *net;
    small_net n;
    make(&n);
    n.node[0].op_type = (char *)"Add";
    n.node[0].n_input = 2;
    n.node[0].input = in;
    n.node[1].op_type = (char *)"ThresholdedRelu";
    n.node[1].n_input = 1;
    ASSERT_OK(open_net(&n, 0, &net));
    ASSERT_OK(kolo_session_create(NULL, &opts, build_with_loss, net, &s));
    ASSERT_OK(kolo_session_step(s, &batch, NULL));
    ASSERT_OK(kolo_session_get_gradient(s, "w", gradient, sizeof gradient));
    assert_true(gradient[0] == 0 && fabsf(gradient[1] - 0.7773F) < 1e-4F); /* of 0 and 1.25 */
    kolo_session_destroy(s);
    kolo_onnx_close(net);
}

static void make_integers(Onnx__TensorProto *t, const char *name, int n_dims, int64_t *dims,
                          int64_t *data) {
    onnx__tensor_proto__init(t);
    t->name = (char *)(uintptr_t)name;
    t->has_data_type = 1;
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    t->n_dims = (size_t)n_dims;
    t->dims = dims;
    t->n_int64_data = 1;
    for (int d = 0; d < n_dims; d++) t->n_int64_data *= (size_t)dims[d];
    t->int64_data = data;
}

/* y = Slice(x, zero, ScatterND(zero, at, most), axes): ends are INT64_MAX, which f64 has not. */
static void integers_are_scattered_exactly(void **state) {
    static char *scatter[] = {(char *)"zero", (char *)"at", (char *)"most"};
    static char *slice[] = {(char *)"x", (char *)"zero", (char *)"h", (char *)"axes"};
    const kolo_field field = {.name = "x", .shape = {1, {2}}};
    int64_t ones[] = {1, 1}, zero = 0, most = INT64_MAX, axis = 1;
    Onnx__TensorProto tensors[4], *initializers[4];
    const float x[] = {1, 2};
    float y[2];
    small_net n;
    (void)state;
    make(&n);
    make_integers(&tensors[0], "zero", 1, ones, &zero);
    make_integers(&tensors[1], "at", 2, ones, &zero);
    make_integers(&tensors[2], "most", 1, ones, &most);
    make_integers(&tensors[3], "axes", 1, ones, &axis);
    for (int k = 0; k < 4; k++) initializers[k] = &tensors[k];
    n.graph.n_initializer = 4;
    n.graph.initializer = initializers;
    n.node[0].op_type = (char *)"ScatterND";
    n.node[0].n_input = 3;
    n.node[0].input = scatter;
    n.node[1].op_type = (char *)"Slice";
    n.node[1].n_input = 4;
    n.node[1].input = slice;
    run_net(&n, &field, 1, x, y, sizeof y);
    assert_true(y[0] == 1 && y[1] == 2);
}

/* y = ScatterND(h, at, h) of a file of two samples, of each of which all elements are assigned. */
static void scattered_samples_may_be_fewer_than_the_file_has(void **state) {
    static char *in[] = {(char *)"h", (char *)"w", (char *)"h"};
    const kolo_field field = {.name = "x", .shape = {1, {2}}};
    const float x[] = {1, 2, 3, 4, 5, 6};
    int64_t dims[] = {4, 2}, at[] = {0, 0, 0, 1, 1, 0, 1, 1};
    small_net n;
    (void)state;
    make(&n);
    make_integers(&n.w, "w", 2, dims, at);
    n.dim[0].dim_value = 2;
    n.node[1].op_type = (char *)"ScatterND";
    n.node[1].n_input = 3;
    n.node[1].input = in;
    for (int64_t count = 1; count <= 3; count++) {
        float y[6] = {0};
        run_net(&n, &field, count, x, y, (size_t)count * 2 * sizeof *y);
        assert_memory_equal(y, x, (size_t)count * 2 * sizeof *y);
    }
}

/* y = op(h, ...) of h = Unsqueeze(x, axis); `in` are the inputs of op, `tensors` the constants that
 * it reads. */
static void make_unsqueezed(small_net *n, int64_t axis, const char *op, char **in, size_t n_in,
                            Onnx__TensorProto *tensors, size_t n_tensors) {
    static char *unsqueezed[] = {(char *)"x", (char *)"axis"};
    static Onnx__TensorProto of_axis, *initializers[8];
    static int64_t one = 1, number;
    number = axis;
    make_integers(&of_axis, "axis", 1, &one, &number);
    initializers[0] = &of_axis;
    initializers[1] = &n->w;
    for (size_t k = 0; k < n_tensors; k++) initializers[2 + k] = &tensors[k];
    n->graph.n_initializer = 2 + n_tensors;
    n->graph.initializer = initializers;
    n->node[0].op_type = (char *)"Unsqueeze";
    n->node[0].n_input = 2;
    n->node[0].input = unsqueezed;
    n->node[1].op_type = (char *)(uintptr_t)op;
    n->node[1].n_input = n_in;
    n->node[1].input = in;
}

static void make_number(Onnx__AttributeProto *a, const char *name, int64_t number) {
    onnx__attribute_proto__init(a);
    a->name = (char *)(uintptr_t)name;
    a->has_type = a->has_i = 1;
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    a->i = number;
}

/* Attention of two tokens, of which the mask hides the first: its query sees no key at all. */
static void a_mask_and_later_keys_may_hide_all(void **state) {
    static char *in[] = {(char *)"h", (char *)"h", (char *)"h", (char *)"mask"};
    const kolo_field field = {.name = "x", .shape = {1, {2}}};
    int64_t dims[] = {2, 2}, mask[] = {0, 1, 0, 1};
    Onnx__AttributeProto attributes[3], *of[] = {&attributes[0], &attributes[1], &attributes[2]};
    Onnx__TensorProto tensor;
    const float x[] = {3, 5};
    float y[2];
    small_net n;
    make(&n);
    make_integers(&tensor, "mask", 2, dims, mask);
    make_unsqueezed(&n, 2, "Attention", in, 4, &tensor, 1);
    make_number(&attributes[0], "is_causal", 1);
    make_number(&attributes[1], "q_num_heads", 1);
    make_number(&attributes[2], "kv_num_heads", 1);
    n.node[1].n_attribute = 3;
    n.node[1].attribute = of;
    run_net(&n, &field, 1, x, y, sizeof y);
    if (y[0] != 0 || y[1] != 5) fail_msg("%g %g", y[0], y[1]);
}

/* Masks leave elements that are the lowest of f32. */
static void the_lowest_elements_are_found_once(void **state) {
    static char *in[] = {(char *)"x", (char *)"k"}, *out[] = {(char *)"h", (char *)"places"};
    const kolo_field field = {.name = "x", .shape = {1, {3}}};
    const float x[] = {-FLT_MAX, 1, -FLT_MAX}, want[] = {1, -FLT_MAX, -FLT_MAX};
    int64_t one = 1, k = 3;
    Onnx__TensorProto tensor, *tensors[] = {&tensor};
    float y[3];
    small_net n;
    make(&n);
    make_integers(&tensor, "k", 1, &one, &k);
    n.graph.initializer = tensors;
    n.dim[1].dim_value = 3;
    n.node[0].op_type = (char *)"TopK";
    n.node[0].n_input = n.node[0].n_output = 2;
    n.node[0].input = in;
    n.node[0].output = out;
    n.node[1].op_type = (char *)"Identity";
    n.node[1].n_input = 1;
    run_net(&n, &field, 1, x, y, sizeof y);
    assert_memory_equal(y, want, sizeof y);
}

typedef void damage(small_net *n);
static void other_op(small_net *n) { n->node[0].op_type = (char *)"Frobnicate"; }
static void other_domain(small_net *n) { n->node[0].domain = (char *)"com.microsoft"; }
static void no_initializer(small_net *n) { n->graph.n_initializer = 0; }
static void cycle(small_net *n) { n->in0[0] = (char *)"y"; }
static void twice(small_net *n) { n->out1[0] = (char *)"h"; }
static void no_output(small_net *n) { n->y.name = (char *)"z"; }
static void short_data(small_net *n) { n->w.n_float_data = 1; }
static void huge(small_net *n) { n->w_dims[0] = n->w_dims[1] = INT64_C(1) << 40; }
static void negative(small_net *n) { n->w_dims[0] = -1; }
static void huge_input(small_net *n) { n->dim[0].dim_value = n->dim[1].dim_value = INT64_MAX; }
static void nan_weight(small_net *n) { n->w_data[1] = NAN; }
static void misfit(small_net *n) { n->dim[1].dim_value = 3; }
static void opset_99(small_net *n) { n->opset.version = 99; }
static void text_input(small_net *n) { n->tensor.elem_type = 8; }
static void outside(small_net *n) {
    n->w.n_external_data = 1;
    n->w.external_data = n->entries;
    n->w.has_data_location = 1;
    n->w.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    n->entry.value = (char *)"a/../../passwd";
}
static void absolute(small_net *n) {
    outside(n);
    n->entry.value = (char *)"/etc/passwd";
}
static void missing_file(small_net *n) {
    outside(n);
    n->entry.value = (char *)"no.such.data";
}
static void attribute(small_net *n) {
    n->attribute.name = (char *)"shiny";
    n->node[0].n_attribute = 1;
    n->node[0].attribute = n->attributes;
}
/* y = Resize(x, sizes w) of sizes that are no integers. */
static void float_sizes(small_net *n) {
    static char *in[] = {(char *)"x", (char *)"", (char *)"", (char *)"w"};
    n->node[0].op_type = (char *)"Resize";
    n->node[0].n_input = 4;
    n->node[0].input = in;
}
static void open_dim(small_net *n) {
    n->dim[1].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    n->dim[1].dim_param = (char *)"tokens";
}
/* y = ScatterND(h, w, h) with indices that are no integers. */
static void float_indices(small_net *n) {
    static char *in[] = {(char *)"h", (char *)"w", (char *)"h"};
    n->node[1].op_type = (char *)"ScatterND";
    n->node[1].n_input = 3;
    n->node[1].input = in;
}
static void index_outside(small_net *n) {
    float_indices(n);
    n->w.data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    n->w.n_float_data = 0;
    n->w.n_int64_data = 2;
    n->w.int64_data = n->shape_data;
    n->shape_data[1] = 2;
}
static void some_samples(small_net *n) {
    index_outside(n);
    n->w_dims[1] = n->w.n_int64_data = 1;
}

/* Indices that select samples are those of the batch of the file. */
static void samples_are_selected_of_the_batch_of_the_file(void **state) {
    small_net n;
    kolo_onnx *net;
    kolo_graph *g;
    make(&n);
    some_samples(&n);
    ASSERT_OK(open_net(&n, 0, &net));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    assert_int_equal(kolo_onnx_build(g, 3, net), KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "the same elements of every sample"));
    kolo_graph_destroy(g);
    kolo_onnx_close(net);
}

/* y = Col2Im(h, image, block) of blocks whose number of elements overflows. */
static void huge_block(small_net *n) {
    static char *in[] = {(char *)"h", (char *)"image", (char *)"block"};
    static int64_t pads[] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}, two = 2;
    static int64_t block[] = {INT64_C(1) << 32, INT64_C(1) << 32};
    static Onnx__TensorProto tensors[2];
    make_integers(&tensors[0], "image", 1, &two, pads);
    make_integers(&tensors[1], "block", 1, &two, block);
    make_unsqueezed(n, 2, "Col2Im", in, 3, tensors, 2);
    n->attribute.name = (char *)"pads";
    n->attribute.has_type = 1;
    n->attribute.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    n->attribute.n_ints = 4;
    n->attribute.ints = pads;
    n->node[1].n_attribute = 1;
    n->node[1].attribute = n->attributes;
}
/* y = RotaryEmbedding(h, w, w, w) at positions that are no integers. */
static void float_positions(small_net *n) {
    static char *in[] = {(char *)"h", (char *)"w", (char *)"w", (char *)"w"};
    make_unsqueezed(n, 2, "RotaryEmbedding", in, 4, NULL, 0);
    make_number(&n->attribute, "num_heads", 1);
    n->node[1].n_attribute = 1;
    n->node[1].attribute = n->attributes;
}
/* The same of heads of 4 numbers, of which the cosines are for 2. */
static void few_cosines(small_net *n) {
    static char *in[] = {(char *)"h", (char *)"w", (char *)"w", (char *)"at"};
    static int64_t ones[] = {1, 1}, at = 0;
    static Onnx__TensorProto tensor;
    float_positions(n);
    make_integers(&tensor, "at", 2, ones, &at);
    make_unsqueezed(n, 1, "RotaryEmbedding", in, 4, &tensor, 1);
    n->dim[1].dim_value = 4;
    n->w_dims[1] = 1;
    n->w.n_float_data = 1;
}
/* y = NegativeLogLikelihoodLoss(h, w) */
static void other_reduction(small_net *n) {
    n->node[1].op_type = (char *)"NegativeLogLikelihoodLoss";
    n->attribute.name = (char *)"reduction";
    n->attribute.has_type = n->attribute.has_s = 1;
    n->attribute.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    n->attribute.s = (ProtobufCBinaryData){4, (uint8_t *)(uintptr_t) "most"};
    n->node[1].n_attribute = 1;
    n->node[1].attribute = n->attributes;
}
/* y = Cast(h) to f16. */
static void cast_to_halves(small_net *n) {
    n->node[1].op_type = (char *)"Cast";
    n->node[1].n_input = 1;
    n->attribute.name = (char *)"to";
    n->attribute.has_type = n->attribute.has_i = 1;
    n->attribute.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    n->attribute.i = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16;
    n->node[1].n_attribute = 1;
    n->node[1].attribute = n->attributes;
}

/* y = Reshape(x, w), whose sizes overflow once they are scaled to the samples of the graph. */
static void huge_reshape(small_net *n) {
    n->node[0].op_type = (char *)"Reshape";
    n->node[0].n_input = 2;
    n->node[0].input = n->in1;
    n->in1[0] = (char *)"x";
    n->out0[0] = (char *)"y";
    n->graph.n_node = 1;
    n->w.data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    n->w.n_dims = 1;
    n->w_dims[0] = n->w.n_int64_data = 3;
    n->w.n_float_data = 0;
    n->w.int64_data = n->shape_data;
    n->shape_data[0] = 1;
    n->shape_data[1] = INT64_C(1) << 54;
    n->shape_data[2] = -1;
}

static void what_cannot_be_read_is_named(void **state) {
    static const struct {
        damage *by;
        const char *text[2];
    } cases[] = {
        {other_op, {"node \"first\" (Frobnicate)", "no operator"}},
        {other_domain, {"com.microsoft.Relu", "first"}},
        {no_initializer, {"reads \"w\"", "second"}},
        {cycle, {"reads \"y\"", "cycle"}},
        {twice, {"\"h\" is defined twice", ""}},
        {no_output, {"nothing computes", "\"z\""}},
        {float_indices, {"(ScatterND)", "the indices do not fit"}},
        {index_outside, {"(ScatterND)", "index 2 of dimension 1 is outside [0, 2)"}},
        {short_data, {"initializer \"w\"", "4 bytes of data for the shape [1,2], which needs 8"}},
        {huge, {"initializer \"w\"", "impossible dimensions"}},
        {negative, {"initializer \"w\"", "impossible dimensions"}},
        {huge_input, {"too many elements", ""}},
        {nan_weight, {"initializer \"w\"", "NaN"}},
        {misfit, {"node \"second\" (Add)", "sizes differ"}},
        {opset_99, {"opset 99", "7 to"}},
        {text_input, {"input \"x\"", "type 8"}},
        {outside, {"\"a/../../passwd\"", "not a file in the folder"}},
        {absolute, {"\"/etc/passwd\"", "not a file in the folder"}},
        {missing_file, {"no.such.data", "external data"}},
        {attribute, {"node \"first\" (Relu)", "attribute shiny"}},
        {float_sizes, {"node \"first\" (Resize)", "input 3 must hold at most 6 integers"}},
        {huge_reshape, {"node \"first\" (Reshape)", "cannot have the shape"}},
        {huge_block, {"(Col2Im)", "the sizes of dimension 0"}},
        {float_positions, {"(RotaryEmbedding)", "input 3 must hold integers"}},
        {few_cosines, {"(RotaryEmbedding)", "cosines and sines of 2 elements for heads of 4"}},
        {other_reduction, {"(NegativeLogLikelihoodLoss)", "attribute reduction"}},
        {cast_to_halves, {"(Cast)", "cannot become ONNX type 10"}},
        {open_dim, {"dimension 1 of the input \"x\" is open", ""}},
    };
    small_net n;
    kolo_onnx *onnx;
    make(&n);
    ASSERT_OK(open_net(&n, 0, &onnx));
    kolo_onnx_close(onnx);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        make(&n);
        cases[i].by(&n);
        assert_int_not_equal(open_net(&n, 0, &onnx), KOLO_OK);
        for (int k = 0; k < 2; k++) {
            if (!strstr(kolo_last_error(), cases[i].text[k])) {
                fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), cases[i].text[k]);
            }
        }
        assert_null(strchr(kolo_last_error(), '\n'));
    }
    make(&n);
    assert_int_equal(open_net(&n, 3, &onnx), KOLO_ERR_FORMAT); /* truncated */
}

static void deep_nesting_is_refused(void **state) {
    enum { DEEP = 20000 };
    /* node > attribute > graph > node > ..., each a field of length-delimited data */
    static uint8_t bytes[16 * DEEP];
    size_t end = sizeof bytes, at = end;
    static const uint8_t fields[] = {0x0a, 0x2a, 0x32}; /* node 1, attribute 5, g 6 */
    for (int k = 0; k < DEEP; k++) {
        uint64_t length = end - at;
        uint8_t varint[10];
        int n = 0;
        do {
            varint[n++] = (uint8_t)((length & 0x7f) | (length > 0x7f ? 0x80 : 0));
            length >>= 7;
        } while (length);
        at -= (size_t)n;
        memcpy(bytes + at, varint, (size_t)n);
        bytes[--at] = k == DEEP - 1 ? 0x3a : fields[(DEEP - 2 - k) % 3]; /* graph 7 */
    }
    kolo_onnx *onnx;
    assert_int_equal(onnx_open_bytes(bytes + at, end - at, "net.onnx", NULL, &onnx),
                     KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "nested"));
}

TEST_MAIN(test_onnx_import) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nets_give_the_outputs_of_onnx_runtime),
        cmocka_unit_test(sessions_begin_with_the_weights_of_the_file),
        cmocka_unit_test(any_number_of_samples_gives_the_same_nodes),
        cmocka_unit_test(buffers_and_constants_are_frozen),
        cmocka_unit_test(what_the_exporter_computes_is_trained),
        cmocka_unit_test(windows_of_several_samples_are_theirs),
        cmocka_unit_test(a_view_by_indices_is_of_any_number_of_samples),
        cmocka_unit_test(einsum_is_read),
        cmocka_unit_test(comparisons_do_not_stop_training),
        cmocka_unit_test(integers_are_scattered_exactly),
        cmocka_unit_test(scattered_samples_may_be_fewer_than_the_file_has),
        cmocka_unit_test(samples_are_selected_of_the_batch_of_the_file),
        cmocka_unit_test(a_mask_and_later_keys_may_hide_all),
        cmocka_unit_test(the_lowest_elements_are_found_once),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(deep_nesting_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

TEST_MAIN(test_onnx_import) {
    printf("skip: built without ONNX\n");
    return 77;
}

#endif
