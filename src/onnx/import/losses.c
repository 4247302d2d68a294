/* SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss, of x [N,C,...] and integer labels [N,...]
 * that depend on the samples, and what a session trains on where a file has an output "loss".
 *
 * A loss of logits is a cross-entropy. Others, and those of each label, are log-probabilities times
 * 1 at the class of each label, and 0 elsewhere and for labels that are ignored.
 *
 * A loss of a file is mostly a mean over its batch. A session divides a sum over the batch, also of
 * several workers and micro-batches, by the number of labels (kolo/session.h). So the output
 * "loss" becomes the sum of which the loss is the mean, where it is a cross-entropy, the mean of a
 * tensor, or a sum of these with constant factors. Other functions of means are multiplied by the
 * number of samples, which is right for a single batch; workers cannot divide them. */
#include "graph/ops/ops.h"
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_CLASSES = 4096, CLASSES = 1 /* dimension */ };

static kolo_value sum_of(onnx_import *m, kolo_value x) {
    return kolo_reduce_sum(m->g, x, NULL, 0, false);
}

/* ---- operators ---- */

/* Of a table [classes,width] the row of each label, as [N,each,width]. */
static kolo_value by_label(onnx_call *c, const onnx_loss *loss, kolo_value table) {
    const kolo_shape s = kolo_value_shape(c->g, loss->labels);
    const int64_t n = s.rank > 0 ? s.dim[0] : 1;
    const kolo_value ids =
        onnx_as(c, loss->labels, kolo_shape_2(n, kolo_shape_count(&s) / (n > 0 ? n : 1)));
    return kolo_embedding(c->g, table, ids, KOLO_NONE);
}

/* A table [classes,width]: `width` is 1, or that of the classes, with 1 on the diagonal; the row of
 * ignored labels is 0. */
static kolo_status label_table(onnx_call *c, const onnx_loss *loss, int64_t classes, int64_t width,
                               kolo_value *table) {
    const kolo_shape shape = kolo_shape_2(classes, width);
    float *f = NULL;
    KOLO_TRY(onnx_floats(c, host_count(&shape, HOST_MOST), &f));
    for (int64_t k = 0; k < classes * width; k++) {
        const bool ignored = loss->opts.has_ignore_index && k / width == loss->opts.ignore_index;
        f[k] = !ignored && (width == 1 || k / width == k % width) ? 1 : 0;
    }
    return onnx_table(c, onnx_text(c->node->output[0]), &shape, f, table);
}

/* The weight of each label [N,each,1], 1 without `weighted`; 0 if it is ignored. */
static kolo_status weights_of_labels(onnx_call *c, const onnx_loss *loss, int64_t classes,
                                     bool weighted, kolo_value *weights) {
    kolo_value table;
    KOLO_TRY(label_table(c, loss, classes, 1, &table));
    if (weighted) {
        const kolo_shape column = kolo_shape_2(classes, 1);
        table = kolo_mul(c->g, table, onnx_as(c, loss->opts.weights, column));
    }
    *weights = by_label(c, loss, table);
    return kolo_graph_check(c->g);
}

/* The loss of each label [N,...]: of log-probabilities x. */
static kolo_status of_each(onnx_call *c, const onnx_loss *loss, kolo_value x, kolo_value *y) {
    const kolo_shape s = kolo_value_shape(c->g, x),
                     of_labels = kolo_value_shape(c->g, loss->labels);
    const int64_t classes = s.dim[CLASSES];
    const int axis = CLASSES;
    kolo_value table, weights;
    if (classes > MOST_CLASSES) {
        return ONNX_FAIL(
            c,
            "%" PRId64
            " classes; with logits and a reduction any number is supported, else at most %d",
            classes, (int)MOST_CLASSES);
    }
    KOLO_TRY(label_table(c, loss, classes, classes, &table));
    const kolo_value rows = by_label(c, loss, table); /* [N,each,C] */
    const kolo_value picked = kolo_mul(c->g, x, onnx_as(c, kolo_transpose(c->g, rows, 1, 2), s));
    *y = kolo_neg(c->g, kolo_reduce_sum(c->g, picked, &axis, 1, false));
    KOLO_TRY(kolo_graph_check(c->g));
    if (!loss->opts.use_weights) return KOLO_OK;
    KOLO_TRY(weights_of_labels(c, loss, classes, true, &weights));
    *y = kolo_mul(c->g, *y, onnx_as(c, weights, of_labels));
    return kolo_graph_check(c->g);
}

/* The logits of which x are the log-probabilities; none: x is something else. */
static kolo_value logits_of(const kolo_graph *g, kolo_value x) {
    const kolo_shape want = kolo_value_shape(g, x);
    const kolo_value from = kolo_viewed(g, x);
    const kolo_shape have = kolo_value_shape(g, from);
    const int32_t producer = kolo_info(g, from)->producer;
    if (producer < 0 || !kolo_shape_equal(&want, &have)) return KOLO_NONE;
    const kolo_node *n = g->nodes[producer];
    return n->op == &kolo_op_softmax && n->attr[KOLO_SOFTMAX_LOG].i ? n->in[0] : KOLO_NONE;
}

static bool is_reduction(const onnx_call *c) {
    return onnx_text_is(c, "reduction", "none", true) ||
           onnx_text_is(c, "reduction", "sum", true) || onnx_text_is(c, "reduction", "mean", true);
}

/* Labels, and which count by how much. */
static kolo_status read_labels(onnx_call *c, const kolo_shape *x, onnx_loss *loss) {
    const int64_t ignored = onnx_int(c, "ignore_index", -1);
    KOLO_TRY(onnx_value(c, 1, &loss->labels));
    const kolo_shape s = kolo_value_shape(c->g, loss->labels);
    if (kolo_value_dtype(c->g, loss->labels) != KOLO_DTYPE_I32) {
        return ONNX_FAIL(c, "input 1 (\"%.100s\") must be an input of integers", c->in[1]->name);
    }
    kolo_shape want = {.rank = x->rank - 1, .dim = {x->dim[0]}};
    for (int d = 2; d < x->rank; d++) want.dim[d - 1] = x->dim[d];
    if (!kolo_shape_equal(&s, &want)) return ONNX_FAIL(c, "the labels do not fit");
    loss->opts.has_ignore_index =
        onnx_attribute(c, "ignore_index") && ignored >= INT32_MIN && ignored <= INT32_MAX;
    loss->opts.ignore_index = loss->opts.has_ignore_index ? (int32_t)ignored : 0;
    loss->opts.use_weights = onnx_has(c, 2);
    if (!loss->opts.use_weights) return KOLO_OK;
    KOLO_TRY(onnx_value(c, 2, &loss->opts.weights));
    if (kolo_info(c->g, loss->opts.weights)->kind == KOLO_VALUE_PARAM) {
        kolo_freeze(c->g, loss->opts.weights); /* as those of PyTorch's losses */
    }
    return kolo_graph_check(c->g);
}

/* A session divides by the labels of all cross-entropies: these ignore the same ones. */
static bool may_be_xent(const onnx_call *c, const onnx_loss *loss) {
    const kolo_value labels = kolo_viewed(c->g, loss->labels);
    for (size_t i = 0; i < c->m->n_losses; i++) {
        const onnx_loss *other = &c->m->losses[i];
        const bool same = kolo_viewed(c->g, other->labels).id == labels.id;
        const bool ignores = loss->opts.has_ignore_index || other->opts.has_ignore_index;
        const bool alike = loss->opts.has_ignore_index == other->opts.has_ignore_index &&
                           loss->opts.ignore_index == other->opts.ignore_index;
        if (other->is_xent && ignores && !(same && alike)) return false;
    }
    return kolo_info(c->g, labels)->kind == KOLO_VALUE_INPUT;
}

static kolo_status record(onnx_call *c, const onnx_loss *loss) {
    onnx_import *m = c->m;
    if (!KOLO_GROW(m->losses, m->n_losses, m->cap_losses)) return KOLO_NOMEM(sizeof *loss);
    m->losses[m->n_losses++] = *loss;
    return onnx_set(c, 0, loss->value);
}

kolo_status onnx_map_loss(onnx_call *c) {
    const bool takes_logits = c->node->op_type[0] == 'S';
    const bool sums = onnx_text_is(c, "reduction", "sum", false);
    const bool none = onnx_text_is(c, "reduction", "none", false);
    onnx_loss loss = {.counted = KOLO_NONE, .mean = !sums};
    kolo_value x, y = KOLO_NONE, weights;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (!is_reduction(c)) return ONNX_FAIL(c, "attribute reduction: none, sum and mean are known");
    if (s.rank < 2) return ONNX_FAIL(c, "an input of %d dimensions; [N,C,...] is needed", s.rank);
    KOLO_TRY(read_labels(c, &s, &loss));
    const kolo_value logits = takes_logits ? x : logits_of(c->g, x);
    if (takes_logits) x = kolo_log_softmax(c->g, x, CLASSES);
    loss.is_xent = !none && kolo_value_ok(logits) && may_be_xent(c, &loss);
    if (loss.is_xent) {
        loss.sum = kolo_softmax_xent_opts(c->g, logits, loss.labels, &loss.opts);
    } else {
        KOLO_TRY(of_each(c, &loss, x, &y));
        loss.sum = sum_of(c->m, y);
    }
    if (c->n_out > 1 && *onnx_text(c->node->output[1])) KOLO_TRY(onnx_set(c, 1, x));
    if (none) return onnx_set(c, 0, y);
    loss.value = loss.sum;
    if (loss.is_xent && loss.opts.has_ignore_index) {
        KOLO_TRY(weights_of_labels(c, &loss, s.dim[CLASSES], false, &weights));
        loss.counted = sum_of(c->m, weights);
    }
    if (sums) return record(c, &loss);
    if (loss.opts.use_weights || loss.opts.has_ignore_index) {
        KOLO_TRY(weights_of_labels(c, &loss, s.dim[CLASSES], loss.opts.use_weights, &weights));
        loss.value = kolo_div(c->g, loss.sum, sum_of(c->m, weights));
    } else {
        const double n = (double)kolo_shape_count(&s) / (double)s.dim[CLASSES];
        loss.value = kolo_scale(c->g, loss.sum, 1 / n);
    }
    return record(c, &loss);
}

/* ---- the output "loss" ---- */

enum { MOST_VISITS = 1000 }; /* of values on the way back from a loss */

typedef struct total {
    onnx_import *m;
    int visits;
    /* Of all cross-entropies of the file, by whose labels a session divides: */
    kolo_value labels;  /* the input with the labels; none: there are no cross-entropies */
    kolo_value counted; /* the number of labels that are not ignored, if some may be */
    bool several;       /* they are in several inputs: a session divides by the samples */
    /* Of those that the loss is made of: */
    bool any, weighted; /* there are some; with weights of the classes */
    bool others;        /* there are means over the samples, too, or losses with other weights */
    kolo_value weights; /* of the classes, by which all of them divide; none: by 1 */
} total;

static total find_labels(onnx_import *m) {
    total t = {.m = m, .labels = KOLO_NONE, .counted = KOLO_NONE, .weights = KOLO_NONE};
    for (size_t i = 0; i < m->n_losses; i++) {
        const onnx_loss *loss = &m->losses[i];
        if (!loss->is_xent) continue;
        const kolo_value from = kolo_viewed(m->g, loss->labels);
        t.several |= kolo_value_ok(t.labels) && t.labels.id != from.id;
        if (kolo_value_ok(loss->counted)) t.counted = loss->counted;
        t.labels = from;
    }
    return t;
}

static kolo_value times(const total *t, kolo_value x, double factor) {
    return factor == 1 || !kolo_value_ok(x) ? x : kolo_scale(t->m->g, x, factor);
}

/* Labels of a sample. */
static double each_of(const total *t, kolo_value labels) {
    const kolo_shape s = kolo_value_shape(t->m->g, labels);
    return (double)kolo_shape_count(&s) / (double)(t->m->samples > 0 ? t->m->samples : 1);
}

/* A session divides the sum of a cross-entropy by the labels that count. */
static kolo_value total_of_loss(total *t, const onnx_loss *loss) {
    const double each = each_of(t, loss->labels);
    const bool weighted = loss->mean && loss->opts.use_weights;
    const kolo_value weights = weighted ? loss->opts.weights : KOLO_NONE;
    if (weighted && kolo_info(t->m->g, weights)->kind != KOLO_VALUE_PARAM) return KOLO_NONE;
    if (!loss->is_xent) {
        t->others = true;
        return weighted || loss->opts.has_ignore_index ? KOLO_NONE : times(t, loss->sum, 1 / each);
    }
    t->others |= t->any && t->weights.id != weights.id;
    t->any = true;
    t->weighted |= weighted;
    t->weights = weights;
    return times(t, loss->sum, 1 / each);
}

static kolo_value total_of(total *t, kolo_value v);

/* Whether x has elements for each sample. */
static bool is_batched(const total *t, kolo_value x) {
    const kolo_shape s = kolo_value_shape(t->m->g, x);
    const int64_t count = kolo_shape_count(&s), samples = t->m->samples;
    return onnx_decide(t->m, samples > 0 && count > 0 && count % samples == 0);
}

/* The mean of all elements of a tensor that depends on the samples. */
static kolo_value total_of_mean(total *t, const kolo_node *n) {
    if (!n->attr[KOLO_SUM_MEAN].i || !is_batched(t, n->in[0])) return KOLO_NONE;
    const kolo_shape s = kolo_value_shape(t->m->g, n->in[0]);
    t->others = true;
    return times(t, sum_of(t->m, n->in[0]), (double)t->m->samples / (double)kolo_shape_count(&s));
}

static kolo_value total_of_two(total *t, const kolo_node *n) {
    const kolo_value a = total_of(t, n->in[0]);
    const kolo_value b = kolo_value_ok(a) ? total_of(t, n->in[1]) : KOLO_NONE;
    if (!kolo_value_ok(b)) return KOLO_NONE;
    return n->op == &kolo_op_sub ? kolo_sub(t->m->g, a, b) : kolo_add(t->m->g, a, b);
}

static const onnx_loss *loss_of(const onnx_import *m, kolo_value v) {
    for (size_t i = 0; i < m->n_losses; i++) {
        if (m->losses[i].value.id == v.id) return &m->losses[i];
    }
    return NULL;
}

static const kolo_node *producer_of(const kolo_graph *g, kolo_value v) {
    const kolo_shape s = kolo_value_shape(g, v);
    const int32_t producer = kolo_info(g, v)->producer;
    return producer >= 0 && kolo_shape_count(&s) == 1 ? g->nodes[producer] : NULL;
}

static bool adds(const kolo_node *n) {
    return n->op == &kolo_op_add || n->op == &kolo_op_broadcast_add || n->op == &kolo_op_sub;
}

/* The sum, a scalar, whose quotient by the number of samples is v; none: there is no such sum. */
static kolo_value total_of(total *t, kolo_value v) {
    const onnx_loss *loss = loss_of(t->m, v);
    if (t->visits++ > MOST_VISITS) return KOLO_NONE;
    if (loss) return total_of_loss(t, loss);
    const kolo_node *n = producer_of(t->m->g, v);
    if (!n) return KOLO_NONE;
    if (n->op->view) return total_of(t, n->in[0]);
    if (n->op == &kolo_op_sum) return total_of_mean(t, n);
    if (n->op == &kolo_op_scale && n->n_in == 1) {
        return times(t, total_of(t, n->in[0]), n->attr[KOLO_SCALE_FACTOR].f);
    }
    return adds(n) ? total_of_two(t, n) : KOLO_NONE;
}

/* Whether v is a function of means over the samples, by way of single numbers. */
static bool is_of_means(total *t, kolo_value v) {
    const onnx_loss *loss = loss_of(t->m, v);
    const kolo_node *n = producer_of(t->m->g, v);
    if (loss) return loss->mean;
    if (!n || t->visits++ > MOST_VISITS) return false;
    if (n->op == &kolo_op_sum && n->attr[KOLO_SUM_MEAN].i) {
        const kolo_shape s = kolo_value_shape(t->m->g, n->in[0]);
        return kolo_shape_count(&s) > 1;
    }
    for (int i = 0; i < n->n_in; i++) {
        if (is_of_means(t, n->in[i])) return true;
    }
    return false;
}

/* Whether an input has a part in v. */
static bool depends_on_samples(total *t, kolo_value v) {
    const kolo_value_info *info = kolo_info(t->m->g, v);
    if (info->producer < 0) return info->kind == KOLO_VALUE_INPUT;
    if (t->visits++ > MOST_VISITS) return true;
    const kolo_node *n = t->m->g->nodes[info->producer];
    for (int i = 0; i < n->n_in; i++) {
        if (depends_on_samples(t, n->in[i])) return true;
    }
    return false;
}

/* Whether v, times the samples, may be summed over parts of a batch: v is a sum of means over the
 * samples, which all count alike, and of what does not depend on them. */
static bool has_parts(total *t, kolo_value v) {
    const onnx_loss *loss = loss_of(t->m, v);
    const kolo_node *n = producer_of(t->m->g, v);
    if (loss) return loss->mean && !loss->opts.use_weights && !loss->opts.has_ignore_index;
    if (n && (n->op->view || (n->op == &kolo_op_scale && n->n_in == 1))) {
        return has_parts(t, n->in[0]);
    }
    if (n && adds(n)) return has_parts(t, n->in[0]) && has_parts(t, n->in[1]);
    if (!depends_on_samples(t, v)) return true;
    return n && n->op == &kolo_op_sum && n->attr[KOLO_SUM_MEAN].i && is_batched(t, n->in[0]);
}

/* What a session divides by, for each sample. */
static double divisor(const total *t) {
    const kolo_graph *g = t->m->g;
    const kolo_value y = kolo_graph_find(g, "y");
    if (kolo_value_ok(t->labels)) return t->several ? 1 : each_of(t, t->labels);
    const bool labels = kolo_value_ok(y) && kolo_info(g, y)->kind == KOLO_VALUE_INPUT &&
                        kolo_value_dtype(g, y) == KOLO_DTYPE_I32;
    return labels ? each_of(t, y) : 1;
}

kolo_value onnx_loss_to_train(onnx_import *m, kolo_value v) {
    total t = find_labels(m);
    const kolo_value sum = total_of(&t, v);
    const bool ignores = kolo_value_ok(t.counted);
    const bool mixed = (ignores || t.weighted) && (t.others || t.several);
    if (kolo_value_ok(sum) && !mixed) {
        if (kolo_value_ok(t.weights)) m->g->label_weights = kolo_info(m->g, t.weights)->name;
        return times(&t, sum, divisor(&t));
    }
    t.visits = 0;
    if (!is_of_means(&t, v)) return v;
    t.visits = 0;
    m->g->is_loss_of_whole = ignores || !has_parts(&t, v);
    if (ignores) return kolo_mul(m->g, v, t.counted);
    return times(&t, v, divisor(&t) * (double)m->samples);
}
