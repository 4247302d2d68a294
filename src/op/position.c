/* What attention needs of positions: rotary embedding (Su et al., "RoFormer", 2021; the halves of a
 * head are rotated, as in Llama), and the mask of keys after a query. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>

static const char *const rotary_attrs[] = {"heads", "%base", "first", "inverse", "length", NULL};
static const char *const causal_attrs[] = {"%fill", "window", NULL};

static kolo_status rotary_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fi"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,C"));
    const kolo_shape want = kolo_shape_2(q->in[0].shape.dim[0], q->in[0].shape.dim[1]);
    if (q->n_in > 1 && !kolo_shape_equal(&q->in[1].shape, &want)) {
        return KOLO_RULE_FAIL(q, "the positions must be N,T");
    }
    const int64_t heads = q->attr[KOLO_ROTARY_HEADS].i;
    if (heads < 1 || q->in[0].shape.dim[2] % (2 * heads) != 0) {
        return KOLO_RULE_FAIL(
            q, "%" PRId64 " channels do not divide into %" PRId64 " heads of an even width",
            q->in[0].shape.dim[2], heads);
    }
    if (!(q->attr[KOLO_ROTARY_BASE].f > 0)) return KOLO_RULE_FAIL(q, "base must be above 0");
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void rotary_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    kolo_attr attr[KOLO_MAX_ATTRS];
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) attr[i] = n->attr[i];
    attr[KOLO_ROTARY_INVERSE].i = !attr[KOLO_ROTARY_INVERSE].i;
    const kolo_value in[] = {d_out[0], n->in[n->n_in - 1]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_rotary, in, n->n_in, attr);
}

static kolo_status causal_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    if (q->in[0].shape.rank < 2) {
        return KOLO_RULE_FAIL(q, "x must have two or more dimensions: ...,T,S");
    }
    if (q->attr[KOLO_CAUSAL_WINDOW].i < 0) return KOLO_RULE_FAIL(q, "window must not be negative");
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void causal_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CAUSAL_WINDOW].i = n->attr[KOLO_CAUSAL_WINDOW].i};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_causal_mask, d_out, 1, attr);
}

const kolo_op kolo_op_rotary = {
    .name = "rotary",
    .index = "nth,nt->nth",
    .linear = 0x1u,
    .part = {.index = 'h',
             .size = KOLO_ATTR(KOLO_ROTARY_HEADS),
             .position = KOLO_ATTR(KOLO_ROTARY_FIRST),
             .length = KOLO_ATTR(KOLO_ROTARY_LENGTH)},
    .min_in = 1,
    .max_in = 2,
    .layout = {.in = "pp", .out = "p"},
    .attrs = rotary_attrs,
    .shape = rotary_shape,
    .grad = rotary_grad,
    .overwrite = 1u << 0,
    .cheap = true,
    .bf16 = 1u << 0,
    .samples = {.in = 0x3u, .out = 0x1u},
};
const kolo_op kolo_op_causal_mask = {
    .name = "causal_mask",
    .index = "*TS->*TS",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .attrs = causal_attrs,
    .shape = causal_shape,
    .grad = causal_grad,
    .overwrite = 1u << 0,
    .cheap = true,
};

kolo_value kolo_rotary(kolo_graph *g, kolo_value x, int64_t heads, double base, int64_t first) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_ROTARY_HEADS].i = heads,
                                            [KOLO_ROTARY_BASE].f = base != 0 ? base : 10000,
                                            [KOLO_ROTARY_FIRST].i = first};
    return kolo_graph_add1(g, &kolo_op_rotary, &x, 1, attr);
}

/* ---- reference ---- */

/* Of each pair (a, b) of a head's halves at position t: a cos - b sin, b cos + a sin. */
static void rotary(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t *dim = call->spec->in[0].shape.dim, half = dim[2] / attr[KOLO_ROTARY_HEADS].i / 2;
    const int32_t *positions = call->spec->n_in > 1 ? call->in[1] : NULL;
    const double *x = call->in[0], sign = attr[KOLO_ROTARY_INVERSE].i ? -1 : 1;
    double *y = call->out[0];
    for (int64_t k = 0; k < dim[0] * dim[1] * dim[2]; k++) {
        const int64_t from_first = kolo_position_of(
            attr[KOLO_ROTARY_FIRST].i, attr[KOLO_ROTARY_LENGTH].i, dim[1], k / dim[2] % dim[1]);
        int64_t t = positions ? positions[k / dim[2]] : from_first, i = k % (2 * half);
        if (i >= half) continue; /* with its pair */
        double angle = (double)t * pow(attr[KOLO_ROTARY_BASE].f, -(double)i / (double)half);
        double a = x[k], b = x[k + half];
        y[k] = a * cos(angle) - sign * b * sin(angle);
        y[k + half] = b * cos(angle) + sign * a * sin(angle);
    }
}

static void causal_mask(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    const int64_t keys = s->dim[s->rank - 1], rows = s->dim[s->rank - 2];
    const int64_t window = call->spec->attr[KOLO_CAUSAL_WINDOW].i;
    const double *x = call->in[0];
    double *y = call->out[0];
    for (int64_t k = 0; k < kolo_shape_count(s); k++) {
        const int64_t last = k / keys % rows + keys - rows, key = k % keys;
        bool seen = key <= last && (window == 0 || key > last - window);
        y[k] = seen ? x[k] : call->spec->attr[KOLO_CAUSAL_FILL].f;
    }
}

static void run_rotary(const kolo_call *call) { kolo_ref_run(call, rotary); }
static void run_causal_mask(const kolo_call *call) { kolo_ref_run(call, causal_mask); }

const kolo_kernel kolo_ops_position[] = {
    KOLO_REF_KERNEL("ref_rotary", &kolo_op_rotary, run_rotary),
    KOLO_REF_KERNEL("ref_causal_mask", &kolo_op_causal_mask, run_causal_mask),
    {0},
};
