/* The importer: the walk over the graph of a file, its inputs and outputs. */
#include "onnx/import/import.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- nodes ---- */

static bool reads_attribute(const onnx_op *op, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = op->attributes; *at; at = strchr(at, ' ') + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == ' ') return true;
    }
    return false;
}

static kolo_status check_call(const onnx_call *c, const onnx_op *op) {
    for (size_t i = 0; i < c->node->n_attribute; i++) {
        const char *name = onnx_text(c->node->attribute[i]->name);
        if (strchr(name, ' ') || !*name || !reads_attribute(op, name)) {
            return ONNX_FAIL(c, "attribute %.60s is not supported", name);
        }
        if (c->node->attribute[i]->ref_attr_name) {
            return ONNX_FAIL(c, "attribute %.60s refers to that of a function", name);
        }
    }
    int given = 0;
    for (int i = 0; i < c->n_in; i++) given = c->in[i] ? i + 1 : given;
    if (given < op->min_in || given > op->max_in) {
        return ONNX_FAIL(c, "%d inputs; %d to %d are supported", given, op->min_in, op->max_in);
    }
    for (int i = 0; i < op->min_in; i++) {
        if (!c->in[i]) return ONNX_FAIL(c, "input %d is missing", i);
    }
    return KOLO_OK;
}

static kolo_status find_inputs(onnx_call *c) {
    if (c->node->n_input > ONNX_MAX_IN) {
        return ONNX_FAIL(c, "%zu inputs; at most %d fit", c->node->n_input, ONNX_MAX_IN);
    }
    for (size_t i = 0; i < c->node->n_input; i++) {
        const char *name = onnx_text(c->node->input[i]);
        c->in[i] = *name ? onnx_find_item(c->m, name) : NULL;
        if (*name && !c->in[i]) {
            return ONNX_FAIL(c,
                             "reads \"%.100s\", which no input, initializer or node before it "
                             "defines: a missing initializer or a cycle",
                             name);
        }
    }
    c->n_in = (int)c->node->n_input;
    while (c->n_in > 0 && !c->in[c->n_in - 1]) c->n_in--;
    return KOLO_OK;
}

static const onnx_op *find_op(const Onnx__NodeProto *node) {
    const char *domain = onnx_text(node->domain);
    if (*domain && strcmp(domain, "ai.onnx") != 0) return NULL;
    for (const onnx_op *op = onnx_ops; op->name; op++) {
        if (strcmp(op->name, onnx_text(node->op_type)) == 0) return op;
    }
    return NULL;
}

static kolo_status map_node(onnx_import *m, const Onnx__NodeProto *node) {
    onnx_item *in[ONNX_MAX_IN];
    onnx_call c = {.m = m,
                   .g = m->g,
                   .node = node,
                   .opset = m->onnx->opset,
                   .n_out = (int)node->n_output,
                   .in = in};
    const onnx_op *op = find_op(node);
    if (!op) {
        return ONNX_FAIL(&c, "Kolo has no operator %.60s%s%.60s", onnx_text(node->domain),
                         *onnx_text(node->domain) ? "." : "", onnx_text(node->op_type));
    }
    bool any = false;
    for (size_t i = 0; i < node->n_output; i++) any |= *onnx_text(node->output[i]) != 0;
    if (!any) return ONNX_FAIL(&c, "it has no output");
    KOLO_TRY(find_inputs(&c));
    KOLO_TRY(check_call(&c, op));
    bool constant = op->fold;
    for (int i = 0; i < c.n_in; i++) constant &= !in[i] || (in[i]->constant && !in[i]->trained);
    if (constant) return op->fold(&c);
    if (!op->map) {
        return ONNX_FAIL(&c,
                         "its inputs depend on the samples or on parameters; it is supported on "
                         "constants only");
    }
    kolo_status status = op->map(&c);
    if (m->g->status == KOLO_OK) return status;
    status = kolo_graph_check(m->g);
    char text[400];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    const kolo_status failed = ONNX_FAIL(&c, "%s", text);
    return status == KOLO_ERR_NOMEM ? status : failed;
}

/* ---- inputs and outputs of the graph ---- */

static kolo_status add_initializers(onnx_import *m) {
    for (size_t k = 0; k < m->onnx->n_initializers; k++) {
        const onnx_initializer *of = &m->onnx->initializers[k];
        onnx_item *item;
        KOLO_TRY(onnx_add_item(m, of->name, &item));
        item->constant = true;
        item->tensor = of->tensor;
        item->trained = !of->tensor.integer && of->tensor.shape.rank > 0 && of->tensor.count > 0 &&
                        of->origin >= ONNX_COMPUTED && of->origin <= ONNX_PARAMETER;
        for (int64_t i = 0; item->trained && i < of->tensor.count; i++) {
            if (isnan(of->tensor.f[i])) {
                return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: initializer \"%.200s\" contains NaN",
                                 m->onnx->path, of->name);
            }
            item->trained = fabsf(of->tensor.f[i]) < ONNX_LEAST_OF_MASKS;
        }
    }
    for (size_t k = 0; k < m->onnx->n_initializers; k++) {
        const onnx_initializer *of = &m->onnx->initializers[k];
        if (of->transposed) m->items[k]->tied = onnx_find_item(m, of->transposed);
    }
    return KOLO_OK;
}

static bool is_known(const Onnx__TensorShapeProto__Dimension *dim) {
    return dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
           dim->dim_value > 0;
}

/* The size of dimension d of an input. */
static kolo_status input_dim(const onnx_import *m, const Onnx__ValueInfoProto *info, int number,
                             int d, const Onnx__TensorShapeProto__Dimension *dim, int64_t *size) {
    const kolo_onnx *onnx = m->onnx;
    const bool known = is_known(dim);
    *size = known ? dim->dim_value : 1;
    if (d == 0) return KOLO_OK;
    const kolo_shape *sample = &onnx->opts.sample;
    bool given = number == 0 && sample->rank >= d;
    if (given && known && sample->dim[d - 1] != *size) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: dimension %d of the input \"%.100s\" is %" PRId64
                         ", the samples have %" PRId64,
                         onnx->path, d, info->name, *size, sample->dim[d - 1]);
    }
    if (known) return KOLO_OK;
    if (!given) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: dimension %d of the input \"%.100s\" is open: give the shape of a "
                         "sample, or export it with a size",
                         onnx->path, d, info->name);
    }
    *size = sample->dim[d - 1];
    return KOLO_OK;
}

static kolo_status input_shape(const onnx_import *m, const Onnx__ValueInfoProto *info, int number,
                               kolo_shape *shape, int *type) {
    const Onnx__TypeProto *of = info->type;
    if (!of || of->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !of->tensor_type->shape) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: input \"%.100s\" is not a tensor with a shape",
                         m->onnx->path, onnx_text(info->name));
    }
    const Onnx__TensorShapeProto *dims = of->tensor_type->shape;
    if (dims->n_dim > KOLO_MAX_RANK) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s: input \"%.100s\" has %zu dimensions; at most %d fit", m->onnx->path,
                         onnx_text(info->name), dims->n_dim, KOLO_MAX_RANK);
    }
    *type = of->tensor_type->elem_type;
    *shape = (kolo_shape){.rank = (int)dims->n_dim};
    for (int d = 0; d < shape->rank; d++) {
        KOLO_TRY(input_dim(m, info, number, d, dims->dim[d], &shape->dim[d]));
    }
    return KOLO_OK;
}

static kolo_status add_input(onnx_import *m, const Onnx__ValueInfoProto *info, int number) {
    const kolo_onnx *onnx = m->onnx;
    kolo_shape shape;
    int type;
    KOLO_TRY(input_shape(m, info, number, &shape, &type));
    bool integers = type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64 ||
                    type == ONNX__TENSOR_PROTO__DATA_TYPE__INT32;
    bool boolean = type == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL;
    if (!integers && !boolean && type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "%s: input \"%.100s\" has elements of ONNX type %d; f32, i64, i32 and bool "
            "are supported",
            onnx->path, onnx_text(info->name), type);
    }
    if (number == 0) {
        m->stated = shape.rank > 0 ? shape.dim[0] : 1;
        m->open = shape.rank > 0 && !is_known(info->type->tensor_type->shape->dim[0]);
        if (m->samples == 0) m->samples = m->stated;
    }
    if (shape.rank > 0 && shape.dim[0] == m->stated) shape.dim[0] = m->samples;
    onnx_item *item;
    KOLO_TRY(onnx_add_item(m, onnx_text(info->name), &item));
    item->batched = true;
    item->boolean = boolean;
    const char *name = onnx->opts.as_zoo && number == 0 ? "x" : item->name;
    item->value = kolo_input(m->g, name, integers ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32, shape);
    if (!integers && shape.rank > 0) m->batch_of = item->value;
    return kolo_graph_check(m->g);
}

static kolo_status add_inputs(onnx_import *m) {
    const Onnx__GraphProto *graph = m->onnx->model->graph;
    int number = 0;
    for (size_t i = 0; i < graph->n_input; i++) {
        if (onnx_find_item(m, onnx_text(graph->input[i]->name))) continue; /* an initializer */
        KOLO_TRY(add_input(m, graph->input[i], number++));
    }
    return KOLO_OK;
}

/* Labels, loss and count of the logits. */
static kolo_status add_loss(onnx_import *m, kolo_value logits) {
    kolo_graph *g = m->g;
    kolo_shape s = kolo_value_shape(g, logits);
    const onnx_item *first = NULL;
    for (size_t i = 0; i < m->n_items && !first; i++) {
        if (!m->items[i]->constant) first = m->items[i];
    }
    bool tokens = first && kolo_value_dtype(g, first->value) == KOLO_DTYPE_I32;
    const bool rows = s.rank == 2 && s.dim[0] > m->samples && s.dim[0] % m->samples == 0;
    if (tokens && onnx_decide(m, rows)) {
        s = kolo_shape_3(m->samples, s.dim[0] / m->samples, s.dim[1]); /* [N T,C] */
    }
    if (s.rank < 2 || s.dim[0] != m->samples) {
        char text[KOLO_SHAPE_TEXT];
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "%s: the first output is %s; a cross-entropy needs logits [N,C,...] of %" PRId64
            " samples: export the net with a dynamic batch, or with an output \"loss\"; in a "
            "program, no_loss adds none",
            m->onnx->path, kolo_shape_text(&s, text), m->samples);
    }
    const bool last = tokens && s.rank == 3; /* [N,T,C] */
    kolo_shape of_labels = {.rank = s.rank - 1, .dim = {s.dim[0]}};
    for (int d = 1; d < of_labels.rank; d++) of_labels.dim[d] = s.dim[last ? d : d + 1];
    kolo_value labels = kolo_input(g, "y", KOLO_DTYPE_I32, of_labels);
    kolo_value flat = labels;
    if (last) {
        logits = kolo_reshape(g, logits, kolo_shape_2(s.dim[0] * s.dim[1], s.dim[2]));
        flat = kolo_reshape(g, labels, kolo_shape_1(s.dim[0] * s.dim[1]));
    }
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, flat));
    kolo_output(g, "correct", kolo_accuracy(g, logits, flat));
    return kolo_graph_check(g);
}

static bool output_is(const Onnx__GraphProto *graph, size_t i, const char *name) {
    return strcmp(onnx_text(graph->output[i]->name), name) == 0;
}

static kolo_status add_outputs(onnx_import *m) {
    const Onnx__GraphProto *graph = m->onnx->model->graph;
    kolo_value first = KOLO_NONE;
    bool has_loss = false;
    if (graph->n_output == 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the graph has no output", m->onnx->path);
    }
    for (size_t i = 0; i < graph->n_output; i++) has_loss |= output_is(graph, i, "loss");
    const bool adds_loss = !has_loss && !m->onnx->opts.no_loss;
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = onnx_text(graph->output[i]->name);
        onnx_item *item = onnx_find_item(m, name);
        if (!item) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: nothing computes the output \"%.100s\"",
                             m->onnx->path, name);
        }
        char *output[] = {(char *)name};
        Onnx__NodeProto node = ONNX__NODE_PROTO__INIT;
        node.n_output = 1;
        node.output = output;
        node.op_type = (char *)"output";
        kolo_value v;
        KOLO_TRY(onnx_value(
            &(onnx_call){.m = m, .g = m->g, .node = &node, .n_in = 1, .n_out = 1, .in = &item}, 0,
            &v));
        if (i == 0) first = v;
        if (adds_loss && (output_is(graph, i, "logits") || output_is(graph, i, "correct")))
            continue;
        const bool trained = output_is(graph, i, "loss") && !m->onnx->opts.no_loss;
        kolo_output(m->g, name, trained ? onnx_loss_to_train(m, v) : v);
        KOLO_TRY(kolo_graph_check(m->g));
    }
    return adds_loss ? add_loss(m, first) : KOLO_OK;
}

static kolo_status walk(onnx_import *m) {
    const Onnx__GraphProto *graph = m->onnx->model->graph;
    KOLO_TRY(add_initializers(m));
    KOLO_TRY(add_inputs(m));
    for (; m->node < graph->n_node; m->node++) KOLO_TRY(map_node(m, graph->node[m->node]));
    KOLO_TRY(add_outputs(m)); /* as of one more node */
    return kolo_graph_prune(m->g);
}

static kolo_status walk_for(kolo_onnx *onnx, kolo_graph *g, int64_t samples, bool decide,
                            onnx_decisions *decisions) {
    onnx_import m = {.onnx = onnx,
                     .g = g,
                     .samples = samples,
                     .stated = 1,
                     .decisions = decisions,
                     .decide = decide,
                     .batch_of = KOLO_NONE};
    kolo_status status = walk(&m);
    if (m.failed) status = KOLO_NOMEM(decisions->cap * sizeof *decisions->items);
    kolo_arena_fini(&m.arena);
    kolo_name_index_fini(&m.index);
    kolo_free(m.items);
    kolo_free(m.losses);
    return status;
}

/* A prime that dimensions hardly have. */
enum { DISTINCT = 1009 };

/* A file that does not allow this number of samples may allow another: it is mapped by its sizes.
 */
static kolo_status decide(kolo_onnx *onnx, onnx_decisions *decisions) {
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_status status = walk_for(onnx, g, DISTINCT, true, decisions);
    kolo_graph_destroy(g);
    if (status == KOLO_OK || status == KOLO_ERR_NOMEM) return status;
    decisions->n = 0;
    return KOLO_OK;
}

static kolo_status build(kolo_onnx *onnx, kolo_graph *g, int64_t samples) {
    onnx_decisions decisions = {0};
    kolo_status status = decide(onnx, &decisions);
    if (status == KOLO_OK) status = walk_for(onnx, g, samples, false, &decisions);
    kolo_free(decisions.items);
    return status;
}

const char *kolo_onnx_notice(const kolo_onnx *onnx) { return onnx ? onnx->notice : NULL; }

kolo_status kolo_onnx_build(kolo_graph *g, int64_t samples, void *arg) {
    kolo_onnx *onnx = arg;
    if (!onnx || !g) return KOLO_FAIL(KOLO_ERR_ARG, "kolo_onnx_build: no graph or no file");
    if (samples < 0) return KOLO_FAIL(KOLO_ERR_ARG, "%" PRId64 " samples", samples);
    return build(onnx, g, samples);
}

/* Builds the graph of one sample, to find what cannot be built. */
static kolo_status try_build(kolo_onnx *onnx) {
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_status status = build(onnx, g, 0);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    for (int32_t v = 0; v < g->n_values && status == KOLO_OK; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_INPUT || info->tensor.shape.rank == 0) continue;
        onnx->integers = info->tensor.dtype == KOLO_DTYPE_I32;
        onnx->sample.rank = info->tensor.shape.rank - 1;
        memcpy(onnx->sample.dim, info->tensor.shape.dim + 1,
               (size_t)onnx->sample.rank * sizeof *onnx->sample.dim);
        break;
    }
    kolo_value logits = status == KOLO_OK ? kolo_graph_output(g, "logits") : KOLO_NONE;
    if (logits.id >= 0 && !onnx->opts.no_loss && kolo_value_shape(g, logits).rank > 1) {
        onnx->classes = kolo_value_shape(g, logits).dim[1];
    }
    kolo_graph_destroy(g);
    return status;
}

kolo_status onnx_open_bytes(const uint8_t *bytes, size_t length, const char *path,
                            const kolo_onnx_opts *opts, kolo_onnx **result) {
    kolo_onnx *onnx;
    KOLO_TRY(onnx_parse(bytes, length, path, opts, &onnx));
    kolo_status status = try_build(onnx);
    if (status != KOLO_OK) {
        kolo_onnx_close(onnx);
        return status;
    }
    *result = onnx;
    return KOLO_OK;
}

kolo_status kolo_onnx_open(const char *path, const kolo_onnx_opts *opts, kolo_onnx **result) {
    kolo_file_view view;
    if (!path || !result) return KOLO_FAIL(KOLO_ERR_ARG, "kolo_onnx_open: no path or no result");
    KOLO_TRY(kolo_file_map(path, &view));
    kolo_status status = onnx_open_bytes(view.data, view.bytes, path, opts, result);
    kolo_file_unmap(&view);
    return status;
}

void kolo_onnx_describe(const kolo_onnx *onnx, kolo_shape *sample, bool *integers,
                        int64_t *classes) {
    *sample = onnx->sample;
    *integers = onnx->integers;
    *classes = onnx->classes;
}
