/* Batched matrix product; its gradients are batched matrix products too. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>

static const char *const attrs[] = {"transpose_a", "transpose_b", NULL};

static kolo_status matmul_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    for (int i = 0; i < 2; i++) KOLO_TRY(kolo_rule_rank(q, i, 3, "batch, rows, columns"));
    const int64_t *a = q->in[0].shape.dim, *b = q->in[1].shape.dim;
    bool ta = q->attr[KOLO_MATMUL_TRANSPOSE_A].i, tb = q->attr[KOLO_MATMUL_TRANSPOSE_B].i;
    if (a[0] != b[0] || a[ta ? 1 : 2] != b[tb ? 2 : 1]) {
        return KOLO_RULE_FAIL(
            q, "batch sizes must be equal, and the columns of a must equal the rows of b");
    }
    return kolo_rule_out(q, 0, q->in[0].dtype,
                         (kolo_shape){3, {a[0], a[ta ? 2 : 1], b[tb ? 1 : 2]}});
}

/* With a' for a or its transpose, y = a' b': da' = dy b'^T and db' = a'^T dy. */
static void matmul_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    bool ta = n->attr[KOLO_MATMUL_TRANSPOSE_A].i, tb = n->attr[KOLO_MATMUL_TRANSPOSE_B].i;
    kolo_value dy = d_out[0], a = n->in[0], b = n->in[1];
    if (wants[0])
        d_in[0] = ta ? kolo_matmul(g, b, dy, tb, true) : kolo_matmul(g, dy, b, false, !tb);
    if (wants[1])
        d_in[1] = tb ? kolo_matmul(g, dy, a, true, ta) : kolo_matmul(g, a, dy, !ta, false);
}

static kolo_cost matmul_cost(const kolo_shape_query *q) {
    double inner = (double)q->in[0].shape.dim[q->attr[KOLO_MATMUL_TRANSPOSE_A].i ? 1 : 2];
    return (kolo_cost){2 * inner * (double)kolo_shape_count(&q->out[0].shape), kolo_query_bytes(q)};
}

static const char *matmul_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    static const char *const notations[2][2] = {{"bmk,bkn->bmn", "bmk,bnk->bmn"},
                                                {"bkm,bkn->bmn", "bkm,bnk->bmn"}};
    return notations[attr[KOLO_MATMUL_TRANSPOSE_A].i != 0][attr[KOLO_MATMUL_TRANSPOSE_B].i != 0];
}

const kolo_op kolo_op_matmul = {
    .name = "matmul",
    .index_of = matmul_index,
    .linear = 0x3u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "aa", .out = "a"},
    .attrs = attrs,
    .shape = matmul_shape,
    .grad = matmul_grad,
    .cost = matmul_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x3u, .out = 0x1u},
    .tuned = true,
};

kolo_value kolo_matmul(kolo_graph *g, kolo_value a, kolo_value b, bool transpose_a,
                       bool transpose_b) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_MATMUL_TRANSPOSE_A].i = transpose_a,
        [KOLO_MATMUL_TRANSPOSE_B].i = transpose_b,
    };
    return kolo_graph_add1(g, &kolo_op_matmul, (kolo_value[]){a, b}, 2, attr);
}

/* ---- reference ---- */

static void matmul(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    bool ta = spec->attr[KOLO_MATMUL_TRANSPOSE_A].i, tb = spec->attr[KOLO_MATMUL_TRANSPOSE_B].i;
    const int64_t *dim = spec->out[0].shape.dim;
    int64_t rows = dim[1], columns = dim[2], inner = spec->in[0].shape.dim[ta ? 1 : 2];
    const double *a = call->in[0], *b = call->in[1];
    double *y = call->out[0];
    for (int64_t n = 0; n < dim[0]; n++, a += rows * inner, b += inner * columns) {
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < columns; j++) {
                double sum = 0;
                for (int64_t k = 0; k < inner; k++) {
                    sum += a[ta ? k * rows + i : i * inner + k] *
                           b[tb ? j * inner + k : k * columns + j];
                }
                *y++ = sum;
            }
        }
    }
}

static void run_matmul(const kolo_call *call) { kolo_ref_run(call, matmul); }

const kolo_kernel kolo_ops_matmul[] = {
    KOLO_REF_KERNEL("ref_matmul", &kolo_op_matmul, run_matmul),
    {0},
};
