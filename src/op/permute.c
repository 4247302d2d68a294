/* Permutation of dimensions, and of the elements along one of them; the gradient is the inverse
 * permutation. */
#include "graph/ops/arrays.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

static const char *const attrs[] = {"d0", "d1", "d2", "d3", "d4", "d5", NULL};
static const char *const flip_attrs[] = {"axis", NULL};

static kolo_status permute_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    const kolo_shape *x = &q->in[0].shape;
    kolo_shape y = {.rank = x->rank};
    unsigned seen = 0;
    for (int d = 0; d < x->rank; d++) {
        int64_t from = q->attr[d].i;
        if (from < 0 || from >= x->rank || seen >> from & 1) {
            return KOLO_RULE_FAIL(q, "dimension %d of the result must be one of x's, each once", d);
        }
        seen |= 1u << from;
        y.dim[d] = x->dim[from];
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, y);
}

/* "abc->cab" */
static const char *permute_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                 char *text) {
    const int rank = in[0].rank;
    for (int d = 0; d < rank; d++) {
        text[d] = (char)('a' + d);
        text[rank + 2 + d] = (char)('a' + attr[d].i);
    }
    text[rank] = '-';
    text[rank + 1] = '>';
    text[2 * rank + 2] = 0;
    return text;
}

static void permute_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    const int rank = kolo_info(g, n->in[0])->tensor.shape.rank;
    for (int d = 0; d < rank; d++) attr[n->attr[d].i].i = d;
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_permute, d_out, 1, attr);
}

static kolo_status flip_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    const int64_t axis = q->attr[KOLO_FLIP_AXIS].i;
    if (axis < 0 || axis >= q->in[0].shape.rank) {
        return KOLO_RULE_FAIL(q, "x has no dimension %d", (int)axis);
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

/* "aBc->aBc" */
static const char *flip_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    const int rank = in[0].rank;
    for (int d = 0; d < rank; d++) {
        text[d] = text[rank + 2 + d] = (char)((d == attr[KOLO_FLIP_AXIS].i ? 'A' : 'a') + d);
    }
    text[rank] = '-';
    text[rank + 1] = '>';
    text[2 * rank + 2] = 0;
    return text;
}

static void flip_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_flip, d_out, 1, n->attr);
}

const kolo_op kolo_op_flip = {
    .name = "flip",
    .index_of = flip_index,
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .attrs = flip_attrs,
    .shape = flip_shape,
    .grad = flip_grad,
    .cheap = true,
    .sequences = true,
    .bf16 = 1u << 0,
};
const kolo_op kolo_op_permute = {
    .name = "permute",
    .index_of = permute_index,
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .attrs = attrs,
    .shape = permute_shape,
    .grad = permute_grad,
    .cheap = true,
    .bf16 = 1u << 0,
};

kolo_value kolo_permute(kolo_graph *g, kolo_value x, const int *order) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    const int rank = kolo_value_shape(g, x).rank;
    if (!kolo_graph_takes_array(g, "permute", "dimensions", order, rank, 0)) return KOLO_NONE;
    for (int d = 0; d < rank; d++) attr[d].i = order[d] < 0 ? order[d] + rank : order[d];
    return kolo_graph_add1(g, &kolo_op_permute, &x, 1, attr);
}

kolo_value kolo_transpose(kolo_graph *g, kolo_value x, int a, int b) {
    const int rank = kolo_value_shape(g, x).rank;
    int order[KOLO_MAX_RANK] = {0, 1, 2, 3, 4, 5};
    a += a < 0 ? rank : 0;
    b += b < 0 ? rank : 0;
    bool fits = a >= 0 && a < rank && b >= 0 && b < rank;
    if (fits) {
        order[a] = b;
        order[b] = a;
    }
    return kolo_permute(g, x, fits ? order : (const int[KOLO_MAX_RANK]){-1 - rank}); /* refused */
}

kolo_value kolo_flip(kolo_graph *g, kolo_value x, int axis) {
    const int rank = kolo_value_shape(g, x).rank;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_FLIP_AXIS].i = axis < 0 ? axis + rank : axis};
    return kolo_graph_add1(g, &kolo_op_flip, &x, 1, attr);
}

/* ---- reference ---- */

static void permute(const kolo_call *call) {
    const kolo_shape *from = &call->spec->in[0].shape, *to = &call->spec->out[0].shape;
    const double *x = call->in[0];
    double *y = call->out[0];
    int64_t stride[KOLO_MAX_RANK], step = 1;
    for (int d = from->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= from->dim[d];
    }
    for (int64_t k = 0; k < kolo_shape_count(to); k++) {
        int64_t at = 0, rest = k;
        for (int d = to->rank - 1; d >= 0; d--) {
            at += rest % to->dim[d] * stride[call->spec->attr[d].i];
            rest /= to->dim[d];
        }
        y[k] = x[at];
    }
}

static void flip(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    const int axis = (int)call->spec->attr[KOLO_FLIP_AXIS].i;
    const int64_t size = s->dim[axis];
    const double *x = call->in[0];
    double *y = call->out[0];
    int64_t inner = 1;
    for (int d = axis + 1; d < s->rank; d++) inner *= s->dim[d];
    for (int64_t k = 0; k < kolo_shape_count(s); k++) {
        const int64_t i = k / inner % size;
        y[k] = x[k + (size - 1 - 2 * i) * inner];
    }
}

static void run_flip(const kolo_call *call) { kolo_ref_run(call, flip); }
static void run_permute(const kolo_call *call) { kolo_ref_run(call, permute); }

const kolo_kernel kolo_ops_permute[] = {
    KOLO_REF_KERNEL("ref_permute", &kolo_op_permute, run_permute),
    KOLO_REF_KERNEL("ref_flip", &kolo_op_flip, run_flip),
    {0},
};
