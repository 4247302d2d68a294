/* Exports a graph. It is built for two batch sizes, which shows the dimensions to leave open.
 */
#include "base/file.h"
#include "base/text.h"
#include "graph/ops/ops.h"
#include "onnx/export/writer.h"
#include "pass/pass.h"

#include <string.h>

enum { IR_VERSION = 8, OPSET = 18 };

/* The caller of the file masks tokens, so that it needs neither random numbers nor labels. What is
 * left of mask_tokens reads the ids alone, and is for writing only. */
static kolo_status mask_no_tokens(kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        if (n->op != &kolo_op_mask_tokens) continue;
        if (n->attr[KOLO_MASK_PAIRS].i) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                             "mask_tokens: pairs of sentences cannot be exported to ONNX");
        }
        for (int k = 0; k < n->n_in; k++) n->in[k] = n->in[2];
    }
    return KOLO_OK;
}

/* A graph for evaluation whose only output are the logits. */
static kolo_status build_for(onnx_build_fn *build, void *arg, int64_t samples, kolo_graph **graph) {
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_status status = build(g, samples, arg);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    kolo_value logits = status == KOLO_OK ? kolo_graph_output(g, "logits") : KOLO_NONE;
    if (status == KOLO_OK && logits.id < 0) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "the graph has no output \"logits\" to export");
    }
    if (status == KOLO_OK) {
        g->n_outputs = 0;
        kolo_output(g, "logits", logits);
        status = kolo_graph_prune(g);
    }
    if (status == KOLO_OK) status = kolo_pass_inference(g);
    if (status == KOLO_OK) status = mask_no_tokens(g);
    if (status == KOLO_OK) status = kolo_graph_prune(g);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    *graph = g;
    return KOLO_OK;
}

static kolo_status add_leaf(onnx_writer *w, const kolo_value_info *info, onnx_read_fn *read,
                            void *arg) {
    float *data;
    switch (info->kind) {
    case KOLO_VALUE_INPUT:
        w->graph.input[w->graph.n_input] =
            onnx_value_info(w, info->name, info->tensor.dtype, &info->tensor.shape);
        w->graph.n_input++;
        return KOLO_OK;
    case KOLO_VALUE_PARAM:
    case KOLO_VALUE_STATE:
        (info->frozen ? onnx_add_constant : onnx_add_parameter)(w, info->name, &info->canon, &data);
        return w->failed ? KOLO_OK : read(arg, info->name, &info->canon, data);
    default:
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "the scalar %s cannot be exported to ONNX",
                         info->name);
    }
}

static kolo_status fill(onnx_writer *w, onnx_read_fn *read, void *arg) {
    const kolo_graph *g = w->g;
    w->graph.input = kolo_arena_alloc(&w->arena, ((size_t)g->n_values + 1) * sizeof(void *));
    w->graph.output = kolo_arena_alloc(&w->arena, sizeof(void *));
    if (!w->graph.input || !w->graph.output)
        return KOLO_NOMEM((size_t)g->n_values * sizeof(void *));
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind == KOLO_VALUE_TEMP || !kolo_value_is_read(g, (kolo_value){.id = v}))
            continue;
        KOLO_TRY(add_leaf(w, info, read, arg));
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        KOLO_TRY(onnx_write_node(w, g->nodes[i], w->other->nodes[i]));
    }
    const kolo_value logits = kolo_graph_output(g, "logits");
    const kolo_value_info *info = kolo_info(g, logits);
    onnx_emit(w, "Identity", "logits", onnx_name(w, logits), NULL, NULL);
    w->graph.output[0] = onnx_value_info(w, "logits", info->tensor.dtype, &info->tensor.shape);
    w->graph.n_output = 1;
    w->graph.name = (char *)"kolo";
    onnx_finish_nodes(w);
    return w->failed ? KOLO_NOMEM(64) : KOLO_OK;
}

static kolo_status save(onnx_writer *w, const char *path) {
    if (!path) return KOLO_OK; /* another rank writes */
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = {&opset};
    opset.domain = (char *)"";
    opset.has_version = 1;
    opset.version = OPSET;
    model.has_ir_version = 1;
    model.ir_version = IR_VERSION;
    model.producer_name = (char *)"kolo";
    model.n_opset_import = 1;
    model.opset_import = opsets;
    model.graph = &w->graph;
    const size_t bytes = onnx__model_proto__get_packed_size(&model);
    if (bytes > INT32_MAX) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: %zu bytes; ONNX files have at most 2 GiB", path,
                         bytes);
    }
    uint8_t *packed = kolo_alloc(bytes);
    if (!packed) return KOLO_NOMEM(bytes);
    onnx__model_proto__pack(&model, packed);
    kolo_status status = kolo_file_write(path, packed, bytes);
    kolo_free(packed);
    return status;
}

kolo_status kolo_onnx_write(const char *path, onnx_build_fn *build, void *build_arg,
                            onnx_read_fn *read, void *read_arg) {
    kolo_graph *g = NULL, *other = NULL;
    KOLO_TRY(build_for(build, build_arg, ONNX_SAMPLES, &g));
    kolo_status status = build_for(build, build_arg, ONNX_SAMPLES + 1, &other);
    onnx_writer w = {.g = g, .other = other};
    onnx__graph_proto__init(&w.graph);
    if (status == KOLO_OK && other->n_nodes != g->n_nodes) {
        status = KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "the graph has other nodes for another batch");
    }
    if (status == KOLO_OK) status = fill(&w, read, read_arg);
    if (status == KOLO_OK) status = save(&w, path);
    kolo_free((void *)w.nodes);
    kolo_free((void *)w.constants);
    kolo_free((void *)w.graph.initializer);
    kolo_arena_fini(&w.arena);
    kolo_graph_destroy(g);
    kolo_graph_destroy(other);
    return status;
}
