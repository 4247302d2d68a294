/* Checks of a model's graph against the data: the session fills "x" with the samples, "y" with the
 * labels, other inputs with the fields of their names, and the scalars below. Any other leaf
 * without a value would be read as leftover memory. */
#include "train/session/model_check.h"

#include "data/mix.h"
#include "graph/ops/ops.h"

#include <inttypes.h>
#include <string.h>

/* Scalars that the session sets, or passes add. */
static const char *const scalars[] = {"rng_key", "first_sample", "lr",    "update",
                                      "share",   "grad_scale",   "fresh", "once"};

static const char *name_of(const kolo_session_config *opts) {
    return opts->model ? opts->model : "of the caller";
}

/* ---- inputs ---- */

/* The shape of `batch` samples or labels; rank 0 if they have too many dimensions. */
static kolo_shape batch_of(int64_t batch, const kolo_shape *each) {
    kolo_shape shape = {0};
    if (each->rank >= KOLO_MAX_RANK) return shape;
    shape.rank = each->rank + 1;
    shape.dim[0] = batch;
    for (int i = 0; i < each->rank; i++) shape.dim[i + 1] = each->dim[i];
    return shape;
}

static kolo_status check_samples(const kolo_session_config *opts, int64_t batch,
                                 const kolo_tensor *x) {
    kolo_shape want = batch_of(batch, &opts->sample);
    char have[KOLO_SHAPE_TEXT], needed[KOLO_SHAPE_TEXT];
    bool typed = x->dtype == KOLO_DTYPE_F32 || x->dtype == KOLO_DTYPE_I32;
    if (typed && kolo_shape_equal(&x->shape, &want)) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "model %s: the input \"x\" is %s %s; for a batch of these samples it must be f32 (images, "
        "tables) or i32 (tokens) %s",
        name_of(opts), kolo_dtype_name(x->dtype), kolo_shape_text(&x->shape, have),
        kolo_shape_text(&want, needed));
}

static kolo_status check_labels(const kolo_session_config *opts, int64_t batch,
                                const kolo_tensor *y) {
    kolo_shape want = batch_of(batch, &opts->label), each = {y->shape.rank - 1, {0}};
    char model[KOLO_SHAPE_TEXT], data[KOLO_SHAPE_TEXT];
    const kolo_dtype dtype = opts->numeric ? KOLO_DTYPE_F32 : KOLO_DTYPE_I32;
    if (y->dtype == dtype && kolo_shape_equal(&y->shape, &want)) return KOLO_OK;
    if (y->dtype != dtype || y->shape.rank < 1 || y->shape.dim[0] != batch) {
        return KOLO_FAIL(
            KOLO_ERR_ARG, "model %s: the input \"y\" is %s %s; labels are %s, %s for this batch%s",
            name_of(opts), kolo_dtype_name(y->dtype), kolo_shape_text(&y->shape, model),
            kolo_dtype_name(dtype), kolo_shape_text(&want, data),
            opts->numeric ? ": they need a regression model, such as mlp:value=1"
            : y->dtype == KOLO_DTYPE_F32
                ? ": the model needs numbers, as of a table with type=value"
                : "");
    }
    for (int i = 0; i < each.rank; i++) each.dim[i] = y->shape.dim[i + 1];
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "model %s takes labels of shape %s for each sample, and the data has %s: choose %s",
        name_of(opts), kolo_shape_text(&each, model), kolo_shape_text(&opts->label, data),
        each.rank > 1    ? "data with a label for each pixel, such as synthetic-seg"
        : each.rank == 1 ? "data with a label for each token, such as text:FILE"
                         : "data with one label a sample, or a model for segmentation");
}

/* An input that any field of a batch may fill. */
static kolo_status check_input(const kolo_session_config *opts, int64_t batch,
                               const kolo_value_info *v) {
    char text[KOLO_SHAPE_TEXT];
    if (v->tensor.shape.rank > 0 && v->tensor.shape.dim[0] == batch) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "model %s: the input \"%s\" is %s; its first dimension must be the samples of "
                     "the batch, here %" PRId64,
                     name_of(opts), v->name, kolo_shape_text(&v->tensor.shape, text), batch);
}

static kolo_status check_leaf(const kolo_session_config *opts, int64_t batch,
                              const kolo_value_info *v) {
    if (v->kind == KOLO_VALUE_INPUT) {
        if (opts->sample.rank == 0) return check_input(opts, batch, v);
        if (strcmp(v->name, "x") == 0) return check_samples(opts, batch, &v->tensor);
        if (strcmp(v->name, "y") == 0) return check_labels(opts, batch, &v->tensor);
        return check_input(opts, batch, v);
    }
    if (v->kind != KOLO_VALUE_SCALAR) return KOLO_OK;
    for (size_t i = 0; i < KOLO_COUNT(scalars); i++) {
        if (strcmp(v->name, scalars[i]) == 0) return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "model %s: nothing sets the scalar \"%s\": use a parameter, or kolo_scale for "
                     "a constant factor",
                     name_of(opts), v->name);
}

static const kolo_field *field_of(const kolo_dataset_info *data, const char *name) {
    for (int f = 0; f < data->n_fields; f++) {
        if (strcmp(data->fields[f].name, name) == 0) return &data->fields[f];
    }
    return NULL;
}

kolo_status kolo_model_check_fields(const kolo_session_config *opts, const kolo_graph *g,
                                    const kolo_dataset_info *data) {
    for (int32_t i = 0; i < g->n_values; i++) {
        const kolo_value_info *v = &g->values[i];
        if (v->kind != KOLO_VALUE_INPUT || kolo_is_pulled(g, i)) continue;
        if (opts->mixes && strcmp(v->name, KOLO_MIX_TARGET) == 0) continue; /* the loader adds it */
        if (!field_of(data, v->name)) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "model %s: nothing fills the input \"%s\", since %s has no such field",
                             name_of(opts), v->name, data->name);
        }
    }
    return KOLO_OK;
}

/* ---- outputs ---- */

static kolo_status check_output(const kolo_session_config *opts, const kolo_graph *g,
                                const kolo_metric *metric) {
    kolo_value v = kolo_graph_output(g, metric->output);
    if (!kolo_value_ok(v)) return KOLO_OK;
    const kolo_value_info *info = kolo_info(g, v);
    const kolo_shape *shape = &info->tensor.shape;
    if (info->kind != KOLO_VALUE_TEMP) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "model %s: the output \"%s\" is the leaf \"%s\"; it must be computed from "
                         "the samples",
                         name_of(opts), metric->output, info->name);
    }
    bool fits = shape->rank == 0;
    if (metric->reduce) {
        fits =
            shape->rank == 2 && shape->dim[0] == (metric->rows > 0 ? metric->rows : shape->dim[1]);
    }
    if (fits) return KOLO_OK;
    char text[KOLO_SHAPE_TEXT];
    return KOLO_FAIL(KOLO_ERR_ARG, "model %s: the output \"%s\" is %s; it must be %s",
                     name_of(opts), metric->output, kolo_shape_text(shape, text),
                     !metric->reduce    ? "a scalar, a sum over the batch"
                     : metric->rows > 0 ? "a matrix of two rows"
                                        : "a square matrix");
}

kolo_status kolo_model_check(const kolo_session_config *opts, int64_t batch, const kolo_graph *g) {
    if (opts->sample.rank > 0 && !kolo_value_ok(kolo_graph_find(g, "x"))) {
        return KOLO_FAIL(KOLO_ERR_ARG, "model %s has no input \"x\" for the samples",
                         name_of(opts));
    }
    if (!opts->evaluate_only && !kolo_value_ok(kolo_graph_output(g, "loss"))) {
        return KOLO_FAIL(KOLO_ERR_ARG, "model %s has no output \"loss\" to train on",
                         name_of(opts));
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        KOLO_TRY(check_leaf(opts, batch, &g->values[v]));
    }
    for (const kolo_metric *m = kolo_metric_table(); m->name; m++) {
        if (m->output) KOLO_TRY(check_output(opts, g, m));
    }
    return KOLO_OK;
}

/* ---- labels ---- */

/* The number of an input among the inputs of the graph. */
static int input_number(const kolo_graph *g, kolo_value input) {
    int number = 0;
    for (int32_t v = 0; v < input.id; v++) number += g->values[v].kind == KOLO_VALUE_INPUT;
    return number;
}

static kolo_status fail_two_rules(const kolo_graph *g, kolo_value one, kolo_value other) {
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "two losses, of the labels \"%s\" and \"%s\", ignore different labels: the "
                     "mean divides by one number of labels; give both the same ignore_index",
                     kolo_info(g, one)->name, kolo_info(g, other)->name);
}

kolo_status kolo_label_rule_find(const kolo_graph *g, kolo_label_rule *rule) {
    kolo_value labels = KOLO_NONE, y = kolo_graph_find(g, "y");
    bool several = false; /* losses read several inputs, or sequences: the mean is over samples */
    *rule = (kolo_label_rule){.input = -1};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        several |= n->op == &kolo_op_ctc_loss; /* a sum over the samples */
        if (n->op != &kolo_op_softmax_xent) continue;
        kolo_value from = kolo_viewed(g, n->in[1]);
        if (kolo_info(g, from)->kind != KOLO_VALUE_INPUT) continue;
        kolo_label_rule own = {
            .ignores = n->attr[KOLO_LOSS_HAS_IGNORE_INDEX].i,
            .ignored = (int32_t)n->attr[KOLO_LOSS_IGNORE_INDEX].i,
            .classes = kolo_info(g, n->in[0])->tensor.shape.dim[1],
            .input = input_number(g, from),
        };
        bool first = !kolo_value_ok(labels), same = first || labels.id == from.id;
        bool rules = own.ignores != rule->ignores || own.ignored != rule->ignored;
        if (!first && (rules || (!same && own.ignores))) return fail_two_rules(g, labels, from);
        several |= !same;
        labels = from;
        *rule = own;
    }
    bool masked = !kolo_value_ok(labels) && kolo_value_ok(y) &&
                  kolo_info(g, y)->kind == KOLO_VALUE_INPUT &&
                  kolo_info(g, y)->tensor.dtype == KOLO_DTYPE_I32;
    if (masked) rule->input = input_number(g, y); /* read by way of masks */
    if (several) rule->input = -1;
    rule->weights = rule->input >= 0 ? g->label_weights : NULL;
    if (rule->weights) { /* other losses may have more classes */
        const kolo_shape shape = kolo_value_shape(g, kolo_graph_find(g, rule->weights));
        rule->classes = shape.dim[0];
    }
    return KOLO_OK;
}
