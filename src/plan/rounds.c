/* Rounds: compiles the plans that combine what a training plan updates. */
#include "plan/rounds.h"

#include "base/integer.h"
#include "comm/engine/flight.h"
#include "graph/ops/ops.h"
#include "plan/fragments.h"
#include "plan/transfers.h"

#include <string.h>

/* An entry that every rank has a version of. Indices of entries of the store; -1: there is none. */
typedef struct member {
    int own, anchor, replica;
} member;

/* Tensors that are combined together. */
typedef struct fragment {
    kolo_plan *cut;     /* keeps what the ranks have learned; NULL: without overlap */
    kolo_plan *combine; /* the outer update */
    bool begun;
} fragment;

struct kolo_rounds {
    kolo_store *store;
    kolo_plan *average;  /* of everything; NULL: one rank */
    fragment *fragments; /* NULL: rounds average */
    int n_fragments;
    int *fragment_of; /* by value id of the training graph; -1: not updated */
    member *members;
    int n_members;
    kolo_round_opts opts;
    kolo_comm *comm;      /* borrowed; NULL: one rank */
    double *reported;     /* [opts.reported] */
    kolo_request *report; /* their sum; NULL: one rank */
    bool posted;          /* it is in flight */
};

/* ---- graphs ---- */

typedef enum round_part { AVERAGE, CUT, COMBINE } round_part;

typedef struct builder {
    kolo_graph *g;
    const kolo_round_opts *o;
    round_part purpose;
    int fragment; /* the only one; -1: all */
    int ranks, rank;
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

/* The state of that kind for a leaf. */
static kolo_value add_state(const builder *b, const char *what, kolo_value like) {
    char *name = kolo_format("optimizer.%s.%s", what, kolo_info(b->g, like)->name);
    if (!name) {
        kolo_graph_set_failed(b->g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value v = kolo_graph_find(b->g, name);
    if (!kolo_value_ok(v)) v = kolo_graph_state(b->g, name, like);
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

static kolo_value subtract(const builder *b, kolo_value x, kolo_value y) {
    kolo_value out[KOLO_MAX_IO];
    y = scale(b, y, -1, KOLO_NONE);
    return add_node(b, &kolo_op_add, (kolo_value[]){x, y}, 2, NULL, out);
}

static void average(const builder *b, kolo_value w) { become(b, w, mean(b, w, KOLO_NONE)); }

/* What a fragment keeps of this rank between cut and update. */
static kolo_value add_cut(const builder *b, kolo_value w) {
    kolo_value kept = add_state(b, "cut", w);
    if (!kolo_value_ok(kept)) return kept;
    if (b->ranks > 1) kolo_graph_make_local(b->g, kept, b->ranks, b->rank);
    kolo_info(b->g, kept)->placements = on_ranks(KOLO_PLACEMENT_LOCAL);
    return kept;
}

/* What the ranks add up for w: how far a parameter has come from the anchor, or a statistic. */
static kolo_value learned(const builder *b, kolo_value w, bool outer) {
    if (b->purpose == COMBINE && b->o->overlap > 0) return add_cut(b, w);
    return outer ? subtract(b, add_state(b, "anchor", w), w) : w;
}

static void cut(const builder *b, kolo_value w, bool outer) {
    become(b, add_cut(b, w), learned(b, w, outer));
}

/* SGD on the anchor, whose gradient is how far the ranks have come from it. */
static kolo_value update_anchor(const builder *b, kolo_value w, kolo_value delta) {
    const kolo_round_opts *o = b->o;
    kolo_value anchor = add_state(b, "anchor", w), out[KOLO_MAX_IO];
    kolo_value in[] = {anchor, delta, kolo_graph_scalar(b->g, "lr", b->g->dtype), KOLO_NONE};
    int n_in = 3;
    if (o->momentum != 0) in[n_in++] = add_state(b, "outer", w);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SGD_MOMENTUM].f = o->momentum,
        [KOLO_SGD_NESTEROV].i = o->nesterov,
    };
    if (!kolo_value_ok(add_node(b, &kolo_op_sgd, in, n_in, attr, out))) return KOLO_NONE;
    kolo_info(b->g, out[0])->next_of = anchor;
    if (n_in == 4) kolo_info(b->g, out[1])->next_of = in[3];
    return out[0];
}

/* w becomes `combined`, and keeps a part of what this rank has beside it: combined + mix (w -
 * combined), of which nothing is computed before the exchange is complete. */
static void combine(const builder *b, kolo_value w, bool outer) {
    kolo_value combined = mean(b, learned(b, w, outer), outer ? w : KOLO_NONE);
    if (outer) combined = update_anchor(b, w, combined);
    if (b->o->mix > 0 && kolo_value_ok(combined)) {
        kolo_value out[KOLO_MAX_IO];
        kolo_value rest = scale(b, subtract(b, w, combined), b->o->mix, KOLO_NONE);
        combined = add_node(b, &kolo_op_add, (kolo_value[]){rest, combined}, 2, NULL, out);
    }
    become(b, w, combined);
}

/* Each rank's version beside the mean: not computed, only kept. */
static void add_replica(const builder *b, kolo_value w) {
    kolo_value replica = add_state(b, "replica", w);
    if (!kolo_value_ok(replica)) return;
    kolo_info(b->g, replica)->in_place = true;
    kolo_graph_make_local(b->g, replica, b->ranks, b->rank);
}

/* Whether a training plan updates a leaf that is no optimizer state. */
static bool is_member(const kolo_plan *step, kolo_value leaf) {
    const kolo_value_info *info = kolo_info(step->graph, leaf);
    return info->kind == KOLO_VALUE_PARAM || !kolo_name_is_optimizer(info->name);
}

static kolo_status build(const kolo_rounds *r, const kolo_plan *step, const builder *b) {
    const kolo_graph *from = step->graph;
    for (int32_t v = 0; v < from->n_values; v++) {
        kolo_value old = from->values[v].next_of;
        if (!kolo_value_ok(old) || !is_member(step, old)) continue;
        if (b->fragment >= 0 && r->fragment_of[old.id] != b->fragment) continue;
        const bool outer = kolo_info(from, old)->kind == KOLO_VALUE_PARAM;
        kolo_value w = add_leaf(b, kolo_info(from, old));
        if (b->purpose == AVERAGE) {
            average(b, w);
            add_replica(b, w);
        } else if (b->purpose == CUT) {
            cut(b, w, outer);
        } else {
            combine(b, w, outer);
        }
        KOLO_TRY(kolo_graph_check(b->g));
    }
    return KOLO_OK;
}

static kolo_status compile(kolo_rounds *r, const kolo_plan *step, round_part purpose, int of,
                           kolo_comm *comm, kolo_plan **plan) {
    const int ranks = comm ? kolo_comm_size(comm) : 1, rank = comm ? kolo_comm_rank(comm) : 0;
    const bool outer = purpose == COMBINE;
    const kolo_plan_opts opts = {
        .train = true,
        .updates_only = true,
        .apart = outer && r->opts.overlap > 0,
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
    builder b = {
        .g = g, .o = &r->opts, .purpose = purpose, .fragment = of, .ranks = ranks, .rank = rank};
    g->mesh = opts.mesh;
    g->rank = rank;
    b.share = kolo_graph_scalar(g, "share", g->dtype);
    if (kolo_value_ok(b.share)) {
        kolo_info(g, b.share)->placements = on_ranks(KOLO_PLACEMENT_PARTIAL);
    }
    kolo_status status = build(r, step, &b);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    KOLO_TRY(kolo_plan_compile(g, &opts, r->store, comm, plan));
    kolo_plan_set(*plan, kolo_plan_find_scalar(*plan, "share"), 1.0 / ranks);
    kolo_plan_set(*plan, kolo_plan_find_scalar(*plan, "lr"), r->opts.lr);
    return KOLO_OK;
}

/* ---- fragments ---- */

/* Lists the leaves that the training plan updates, in the order of the model. `of`, by value id,
 * becomes -1 for all others. */
static int list_leaves(const kolo_plan *step, int *of, const char **names, size_t *bytes,
                       int32_t *ids) {
    const kolo_graph *g = step->graph;
    int n = 0;
    for (int32_t v = 0; v < g->n_values; v++) of[v] = -1;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value old = g->values[v].next_of;
        if (kolo_value_ok(old) && is_member(step, old)) of[old.id] = 0;
    }
    for (int32_t leaf = 0; leaf < g->n_values; leaf++) {
        if (of[leaf] < 0) continue;
        names[n] = g->values[leaf].name;
        bytes[n] = kolo_tensor_bytes(&g->values[leaf].tensor);
        ids[n++] = leaf;
    }
    return n;
}

static kolo_status find_fragments(kolo_rounds *r, const kolo_plan *step) {
    const size_t room = (size_t)step->graph->n_values + 1;
    const char **names = kolo_alloc(room * sizeof *names);
    size_t *bytes = kolo_alloc(room * sizeof *bytes);
    int32_t *ids = kolo_alloc(room * sizeof *ids);
    int *of = kolo_alloc(room * sizeof *of);
    r->fragment_of = kolo_alloc(room * sizeof *r->fragment_of);
    kolo_status status =
        names && bytes && ids && of && r->fragment_of ? KOLO_OK : KOLO_NOMEM(room * sizeof *names);
    if (status == KOLO_OK) {
        const int n = list_leaves(step, r->fragment_of, names, bytes, ids);
        status = kolo_fragments_assign(names, bytes, n, r->opts.fragments, r->opts.strided, of);
        for (int i = 0; i < n && status == KOLO_OK; i++) r->fragment_of[ids[i]] = of[i];
    }
    kolo_free((void *)names);
    kolo_free(bytes);
    kolo_free(ids);
    kolo_free(of);
    return status;
}

/* Exchanges of several fragments may be in flight at once, and the average beside them. */
static kolo_status reserve_flight(const kolo_rounds *r, kolo_comm *comm) {
    int most = 2 + (r->average ? kolo_plan_most_in_flight(r->average, 0) : 0);
    if (!comm) return KOLO_OK;
    for (int i = 0; i < r->n_fragments; i++) {
        most += kolo_plan_most_in_flight(r->fragments[i].combine, 0);
    }
    return kolo_flight_reserve(comm, most);
}

static kolo_status compile_fragments(kolo_rounds *r, const kolo_plan *step, kolo_comm *comm) {
    r->fragments = kolo_zalloc((size_t)r->opts.fragments * sizeof *r->fragments);
    if (!r->fragments) return KOLO_NOMEM((size_t)r->opts.fragments * sizeof *r->fragments);
    KOLO_TRY(find_fragments(r, step));
    r->n_fragments = r->opts.fragments;
    for (int i = 0; i < r->n_fragments; i++) {
        fragment *f = &r->fragments[i];
        if (r->opts.overlap > 0) KOLO_TRY(compile(r, step, CUT, i, comm, &f->cut));
        KOLO_TRY(compile(r, step, COMBINE, i, comm, &f->combine));
    }
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
    for (int bank = 0; bank < (target->single ? 1 : 2); bank++) {
        kolo_regions_copy(s->regions, kolo_store_at(s, target, bank),
                          kolo_store_at(s, source, s->current), kolo_store_entry_bytes(source));
    }
}

/* ---- what steps report ---- */

static kolo_status create_report(kolo_rounds *r, kolo_comm *comm) {
    const int n = r->opts.reported;
    r->comm = comm;
    r->reported = kolo_zalloc(((size_t)n + 1) * sizeof *r->reported);
    if (!r->reported) return KOLO_NOMEM((size_t)n * sizeof *r->reported);
    if (!comm || n == 0) return KOLO_OK;
    const kolo_part part = {.data = r->reported, .count = (size_t)n};
    return kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F64, KOLO_SUM, KOLO_ALGORITHM_AUTO,
                                 "metrics", &r->report);
}

static void end_report(kolo_rounds *r) {
    if (r->posted) kolo_store_leave_background(r->store);
    r->posted = false;
}

kolo_status kolo_rounds_post(kolo_rounds *r, const double *numbers) {
    memcpy(r->reported, numbers, (size_t)r->opts.reported * sizeof *numbers);
    if (!r->report) return KOLO_OK;
    KOLO_TRY(kolo_request_start(r->report));
    kolo_store_enter_background(r->store, r->comm);
    r->posted = true;
    return KOLO_OK;
}

kolo_status kolo_rounds_await(kolo_rounds *r, double *sums) {
    if (r->posted) {
        end_report(r);
        KOLO_TRY(kolo_request_wait(r->report, 0));
    }
    memcpy(sums, r->reported, (size_t)r->opts.reported * sizeof *sums);
    return KOLO_OK;
}

/* ---- the whole ---- */

kolo_status kolo_rounds_create(const kolo_plan *step, const kolo_round_opts *opts,
                               kolo_store *store, kolo_comm *comm, kolo_rounds **rounds) {
    kolo_rounds *r = kolo_zalloc(sizeof *r);
    kolo_status status = KOLO_OK;
    if (!r) return KOLO_NOMEM(sizeof *r);
    r->store = store;
    r->opts = *opts;
    if (r->opts.fragments == 0) r->opts.fragments = 1;
    if (comm && kolo_comm_size(comm) > 1) {
        status = compile(r, step, AVERAGE, -1, comm, &r->average);
    }
    if (status == KOLO_OK && opts->outer) status = compile_fragments(r, step, comm);
    if (status == KOLO_OK) status = reserve_flight(r, comm);
    if (status == KOLO_OK) status = find_members(r, step);
    if (status == KOLO_OK) status = create_report(r, comm);
    if (status != KOLO_OK) {
        kolo_rounds_destroy(r);
        return status;
    }
    *rounds = r;
    return KOLO_OK;
}

void kolo_rounds_destroy(kolo_rounds *r) {
    if (!r) return;
    for (int i = 0; i < r->n_fragments; i++) {
        kolo_plan_destroy(r->fragments[i].cut);
        kolo_plan_destroy(r->fragments[i].combine);
    }
    kolo_plan_destroy(r->average);
    end_report(r);
    kolo_request_destroy(r->report);
    kolo_free(r->reported);
    kolo_free(r->fragments);
    kolo_free(r->fragment_of);
    kolo_free(r->members);
    kolo_free(r);
}

size_t kolo_rounds_bytes(const kolo_rounds *r) {
    size_t bytes = 0;
    for (int i = 0; i < r->n_fragments; i++) {
        bytes += kolo_plan_apart_bytes(r->fragments[i].combine);
    }
    return bytes;
}

void kolo_rounds_begin(kolo_rounds *r) {
    for (int i = 0; i < r->n_members; i++) {
        copy(r->store, r->members[i].own, r->members[i].anchor);
    }
}

/* Steps since the latest cut of a fragment, after `steps` of them; -1: there was none. */
static int64_t age_of(const kolo_rounds *r, int f, int64_t steps) {
    const int64_t every = r->opts.every, offset = f * every / kolo_max_i64(r->opts.fragments, 1);
    const int64_t age = (steps + offset) % every;
    return age < steps ? age : -1;
}

kolo_status kolo_rounds_start(kolo_rounds *r, int64_t steps) {
    for (int64_t age = r->opts.overlap - 1; age >= 0; age--) { /* the oldest first */
        for (int i = 0; i < r->n_fragments; i++) {
            fragment *f = &r->fragments[i];
            if (f->begun || age_of(r, i, steps) != age) continue;
            KOLO_TRY(kolo_plan_begin(f->combine));
            f->begun = true;
        }
    }
    return KOLO_OK;
}

static kolo_status finish(const kolo_rounds *r, int64_t steps) {
    for (int i = 0; i < r->n_fragments && r->opts.overlap > 0; i++) {
        fragment *f = &r->fragments[i];
        if (!f->begun || age_of(r, i, steps) != r->opts.overlap) continue;
        f->begun = false;
        KOLO_TRY(kolo_plan_end(f->combine));
    }
    return KOLO_OK;
}

kolo_status kolo_rounds_advance(kolo_rounds *r, int64_t steps) {
    KOLO_TRY(finish(r, steps));
    for (int i = 0; i < r->n_fragments; i++) {
        const fragment *f = &r->fragments[i];
        if (age_of(r, i, steps) == 0) KOLO_TRY(kolo_plan_run(f->cut ? f->cut : f->combine));
    }
    if (r->n_fragments > 0 || !r->average || steps % r->opts.every != 0) return KOLO_OK;
    return kolo_plan_run(r->average);
}

/* Whether all ranks have the same version. */
static bool are_equal(const kolo_rounds *r, int64_t steps) {
    const bool at_once = r->n_fragments <= 1 && r->opts.overlap == 0 && r->opts.mix == 0;
    return at_once && steps % r->opts.every == 0;
}

kolo_status kolo_rounds_average(kolo_rounds *r, int64_t steps) {
    KOLO_TRY(kolo_regions_wait(r->store->regions)); /* else what is read may be stale */
    for (int i = 0; i < r->n_fragments; i++) KOLO_TRY(kolo_plan_drain(r->fragments[i].combine));
    for (int i = 0; i < r->n_members; i++) {
        copy(r->store, r->members[i].own, r->members[i].replica);
    }
    return r->average && !are_equal(r, steps) ? kolo_plan_run(r->average) : KOLO_OK;
}

void kolo_rounds_restore(kolo_rounds *r) {
    for (int i = 0; i < r->n_members; i++) {
        copy(r->store, r->members[i].replica, r->members[i].own);
    }
}
