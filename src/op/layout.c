/* Ops that change the shape, layout or dtype of a tensor: the views flatten and reshape, reorder
 * and convert. Passes after the gradient pass add reorder and convert, which have no gradient rule.
 */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <string.h>

static const char *const no_attrs[] = {NULL};
static const char *const reshape_attrs[] = {"rank", "d0", "d1", "d2", "d3", "d4", "d5", NULL};

static kolo_status flatten_shape(kolo_shape_query *q) {
    const kolo_shape *x = &q->in[0].shape;
    if (x->rank < 1) return KOLO_RULE_FAIL(q, "a scalar has no batch to keep; give [N,...]");
    int64_t rest = 1;
    for (int d = 1; d < x->rank; d++) rest *= x->dim[d];
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_2(x->dim[0], rest));
}

static kolo_status reshape_shape(kolo_shape_query *q) {
    int64_t rank = q->attr[KOLO_RESHAPE_RANK].i;
    if (rank < 0 || rank > KOLO_MAX_RANK) {
        return KOLO_RULE_FAIL(q, "%" PRId64 " dimensions; give 0 to %d", rank, KOLO_MAX_RANK);
    }
    kolo_shape shape = {.rank = (int)rank};
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = q->attr[KOLO_RESHAPE_DIM + d].i;
        if (shape.dim[d] < 1) {
            return KOLO_RULE_FAIL(q, "dimension %d is %" PRId64 "; give 1 or more", d,
                                  shape.dim[d]);
        }
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, shape));
    if (kolo_shape_count(&shape) == kolo_shape_count(&q->in[0].shape)) return KOLO_OK;
    char text[KOLO_SHAPE_TEXT];
    return KOLO_RULE_FAIL(q, "%s has another number of elements", kolo_shape_text(&shape, text));
}

/* Whether a reshape of x puts a 1 before four dimensions or more, or takes it away, and does
 * nothing else. With fewer, a leading 1 may be a single sample. */
static bool leads_with_1(const kolo_shape *small, const int64_t *large, int rank) {
    if (small->rank < 4 || rank != small->rank + 1 || large[0] != 1) return false;
    return memcmp(small->dim, large + 1, (size_t)small->rank * sizeof *large) == 0;
}

/* Bits of `paired`: dimension d of y merges two of x, or two of y are what d of x is split into. */
enum { MERGES = 32, SPLITS = 40 };

/* The dimensions of x and y = reshape(x) that have one index: by dimension of y, in octal digits, 1
 * + that of x, or 0. They are dimensions that stay, beside some of size 1 that come or go, and the
 * outermost of dimensions that are merged or split, as samples are. A leading 1 comes or goes too,
 * unless it may be a `single` sample. */
static int64_t paired_dims(const kolo_shape *x, const kolo_shape *y, bool single) {
    const bool before = leads_with_1(x, y->dim, y->rank);
    const bool gone = leads_with_1(y, x->dim, x->rank);
    int64_t paired = 0;
    for (int i = 0, j = 0; i < x->rank && j < y->rank;) {
        int64_t of_x = x->dim[i], of_y = y->dim[j];
        if ((of_x != of_y && of_y == 1 && (j > 0 || !single)) || (j == 0 && before)) {
            j++;
            continue;
        }
        if ((of_x != of_y && of_x == 1 && (i > 0 || !single)) || (i == 0 && gone)) {
            i++;
            continue;
        }
        const int64_t first_x = i, first_y = j;
        paired |= (int64_t)(++i) << 3 * j++;
        while (of_x != of_y && (of_x < of_y ? i < x->rank : j < y->rank)) {
            if (of_x < of_y) {
                of_x *= x->dim[i++];
            } else {
                of_y *= y->dim[j++];
            }
        }
        if (of_x != of_y) continue;
        if (i == first_x + 2 && j == first_y + 1) paired |= (int64_t)1 << (MERGES + first_y);
        if (i == first_x + 1 && j == first_y + 2) paired |= (int64_t)1 << (SPLITS + first_x);
    }
    return paired;
}

static int pair_of(int64_t paired, int dim) { return (int)(paired >> 3 * dim & 7) - 1; }

/* Writes a term: a letter for each dimension, two for those that merge two of the other tensor. */
static char *write_dims(char *end, int rank, const char *letter, const char *inner,
                        const bool *merged) {
    for (int d = 0; d < rank; d++) {
        if (merged[d]) *end++ = '(';
        *end++ = letter[d];
        if (!merged[d]) continue;
        *end++ = inner[d];
        *end++ = ')';
    }
    return end;
}

/* "abAcB->abcC", where c is split into more than two; "abc->(av)c" for two that are merged. A
 * dimension of a shard may have size 1, so the pairs are those of the whole tensors, where these
 * are known. */
static const char *reshape_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                 char *text) {
    kolo_shape out = {.rank = (int)attr[KOLO_RESHAPE_RANK].i};
    for (int d = 0; d < out.rank; d++) out.dim[d] = attr[KOLO_RESHAPE_DIM + d].i;
    int64_t paired = attr[KOLO_RESHAPE_PAIRED].i;
    if (paired == 0) paired = paired_dims(in, &out, true);
    char x[KOLO_MAX_RANK + 1], y[KOLO_MAX_RANK + 1], inner[KOLO_MAX_RANK] = {0};
    char inner_x[KOLO_MAX_RANK] = {0};
    bool merges[KOLO_MAX_RANK] = {false}, splits[KOLO_MAX_RANK] = {false};
    for (int d = 0; d <= KOLO_MAX_RANK; d++) x[d] = y[d] = (char)('A' + d);
    for (int d = 0; d < out.rank; d++) {
        const int pair = pair_of(paired, d);
        if (pair < 0 || pair >= in->rank) continue;
        x[pair] = y[d] = (char)('a' + d);
        inner[d] = inner_x[pair] = (char)('u' + d);
        merges[d] = paired >> (MERGES + d) & 1;
        splits[pair] = paired >> (SPLITS + pair) & 1;
        if (merges[d]) x[pair + 1] = inner[d];
        if (splits[pair]) y[++d] = inner_x[pair];
    }
    char *end = write_dims(text, in->rank, x, inner_x, splits);
    *end++ = '-';
    *end++ = '>';
    *write_dims(end, out.rank, y, inner, merges) = 0;
    return text;
}

static kolo_status reorder_shape(kolo_shape_query *q) {
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status convert_shape(kolo_shape_query *q) {
    kolo_dtype from = q->in[0].dtype, to = (kolo_dtype)q->attr[KOLO_CONVERT_DTYPE].i;
    bool up = from == KOLO_DTYPE_BF16 && to == KOLO_DTYPE_F32;
    bool down = from == KOLO_DTYPE_F32 && to == KOLO_DTYPE_BF16;
    if (!up && !down) return KOLO_RULE_FAIL(q, "it converts f32 and bf16 into each other");
    return kolo_rule_out(q, 0, to, q->in[0].shape);
}

static kolo_value reshape(kolo_graph *g, kolo_value x, const kolo_shape *shape, int64_t paired) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_RESHAPE_RANK].i = shape->rank, [KOLO_RESHAPE_PAIRED].i = paired};
    for (int d = 0; d < shape->rank && d < KOLO_MAX_RANK; d++) {
        attr[KOLO_RESHAPE_DIM + d].i = shape->dim[d];
    }
    return kolo_graph_add1(g, &kolo_op_reshape, &x, 1, attr);
}

/* dy under the shape of x. */
static void flatten_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    if (wants[0]) d_in[0] = kolo_reshape(g, d_out[0], kolo_info(g, n->in[0])->tensor.shape);
}

static void reshape_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    const kolo_shape x = kolo_info(g, n->in[0])->tensor.shape;
    int64_t paired = 0;
    for (int d = 0; d < KOLO_MAX_RANK; d++) {
        const int64_t own = n->attr[KOLO_RESHAPE_PAIRED].i;
        const int pair = pair_of(own, d);
        if (pair >= 0) paired |= (int64_t)(d + 1) << 3 * pair;
        paired |= (own >> (MERGES + d) & 1) << (SPLITS + d);
        paired |= (own >> (SPLITS + d) & 1) << (MERGES + d);
    }
    if (wants[0]) d_in[0] = reshape(g, d_out[0], &x, paired);
}

/* Of stop_gradient. */
static void no_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                    kolo_value *d_in) {}

const kolo_op kolo_op_flatten = {
    .name = "flatten",
    .index = "n#->nF",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .attrs = no_attrs,
    .shape = flatten_shape,
    .grad = flatten_grad,
    .view = true,
};
const kolo_op kolo_op_reshape = {
    .name = "reshape",
    .index_of = reshape_index,
    .linear = 0x1u,
    .part = {.dims = KOLO_ATTR(KOLO_RESHAPE_DIM)},
    .min_in = 1,
    .max_in = 1,
    .attrs = reshape_attrs,
    .shape = reshape_shape,
    .grad = reshape_grad,
    .view = true,
};
const kolo_op kolo_op_stop_gradient = {
    .name = "stop_gradient",
    .index = "*->*",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .attrs = no_attrs,
    .shape = reorder_shape,
    .grad = no_grad,
    .view = true,
};
const kolo_op kolo_op_reorder = {
    .name = "reorder",
    .index = "*->*",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "x", .out = "x"},
    .attrs = no_attrs,
    .shape = reorder_shape,
};

static const char *const convert_attrs[] = {"dtype", NULL};

const kolo_op kolo_op_convert = {
    .name = "convert",
    .index = "*->*",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "e", .out = "e"},
    .attrs = convert_attrs,
    .shape = convert_shape,
};

kolo_value kolo_stop_gradient(kolo_graph *g, kolo_value x) {
    return kolo_graph_add1(g, &kolo_op_stop_gradient, &x, 1, NULL);
}

kolo_value kolo_flatten(kolo_graph *g, kolo_value x) {
    return kolo_graph_add1(g, &kolo_op_flatten, &x, 1, NULL);
}

/* Whether a dimension of size 1 may be the samples of a graph: the first of its inputs. */
static bool may_be_single(const kolo_graph *g) {
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_shape *input = &g->values[v].tensor.shape;
        if (g->values[v].kind == KOLO_VALUE_INPUT && input->rank > 0) return input->dim[0] == 1;
    }
    return true;
}

kolo_value kolo_reshape(kolo_graph *g, kolo_value x, kolo_shape shape) {
    const bool known = kolo_value_is_of(g, x) && shape.rank >= 0 && shape.rank <= KOLO_MAX_RANK;
    const kolo_shape from = known ? kolo_info(g, x)->tensor.shape : shape;
    return reshape(g, x, &shape, known ? paired_dims(&from, &shape, may_be_single(g)) : 0);
}

kolo_value kolo_reshape_as(kolo_graph *g, kolo_value x, const kolo_shape *shape,
                           const kolo_shape *from, const kolo_shape *to) {
    return reshape(g, x, shape, paired_dims(from, to, true));
}

bool kolo_graph_reshapes(const kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op == &kolo_op_reshape) return true;
    }
    return false;
}

void kolo_graph_pair_reshapes(kolo_graph *g, const kolo_graph *of_several) {
    if (g->n_nodes != of_several->n_nodes) return;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op != of_several->nodes[i]->op) return;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op != &kolo_op_reshape) continue;
        g->nodes[i]->attr[KOLO_RESHAPE_PAIRED] = of_several->nodes[i]->attr[KOLO_RESHAPE_PAIRED];
    }
}

/* ---- reference ---- */

static double fit(kolo_kernel_spec *spec) {
    const kolo_tensor *from = &spec->in[0], *to = &spec->out[0];
    if (from->dtype != to->dtype || !kolo_shape_equal(&from->shape, &to->shape)) return -1;
    return kolo_ref_seconds(spec);
}

static void run(const kolo_call *call) {
    kolo_tensor_reorder(&call->spec->out[0], call->out[0], &call->spec->in[0], call->in[0]);
}

static void convert(const kolo_call *call) {
    size_t count = (size_t)kolo_shape_count(&call->spec->out[0].shape);
    memcpy(call->out[0], call->in[0], count * sizeof(double));
}

static void run_convert(const kolo_call *call) { kolo_ref_run(call, convert); }

const kolo_kernel kolo_ops_layout[] = {
    {
        .name = "ref_reorder",
        .op = &kolo_op_reorder,
        .fit = fit,
        .run = run,
    },
    KOLO_REF_KERNEL("ref_convert", &kolo_op_convert, run_convert),
    {.op = &kolo_op_stop_gradient},
    {.op = &kolo_op_flatten},
    {.op = &kolo_op_reshape},
    {0},
};
