/* Recomputation: what the forward pass made and the backward pass reads again is made a second time
 * instead of being kept in between. The same ops on the same numbers: the same bits.
 *
 * A value is *held* if a node of the backward pass (one that depends on the gradient's seed) reads
 * it. A held value that is made again gets a copy of its maker right before the first backward node
 * that reads it, and all backward nodes read the copy's result; what the first result then lacks is
 * a reader late in the step. A batch normalisation is made again as batch_norm_infer by the batch's
 * mean and variance, which are small and stay.
 *
 *   cheap   outputs of ops that cost no more than their memory traffic (op->cheap) are made again
 *           where everything that this takes stays anyway: held values that are not made again
 *           themselves, or cheap values that nobody else holds. In a chain of residual sums that
 *           makes again every second one.
 *   full    first, the forward pass is cut into segments; of a segment's values only those that
 *           later segments read are kept, and the rest is made again, all of it, before the
 *           segment's backward pass; the last segment keeps its own. Then as cheap, with the copies
 *           too. Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016:
 *           n equal segments cost 2 sqrt(n) of n. Segments here end where the fewest bytes cross,
 *           once a budget is full; of several budgets the one stays that leaves the least in
 *           memory, crossing values and the largest segment together. */
#include "graph/graph.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

/* A copied node and the one that it is to stand before. */
typedef struct copied {
    kolo_node *node;
    int32_t target;
} copied;

typedef struct recomputer {
    kolo_graph *g;
    bool *backward;       /* by node: depends on the seed, or is an update */
    kolo_value *replaced; /* by value: what backward nodes read in its place */
    int32_t n_nodes;      /* before copies are added */
    copied *copies;       /* on the heap */
    size_t n_copies, cap_copies;
    kolo_arena arena;
} recomputer;

static size_t bytes_of(const recomputer *r, kolo_value v) {
    return kolo_tensor_bytes(&kolo_info(r->g, v)->tensor);
}

static bool is_temp(const recomputer *r, kolo_value v) {
    return kolo_info(r->g, v)->kind == KOLO_VALUE_TEMP;
}

static const kolo_node *maker_of(const recomputer *r, kolo_value v) {
    return r->g->nodes[kolo_info(r->g, v)->producer];
}

static void identity(kolo_value *alias, int32_t n) {
    for (int32_t v = 0; v < n; v++) alias[v] = (kolo_value){v};
}

/* Starts over on the graph as it is. */
static kolo_status begin(recomputer *r, kolo_value seed) {
    kolo_graph *g = r->g;
    size_t n_values = (size_t)g->n_values;
    r->n_nodes = g->n_nodes;
    r->n_copies = 0;
    r->backward = kolo_arena_alloc(&r->arena, (size_t)g->n_nodes + 1);
    r->replaced = kolo_arena_alloc(&r->arena, n_values * sizeof *r->replaced);
    bool *reached = kolo_arena_alloc(&r->arena, n_values);
    if (!r->backward || !r->replaced || !reached) return KOLO_NOMEM(n_values * sizeof *r->replaced);
    identity(r->replaced, g->n_values);
    reached[seed.id] = true;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *node = g->nodes[i];
        r->backward[i] = kolo_node_is_update(g, node);
        for (int k = 0; k < node->n_in; k++) r->backward[i] |= reached[node->in[k].id];
        for (int k = 0; k < node->n_out; k++) reached[node->out[k].id] = r->backward[i];
    }
    return KOLO_OK;
}

/* ---- copies ---- */

/* Adds a copy of the forward node `n`, to stand before node `target`; its inputs are replaced by
 * `alias`, and the results of the copy become the alias of the results of n. */
static kolo_status copy_node(recomputer *r, const kolo_node *n, int32_t target, kolo_value *alias) {
    kolo_value in[KOLO_MAX_IO];
    kolo_tensor out[KOLO_MAX_IO] = {0};
    const kolo_op *op = n->op;
    const int n_out = op->recompute.op ? 1 : n->n_out;
    KOLO_ASSERT(n_out > 0 && n->n_in <= KOLO_MAX_IO);
    for (int k = 0; k < n->n_in; k++) in[k] = alias[n->in[k].id];
    if (op->recompute.op) {
        for (int k = 1; k < n->n_out; k++) in[op->recompute.kept + k - 1] = n->out[k];
        op = op->recompute.op;
    }
    for (int k = 0; k < n_out; k++) out[k] = kolo_info(r->g, n->out[k])->tensor;
    kolo_node *copy = kolo_graph_add_raw(r->g, op, in, n->n_in, n_out, out, n->attr);
    if (!copy) return kolo_graph_check(r->g);
    copy->recomputed = true;
    for (int k = 0; k < n_out; k++) alias[n->out[k].id] = copy->out[k];
    if (!KOLO_GROW(r->copies, r->n_copies, r->cap_copies)) return KOLO_NOMEM(sizeof *r->copies);
    r->copies[r->n_copies++] = (copied){copy, target};
    return KOLO_OK;
}

/* Backward nodes read the copies; these, at the end as yet, go before their targets. */
static kolo_status finish(recomputer *r) {
    kolo_graph *g = r->g;
    kolo_node **order = kolo_alloc((size_t)g->n_nodes * sizeof *order);
    if (!order) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *order);
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_nodes; i++) {
        kolo_node *node = g->nodes[i];
        for (size_t c = 0; c < r->n_copies; c++) {
            if (r->copies[c].target == i) order[n++] = r->copies[c].node;
        }
        for (int k = 0; r->backward[i] && k < node->n_in; k++) {
            node->in[k] = r->replaced[node->in[k].id];
        }
        order[n++] = node;
    }
    KOLO_ASSERT(n == g->n_nodes);
    kolo_status status = kolo_graph_set_nodes(g, order, n);
    kolo_free(order);
    return status;
}

/* The first backward node that reads each value that the forward pass made; -1 where none does. */
static int32_t *find_readers(recomputer *r) {
    size_t n = (size_t)r->g->n_values;
    int32_t *reader = kolo_arena_alloc(&r->arena, n * sizeof *reader);
    if (!reader) return NULL;
    for (size_t v = 0; v < n; v++) reader[v] = -1;
    for (int32_t i = 0; i < r->n_nodes; i++) {
        const kolo_node *node = r->g->nodes[i];
        for (int k = 0; r->backward[i] && k < node->n_in; k++) {
            kolo_value v = node->in[k];
            bool made = is_temp(r, v) && !r->backward[kolo_info(r->g, v)->producer];
            if (made && reader[v.id] < 0) reader[v.id] = i;
        }
    }
    return reader;
}

/* ---- cheap ---- */

typedef enum fate { FREE /* not held */, KEPT, RECOMPUTED } fate;

/* Whether all that making n's result again takes stays anyway. Inputs that nobody holds are made
 * again too, if they are cheap themselves. */
static bool can_repeat(const recomputer *r, const kolo_node *n, const fate *fates) {
    if (!n->op->cheap) return false;
    for (int k = 0; k < n->n_in; k++) {
        kolo_value v = n->in[k];
        if (!is_temp(r, v) || fates[v.id] == KEPT) continue;
        if (fates[v.id] == RECOMPUTED || !can_repeat(r, maker_of(r, v), fates)) return false;
    }
    return true;
}

/* Copies n and, before it, what it needs of cheap values that nobody holds. */
static kolo_status repeat(recomputer *r, const kolo_node *n, int32_t target, const fate *fates,
                          kolo_value *alias) {
    for (int k = 0; k < n->n_in; k++) {
        kolo_value v = n->in[k];
        if (!is_temp(r, v) || fates[v.id] == KEPT || alias[v.id].id != v.id) continue;
        KOLO_TRY(repeat(r, maker_of(r, v), target, fates, alias));
    }
    return copy_node(r, n, target, alias);
}

/* Decides the fate of each held value, the earliest first, and copies the makers of those that go.
 */
static kolo_status repeat_cheap(recomputer *r) {
    const int32_t n_values = r->g->n_values;
    const int32_t *reader = find_readers(r);
    fate *fates = kolo_arena_alloc(&r->arena, (size_t)n_values * sizeof *fates);
    kolo_value *alias = kolo_arena_alloc(&r->arena, (size_t)n_values * sizeof *alias);
    if (!reader || !fates || !alias) return KOLO_NOMEM((size_t)n_values * sizeof *alias);
    for (int32_t v = 0; v < n_values; v++) fates[v] = reader[v] >= 0 ? KEPT : FREE;
    for (int32_t i = 0; i < r->n_nodes; i++) {
        const kolo_node *node = r->g->nodes[i];
        kolo_value v = node->out[0];
        if (fates[v.id] != KEPT || !can_repeat(r, node, fates)) continue;
        identity(alias, n_values);
        KOLO_TRY(repeat(r, node, reader[v.id], fates, alias));
        r->replaced[v.id] = alias[v.id];
        fates[v.id] = RECOMPUTED;
    }
    return finish(r);
}

/* ---- segments ---- */

typedef struct cutter {
    recomputer *r;
    const int32_t *reader; /* by value */
    int32_t *last;         /* by value: the last forward node that reads it */
    int64_t *held;         /* by forward node: bytes of its results that are held and not cheap */
    int64_t *crossing; /* by forward node: bytes made up to it that forward nodes behind it read */
    int32_t n;         /* forward nodes */
} cutter;

/* Outputs that the recomputation of output 0 reads, such as the mean and variance of a batch. */
static bool is_kept(const recomputer *r, kolo_value v) {
    const kolo_node *maker = maker_of(r, v);
    return maker->op->recompute.op && v.id != maker->out[0].id;
}

static kolo_status measure(cutter *c) {
    recomputer *r = c->r;
    const kolo_graph *g = r->g;
    while (c->n < r->n_nodes && !r->backward[c->n]) c->n++;
    c->reader = find_readers(r);
    c->last = kolo_arena_alloc(&r->arena, (size_t)g->n_values * sizeof *c->last);
    c->held = kolo_arena_alloc(&r->arena, ((size_t)c->n + 1) * sizeof *c->held);
    c->crossing = kolo_arena_alloc(&r->arena, ((size_t)c->n + 1) * sizeof *c->crossing);
    if (!c->reader || !c->last || !c->held || !c->crossing) return KOLO_NOMEM(g->n_values);
    for (int32_t i = 0; i < c->n; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) c->last[g->nodes[i]->in[k].id] = i;
    }
    for (int32_t i = 0; i < c->n; i++) {
        const kolo_node *node = g->nodes[i];
        for (int k = 0; k < node->n_out; k++) {
            kolo_value v = node->out[k];
            int64_t bytes = (int64_t)bytes_of(r, v);
            if (c->reader[v.id] >= 0 && !node->op->cheap) c->held[i] += bytes;
            for (int32_t j = i; j < c->last[v.id]; j++) c->crossing[j] += bytes;
        }
    }
    return KOLO_OK;
}

/* The end of the segment that begins at node `first` under a budget: past the node, at or behind
 * which the budget is full, where the fewest bytes cross, the latest of equals. */
static int32_t segment_end(const cutter *c, int32_t first, int64_t budget) {
    int32_t best = first;
    int64_t held = 0;
    for (int32_t i = first; i < c->n; i++) {
        held += c->held[i];
        if (held > budget && i > first) return best + 1;
        if (c->crossing[i] <= c->crossing[best]) best = i;
    }
    return c->n;
}

/* Bytes that stay under a budget: those that cross, and the largest segment. */
static int64_t cost(const cutter *c, int64_t budget) {
    int64_t crossing = 0, largest = 0;
    for (int32_t first = 0, end; first < c->n; first = end) {
        int64_t held = 0;
        end = segment_end(c, first, budget);
        for (int32_t i = first; i < end; i++) held += c->held[i];
        if (held > largest) largest = held;
        if (end < c->n) crossing += c->crossing[end - 1];
    }
    return crossing + largest;
}

/* Budgets from everything down to a sixty-fourth of it. */
static int64_t best_budget(const cutter *c) {
    int64_t total = 0, best = 0, least = INT64_MAX;
    for (int32_t i = 0; i < c->n; i++) total += c->held[i];
    for (int parts = 1; parts <= 64; parts++) {
        int64_t bytes = cost(c, total / parts);
        if (bytes >= least) continue;
        least = bytes;
        best = total / parts;
    }
    return best;
}

/* Whether node i, of a segment that ends at `end`, is kept as a whole: later segments read it. */
static bool stays(const cutter *c, int32_t i, int32_t end) {
    return c->last[c->r->g->nodes[i]->out[0].id] >= end;
}

/* Marks which nodes of segment [first, end) are to be copied for its backward pass; gives the node
 * that the copies are to stand before. */
static int32_t mark_copies(const cutter *c, int32_t first, int32_t end, bool *copy) {
    const recomputer *r = c->r;
    int32_t target = INT32_MAX;
    for (int32_t i = end - 1; i >= first; i--) {
        const kolo_node *node = r->g->nodes[i];
        if (stays(c, i, end)) continue;
        for (int k = 0; k < node->n_out; k++) {
            int32_t reader = c->reader[node->out[k].id];
            if (reader < 0 || is_kept(r, node->out[k])) continue;
            copy[i] = true;
            if (reader < target) target = reader;
        }
        for (int k = 0; copy[i] && k < node->n_in; k++) {
            int32_t maker = kolo_info(r->g, node->in[k])->producer;
            if (maker < first || stays(c, maker, end) || is_kept(r, node->in[k])) continue;
            copy[maker] = true;
        }
    }
    return target;
}

static kolo_status repeat_segments(recomputer *r) {
    cutter c = {.r = r};
    KOLO_TRY(measure(&c));
    const kolo_graph *g = r->g;
    bool *copy = kolo_arena_alloc(&r->arena, (size_t)c.n + 1);
    kolo_value *alias = kolo_arena_alloc(&r->arena, (size_t)g->n_values * sizeof *alias);
    if (!copy || !alias) return KOLO_NOMEM((size_t)g->n_values * sizeof *alias);
    identity(alias, g->n_values);
    int64_t budget = best_budget(&c);
    for (int32_t first = 0, end; (end = segment_end(&c, first, budget)) < c.n; first = end) {
        int32_t target = mark_copies(&c, first, end, copy);
        for (int32_t i = first; i < end; i++) {
            const kolo_node *node = g->nodes[i];
            if (!copy[i]) continue;
            KOLO_TRY(copy_node(r, node, target, alias));
            for (int k = 0; k < node->n_out; k++) {
                r->replaced[node->out[k].id] = alias[node->out[k].id];
            }
        }
    }
    return finish(r);
}

/* ---- the whole ---- */

kolo_status kolo_pass_recompute(kolo_graph *g, kolo_recompute what, kolo_value seed) {
    recomputer r = {.g = g};
    kolo_status status = KOLO_OK;
    if (what == KOLO_RECOMPUTE_NONE) return KOLO_OK;
    if (what == KOLO_RECOMPUTE_FULL) {
        KOLO_TRY_GOTO(begin(&r, seed), done);
        KOLO_TRY_GOTO(repeat_segments(&r), done);
    }
    KOLO_TRY_GOTO(begin(&r, seed), done);
    status = repeat_cheap(&r);
done:
    kolo_free(r.copies);
    kolo_arena_fini(&r.arena);
    return status;
}
