/* Rounds: compiles the plans that combine what a training plan updates. */
#include "plan/rounds.h"

#include "graph/ops/ops.h"
#include "plan/internal.h"

#include <string.h>

/* An entry that every rank has a version of. Indices of entries of the store; -1: there is none. */
typedef struct member {
    int own, anchor, replica;
} member;

struct kolo_rounds {
    kolo_store *store;
    kolo_plan *average; /* NULL: one rank without an outer update */
    kolo_plan *outer;   /* NULL: rounds average */
    member *members;
    int n_members;
    kolo_round_opts opts;
};

/* ---- graphs ---- */

typedef struct builder {
    kolo_graph *g;
    const kolo_round_opts *o;
    int ranks;
    kolo_value share; /* one over the ranks, a summand on each */
} builder;

static kolo_placements on_ranks(kolo_placement_kind kind) {
    return (kolo_placements){.axis[0].kind = kind};
}

/* A leaf like that of the training graph. */
static kolo_value add_leaf(const builder *b, const kolo_value_info *like) {
    kolo_value v = kolo_param(b->g, like->name, like->tensor.shape, like->init);
    if (!kolo_value_ok(v)) return v;
    kolo_value_info *info = kolo_info(b->g, v);
    info->kind = like->kind;
    info->tensor = like->tensor;
    info->canon = like->canon;
    info->placements = on_ranks(KOLO_PLACEMENT_LOCAL);
    return v;
}

static kolo_value add_state(const builder *b, const char *what, kolo_value like) {
    char *name = kolo_format("optimizer.%s.%s", what, kolo_info(b->g, like)->name);
    if (!name) {
        kolo_graph_set_failed(b->g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value v = kolo_graph_state(b->g, name, like);
    kolo_free(name);
    return v;
}

/* A node whose outputs have the layout of input 0. */
static kolo_value add_node(const builder *b, const kolo_op *op, const kolo_value *in, int n_in,
                           const kolo_attr *attr, kolo_value *out) {
    if (kolo_graph_check(b->g) != KOLO_OK) return KOLO_NONE;
    const kolo_tensor tensor = kolo_info(b->g, in[0])->tensor;
    kolo_graph_add(b->g, op, in, n_in, attr, out);
    if (kolo_graph_check(b->g) != KOLO_OK) return KOLO_NONE;
    const kolo_node *n = b->g->nodes[b->g->n_nodes - 1];
    for (int k = 0; k < n->n_out; k++) kolo_info(b->g, n->out[k])->tensor = tensor;
    return n->out[0];
}

static kolo_value scale(const builder *b, kolo_value x, double factor, kolo_value by) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SCALE_FACTOR].f = factor};
    kolo_value out[KOLO_MAX_IO];
    return add_node(b, &kolo_op_scale, (kolo_value[]){x, by}, kolo_value_ok(by) ? 2 : 1, attr, out);
}

/* The mean over the ranks of a LOCAL value; `of`: the parameter whose gradient the result stands
 * for, so that it is compressed as one; or none. */
static kolo_value mean(const builder *b, kolo_value x, kolo_value of) {
    const kolo_placements from = on_ranks(KOLO_PLACEMENT_PARTIAL);
    const kolo_placements to = on_ranks(KOLO_PLACEMENT_INVARIANT);
    kolo_value part = scale(b, x, 1, b->share);
    if (!kolo_value_ok(part)) return part;
    if (kolo_value_ok(of)) kolo_info(b->g, of)->grad = part;
    const kolo_tensor tensor = kolo_info(b->g, part)->tensor;
    return kolo_redistribute_as(b->g, part, &from, &to, &tensor);
}

/* A copy of x becomes the next version of `leaf`. */
static void become(const builder *b, kolo_value leaf, kolo_value x) {
    kolo_value out[KOLO_MAX_IO];
    kolo_value copy = add_node(b, &kolo_op_reorder, &x, 1, NULL, out);
    if (kolo_value_ok(copy)) kolo_info(b->g, copy)->next_of = leaf;
}

static void average(const builder *b, kolo_value w) { become(b, w, mean(b, w, KOLO_NONE)); }

/* SGD on the anchor, whose gradient is how far the ranks have come from it. */
static void update_anchor(const builder *b, kolo_value w) {
    const kolo_round_opts *o = b->o;
    kolo_value anchor = add_state(b, "anchor", w), out[KOLO_MAX_IO];
    kolo_value away = scale(b, w, -1, KOLO_NONE);
    away = add_node(b, &kolo_op_add, (kolo_value[]){anchor, away}, 2, NULL, out);
    kolo_value in[] = {anchor, mean(b, away, w), kolo_graph_scalar(b->g, "lr", b->g->dtype),
                       KOLO_NONE};
    int n_in = 3;
    if (o->momentum != 0) in[n_in++] = add_state(b, "outer", w);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SGD_MOMENTUM].f = o->momentum,
        [KOLO_SGD_NESTEROV].i = o->nesterov,
    };
    if (!kolo_value_ok(add_node(b, &kolo_op_sgd, in, n_in, attr, out))) return;
    kolo_info(b->g, out[0])->next_of = anchor;
    if (n_in == 4) kolo_info(b->g, out[1])->next_of = in[3];
    become(b, w, out[0]);
}

/* Each rank's version beside the mean: not computed, only kept. */
static void add_replica(const builder *b, kolo_value w, int rank) {
    kolo_value replica = add_state(b, "replica", w);
    if (!kolo_value_ok(replica)) return;
    kolo_info(b->g, replica)->in_place = true;
    kolo_graph_make_local(b->g, replica, b->ranks, rank);
}

/* Whether a training plan updates a leaf that is no optimizer state. */
static bool is_member(const kolo_plan *step, kolo_value leaf) {
    const kolo_value_info *info = kolo_info(step->graph, leaf);
    return info->kind == KOLO_VALUE_PARAM || !kolo_name_is_optimizer(info->name);
}

static kolo_status build(const kolo_plan *step, const builder *b, bool outer, int rank) {
    const kolo_graph *from = step->graph;
    for (int32_t v = 0; v < from->n_values; v++) {
        kolo_value old = from->values[v].next_of;
        if (!kolo_value_ok(old) || !is_member(step, old)) continue;
        kolo_value w = add_leaf(b, kolo_info(from, old));
        if (outer && kolo_info(from, old)->kind == KOLO_VALUE_PARAM) {
            update_anchor(b, w);
        } else {
            average(b, w);
        }
        if (!outer) add_replica(b, w, rank);
        KOLO_TRY(kolo_graph_check(b->g));
    }
    return KOLO_OK;
}

static kolo_status compile(kolo_rounds *r, const kolo_plan *step, bool outer, kolo_comm *comm,
                           kolo_plan **plan) {
    const int ranks = comm ? kolo_comm_size(comm) : 1, rank = comm ? kolo_comm_rank(comm) : 0;
    const kolo_plan_opts opts = {
        .train = true,
        .updates_only = true,
        .mesh = {1, {{"dp", ranks}}},
        .algorithm = r->opts.algorithm,
        .kernels = r->opts.kernels,
        .compression = outer ? r->opts.compression : (kolo_compression){.power_rank = 0},
        .bucket_bytes = r->opts.bucket_bytes,
        .threads = r->opts.threads,
        .times = r->opts.times,
    };
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){step->graph->dtype}, &g));
    builder b = {.g = g, .o = &r->opts, .ranks = ranks};
    g->mesh = opts.mesh;
    g->rank = rank;
    b.share = kolo_graph_scalar(g, "share", g->dtype);
    if (kolo_value_ok(b.share)) {
        kolo_info(g, b.share)->placements = on_ranks(KOLO_PLACEMENT_PARTIAL);
    }
    kolo_status status = build(step, &b, outer, rank);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    KOLO_TRY(kolo_plan_compile(g, &opts, r->store, comm, plan));
    kolo_plan_set_scalar(*plan, "share", 1.0 / ranks);
    if (outer) kolo_plan_set_scalar(*plan, "lr", r->opts.lr);
    return KOLO_OK;
}

/* ---- members ---- */

static int find_state(const kolo_store *s, const char *what, const char *name) {
    char *full = kolo_format("optimizer.%s.%s", what, name);
    const kolo_store_entry *entry = full ? kolo_store_find(s, full) : NULL;
    kolo_free(full);
    return entry ? (int)(entry - kolo_store_entry_at(s, 0)) : -1;
}

static kolo_status find_members(kolo_rounds *r, const kolo_plan *step) {
    const kolo_graph *g = step->graph;
    r->members = kolo_alloc(((size_t)g->n_values + 1) * sizeof *r->members);
    if (!r->members) return KOLO_NOMEM((size_t)g->n_values * sizeof *r->members);
    for (int32_t v = 0; v < g->n_values; v++) {
        kolo_value old = g->values[v].next_of;
        if (!kolo_value_ok(old) || !is_member(step, old)) continue;
        const char *name = kolo_info(g, old)->name;
        r->members[r->n_members++] = (member){.own = step->entries[old.id],
                                              .anchor = find_state(r->store, "anchor", name),
                                              .replica = find_state(r->store, "replica", name)};
    }
    return KOLO_OK;
}

/* Copies entry `from` to both banks of entry `to`, of the same tensor: steps do not write anchors.
 */
static void copy(const kolo_store *s, int from, int to) {
    if (from < 0 || to < 0) return;
    const kolo_store_entry *source = kolo_store_entry_at(s, from);
    const kolo_store_entry *target = kolo_store_entry_at(s, to);
    const void *data = kolo_store_data(s, source);
    for (int bank = 0; bank < (target->single ? 1 : 2); bank++) {
        memcpy(kolo_store_at(s, target, bank), data, kolo_store_entry_bytes(source));
    }
}

/* ---- the whole ---- */

kolo_status kolo_rounds_create(const kolo_plan *step, const kolo_round_opts *opts,
                               kolo_store *store, kolo_comm *comm, kolo_rounds **rounds) {
    kolo_rounds *r = kolo_zalloc(sizeof *r);
    kolo_status status = KOLO_OK;
    if (!r) return KOLO_NOMEM(sizeof *r);
    r->store = store;
    r->opts = *opts;
    if (comm && kolo_comm_size(comm) > 1) status = compile(r, step, false, comm, &r->average);
    if (status == KOLO_OK && opts->outer) status = compile(r, step, true, comm, &r->outer);
    if (status == KOLO_OK) status = find_members(r, step);
    if (status != KOLO_OK) {
        kolo_rounds_destroy(r);
        return status;
    }
    *rounds = r;
    return KOLO_OK;
}

void kolo_rounds_destroy(kolo_rounds *r) {
    if (!r) return;
    kolo_plan_destroy(r->average);
    kolo_plan_destroy(r->outer);
    kolo_free(r->members);
    kolo_free(r);
}

void kolo_rounds_begin(kolo_rounds *r) {
    for (int i = 0; i < r->n_members; i++) {
        copy(r->store, r->members[i].own, r->members[i].anchor);
    }
}

kolo_status kolo_rounds_combine(kolo_rounds *r) {
    kolo_plan *plan = r->outer ? r->outer : r->average;
    return plan ? kolo_plan_run(plan) : KOLO_OK;
}

kolo_status kolo_rounds_settle(kolo_rounds *r, bool equal) {
    for (int i = 0; i < r->n_members; i++) {
        copy(r->store, r->members[i].own, r->members[i].replica);
    }
    return r->average && !equal ? kolo_plan_run(r->average) : KOLO_OK;
}

void kolo_rounds_unsettle(kolo_rounds *r) {
    for (int i = 0; i < r->n_members; i++) {
        copy(r->store, r->members[i].replica, r->members[i].own);
    }
}
