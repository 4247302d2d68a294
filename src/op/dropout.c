/* Dropout: zeroes random elements and scales the others up, which preserves the mean. Srivastava et
 * al., "Dropout: a simple way to prevent neural networks from overfitting", JMLR 15, 2014.
 *
 * The random numbers are a pure function of the step, the layer and the index of the element in the
 * *global* batch. The gradient is therefore the same dropout of dy, without a stored mask, and N
 * ranks drop the same elements as one rank with the whole batch. */
#include "base/integer.h"
#include "base/rng.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

static const char *const attrs[] = {"%p",     "layer", "first",  "all",  "dim",  "samples", "rows",
                                    "zigzag", "begin", "first2", "all2", "dim2", NULL};

static kolo_status dropout_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fll"));
    if (q->in[0].shape.rank < 1) return KOLO_RULE_FAIL(q, "a scalar has no batch");
    KOLO_TRY(kolo_rule_rank(q, 1, 0, "a scalar"));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar"));
    double p = q->attr[KOLO_DROPOUT_P].f;
    if (!(p >= 0 && p < 1)) return KOLO_RULE_FAIL(q, "p is %g; it must be in [0, 1)", p);
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void dropout_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    if (!wants[0]) return;
    const kolo_value in[] = {d_out[0], n->in[1], n->in[2]};
    d_in[0] = kolo_graph_add1(g, &kolo_op_dropout, in, 3, n->attr);
}

/* Evaluation keeps every element. */
static kolo_status dropout_evaluate(const kolo_graph *g, kolo_node *n, kolo_value *by) {
    (void)g;
    *by = n->in[0];
    return KOLO_OK;
}

/* A dimension of which x has the elements from `first` on, of `all`. */
typedef struct cut {
    int dim;
    int64_t first, all;
} cut;

static int64_t count_between(const kolo_shape *x, int from, int to) {
    int64_t count = 1;
    for (int d = from; d < to; d++) count *= x->dim[d];
    return count;
}

/* By how many elements the second range of a zigzag begins after the first one; 0: both are one
 * range, in the middle. */
static int64_t jump_of(const cut *c, const kolo_shape *x) {
    const int64_t have = x->dim[c->dim], between = kolo_position_jump(c->first, c->all, have);
    return between > 0 ? have / 2 + between : 0;
}

/* Each row has what is contiguous along the dimension; of two ranges, each is a row. */
static kolo_dropout_places places_of_one(const cut *c, const kolo_shape *x, int64_t first_row,
                                         bool zigzag) {
    const int64_t each = count_between(x, c->dim + 1, x->rank);
    const int64_t rows = count_between(x, 0, c->dim), all = c->all * each;
    const int64_t of_row = count_between(x, 1, c->dim) * all; /* of dimension 0 */
    kolo_dropout_places p = {.rows = rows, .count = x->dim[c->dim] * each, .group = 1, .part = 1};
    p.first = first_row * of_row + c->first * each;
    p.outer = all;
    p.jump = zigzag ? jump_of(c, x) * each : 0;
    if (p.jump == 0) return p;
    p.rows *= 2;
    p.count /= 2;
    p.group = 2;
    return p;
}

/* The same along the inner of two dimensions; a group has the elements along the outer one. */
static kolo_dropout_places places_of_two(const cut *outer, const cut *inner, const kolo_shape *x,
                                         int64_t first_row, bool zigzag) {
    const int64_t each = count_between(x, inner->dim + 1, x->rank);
    const int64_t middle = count_between(x, outer->dim + 1, inner->dim);
    const int64_t stride = inner->all * each, step = middle * stride; /* step along the outer one */
    kolo_dropout_places p = {.rows = count_between(x, 0, inner->dim),
                             .count = x->dim[inner->dim] * each,
                             .group = x->dim[outer->dim] * middle,
                             .stride = stride,
                             .outer = outer->all * step};
    p.jump = zigzag ? jump_of(outer, x) * step : 0;
    p.part = p.jump > 0 ? p.group / 2 : p.group;
    p.first = first_row * count_between(x, 1, outer->dim) * p.outer + outer->first * step +
              inner->first * each;
    return p;
}

/* All numbers of a sample, then those of the next one, along an inner dimension. */
static kolo_dropout_places places_by_samples(const kolo_shape *x, int samples,
                                             int64_t first_sample) {
    const int64_t count = count_between(x, samples + 1, x->rank), all = kolo_shape_count(x);
    kolo_dropout_places p = {.rows = all / count, .count = count, .outer = count};
    p.group = p.part = x->dim[samples];
    p.stride = all / p.group;
    p.first = first_sample * p.stride;
    return p;
}

kolo_dropout_places kolo_dropout_places_of(const kolo_attr *attr, const kolo_shape *x,
                                           int64_t first_sample) {
    const cut one = {(int)attr[KOLO_DROPOUT_DIM].i, attr[KOLO_DROPOUT_FIRST].i,
                     attr[KOLO_DROPOUT_ALL].i};
    const cut two = {(int)attr[KOLO_DROPOUT_DIM2].i, attr[KOLO_DROPOUT_FIRST2].i,
                     attr[KOLO_DROPOUT_ALL2].i};
    const int64_t steps = kolo_max_i64(attr[KOLO_DROPOUT_ROWS].i, 1);
    const int64_t first_row = first_sample * steps + attr[KOLO_DROPOUT_BEGIN].i;
    const bool zigzag = attr[KOLO_DROPOUT_ZIGZAG].i != 0;
    const int samples = (int)attr[KOLO_DROPOUT_SAMPLES].i;
    if (samples > 0) return places_by_samples(x, samples, first_sample);
    if (one.all > 0 && two.all > 0) {
        const bool ordered = one.dim < two.dim;
        return places_of_two(ordered ? &one : &two, ordered ? &two : &one, x, first_row, zigzag);
    }
    if (one.all > 0) return places_of_one(&one, x, first_row, zigzag);
    const int64_t count = kolo_shape_count(x);
    return (kolo_dropout_places){
        .rows = 1, .count = count, .group = 1, .part = 1, .first = first_row * (count / x->dim[0])};
}

const kolo_op kolo_op_dropout = {
    .name = "dropout",
    .index = "n*,,s->n*",
    .linear = 0x1u,
    .part = {.index = '*',
             .first = KOLO_ATTR(KOLO_DROPOUT_FIRST),
             .all = KOLO_ATTR(KOLO_DROPOUT_ALL),
             .dim = KOLO_ATTR(KOLO_DROPOUT_DIM),
             .samples = KOLO_ATTR(KOLO_DROPOUT_SAMPLES),
             .rows = KOLO_ATTR(KOLO_DROPOUT_ROWS),
             .length = KOLO_ATTR(KOLO_DROPOUT_ZIGZAG),
             .sample = KOLO_ATTR(KOLO_DROPOUT_BEGIN),
             .other = KOLO_ATTR(KOLO_DROPOUT_FIRST2)},
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "app", .out = "a"},
    .attrs = attrs,
    .shape = dropout_shape,
    .grad = dropout_grad,
    .overwrite = 1u << 0,
    .cheap = true,
    .bf16 = 1u << 0,
    .evaluate = dropout_evaluate,
};

kolo_value kolo_dropout(kolo_graph *g, kolo_value x, double p) {
    int64_t layer = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) layer += g->nodes[i]->op == &kolo_op_dropout;
    const kolo_value in[] = {x, kolo_graph_scalar(g, "rng_key", KOLO_DTYPE_I64),
                             kolo_graph_scalar(g, "first_sample", KOLO_DTYPE_I64)};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_DROPOUT_P].f = p, [KOLO_DROPOUT_LAYER].i = layer};
    return kolo_graph_add1(g, &kolo_op_dropout, in, 3, attr);
}

/* ---- reference ---- */

static void dropout(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *x = call->in[0];
    const int64_t *key = call->in[1], *first = call->in[2];
    double *y = call->out[0], p = spec->attr[KOLO_DROPOUT_P].f;
    const kolo_dropout_places at = kolo_dropout_places_of(spec->attr, &spec->in[0].shape, *first);
    kolo_rng rng =
        kolo_rng_make((uint64_t)*key, KOLO_RNG_DROPOUT, (uint64_t)spec->attr[KOLO_DROPOUT_LAYER].i);
    for (int64_t i = 0; i < at.rows * at.count; i++) {
        uint64_t place = (uint64_t)(kolo_dropout_place(&at, i / at.count) + i % at.count);
        y[i] = (double)kolo_rng_uniform(&rng, place) < p ? 0 : x[i] / (1 - p);
    }
}

static void run(const kolo_call *call) { kolo_ref_run(call, dropout); }

const kolo_kernel kolo_ops_dropout[] = {
    KOLO_REF_KERNEL("ref_dropout", &kolo_op_dropout, run),
    {0},
};
