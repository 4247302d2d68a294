/* Recomputation (activation checkpointing): recomputes forward values for the backward pass instead
 * of keeping them. The same ops on the same inputs: bitwise the same results.
 *
 * A value is *held* if a node of the backward pass (one that depends on the gradient's seed) reads
 * it. To recompute a held value, its producer is copied right before the first backward reader, and
 * all backward nodes read the copy; the original value then dies in the forward pass. A batch
 * normalization is recomputed as batch_norm_infer with the mean and variance of the batch, which
 * are small and kept.
 *
 * `cheap` recomputes outputs of memory-bound ops (op->cheap) whose inputs are kept anyway: held
 * values that are not recomputed themselves, or cheap values that are not held. In a chain of
 * residual sums that is every second one.
 *
 * `full` first divides the forward pass into segments. Of a segment, only values that later
 * segments read are kept; all others are recomputed before the segment's backward pass, except in
 * the last segment. Then as `cheap`, copies included. Chen, Xu, Zhang, Guestrin, "Training deep
 * nets with sublinear memory cost", 2016: with n layers, 2 sqrt(n) of the memory. A segment ends
 * where the fewest bytes cross, once a budget is full; of several budgets, the one with the least
 * memory for crossing values and the largest segment is chosen. Ranks that have slices of the
 * values, of different sizes where these do not divide, choose alike: by the largest slices. */
#include "graph/index.h"
#include "graph/ops/lstm.h"
#include "graph/propagate.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

/* A copied node and the position of the copy: before node `target`. */
typedef struct copied {
    kolo_node *node;
    int32_t target;
    size_t before; /* the previous copy for this target, counted from 1; 0: none */
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

static bool is_temp(const recomputer *r, kolo_value v) {
    return kolo_info(r->g, v)->kind == KOLO_VALUE_TEMP;
}

static const kolo_node *maker_of(const recomputer *r, kolo_value v) {
    return r->g->nodes[kolo_info(r->g, v)->producer];
}

static void identity(kolo_value *alias, int32_t n) {
    for (int32_t v = 0; v < n; v++) alias[v] = (kolo_value){.id = v};
}

/* Restarts on the current graph. */
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
    for (int32_t v = 0; v < g->n_values; v++) reached[v] |= g->values[v].crossing.gradient;
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
    copy->move = n->move;
    copy->halo = n->halo;
    for (int k = 0; k < n_out; k++) alias[n->out[k].id] = copy->out[k];
    if (!KOLO_GROW(r->copies, r->n_copies, r->cap_copies)) return KOLO_NOMEM(sizeof *r->copies);
    r->copies[r->n_copies++] = (copied){.node = copy, .target = target};
    return KOLO_OK;
}

/* Redirects backward nodes to the copies and moves the copies, appended at the end, before their
 * targets. */
static kolo_status finish(recomputer *r) {
    kolo_graph *g = r->g;
    kolo_node **order = kolo_alloc((size_t)g->n_nodes * sizeof *order);
    size_t *last = kolo_arena_alloc(&r->arena, ((size_t)r->n_nodes + 1) * sizeof *last);
    if (!order || !last) {
        kolo_free(order);
        return KOLO_NOMEM((size_t)g->n_nodes * sizeof *order);
    }
    /* A list of the copies before each target, from the last. */
    for (size_t c = 0; c < r->n_copies; c++) {
        r->copies[c].before = last[r->copies[c].target];
        last[r->copies[c].target] = c + 1;
    }
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_nodes; i++) {
        kolo_node *node = g->nodes[i];
        int32_t end = n;
        for (size_t c = last[i]; c > 0; c = r->copies[c - 1].before) end++;
        n = end;
        for (size_t c = last[i]; c > 0; c = r->copies[c - 1].before) {
            order[--end] = r->copies[c - 1].node;
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

/* By value of the forward pass: its first backward reader, or -1. */
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

/* The state of the walk that recomputes cheap values. */
typedef struct repeater {
    recomputer *r;
    fate *fates;       /* by value */
    kolo_value *alias; /* by value: its copy in the current round, or itself */
    bool *able;        /* by node: can_repeat */
    struct place {
        const kolo_node *node;
        int input; /* the next one to look at */
    } * stack;
    const kolo_node **copied; /* in the current round */
    size_t depth, cap_stack, n_copied, cap_copied;
} repeater;

/* Whether all inputs to recompute node n are kept anyway. Inputs that are not held are recomputed
 * too, if they are cheap. Earlier nodes have been decided. */
static bool can_repeat(const repeater *p, const kolo_node *n) {
    if (!n->op->cheap) return false;
    for (int k = 0; k < n->n_in; k++) {
        kolo_value v = n->in[k];
        if (!is_temp(p->r, v) || p->fates[v.id] == KEPT) continue;
        if (p->fates[v.id] == RECOMPUTED || !p->able[kolo_info(p->r->g, v)->producer]) return false;
    }
    return true;
}

static kolo_status push(repeater *p, const kolo_node *n) {
    if (!KOLO_GROW(p->stack, p->depth, p->cap_stack)) return KOLO_NOMEM(sizeof *p->stack);
    p->stack[p->depth++] = (struct place){n, 0};
    return KOLO_OK;
}

/* Copies n and, before it, the producers of its inputs that are not held: depth first, inputs in
 * order. */
static kolo_status repeat(repeater *p, const kolo_node *n, int32_t target) {
    p->n_copied = 0;
    KOLO_TRY(push(p, n));
    while (p->depth > 0) {
        struct place *top = &p->stack[p->depth - 1];
        const kolo_node *node = top->node;
        if (top->input < node->n_in) {
            kolo_value v = node->in[top->input++];
            bool there = !is_temp(p->r, v) || p->fates[v.id] == KEPT || p->alias[v.id].id != v.id;
            if (!there) KOLO_TRY(push(p, maker_of(p->r, v)));
            continue;
        }
        p->depth--;
        KOLO_TRY(copy_node(p->r, node, target, p->alias));
        if (!KOLO_GROW(p->copied, p->n_copied, p->cap_copied)) return KOLO_NOMEM(sizeof node);
        p->copied[p->n_copied++] = node;
    }
    return KOLO_OK;
}

/* Decides whether to recompute output 0 of node i, a held value, and copies the node. */
static kolo_status repeat_node(repeater *p, int32_t i, const int32_t *reader) {
    const kolo_node *node = p->r->g->nodes[i];
    kolo_value v = node->out[0];
    p->able[i] = can_repeat(p, node);
    if (p->fates[v.id] != KEPT || !p->able[i]) return KOLO_OK;
    KOLO_TRY(repeat(p, node, reader[v.id]));
    p->r->replaced[v.id] = p->alias[v.id];
    p->fates[v.id] = RECOMPUTED;
    for (size_t c = 0; c < p->n_copied; c++) {
        for (int k = 0; k < p->copied[c]->n_out; k++) {
            kolo_value made = p->copied[c]->out[k];
            p->alias[made.id] = made;
        }
    }
    return KOLO_OK;
}

/* Decides for each held value, in node order, whether to recompute it, and copies its producer. */
static kolo_status repeat_cheap(recomputer *r) {
    const int32_t n_values = r->g->n_values;
    const int32_t *reader = find_readers(r);
    repeater p = {.r = r};
    p.fates = kolo_arena_alloc(&r->arena, (size_t)n_values * sizeof *p.fates);
    p.alias = kolo_arena_alloc(&r->arena, (size_t)n_values * sizeof *p.alias);
    p.able = kolo_arena_alloc(&r->arena, (size_t)r->n_nodes + 1);
    if (!reader || !p.fates || !p.alias || !p.able) {
        return KOLO_NOMEM((size_t)n_values * sizeof *p.alias);
    }
    for (int32_t v = 0; v < n_values; v++) p.fates[v] = reader[v] >= 0 ? KEPT : FREE;
    identity(p.alias, n_values);
    kolo_status status = KOLO_OK;
    for (int32_t i = 0; status == KOLO_OK && i < r->n_nodes; i++) {
        status = repeat_node(&p, i, reader);
    }
    kolo_free(p.stack);
    kolo_free((void *)p.copied);
    return status == KOLO_OK ? finish(r) : status;
}

/* ---- segments ---- */

typedef struct cutter {
    recomputer *r;
    const int32_t *reader; /* by value */
    int32_t *last;         /* by value: the last forward node that reads it */
    int64_t *held;         /* by forward node: bytes of its results that are held and not cheap */
    int64_t *crossing; /* by forward node: bytes produced up to it that later forward nodes read */
    int32_t n;         /* forward nodes */
} cutter;

/* Outputs that the recomputation of output 0 reads, such as the mean and variance of a batch; and
 * what was communicated. */
static bool is_kept(const recomputer *r, kolo_value v) {
    const kolo_node *maker = maker_of(r, v);
    if (maker->move && !kolo_redistribution_is_local(&r->g->mesh, maker->move)) return true;
    if (kolo_attention_rings(maker)) return true; /* keys went round for it */
    if (kolo_lstm_is_divided(maker)) return true; /* states were gathered in each time step */
    return maker->op->kept || (maker->op->recompute.op && v.id != maker->out[0].id);
}

/* Whether the ranks of an axis have slices of v, which may differ in size. */
static bool is_slice_on(const kolo_graph *g, kolo_value v, int axis) {
    const kolo_placement *cut = &kolo_info(g, v)->placements.axis[axis];
    return strcmp(g->mesh.axes[axis].name, "dp") != 0 && g->mesh.axes[axis].size > 1 &&
           cut->kind == KOLO_PLACEMENT_SHARDED && cut->dim < KOLO_MAX_RANK;
}

/* Whether output k of a node and its input j have the same elements, or such computed of them one
 * by one. */
static bool is_alike(const kolo_graph *g, const kolo_node *n, int k, int j) {
    kolo_index index;
    if (n->move || !kolo_op_has_index(n->op)) return false; /* a move changes the slices */
    if (kolo_index_of(g, n, &index) != KOLO_OK) return false;
    return index.out[k].is_star && index.in[j].is_star;
}

/* Bytes of output k of a node, the same on all ranks that have slices of it: of the largest slice,
 * where it is known, or as where passes have added it, of an input; else without the dimensions
 * that are sliced. */
static int64_t bytes_of(const kolo_graph *g, const kolo_node *n, int k) {
    kolo_value_info *info = kolo_info(g, n->out[k]);
    for (int j = 0; j < n->n_in; j++) {
        const kolo_value_info *in = kolo_info(g, n->in[j]);
        if (in->kind != KOLO_VALUE_TEMP || !is_alike(g, n, k, j)) continue;
        info->canon = in->canon;
        break;
    }
    kolo_shape shape = info->canon.rank > 0 ? info->canon : info->tensor.shape;
    for (int a = 0; info->canon.rank == 0 && a < g->mesh.n_axes; a++) {
        if (is_slice_on(g, n->out[k], a)) shape.dim[info->placements.axis[a].dim] = 1;
    }
    return kolo_shape_count(&shape) * (int64_t)kolo_dtype_bytes(info->tensor.dtype);
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
            int64_t bytes = bytes_of(g, node, k);
            if (c->reader[v.id] >= 0 && !node->op->cheap) c->held[i] += bytes;
            if (c->last[v.id] <= i) continue;
            c->crossing[i] += bytes; /* differences, until the loop below */
            c->crossing[c->last[v.id]] -= bytes;
        }
    }
    for (int32_t i = 1; i < c->n; i++) c->crossing[i] += c->crossing[i - 1];
    return KOLO_OK;
}

/* The end of the segment that starts at node `first`: where the fewest bytes cross (the last of
 * equals) before the held bytes exceed the budget. */
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

/* Bytes kept under a budget: those that cross, and the largest segment. */
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

/* Tries budgets from all held bytes down to 1/64 of them. */
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

/* Whether node i of a segment that ends at `end` is kept: later segments read it. */
static bool stays(const cutter *c, int32_t i, int32_t end) {
    return c->last[c->r->g->nodes[i]->out[0].id] >= end;
}

/* Marks the nodes of segment [first, end) to copy for its backward pass; returns the node before
 * which the copies go. */
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
