/* Mixtures of experts: routing of tokens to experts of limited capacity, and the way to the experts
 * and back, each the gradient of the other. Shazeer et al., "Outrageously large neural networks",
 * 2017; Lepikhin et al., "GShard", 2021; Fedus, Zoph, Shazeer, "Switch Transformers", 2022.
 *
 * Capacities are those of a sample, not of a batch or a part of it: any number of ranks thus routes
 * alike. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <string.h>

static const char *const attrs[] = {"capacity", "top", NULL};

static kolo_status check_capacity(const kolo_shape_query *q) {
    const int64_t capacity = q->attr[KOLO_EXPERT_CAPACITY].i;
    if (capacity >= 1 && capacity <= INT32_MAX) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "a capacity of %" PRId64 "; an expert must take 1 token or more",
                          capacity);
}

static kolo_status route_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,E"));
    KOLO_TRY(check_capacity(q));
    const int64_t top = q->attr[KOLO_EXPERT_TOP].i, experts = q->in[0].shape.dim[2];
    if (top < 1 || top > experts) {
        return KOLO_RULE_FAIL(q, "%" PRId64 " experts for a token; choose 1 to %" PRId64, top,
                              experts);
    }
    KOLO_TRY(kolo_rule_out(q, 0, KOLO_DTYPE_I32, q->in[0].shape));
    return kolo_rule_out(q, 1, q->in[0].dtype, q->in[0].shape);
}

/* The choice has no gradient. */
static void route_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                       const bool *wants, kolo_value *d_in) {}

/* Inputs x [N,T,C], y [E,N,P,C], places and gates [N,T,E], by their numbers; -1: not there. */
static kolo_status check(const kolo_shape_query *q, int x, int y, int places, int gates) {
    KOLO_TRY(kolo_rule_rank(q, places, 3, "N,T,E"));
    const int64_t *place = q->in[places].shape.dim;
    const int64_t width = x >= 0 ? q->in[x].shape.dim[2] : q->in[y].shape.dim[3];
    if (x >= 0) {
        KOLO_TRY(kolo_rule_rank(q, x, 3, "N,T,C"));
        const int64_t *dim = q->in[x].shape.dim;
        if (dim[0] != place[0] || dim[1] != place[1]) {
            return KOLO_RULE_FAIL(q, "x and the places must be of the same tokens");
        }
    }
    if (y >= 0) {
        KOLO_TRY(kolo_rule_rank(q, y, 4, "E,N,P,C"));
        const int64_t *dim = q->in[y].shape.dim;
        if (dim[0] != place[2] || dim[1] != place[0] || dim[3] != width) {
            return KOLO_RULE_FAIL(q, "the places must be [N,T,E] of y [E,N,P,C]");
        }
    }
    return gates >= 0 && gates < q->n_in ? kolo_rule_same(q, places, gates) : KOLO_OK;
}

static kolo_status dispatch_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fif"));
    KOLO_TRY(check(q, 0, -1, 1, 2));
    KOLO_TRY(check_capacity(q));
    const int64_t *x = q->in[0].shape.dim, *places = q->in[1].shape.dim;
    const kolo_shape y = {4, {places[2], x[0], q->attr[KOLO_EXPERT_CAPACITY].i, x[2]}};
    return kolo_rule_out(q, 0, q->in[0].dtype, y);
}

static kolo_status combine_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fif"));
    KOLO_TRY(kolo_rule_rank(q, 0, 4, "E,N,P,C"));
    KOLO_TRY(check(q, -1, 0, 1, 2));
    const int64_t *y = q->in[0].shape.dim, *places = q->in[1].shape.dim;
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_3(y[1], places[1], y[3]));
}

static kolo_status products_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffi"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,C"));
    KOLO_TRY(check(q, 0, 1, 2, -1));
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), q->in[2].shape);
}

static kolo_value products(kolo_graph *g, kolo_value x, kolo_value y, kolo_value places) {
    return kolo_graph_add1(g, &kolo_op_expert_products, (kolo_value[]){x, y, places}, 3, NULL);
}

static void dispatch_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                          const bool *wants, kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], n->in[1], n->n_in > 2 ? n->in[2] : KOLO_NONE};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_expert_combine, in, n->n_in, NULL);
    if (n->n_in > 2 && wants[2]) d_in[2] = products(g, n->in[0], d_out[0], n->in[1]);
}

static void combine_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], n->in[1], n->n_in > 2 ? n->in[2] : KOLO_NONE};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_EXPERT_CAPACITY].i =
                                                kolo_info(g, n->in[0])->tensor.shape.dim[2]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_expert_dispatch, in, n->n_in, attr);
    if (n->n_in > 2 && wants[2]) d_in[2] = products(g, d_out[0], n->in[0], n->in[1]);
}

static kolo_cost route_cost(const kolo_shape_query *q) {
    const double top = (double)q->attr[KOLO_EXPERT_TOP].i;
    return (kolo_cost){top * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

const kolo_op kolo_op_expert_route = {
    .name = "expert_route",
    .index = "nTE->nTE,nTE",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "pp"},
    .attrs = attrs,
    .shape = route_shape,
    .grad = route_grad,
    .cost = route_cost,
};
const kolo_op kolo_op_expert_dispatch = {
    .name = "expert_dispatch",
    .index = "ntc,nte,nte->enPc",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = attrs,
    .shape = dispatch_shape,
    .grad = dispatch_grad,
    .cheap = true,
    .bf16 = 1u << 0,
};
const kolo_op kolo_op_expert_combine = {
    .name = "expert_combine",
    .index = "enPc,nte,nte->ntc",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = attrs,
    .shape = combine_shape,
    .grad = combine_grad,
    .bf16 = 1u << 0,
};
const kolo_op kolo_op_expert_products = {
    .name = "expert_products",
    .index = "ntc,enPc,nte->nte",
    .linear = 0x3u,
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = attrs,
    .shape = products_shape,
    .bf16 = 1u << 0 | 1u << 1,
};

void kolo_expert_route(kolo_graph *g, kolo_value probabilities, int64_t top, int64_t capacity,
                       kolo_value out[2]) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_EXPERT_CAPACITY].i = capacity, [KOLO_EXPERT_TOP].i = top};
    kolo_value all[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_expert_route, &probabilities, 1, attr, all);
    for (int i = 0; i < 2; i++) out[i] = all[i];
}

kolo_value kolo_expert_dispatch(kolo_graph *g, kolo_value x, kolo_value places, int64_t capacity) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_EXPERT_CAPACITY].i = capacity};
    return kolo_graph_add1(g, &kolo_op_expert_dispatch, (kolo_value[]){x, places}, 2, attr);
}

kolo_value kolo_expert_combine(kolo_graph *g, kolo_value y, kolo_value places, kolo_value gates) {
    return kolo_graph_add1(g, &kolo_op_expert_combine, (kolo_value[]){y, places, gates}, 3, NULL);
}

/* A batched product whose rows are the places of all samples. */
kolo_value kolo_expert_linear(kolo_graph *g, kolo_value x, kolo_value w) {
    if (!kolo_value_is_of(g, x) || !kolo_value_is_of(g, w))
        return kolo_matmul(g, x, w, false, true);
    const kolo_shape in = kolo_value_shape(g, x), weights = kolo_value_shape(g, w);
    if (in.rank != 4 || weights.rank != 3) {
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG,
                                           "expert_linear: x of %d and weights of %d "
                                           "dimensions; they must be E,N,P,I and "
                                           "E,O,I",
                                           in.rank, weights.rank));
        return KOLO_NONE;
    }
    /* No size is 1, and no product of sizes is another one. */
    static const kolo_shape places = {4, {2, 3, 5, 7}}, merged = {3, {2, 15, 7}};
    const kolo_shape rows = kolo_shape_3(in.dim[0], in.dim[1] * in.dim[2], in.dim[3]);
    const kolo_shape out = kolo_shape_4(in.dim[0], in.dim[1], in.dim[2], weights.dim[1]);
    kolo_value y = kolo_matmul(g, kolo_reshape_as(g, x, &rows, &places, &merged), w, false, true);
    return kolo_reshape_as(g, y, &out, &merged, &places);
}

/* ---- reference ---- */

static void expert_route(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t *dim = call->spec->in[0].shape.dim, tokens = dim[1], experts = dim[2];
    const double *p = call->in[0];
    int32_t *places = call->out[0];
    double *chosen = call->out[1];
    const size_t count = (size_t)kolo_shape_count(&call->spec->in[0].shape);
    memset(chosen, 0, sizeof(double) * count);
    for (size_t i = 0; i < count; i++) places[i] = -1;
    for (int64_t row = 0; row < dim[0] * tokens; row++) {
        const int64_t first = row - row % tokens; /* token of the sample */
        for (int64_t k = 0; k < attr[KOLO_EXPERT_TOP].i; k++) {
            int64_t best = -1, before = 0;
            for (int64_t e = 0; e < experts; e++) {
                if (chosen[row * experts + e] != 0) continue;
                if (best < 0 || p[row * experts + e] > p[row * experts + best]) best = e;
            }
            for (int64_t t = first; t < row; t++) before += chosen[t * experts + best] != 0;
            chosen[row * experts + best] = 1;
            if (before >= attr[KOLO_EXPERT_CAPACITY].i) continue;
            places[row * experts + best] = (int32_t)before;
        }
    }
}

/* Sizes of x [N,T,C], y [E,N,P,C] and places [N,T,E]. */
typedef struct sizes {
    int64_t samples, tokens, width, experts, room;
} sizes;

static sizes sizes_of(const kolo_shape *y, const kolo_shape *places) {
    return (sizes){places->dim[0], places->dim[1], y->dim[3], y->dim[0], y->dim[2]};
}

/* Where the token of [n,t,e], `i` in the places, is in y; -1: it has no place. */
static int64_t row_of(const sizes *s, const int32_t *places, int64_t i) {
    const int64_t e = i % s->experts, n = i / s->experts / s->tokens;
    const bool has = places[i] >= 0 && places[i] < s->room;
    return has ? ((e * s->samples + n) * s->room + places[i]) * s->width : -1;
}

static void expert_dispatch(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const sizes s = sizes_of(&spec->out[0].shape, &spec->in[1].shape);
    const double *x = call->in[0], *gates = spec->n_in > 2 ? call->in[2] : NULL;
    double *y = call->out[0];
    memset(y, 0, sizeof(double) * (size_t)kolo_shape_count(&spec->out[0].shape));
    for (int64_t i = 0; i < s.samples * s.tokens * s.experts; i++) {
        const int64_t to = row_of(&s, call->in[1], i);
        for (int64_t c = 0; c < s.width && to >= 0; c++) {
            y[to + c] += x[i / s.experts * s.width + c] * (gates ? gates[i] : 1);
        }
    }
}

static void expert_combine(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const sizes s = sizes_of(&spec->in[0].shape, &spec->in[1].shape);
    const double *y = call->in[0], *gates = spec->n_in > 2 ? call->in[2] : NULL;
    double *x = call->out[0];
    memset(x, 0, sizeof(double) * (size_t)kolo_shape_count(&spec->out[0].shape));
    for (int64_t i = 0; i < s.samples * s.tokens * s.experts; i++) {
        const int64_t from = row_of(&s, call->in[1], i);
        for (int64_t c = 0; c < s.width && from >= 0; c++) {
            x[i / s.experts * s.width + c] += y[from + c] * (gates ? gates[i] : 1);
        }
    }
}

static void expert_products(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const sizes s = sizes_of(&spec->in[1].shape, &spec->in[2].shape);
    const double *x = call->in[0], *y = call->in[1];
    double *d = call->out[0];
    for (int64_t i = 0; i < s.samples * s.tokens * s.experts; i++) {
        const int64_t from = row_of(&s, call->in[2], i);
        d[i] = 0;
        for (int64_t c = 0; c < s.width && from >= 0; c++) {
            d[i] += x[i / s.experts * s.width + c] * y[from + c];
        }
    }
}

#define RUN(name) \
    static void run_##name(const kolo_call *call) { kolo_ref_run(call, name); }
RUN(expert_route)
RUN(expert_dispatch)
RUN(expert_combine)
RUN(expert_products)

const kolo_kernel kolo_ops_expert[] = {
    KOLO_REF_KERNEL("ref_expert_route", &kolo_op_expert_route, run_expert_route),
    KOLO_REF_KERNEL("ref_expert_dispatch", &kolo_op_expert_dispatch, run_expert_dispatch),
    KOLO_REF_KERNEL("ref_expert_combine", &kolo_op_expert_combine, run_expert_combine),
    KOLO_REF_KERNEL("ref_expert_products", &kolo_op_expert_products, run_expert_products),
    {0},
};
