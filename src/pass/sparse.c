/* Sparse embeddings: marks the parameters with row-sparse gradients (graph/ops/ops.h) and sets the
 * capacity of these in rows.
 *
 * If an embedding is the only reader of a table, a step changes only the rows of the ids in its
 * batch. For a marked table, the gradient rule of the embedding returns rows, the optimizer updates
 * rows in place, and the bucket pass gathers the rows of all ranks instead of summing. Unsupported
 * combinations are errors, here and in those passes, and never become dense silently: momentum and
 * weight decay change rows without a gradient, and a table with other readers has a dense gradient.
 *
 * The capacity is that of the largest batch of any rank, since ranks gather equal slices; of the
 * sum over micro-batches (accumulate.c) it is that of all of them. Along dp, ep and sp ranks have
 * samples or positions of their own, and gather; along tp each has the rows of its slice of the
 * table. */
#include "base/integer.h"
#include "graph/graph.h"
#include "pass/pass.h"

#include <inttypes.h>
#include <string.h>

static kolo_status refuse_reader(const kolo_graph *g, kolo_value table, const kolo_node *n) {
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s is also read by %s, whose gradient is dense: a sparse embedding table has "
                     "one reader; omit --sparse-embedding, or untie the two if the model can "
                     "(tied=0)",
                     kolo_info(g, table)->name, n->op->name);
}

/* One embedding is the only reader of the table. */
static kolo_status check_readers(const kolo_graph *g, kolo_value table) {
    int embeddings = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].id != table.id) continue;
            bool looks_up = n->op->lookup && k == 0;
            if (!looks_up || embeddings++ > 0) return refuse_reader(g, table, n);
        }
    }
    return KOLO_OK;
}

/* The ranks that have samples or positions of their own. */
static int64_t count_ranks(const kolo_mesh *mesh) {
    int64_t ranks = 1;
    for (int a = 0; a < mesh->n_axes; a++) {
        const char *name = mesh->axes[a].name;
        const bool own = strcmp(name, "tp") != 0 && strcmp(name, "pp") != 0;
        if (own) ranks *= mesh->axes[a].size;
    }
    return ranks;
}

/* The most positions of a sample that a rank has. */
static int64_t count_positions(const kolo_mesh *mesh, int64_t positions) {
    const int sp = kolo_mesh_find(mesh, "sp"), size = sp < 0 ? 1 : mesh->axes[sp].size;
    return (positions + size - 1) / size;
}

static kolo_status mark(kolo_graph *g, const kolo_node *n, const kolo_sparse_opts *opts) {
    kolo_value_info *table = kolo_info(g, n->in[0]);
    const kolo_shape *ids = &kolo_info(g, n->in[1])->tensor.shape;
    int64_t samples = opts->samples ? opts->samples : ids->dim[0];
    KOLO_TRY(check_readers(g, n->in[0]));
    if (samples < ids->dim[0]) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the batch has %" PRId64 " samples, above the given maximum of %" PRId64,
                         ids->dim[0], samples);
    }
    int64_t height = table->tensor.shape.dim[0];
    table->in_place = true;
    const int64_t parts = count_ranks(&opts->mesh) * kolo_max_i64(opts->micro_batches, 1);
    table->rows = kolo_min_i64(height, samples * count_positions(&opts->mesh, ids->dim[1]));
    if (parts > 1) table->all_rows = kolo_min_i64(height, parts * table->rows);
    return KOLO_OK;
}

kolo_status kolo_pass_sparse(kolo_graph *g, const kolo_sparse_opts *opts) {
    int marked = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (!n->op->lookup) continue;
        const kolo_value_info *table = kolo_info(g, n->in[0]);
        if (table->kind != KOLO_VALUE_PARAM || table->frozen) continue;
        KOLO_TRY(mark(g, n, opts));
        marked++;
    }
    if (marked) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "the model has no embedding table for sparse gradients: omit "
                                   "--sparse-embedding, or choose a language model");
}
