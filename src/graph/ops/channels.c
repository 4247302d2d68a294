/* Ops on ranges of channels: concat and channel_window, which is the gradient of both. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>

static const char *const concat_attrs[] = {NULL};
static const char *const window_attrs[] = {"first", "count", NULL};

static kolo_status concat_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffffff"));
    kolo_shape y = q->in[0].shape;
    if (y.rank < 2) return KOLO_RULE_FAIL(q, "inputs must have two or more dimensions: N,C,...");
    for (int i = 1; i < q->n_in; i++) {
        kolo_shape same = q->in[i].shape;
        int64_t channels = same.rank == y.rank ? same.dim[1] : 0;
        if (same.rank == y.rank) same.dim[1] = y.dim[1];
        if (!kolo_shape_equal(&same, &y)) {
            return KOLO_RULE_FAIL(q, "inputs 0 and %d differ in more than dimension 1", i);
        }
        if (__builtin_add_overflow(y.dim[1], channels, &y.dim[1])) {
            return KOLO_RULE_FAIL(q, "more channels than can be counted");
        }
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, y);
}

static kolo_status window_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    kolo_shape y = q->in[0].shape;
    int64_t first = q->attr[KOLO_WINDOW_FIRST].i, count = q->attr[KOLO_WINDOW_COUNT].i;
    if (y.rank < 2) return KOLO_RULE_FAIL(q, "x must have two or more dimensions: N,C,...");
    if (count < 1 || count > INT32_MAX || first <= -count || first >= y.dim[1]) {
        return KOLO_RULE_FAIL(
            q, "%" PRId64 " channels from %" PRId64 " on; at least one must be of x's", count,
            first);
    }
    y.dim[1] = count;
    return kolo_rule_out(q, 0, q->in[0].dtype, y);
}

static kolo_value window(kolo_graph *g, kolo_value x, int64_t first, int64_t count) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_WINDOW_FIRST].i = first, [KOLO_WINDOW_COUNT].i = count};
    return kolo_graph_add1(g, &kolo_op_channel_window, &x, 1, attr);
}

static void concat_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    int64_t first = 0;
    for (int i = 0; i < n->n_in; i++) {
        int64_t channels = kolo_info(g, n->in[i])->tensor.shape.dim[1];
        if (wants[i]) d_in[i] = window(g, d_out[0], first, channels);
        first += channels;
    }
}

static void window_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    int64_t channels = kolo_info(g, n->in[0])->tensor.shape.dim[1];
    if (wants[0]) d_in[0] = window(g, d_out[0], -n->attr[KOLO_WINDOW_FIRST].i, channels);
}

const kolo_op kolo_op_concat = {
    .name = "concat",
    .index = "nC*+nC*+nC*+nC*+nC*+nC*+nC*+nC*->nC*",
    .linear = 0xffu,
    .min_in = 1,
    .max_in = KOLO_MAX_IO,
    .layout = {.in = "aaaaaaaa", .out = "a"},
    .attrs = concat_attrs,
    .shape = concat_shape,
    .grad = concat_grad,
    .cheap = true,
    .bf16 = 0xFFu,
    .samples = {.in = 0xffu, .out = 0x1u},
};
const kolo_op kolo_op_channel_window = {
    .name = "channel_window",
    .index = "nC*->nD*",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = window_attrs,
    .shape = window_shape,
    .grad = window_grad,
    .cheap = true,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};

kolo_value kolo_channel_window(kolo_graph *g, kolo_value x, int64_t first, int64_t count) {
    return window(g, x, first, count);
}
