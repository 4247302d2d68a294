/* Ops that change the shape, layout or dtype of a tensor: the views flatten and reshape, reorder
 * and convert. Passes after the gradient pass add reorder and convert, which have no gradient rule.
 */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>
#include <stdio.h>
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
 * nothing else. With fewer, a leading 1 is a single sample. */
static bool leads_with_1(const kolo_shape *small, const int64_t *large, int rank) {
    if (small->rank < 4 || rank != small->rank + 1 || large[0] != 1) return false;
    return memcmp(small->dim, large + 1, (size_t)small->rank * sizeof *large) == 0;
}

/* "abAn#->abn#": dimensions that stay, some of size 1 that come or go, then one that stays
 * outermost of the others, alone or merged with them, as samples do. */
static const char *reshape_index(const kolo_attr *attr, const kolo_shape *in, char *text) {
    kolo_shape out = {.rank = (int)attr[KOLO_RESHAPE_RANK].i};
    for (int d = 0; d < out.rank; d++) out.dim[d] = attr[KOLO_RESHAPE_DIM + d].i;
    const bool before = leads_with_1(in, out.dim, out.rank);
    const bool gone = leads_with_1(&out, in->dim, in->rank);
    char from[KOLO_MAX_RANK + 2], to[KOLO_MAX_RANK + 2];
    int i = 0, j = 0, n_from = 0, n_to = 0;
    char letter = 'a', one = 'A';
    while (i < in->rank && j < out.rank) {
        const int64_t x = in->dim[i], y = out.dim[j];
        if ((x != y && y == 1 && j > 0) || (j == 0 && before)) {
            to[n_to++] = one++;
            j++;
        } else if ((x != y && x == 1 && i > 0) || (i == 0 && gone)) {
            from[n_from++] = one++;
            i++;
        } else {
            from[n_from++] = to[n_to++] = letter++;
            i++;
            j++;
            if (x != y) break;
        }
    }
    from[n_from] = to[n_to] = 0;
    snprintf(text, KOLO_NOTATION, "%s#->%s#", from, to);
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

/* Of both views: dy under the shape of x. */
static void view_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (!wants[0]) return;
    d_in[0] = kolo_reshape(g, d_out[0], kolo_info(g, n->in[0])->tensor.shape);
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
    .grad = view_grad,
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
    .grad = view_grad,
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

kolo_value kolo_reshape(kolo_graph *g, kolo_value x, kolo_shape shape) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_RESHAPE_RANK].i = shape.rank};
    for (int d = 0; d < shape.rank && d < KOLO_MAX_RANK; d++) {
        attr[KOLO_RESHAPE_DIM + d].i = shape.dim[d];
    }
    return kolo_graph_add1(g, &kolo_op_reshape, &x, 1, attr);
}
