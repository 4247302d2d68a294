/* Softmax cross-entropy of logits that are sharded along the classes. Each rank reduces its classes
 * to maxima, of which the ranks take the largest; then to sums of exponentials and the logit of the
 * label, which the ranks add up; the loss follows from the sums. No rank has all logits. Shoeybi et
 * al., "Megatron-LM", 2019, section 3.
 *
 * The maximum has no gradient: the loss does not depend on it. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

static const char *const no_attrs[] = {NULL}, *const first_attrs[] = {"first", NULL};
static const char *const xent_attrs[] = {
    "has_ignore_index", "ignore_index", "%smoothing", "count", "classes", NULL};

/* The shape of the labels [N,...] of logits [N,C,...]. */
static kolo_shape places_of(const kolo_shape *logits) {
    kolo_shape s = {logits->rank - 1, {logits->dim[0]}};
    for (int d = 2; d < logits->rank; d++) s.dim[d - 1] = logits->dim[d];
    return s;
}

/* Input `logits` is [N,C,...], the next ones are [N,...], and those before it [4,N,...]. */
static kolo_status check_logits(const kolo_shape_query *q, int logits) {
    if (q->in[logits].shape.rank < 2) return KOLO_RULE_FAIL(q, "the logits must be N,C,...");
    const kolo_shape places = places_of(&q->in[logits].shape);
    const kolo_shape sums = kolo_shape_stack(&places, KOLO_CLASS_SUMS);
    for (int k = 0; k < q->n_in; k++) {
        if (k == logits) continue;
        if (!kolo_shape_equal(&q->in[k].shape, k < logits ? &sums : &places)) {
            return KOLO_RULE_FAIL(q, "input %d does not fit the logits", k);
        }
    }
    return KOLO_OK;
}

static kolo_status class_max_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(check_logits(q, 0));
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), places_of(&q->in[0].shape));
}

static kolo_status class_sums_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffi"));
    KOLO_TRY(check_logits(q, 0));
    return kolo_rule_out(q, 0, q->in[1].dtype, kolo_shape_stack(&q->in[1].shape, KOLO_CLASS_SUMS));
}

static kolo_status class_sums_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fffi"));
    KOLO_TRY(check_logits(q, 1));
    return kolo_rule_out(q, 0, q->in[1].dtype, q->in[1].shape);
}

static kolo_status check_sums(const kolo_shape_query *q) {
    const kolo_shape sums = kolo_shape_stack(&q->in[1].shape, KOLO_CLASS_SUMS);
    if (q->in[1].shape.rank < 1 || !kolo_shape_equal(&q->in[0].shape, &sums)) {
        return KOLO_RULE_FAIL(q, "the sums must be %d,N,... for labels N,...", KOLO_CLASS_SUMS);
    }
    return KOLO_OK;
}

static kolo_status sums_xent_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fi"));
    KOLO_TRY(check_sums(q));
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0()));
    if (!q->attr[KOLO_LOSS_COUNT].i) return KOLO_OK;
    return kolo_rule_out(q, 1, q->in[0].dtype, kolo_shape_0());
}

static kolo_status sums_xent_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fif"));
    KOLO_TRY(check_sums(q));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void class_sums_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                            const bool *wants, kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], n->in[0], n->in[1], n->in[2]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_class_sums_bwd, in, 4, n->attr);
}

static void sums_xent_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                           const bool *wants, kolo_value *d_in) {
    const kolo_value in[] = {n->in[0], n->in[1], d_out[0]};
    if (!wants[0] || !kolo_value_ok(d_out[0])) return;
    d_in[0] = kolo_graph_add1(g, &kolo_op_sums_xent_bwd, in, 3, n->attr);
}

const kolo_op kolo_op_class_max = {
    .name = "class_max",
    .index = "nc*->n*",
    .combine = KOLO_MAX,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .attrs = no_attrs,
    .shape = class_max_shape,
    .bf16 = 1u << 0,
    .kept = true,
};
const kolo_op kolo_op_class_sums = {
    .name = "class_sums",
    .index = "nc*,n*,n*->Kn*",
    .part = {.index = 'c', .first = KOLO_ATTR(KOLO_CLASS_FIRST)},
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = first_attrs,
    .shape = class_sums_shape,
    .grad = class_sums_grad,
    .bf16 = 1u << 0,
    .kept = true,
};
const kolo_op kolo_op_class_sums_bwd = {
    .name = "class_sums_bwd",
    .index = "Kn*,nc*,n*,n*->nc*",
    .linear = 0x1u,
    .part = {.index = 'c', .first = KOLO_ATTR(KOLO_CLASS_FIRST)},
    .min_in = 4,
    .max_in = 4,
    .layout = {.in = "pppp", .out = "p"},
    .attrs = first_attrs,
    .shape = class_sums_bwd_shape,
    .overwrite = 1u << 1,
    .bf16 = 1u << 1,
};
const kolo_op kolo_op_sums_xent = {
    .name = "sums_xent",
    .index = "Kn*,n*->,",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pp", .out = "pp"},
    .attrs = xent_attrs,
    .shape = sums_xent_shape,
    .grad = sums_xent_grad,
};
const kolo_op kolo_op_sums_xent_bwd = {
    .name = "sums_xent_bwd",
    .index = "Kn*,n*,->Kn*",
    .linear = 0x4u,
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = xent_attrs,
    .shape = sums_xent_bwd_shape,
};

void kolo_divide_xent(kolo_graph *g, const kolo_node *n, int64_t classes, kolo_value *by) {
    const kolo_value logits = n->in[0], labels = n->in[1];
    KOLO_ASSERT(n->n_in == 2); /* no weights of the classes */
    kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_LOSS_HAS_IGNORE_INDEX] = n->attr[KOLO_LOSS_HAS_IGNORE_INDEX],
        [KOLO_LOSS_IGNORE_INDEX] = n->attr[KOLO_LOSS_IGNORE_INDEX],
        [KOLO_LOSS_SMOOTHING] = n->attr[KOLO_LOSS_SMOOTHING],
        [KOLO_LOSS_COUNT] = n->attr[KOLO_LOSS_COUNT],
        [KOLO_LOSS_CLASSES].i = classes,
    };
    kolo_value out[KOLO_MAX_IO], max = kolo_graph_add1(g, &kolo_op_class_max, &logits, 1, NULL);
    const kolo_value in[] = {logits, max, labels};
    const kolo_value sums = kolo_graph_add1(g, &kolo_op_class_sums, in, 3, NULL);
    kolo_graph_add(g, &kolo_op_sums_xent, (kolo_value[]){sums, labels}, 2, attr, out);
    by[0] = out[0];
    by[1] = KOLO_NONE;
    if (n->n_out > 2) by[2] = out[1];
}

/* ---- reference ---- */

enum { EXPONENTIALS, OF_LABEL, ALL, BEFORE_LABEL };

/* Logits [N,C,...]: those of one position are `inner` elements apart; sums are `places` apart. */
typedef struct view {
    int64_t classes, inner, places, first;
} view;

static view view_of(const kolo_call *call, int logits) {
    const kolo_shape *s = &call->spec->in[logits].shape;
    view v = {.classes = s->dim[1], .first = call->spec->attr[KOLO_CLASS_FIRST].i};
    v.places = kolo_shape_count(s) / v.classes;
    v.inner = v.places / s->dim[0];
    return v;
}

/* The index of class 0 of a position. */
static int64_t place_of(const view *v, int64_t p) {
    return p / v->inner * v->classes * v->inner + p % v->inner;
}

static void class_max(const kolo_call *call) {
    view v = view_of(call, 0);
    double *max = call->out[0];
    for (int64_t p = 0; p < v.places; p++) {
        const double *x = (const double *)call->in[0] + place_of(&v, p);
        max[p] = x[0];
        for (int64_t c = 1; c < v.classes; c++) max[p] = fmax(max[p], x[c * v.inner]);
    }
}

static void class_sums(const kolo_call *call) {
    view v = view_of(call, 0);
    const double *max = call->in[1];
    const int32_t *labels = call->in[2];
    double *sums = call->out[0];
    memset(sums, 0, sizeof *sums * (size_t)(KOLO_CLASS_SUMS * v.places));
    for (int64_t p = 0; p < v.places; p++) {
        const double *x = (const double *)call->in[0] + place_of(&v, p);
        const int64_t label = labels[p] - v.first;
        for (int64_t c = 0; c < v.classes; c++) {
            const double above = x[c * v.inner] - max[p];
            sums[EXPONENTIALS * v.places + p] += exp(above);
            sums[ALL * v.places + p] += above;
            if (c == label) sums[OF_LABEL * v.places + p] = above;
            if (c == label ? above < 0 : c < label && above == 0) {
                sums[BEFORE_LABEL * v.places + p]++;
            }
        }
    }
}

static void class_sums_bwd(const kolo_call *call) {
    view v = view_of(call, 1);
    const double *d = call->in[0], *max = call->in[2];
    const int32_t *labels = call->in[3];
    for (int64_t p = 0; p < v.places; p++) {
        const double *x = (const double *)call->in[1] + place_of(&v, p);
        double *dx = (double *)call->out[0] + place_of(&v, p);
        const int64_t label = labels[p] - v.first;
        for (int64_t c = 0; c < v.classes; c++) { /* dx may be x */
            dx[c * v.inner] = d[EXPONENTIALS * v.places + p] * exp(x[c * v.inner] - max[p]) +
                              d[ALL * v.places + p] + (c == label ? d[OF_LABEL * v.places + p] : 0);
        }
    }
}

/* Whether a label counts. */
static bool counts(const kolo_attr *attr, int32_t label) {
    if (attr[KOLO_LOSS_HAS_IGNORE_INDEX].i && label == attr[KOLO_LOSS_IGNORE_INDEX].i) return false;
    return label >= 0 && label < attr[KOLO_LOSS_CLASSES].i;
}

static void sums_xent(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t places = kolo_shape_count(&call->spec->in[1].shape);
    const double *sums = call->in[0], smoothing = attr[KOLO_LOSS_SMOOTHING].f;
    const int32_t *labels = call->in[1];
    double loss = 0, count = 0;
    for (int64_t p = 0; p < places; p++) {
        if (!counts(attr, labels[p])) continue;
        const double all = sums[ALL * places + p] / (double)attr[KOLO_LOSS_CLASSES].i;
        loss += log(sums[EXPONENTIALS * places + p]) -
                (1 - smoothing) * sums[OF_LABEL * places + p] -
                (smoothing > 0 ? smoothing * all : 0);
        count += sums[BEFORE_LABEL * places + p] == 0;
    }
    *(double *)call->out[0] = loss;
    if (attr[KOLO_LOSS_COUNT].i) *(double *)call->out[1] = count;
}

static void sums_xent_bwd(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t places = kolo_shape_count(&call->spec->in[1].shape);
    const double *sums = call->in[0], *dloss = call->in[2], smoothing = attr[KOLO_LOSS_SMOOTHING].f;
    const int32_t *labels = call->in[1];
    double *d = call->out[0];
    for (int64_t p = 0; p < places; p++) {
        const double by = counts(attr, labels[p]) ? *dloss : 0;
        d[EXPONENTIALS * places + p] = by / sums[EXPONENTIALS * places + p];
        d[OF_LABEL * places + p] = -(1 - smoothing) * by;
        d[ALL * places + p] = -smoothing / (double)attr[KOLO_LOSS_CLASSES].i * by;
        d[BEFORE_LABEL * places + p] = 0;
    }
}

#define RUN(op) \
    static void run_##op(const kolo_call *call) { kolo_ref_run(call, op); }
RUN(class_max)
RUN(class_sums)
RUN(class_sums_bwd)
RUN(sums_xent)
RUN(sums_xent_bwd)

const kolo_kernel kolo_ops_sharded_loss[] = {
    KOLO_REF_KERNEL("ref_class_max", &kolo_op_class_max, run_class_max),
    KOLO_REF_KERNEL("ref_class_sums", &kolo_op_class_sums, run_class_sums),
    KOLO_REF_KERNEL("ref_class_sums_bwd", &kolo_op_class_sums_bwd, run_class_sums_bwd),
    KOLO_REF_KERNEL("ref_sums_xent", &kolo_op_sums_xent, run_sums_xent),
    KOLO_REF_KERNEL("ref_sums_xent_bwd", &kolo_op_sums_xent_bwd, run_sums_xent_bwd),
    {0},
};
