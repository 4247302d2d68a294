/* Embedding lookup: rows of a table by token id, plus an optional row by position. The gradient of
 * the table is dense, or row-sparse if the table is marked (rows.c). */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <string.h>

static const char *const attrs[] = {"rows", "first", "position", "length", NULL};

/* Positions up to the last of `count`. */
static int64_t end_of(const kolo_attr *attr, int64_t count) {
    return kolo_position_of(attr[KOLO_EMBEDDING_POSITION].i, attr[KOLO_EMBEDDING_LENGTH].i, count,
                            count - 1) +
           1;
}

static kolo_status embedding_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fif"));
    KOLO_TRY(kolo_rule_rank(q, 0, 2, "V,C"));
    KOLO_TRY(kolo_rule_rank(q, 1, 2, "N,T"));
    const int64_t *w = q->in[0].shape.dim, *ids = q->in[1].shape.dim;
    if (q->n_in == 3) {
        KOLO_TRY(kolo_rule_rank(q, 2, 2, "P,C"));
        const int64_t *p = q->in[2].shape.dim, end = end_of(q->attr, ids[1]);
        if (p[0] < end || p[1] != w[1]) {
            return KOLO_RULE_FAIL(
                q, "the positions must be [P,%" PRId64 "] with P %" PRId64 " or more", w[1], end);
        }
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, (kolo_shape){3, {ids[0], ids[1], w[1]}});
}

static kolo_status check_rows(const kolo_shape_query *q, int64_t least) {
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,C"));
    if (q->attr[KOLO_EMBEDDING_ROWS].i >= least) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "%" PRId64 " rows; there must be %" PRId64 " or more",
                          q->attr[KOLO_EMBEDDING_ROWS].i, least);
}

static kolo_status embedding_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fif"));
    KOLO_TRY(check_rows(q, 1));
    const int64_t *dy = q->in[0].shape.dim;
    kolo_shape ids = kolo_shape_2(dy[0], dy[1]);
    kolo_shape table = kolo_shape_2(q->attr[KOLO_EMBEDDING_ROWS].i, dy[2]);
    if (!kolo_shape_equal(&q->in[1].shape, &ids)) return KOLO_RULE_FAIL(q, "the ids must be N,T");
    if (q->n_in > 2 && !kolo_shape_equal(&q->in[2].shape, &table)) {
        return KOLO_RULE_FAIL(q, "the table must be rows,C");
    }
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype),
                         kolo_shape_2(q->attr[KOLO_EMBEDDING_ROWS].i, dy[2]));
}

static kolo_status position_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    const int64_t *dy = q->in[0].shape.dim;
    KOLO_TRY(check_rows(q, q->in[0].shape.rank == 3 ? end_of(q->attr, dy[1]) : 1));
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype),
                         kolo_shape_2(q->attr[KOLO_EMBEDDING_ROWS].i, dy[2]));
}

static kolo_attr rows_of(const kolo_graph *g, kolo_value table) {
    return (kolo_attr){.i = kolo_info(g, table)->tensor.shape.dim[0]};
}

/* Whether the ranks have slices of a table, or this one of blocks of its slice. */
static bool is_divided(const kolo_graph *g, kolo_value table) {
    const int32_t producer = kolo_info(g, table)->producer;
    const kolo_node *n = producer >= 0 ? g->nodes[producer] : NULL;
    return kolo_is_slice(g, n && n->op == &kolo_op_deinterleave ? n->in[0] : table);
}

static void embedding_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                           const bool *wants, kolo_value *d_in) {
    const int64_t room = kolo_info(g, n->in[0])->rows, height = rows_of(g, n->in[0]).i;
    const kolo_value in[] = {d_out[0], n->in[1], n->in[0]};
    const int n_in = is_divided(g, n->in[0]) ? 3 : 2;
    if (wants[0] && room > 0) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            [KOLO_ROWS_TABLE].i = height,
            [KOLO_ROWS_ROOM].i = kolo_min_i64(room, height),
            [KOLO_ROWS_FIRST] = n->attr[KOLO_EMBEDDING_FIRST],
        };
        d_in[0] = kolo_graph_add1(g, &kolo_op_embedding_bwd_rows, in, n_in, attr);
    } else if (wants[0]) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            [KOLO_EMBEDDING_ROWS].i = height,
            [KOLO_EMBEDDING_FIRST] = n->attr[KOLO_EMBEDDING_FIRST],
        };
        d_in[0] = kolo_graph_add1(g, &kolo_op_embedding_bwd, in, n_in, attr);
    }
    if (n->n_in == 3 && wants[2]) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            [KOLO_EMBEDDING_ROWS] = rows_of(g, n->in[2]),
            [KOLO_EMBEDDING_POSITION] = n->attr[KOLO_EMBEDDING_POSITION],
            [KOLO_EMBEDDING_LENGTH] = n->attr[KOLO_EMBEDDING_LENGTH],
        };
        d_in[2] = kolo_graph_add1(g, &kolo_op_position_bwd, d_out, 1, attr);
    }
}

/* Of a table to which rows are added: the rows of its gradient. */
static void embedding_bwd_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                               const bool *wants, kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], n->in[1]};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_EMBEDDING_FIRST] = n->attr[KOLO_EMBEDDING_FIRST]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_embedding, in, 2, attr);
}

/* What is read of the tables are the rows that occur, no more than there are tokens. */
static kolo_cost embedding_cost(const kolo_shape_query *q) {
    double bytes = (double)kolo_tensor_bytes(&q->out[0]);
    return (kolo_cost){0, (double)q->n_in * bytes + (double)kolo_tensor_bytes(&q->in[1])};
}

const kolo_op kolo_op_embedding = {
    .name = "embedding",
    .index = "vc,nt+Pc->ntc",
    .linear = 0x5u,
    .part = {.index = 'v',
             .first = KOLO_ATTR(KOLO_EMBEDDING_FIRST),
             .position = KOLO_ATTR(KOLO_EMBEDDING_POSITION),
             .length = KOLO_ATTR(KOLO_EMBEDDING_LENGTH)},
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "a"},
    .attrs = attrs,
    .shape = embedding_shape,
    .grad = embedding_grad,
    .cost = embedding_cost,
    .lookup = true,
};
const kolo_op kolo_op_embedding_bwd = {
    .name = "embedding_bwd",
    .index = "ntc,nt,vc->vc",
    .linear = 0x1u,
    .part = {.index = 'v', .first = KOLO_ATTR(KOLO_EMBEDDING_FIRST)},
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "app", .out = "p"},
    .attrs = attrs,
    .shape = embedding_bwd_shape,
    .grad = embedding_bwd_grad,
    .bf16 = 1u << 0,
};
const kolo_op kolo_op_position_bwd = {
    .name = "position_bwd",
    .index = "ntc->Pc",
    .linear = 0x1u,
    .part = {.position = KOLO_ATTR(KOLO_EMBEDDING_POSITION),
             .length = KOLO_ATTR(KOLO_EMBEDDING_LENGTH)},
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "p"},
    .attrs = attrs,
    .shape = position_bwd_shape,
    .bf16 = 1u << 0,
};

kolo_value kolo_embedding(kolo_graph *g, kolo_value w, kolo_value ids, kolo_value p) {
    return kolo_graph_add1(g, &kolo_op_embedding, (kolo_value[]){w, ids, p}, p.id < 0 ? 2 : 3,
                           NULL);
}

/* ---- reference ---- */

static void embedding(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *w = call->in[0], *p = spec->n_in == 3 ? call->in[2] : NULL;
    const int32_t *ids = call->in[1];
    const int64_t *dim = spec->out[0].shape.dim, rows = spec->in[0].shape.dim[0];
    int64_t length = dim[1], channels = dim[2];
    double *y = call->out[0];
    for (int64_t i = 0; i < dim[0] * length; i++) {
        int64_t id = ids[i] - spec->attr[KOLO_EMBEDDING_FIRST].i;
        bool known = id >= 0 && id < rows;
        const int64_t t = kolo_position_of(spec->attr[KOLO_EMBEDDING_POSITION].i,
                                           spec->attr[KOLO_EMBEDDING_LENGTH].i, length, i % length);
        for (int64_t c = 0; c < channels; c++) {
            y[i * channels + c] =
                (known ? w[id * channels + c] : 0) + (p ? p[t * channels + c] : 0);
        }
    }
}

static void embedding_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim, *table = call->spec->out[0].shape.dim;
    const double *dy = call->in[0];
    const int32_t *ids = call->in[1];
    double *dw = call->out[0];
    memset(dw, 0, sizeof(double) * (size_t)(table[0] * table[1]));
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        int64_t id = ids[i] - call->spec->attr[KOLO_EMBEDDING_FIRST].i;
        if (id < 0 || id >= table[0]) continue;
        for (int64_t c = 0; c < dim[2]; c++) dw[id * dim[2] + c] += dy[i * dim[2] + c];
    }
}

static void position_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim, *table = call->spec->out[0].shape.dim;
    const double *dy = call->in[0];
    double *dp = call->out[0];
    const kolo_attr *attr = call->spec->attr;
    memset(dp, 0, sizeof(double) * (size_t)(table[0] * table[1]));
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        const int64_t t = kolo_position_of(attr[KOLO_EMBEDDING_POSITION].i,
                                           attr[KOLO_EMBEDDING_LENGTH].i, dim[1], i % dim[1]);
        for (int64_t c = 0; c < dim[2]; c++) dp[t * dim[2] + c] += dy[i * dim[2] + c];
    }
}

static void run_embedding(const kolo_call *call) { kolo_ref_run(call, embedding); }
static void run_embedding_bwd(const kolo_call *call) { kolo_ref_run(call, embedding_bwd); }
static void run_position_bwd(const kolo_call *call) { kolo_ref_run(call, position_bwd); }

const kolo_kernel kolo_ops_embedding[] = {
    KOLO_REF_KERNEL("ref_embedding", &kolo_op_embedding, run_embedding),
    KOLO_REF_KERNEL("ref_embedding_bwd", &kolo_op_embedding_bwd, run_embedding_bwd),
    KOLO_REF_KERNEL("ref_position_bwd", &kolo_op_position_bwd, run_position_bwd),
    {0},
};
