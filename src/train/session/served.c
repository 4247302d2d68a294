#include "train/session/served.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/sync/parameters_replica.h"
#include "train/session/agree.h"
#include "train/session/owner.h"
#include "train/session/served_internal.h"

#include <math.h>
#include <string.h>

/* ---- creation ---- */

/* Samples of the plan whose layouts the workers have. */
static int64_t samples_of(const kolo_session_config *config) {
    const int64_t ranks = config->plan.mesh.axes[0].size;
    const int64_t share = (config->global_batch - 1) / ranks + 1;
    const int64_t parts = (share - 1) / config->batch + 1;
    return share / parts;
}

/* Who owns what. */
typedef struct ownership {
    int owners, working; /* the last ranks; of these, the first ones are workers */
    bool buckets;
} ownership;

/* Parts are in buckets where all workers wait for the same updates, which need no whole tensors,
 * and no server is replaced. Then workers, if there are more, have parts beside those of servers.
 */
static ownership own(const kolo_session_config *config, const kolo_served_opts *o) {
    const kolo_optimizer_opts *optimizer = &config->plan.optimizer;
    const int ranks = kolo_comm_size(o->world), workers = ranks - o->servers;
    const bool by_law = config->consistency.kind == KOLO_CONSISTENCY_BSP && o->replicas == 0 &&
                        o->joins == 0 && optimizer->clip == 0 &&
                        !kolo_optimizer_scales(optimizer->kind) && workers > 1;
    const int hosts = kolo_served_hosts(config, o);
    const bool works = o->servers == 0 || (by_law && o->servers < (hosts > 0 ? hosts : workers));
    const int owners = works ? ranks : o->servers;
    return (ownership){owners, works ? workers : 0, by_law && owners > 1};
}

/* The outer update of rounds is that of an optimizer. */
static void make_outer(const kolo_consistency *c, kolo_plan_opts *plan, kolo_owner_opts *opts) {
    const char *freeze = plan->optimizer.freeze;
    plan->optimizer = (kolo_optimizer_opts){
        .kind = c->nesterov ? KOLO_OPTIMIZER_NESTEROV : KOLO_OPTIMIZER_SGD,
        .momentum = c->momentum,
        .delay = c->delay,
        .ahead = c->ahead,
        .freeze = freeze,
    };
    opts->rounds = true;
    opts->schedule = (kolo_lr){.kind = KOLO_LR_CONSTANT, .lr = c->lr, .total = 1, .step_every = 1};
}

static kolo_status make_owner(const kolo_session_config *config, const kolo_served_opts *o,
                              int index, kolo_owner **owner) {
    const int ranks = kolo_comm_size(o->world);
    const ownership by = own(config, o);
    kolo_plan_opts plan = config->plan;
    kolo_owner_opts opts = {
        .index = index,
        .owners = by.owners,
        .working = by.working,
        .hosts = kolo_served_hosts(config, o),
        .buckets = by.buckets,
        .weighted = kolo_consistency_is_weighted(&config->consistency),
        .steps = o->steps,
        .workers = ranks - o->servers,
        .joins = o->joins,
        .schedule = o->schedule,
        .compensation = config->consistency.compensation,
        .scale = config->consistency.scale,
        .lease = config->consistency.lease,
        .adapts = config->consistency.kind == KOLO_CONSISTENCY_AUTO,
    };
    kolo_graph *graph;
    if (kolo_consistency_has_rounds(&config->consistency)) {
        make_outer(&config->consistency, &plan, &opts);
    }
    KOLO_TRY(kolo_session_build(config, samples_of(config), &graph));
    return kolo_owner_create(graph, &plan, &opts, owner);
}

/* What this rank owns, and with replicas the part of the server before it. */
static kolo_status make_owners(kolo_served *d, const kolo_session_config *config,
                               const kolo_served_opts *o) {
    const ownership by = own(config, o);
    const int owners = by.owners;
    const int index = kolo_comm_rank(o->world) - (kolo_comm_size(o->world) - owners);
    d->shared = o->servers > 0 && by.working > 0;
    if (index < 0) return KOLO_OK;
    KOLO_TRY(make_owner(config, o, index, &d->owner));
    if (o->replicas > 0) {
        const int followed = kolo_replicas_followed(index, owners);
        KOLO_TRY(make_owner(config, o, followed, &d->follower));
    }
    return kolo_owner_divide(d->owner, &d->division);
}

/* The row of an entry of the session's store; -1: there is none. With rounds its optimizer is its
 * own, and "optimizer.outer.NAME" is the velocity of the outer update. */
static kolo_status find_row(const kolo_served *d, const char *name, int *row) {
    static const char outer[] = "optimizer.outer.", delayed[] = "optimizer.delayed.";
    *row = -1;
    if (d->every == 0 || !kolo_name_is_optimizer(name) ||
        strncmp(name, delayed, sizeof delayed - 1) == 0) {
        *row = kolo_division_find(&d->division, name);
    } else if (strncmp(name, outer, sizeof outer - 1) == 0) {
        char *velocity = kolo_format("optimizer.velocity.%s", name + sizeof outer - 1);
        if (!velocity) return KOLO_NOMEM(64);
        *row = kolo_division_find(&d->division, velocity);
        kolo_free(velocity);
    }
    return KOLO_OK;
}

/* Finds the tensors of the session, which must be what the owners have. */
static kolo_status find_entries(const kolo_served *d, const kolo_session *s) {
    int found = 0;
    for (int i = 0; i < d->division.n_rows; i++) d->entries[i] = -1;
    for (int i = 0; i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(s->store, i);
        int row;
        KOLO_TRY(find_row(d, entry->name, &row));
        if (row < 0) continue;
        const bool fits = kolo_division_fits(&d->division, row, entry);
        for (; row >= 0; row = kolo_division_next(&d->division, row)) {
            found++;
            d->entries[row] = i;
        }
        if (fits) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "rank %d has another layout of %s than its owner: use the same kind of "
                         "processor and the same options on all ranks",
                         rank_of(s), entry->name);
    }
    if (found == d->division.n_rows - d->division.n_metrics) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "rank %d has %d tensors, the owners have %d", rank_of(s), found,
                     d->division.n_rows - d->division.n_metrics);
}

void kolo_served_place(const kolo_served *d, const kolo_session *s) {
    for (int i = 0; i < d->division.n_rows; i++) {
        const int e = d->entries[i];
        d->places[i] = e < 0 ? NULL : kolo_store_data(s->store, kolo_store_entry_at(s->store, e));
    }
}

/* Memory that owners on this host read and write in place; a process that joins has none. */
static kolo_status allocate_vector(const kolo_served *d, kolo_comm *world, size_t count,
                                   float **vector) {
    void *memory = NULL;
    if (!d->joined) {
        KOLO_TRY(kolo_comm_alloc(world, count * sizeof **vector, &memory));
    } else if (!(memory = kolo_alloc((count + 1) * sizeof **vector))) {
        return KOLO_NOMEM(count * sizeof **vector);
    }
    *vector = memory;
    return KOLO_OK;
}

/* `workers`: those who may join included. */
static kolo_status allocate(kolo_served *d, kolo_comm *world, int workers) {
    const size_t parts = (size_t)kolo_division_parts(&d->division);
    const size_t rows = (size_t)d->division.n_rows + 1;
    const size_t totals = kolo_division_totals(&d->division) * sizeof(float);
    d->parts = kolo_zalloc(parts * sizeof *d->parts);
    d->pushed_at = kolo_zalloc(parts * sizeof *d->pushed_at);
    d->pulled_at = kolo_zalloc(parts * sizeof *d->pulled_at);
    d->places = kolo_zalloc(rows * sizeof *d->places);
    d->entries = kolo_zalloc(rows * sizeof *d->entries);
    d->totals = kolo_zalloc(totals);
    d->before = kolo_zalloc(totals);
    d->lost = kolo_zalloc((size_t)workers * sizeof *d->lost);
    d->ready = kolo_zalloc(rows * sizeof *d->ready);
    d->filled = kolo_zalloc(parts * sizeof *d->filled);
    if (!d->ready || !d->filled || !d->pushed_at || !d->pulled_at) return KOLO_NOMEM(rows);
    if (!d->parts || !d->places || !d->entries || !d->totals || !d->before || !d->lost)
        return KOLO_NOMEM(totals);
    for (size_t i = 0; i < parts; i++) {
        d->parts[i] = kolo_division_part(&d->division, (int)i);
        d->pushed_at[i] = d->gradient;
        d->pulled_at[i] = d->values;
        d->values += d->parts[i].values;
        d->gradient += d->parts[i].gradient;
        d->state += d->parts[i].state;
    }
    d->states = kolo_alloc((d->state + 1) * sizeof *d->states);
    if (!d->states) return KOLO_NOMEM(d->state * sizeof *d->states);
    if (d->every > 0) {
        d->base = kolo_zalloc((d->values + 1) * sizeof *d->base);
        d->kept = kolo_zalloc((d->values + 1) * sizeof *d->kept);
        d->summed = kolo_zalloc(rows * sizeof *d->summed);
        if (!d->base || !d->kept || !d->summed) return KOLO_NOMEM(d->values * sizeof *d->base);
    }
    KOLO_TRY(allocate_vector(d, world, d->gradient, &d->pushed));
    return allocate_vector(d, world, d->values, &d->pulled);
}

/* Updates that were made before. Earlier versions did not store them. */
static double updates_before(const kolo_session *s, const kolo_served_opts *o) {
    const bool at_push = kolo_consistency_updates_at_push(&s->opts.consistency);
    const int64_t every =
        kolo_consistency_has_rounds(&s->opts.consistency) ? s->opts.consistency.steps : 1;
    const int64_t derived = o->steps / every * (at_push ? ranks_of(s) / step_ranks(s) : 1);
    return (double)(o->updates > 0 ? o->updates : derived);
}

/* The values and states of all owners, from the session of rank 0. */
static void fill_initial(const kolo_served *d, const kolo_session *s, double updates,
                         float *initial) {
    const size_t at = (size_t)kolo_division_updates(&d->division) * sizeof updates;
    kolo_served_place(d, s);
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        float *state = initial + d->parts[i].values;
        memcpy((char *)initial + at, &updates, sizeof updates);
        kolo_division_gather(&d->division, i, KOLO_ROWS_PULLED, false, d->places,
                             initial + kolo_division_totals(&d->division));
        kolo_division_gather(&d->division, i, KOLO_ROWS_STATE, false, d->places, state);
        initial = state + d->parts[i].state;
    }
}

/* Completes the options on a server. */
static kolo_status serve(kolo_served *d, kolo_parameters_opts *opts) {
    if (d->follower) {
        KOLO_TRY(kolo_owner_serve(d->follower, &d->division, opts));
        opts->replica_arg = opts->arg;
    }
    return d->owner ? kolo_owner_serve(d->owner, &d->division, opts) : KOLO_OK;
}

static kolo_status connect(kolo_served *d, const kolo_session_config *config,
                           const kolo_served_opts *o, const kolo_session *session, float *initial) {
    const kolo_consistency *c = &config->consistency;
    kolo_parameters_opts opts = {
        .servers = o->servers,
        .shared = d->shared,
        .buckets = d->division.buckets,
        .parts = d->parts,
        .needs_all = true,
        .spared = kolo_consistency_outlives(c) && o->servers > 0 && !o->replay ? 1 : 0,
        .staleness = kolo_consistency_staleness(c),
        .drop = c->drop,
        .discard = c->discard,
        .quorum = (int)c->quorum,
        .grace_ms = c->grace_ms,
        .adapts = c->kind == KOLO_CONSISTENCY_AUTO,
        .leases = c->lease,
        .first_lease = (uint64_t)(o->steps * (kolo_comm_size(o->world) - o->servers)),
        .record = o->record,
        .replay = o->replay,
        .replicas = o->replicas,
        .joins = o->joins,
    };
    if (initial) fill_initial(d, session, updates_before(session, o), initial);
    KOLO_TRY(kolo_agree(o->world, serve(d, &opts)));
    return kolo_parameters_create(o->world, initial, d->values + d->state, &opts, &d->parameters);
}

static kolo_status prepare(kolo_served *d, const kolo_session_config *config,
                           const kolo_served_opts *o, kolo_session *session) {
    d->weighted = kolo_consistency_is_weighted(&config->consistency);
    if (kolo_consistency_has_rounds(&config->consistency)) d->every = config->consistency.steps;
    KOLO_TRY(allocate(d, o->world, kolo_comm_size(o->world) + o->joins));
    return session ? find_entries(d, session) : KOLO_OK;
}

static kolo_status create(kolo_served *d, const kolo_session_config *config,
                          const kolo_served_opts *o, kolo_session *session, kolo_status status) {
    kolo_served_opts all = *o;
    KOLO_TRY(kolo_agree(o->world, status));
    KOLO_TRY(kolo_broadcast(o->world, &all.steps, 1, KOLO_DTYPE_I64, 0));
    KOLO_TRY(kolo_agree(o->world, make_owners(d, config, &all)));
    KOLO_TRY(kolo_division_broadcast(&d->division, o->world));
    KOLO_TRY(kolo_agree(o->world, prepare(d, config, o, session)));
    const size_t bytes = (d->values + d->state) * sizeof(float);
    float *initial = session && rank_of(session) == 0 ? kolo_zalloc(bytes) : NULL;
    const bool failed = session && rank_of(session) == 0 && !initial;
    status = kolo_agree(o->world, failed ? KOLO_NOMEM(bytes) : KOLO_OK);
    if (status == KOLO_OK) status = connect(d, config, &all, session, initial);
    kolo_free(initial);
    if (status == KOLO_OK && session) status = kolo_served_join_group(d, session, o);
    if (status != KOLO_OK || !config->tables.names) return status;
    const kolo_tables_opts tables = {
        .world = o->world, .servers = o->servers, .steps = all.steps, .schedule = o->schedule};
    return kolo_tables_create(config, &tables, &d->tables);
}

kolo_status kolo_served_create(const kolo_session_config *config, const kolo_served_opts *opts,
                               kolo_session *session, kolo_status status, kolo_served **served) {
    kolo_served *d = kolo_zalloc(sizeof *d);
    if (!d && status == KOLO_OK) status = KOLO_NOMEM(sizeof *d);
    if (!d) return kolo_agree(opts->world, status);
    status = create(d, config, opts, session, status);
    if (status != KOLO_OK) {
        kolo_served_destroy(d);
        return status;
    }
    *served = d;
    return KOLO_OK;
}

void kolo_served_destroy(kolo_served *d) {
    if (!d) return;
    kolo_tables_destroy(d->tables);
    kolo_parameters_destroy(d->parameters);
    kolo_served_leave_group(d);
    kolo_owner_destroy(d->owner);
    kolo_owner_destroy(d->follower);
    kolo_division_fini(&d->division);
    if (d->joined) kolo_free(d->pushed);
    if (d->joined) kolo_free(d->pulled);
    kolo_free(d->parts);
    kolo_free(d->pushed_at);
    kolo_free(d->pulled_at);
    kolo_free(d->states);
    kolo_free(d->base);
    kolo_free(d->kept);
    kolo_free(d->summed);
    kolo_free(d->entries);
    kolo_free((void *)d->places);
    for (size_t i = 0; i < d->n_exchanges; i++) {
        kolo_free(d->exchanges[i].posted);
        kolo_free(d->exchanges[i].post);
    }
    kolo_free(d->ready);
    kolo_free(d->filled);
    kolo_free(d->exchanges);
    kolo_free(d->totals);
    kolo_free(d->lost);
    kolo_free(d->before);
    kolo_free(d);
}

kolo_status kolo_served_wait(kolo_served *d) { return kolo_parameters_wait(d->parameters); }

bool kolo_served_ended(kolo_served *d, int64_t timeout_ms) {
    return kolo_parameters_ended(d->parameters, timeout_ms);
}

kolo_status kolo_served_stop(kolo_served *d) {
    uint64_t at;
    return kolo_parameters_stop(d->parameters, true, 0, &at);
}

void kolo_served_abandon(kolo_served *d) {
    if (d->tables) kolo_tables_abandon(d->tables);
    if (d->parameters) kolo_parameters_abandon(d->parameters);
}

void kolo_served_count_reads(const kolo_served *d, uint64_t *counts) {
    kolo_parameters_count_reads(d->parameters, counts);
}

void kolo_served_count_delays(const kolo_served *d, uint64_t *counts) {
    kolo_parameters_count_delays(d->parameters, counts);
}

uint64_t kolo_served_count_parts(const kolo_served *d) {
    return kolo_parameters_count_parts(d->parameters);
}

void kolo_served_count_bytes(const kolo_served *d, uint64_t *sent, uint64_t *received) {
    kolo_parameters_traffic(d->parameters, sent, received);
}

bool kolo_served_has_lost(const kolo_served *d, int server) {
    return kolo_parameters_has_lost(d->parameters, server);
}

kolo_status kolo_served_rest(kolo_served *d, bool *asked) {
    bool any = false;
    if (kolo_served_leads(d)) KOLO_TRY(kolo_parameters_rest(d->parameters, d->lost, &any));
    KOLO_TRY(kolo_served_share(d, &any, sizeof any, KOLO_DTYPE_U8));
    if (asked) *asked = any;
    return KOLO_OK;
}

void kolo_served_alive(kolo_served *d) { kolo_parameters_alive(d->parameters); }

int64_t kolo_served_lost(const kolo_served *d, int worker) {
    const int64_t pushes = (int64_t)d->lost[worker] - 1;
    return pushes > 0 && d->every > 0 ? pushes * d->every : pushes;
}

/* ---- the exchange of a step ---- */

static kolo_status add_exchange(kolo_served *d, const kolo_plan *plan) {
    const size_t rows = (size_t)d->division.n_rows + 1;
    kolo_plan_sum *sums;
    int n;
    if (!KOLO_GROW(d->exchanges, d->n_exchanges, d->cap_exchanges)) return KOLO_NOMEM(rows);
    KOLO_TRY(kolo_plan_find_sums(plan, &sums, &n));
    kolo_served_exchange e = {.plan = plan,
                              .posted = kolo_alloc(rows * sizeof *e.posted),
                              .post = kolo_alloc(rows * sizeof *e.post)};
    const bool made = e.posted && e.post;
    for (int i = 0; made && i < d->division.n_rows; i++) {
        e.posted[i] = KOLO_NONE;
        e.post[i] = -1;
    }
    for (int i = 0; made && i < n; i++) {
        int row = kolo_division_find(&d->division, sums[i].name);
        KOLO_ASSERT(row >= 0 && sums[i].posts == kolo_division_elements(&d->division, row));
        for (; row >= 0; row = kolo_division_next(&d->division, row)) {
            e.posted[row] = sums[i].posted;
            e.post[row] = sums[i].post;
        }
    }
    kolo_free(sums);
    if (!made) {
        kolo_free(e.posted);
        kolo_free(e.post);
        return KOLO_NOMEM(rows * sizeof *e.posted);
    }
    d->exchanges[d->n_exchanges++] = e;
    return KOLO_OK;
}

static const kolo_served_exchange *exchange_of(const kolo_served *d, const kolo_plan *plan) {
    for (size_t i = 0; i < d->n_exchanges; i++) {
        if (d->exchanges[i].plan == plan) return &d->exchanges[i];
    }
    return NULL;
}

/* The places become those of what the plan adds to the sums. */
static kolo_status place_summands(kolo_served *d, const kolo_plan *plan) {
    if (!exchange_of(d, plan)) KOLO_TRY(add_exchange(d, plan));
    const kolo_value *posted = exchange_of(d, plan)->posted;
    for (int row = 0; row < d->division.n_rows; row++) {
        d->places[row] = kolo_value_ok(posted[row]) ? kolo_plan_data(plan, posted[row]) : NULL;
    }
    return KOLO_OK;
}

void kolo_served_begin(kolo_served *d, int64_t samples, int64_t labels) {
    d->samples = samples;
    d->labels = labels;
    d->next = 0;
    memset(d->ready, 0, (size_t)d->division.n_rows * sizeof *d->ready);
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        float *part = d->pushed + d->pushed_at[i];
        kolo_summed_set(part + KOLO_SUMMED_SAMPLES, samples);
        kolo_summed_set(part + KOLO_SUMMED_LABELS, labels);
        d->filled[i] = KOLO_SUMMED_HEAD;
    }
}

/* What a row is multiplied by. */
static double factor_of(const kolo_served *d, int row) {
    const kolo_row_kind kind = kolo_division_kind(&d->division, row);
    if (!d->weighted) return 1;
    return kind == KOLO_ROW_GRADIENT    ? (double)d->labels
           : kind == KOLO_ROW_STATISTIC ? (double)d->samples
                                        : 1;
}

/* Gathers the next rows, in the order of the vector, up to the first that is not ready. */
static void gather_ready(kolo_served *d) {
    const int owners = d->division.owners;
    for (; d->next < d->division.n_rows; d->next++) {
        const int row = d->next, first = kolo_division_bucket(&d->division, row) * owners;
        if (!(KOLO_ROWS_PUSHED >> kolo_division_kind(&d->division, row) & 1)) continue;
        if (!d->ready[row]) return;
        for (int i = first; i < first + owners; i++) {
            float *part = d->pushed + d->pushed_at[i];
            d->filled[i] += kolo_division_gather_row(&d->division, row, i, factor_of(d, row),
                                                     d->places[row], part + d->filled[i]);
        }
    }
}

/* A POST of the plan: its rows are ready, and pushed while the backward pass goes on. */
static kolo_status push_posted(void *arg, const kolo_plan *plan, int32_t node) {
    kolo_served *d = arg;
    KOLO_TRY(place_summands(d, plan));
    const int32_t *post = exchange_of(d, plan)->post;
    for (int row = 0; row < d->division.n_rows; row++) d->ready[row] |= post[row] == node;
    gather_ready(d);
    kolo_parameters_pull_early(d->parameters, d->pulled);
    if (d->group) return kolo_served_sum_ready(d);
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        KOLO_TRY(kolo_parameters_push_early(d->parameters, d->pushed, i, d->filled[i]));
    }
    return KOLO_OK;
}

/* The rest of the push. `plan`: that ran; NULL: this worker has no samples. */
static kolo_status push(kolo_served *d, const kolo_plan *plan) {
    if (plan) {
        KOLO_TRY(place_summands(d, plan));
        memset(d->ready, true, (size_t)d->division.n_rows * sizeof *d->ready);
        gather_ready(d);
    } else {
        memset(d->pushed, 0, d->gradient * sizeof *d->pushed);
    }
    if (d->group) KOLO_TRY(kolo_served_sum_rest(d));
    return kolo_served_leads(d) ? kolo_parameters_push(d->parameters, d->pushed) : KOLO_OK;
}

kolo_status kolo_served_pull(kolo_served *d, const kolo_session *s) {
    const size_t totals = kolo_division_totals(&d->division);
    if (kolo_served_leads(d)) KOLO_TRY(kolo_parameters_pull(d->parameters, d->pulled));
    KOLO_TRY(kolo_served_share(d, d->pulled, d->values, KOLO_DTYPE_F32));
    const int with_metrics = kolo_division_totals_part(&d->division);
    memcpy(d->totals, d->pulled + d->pulled_at[with_metrics], totals * sizeof(float));
    kolo_served_place(d, s);
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        kolo_division_scatter(&d->division, i, KOLO_ROWS_PULLED, false,
                              d->pulled + d->pulled_at[i] + totals, d->places);
    }
    return KOLO_OK;
}

kolo_status kolo_served_read_all(kolo_served *d, kolo_session *s) {
    KOLO_TRY(kolo_served_pull(d, s));
    if (kolo_served_leads(d)) KOLO_TRY(kolo_parameters_read_state(d->parameters, d->states));
    KOLO_TRY(kolo_served_share(d, d->states, d->state, KOLO_DTYPE_F32));
    const float *part = d->states;
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        kolo_division_scatter(&d->division, i, KOLO_ROWS_STATE, false, part, d->places);
        part += d->parts[i].state;
    }
    return KOLO_OK;
}

kolo_sums kolo_served_sums(kolo_served *d, const kolo_session *s) {
    const kolo_metric *m = kolo_metric_table();
    kolo_sums sums = {.samples = (int64_t)(d->totals[0] - d->before[0]),
                      .labels = (int64_t)(d->totals[1] - d->before[1])};
    for (int i = 0; i < KOLO_MAX_METRICS; i++) sums.metric[i] = NAN;
    for (int i = 0, k = 2; i < d->division.n_rows; i++) {
        if (kolo_division_kind(&d->division, i) != KOLO_ROW_METRIC) continue;
        for (int j = 0; m[j].name; j++) {
            bool scalar = m[j].output && kolo_value_ok(s->plans[0]->metrics[j]);
            if (!scalar || kolo_division_find(&d->division, m[j].output) != i) continue;
            sums.metric[j] = d->totals[k] - d->before[k];
        }
        k++;
    }
    memcpy(d->before, d->totals, kolo_division_totals(&d->division) * sizeof(float));
    return sums;
}

/* The rows of the batch, before its forward pass. */
static kolo_status pull_rows(kolo_session *s, const kolo_batch *batch) {
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(kolo_tables_pull(s->served->tables, batch, s->field_of, true));
    if (s->upcoming.count > 0) {
        KOLO_TRY(kolo_tables_prefetch(s->served->tables, &s->upcoming, s->field_of));
    }
    kolo_session_count_communication(s, begin);
    return KOLO_OK;
}

kolo_status kolo_session_step_served(kolo_session *s, const kolo_batch *batch, double lr,
                                     kolo_sums *sums) {
    kolo_batch own = *batch;
    const cached *finish = NULL;
    int64_t labels, own_labels = kolo_session_count_labels(s, batch);
    const bool alone = kolo_consistency_is_alone(&s->opts.consistency);
    labels = own_labels;
    if (!alone) KOLO_TRY(kolo_session_sum_labels(s, batch, &labels));
    if (alone) {
        int64_t counts[] = {own.count, own_labels};
        KOLO_TRY(kolo_served_add_group(s->served, counts, 2));
        own.global_count = counts[0];
        labels = counts[1];
    }
    kolo_tables *tables = s->served->tables;
    if (own.count > 0) {
        if (tables) KOLO_TRY(pull_rows(s, &own));
        kolo_served_begin(s->served, own.count, own_labels);
        s->posted = push_posted;
        const kolo_step_scalars x = kolo_session_scalars(s, lr, labels);
        KOLO_TRY(kolo_session_run_micro_batches(s, &own, &x, &finish));
        s->trained = finish->plan;
    }
    const int64_t begin = kolo_now_ns();
    if (tables) KOLO_TRY(kolo_tables_push(tables, finish ? finish->plan : NULL));
    KOLO_TRY(push(s->served, finish ? finish->plan : NULL));
    KOLO_TRY(kolo_served_pull(s->served, s));
    kolo_session_count_communication(s, begin);
    *sums = kolo_served_sums(s->served, s);
    s->evaluated = NULL;
    s->steps++;
    return KOLO_OK;
}

bool kolo_session_leases(const kolo_session *s) { return s->opts.consistency.lease; }

void kolo_session_seek(kolo_session *s, int64_t step) { s->steps = (uint64_t)step; }

kolo_status kolo_session_ask(kolo_session *s, int64_t end) {
    return kolo_parameters_ask(s->served->parameters, (uint64_t)end);
}

kolo_status kolo_session_lease(kolo_session *s, int64_t *lease) {
    bool given;
    uint64_t number = 0;
    KOLO_TRY(kolo_parameters_lease(s->served->parameters, &given, &number));
    *lease = given ? (int64_t)number : -1;
    return kolo_parameters_reads_again(s->served->parameters) ? kolo_served_pull(s->served, s)
                                                              : KOLO_OK;
}

kolo_status kolo_session_stop(kolo_session *s, bool asks, int64_t *next, int64_t *at) {
    const kolo_served *d = s->served;
    int64_t asking = asks, points[2] = {*next, 0};
    uint64_t point = 0;
    KOLO_TRY(kolo_served_add_group(d, &asking, 1));
    if (kolo_served_leads(d)) {
        KOLO_TRY(kolo_parameters_stop(d->parameters, asking > 0, (uint64_t)*next, &point));
    }
    points[1] = (int64_t)point;
    KOLO_TRY(kolo_served_share(d, points, 2, KOLO_DTYPE_I64));
    *next = points[0];
    *at = points[1];
    return KOLO_OK;
}

kolo_status kolo_session_meet(kolo_session *s, bool *asked) {
    return kolo_served_rest(s->served, asked);
}

int kolo_session_staleness(const kolo_session *s) {
    return kolo_parameters_staleness(s->served->parameters);
}

int64_t kolo_session_updates(const kolo_session *s) {
    const bool counts = s->served && kolo_consistency_is_alone(&s->opts.consistency);
    return counts ? (int64_t)s->served->totals[kolo_division_updates(&s->served->division)] : 0;
}

void kolo_session_add_rest(kolo_session *s, kolo_sums *sums) {
    if (!s->served) return;
    const kolo_sums rest = kolo_served_sums(s->served, s);
    kolo_sums_add(sums, &rest);
}

kolo_status kolo_session_table_stats(kolo_session *s, kolo_table_stats *stats) {
    *stats = (kolo_table_stats){0};
    return s->pulled ? kolo_tables_stats(s->served->tables, stats) : KOLO_OK;
}

kolo_status kolo_session_save_tables(kolo_session *s, const char *path) {
    return s->pulled ? kolo_tables_save(s->served->tables, path) : KOLO_OK;
}

void kolo_session_prefetch_rows(kolo_session *s, const kolo_batch *next) { s->upcoming = *next; }

uint64_t kolo_session_count_ahead(const kolo_session *s) {
    return s->pulled && s->served ? kolo_tables_count_ahead(s->served->tables) : 0;
}

bool kolo_session_has_tables(const kolo_session *s) { return s->pulled != 0; }

kolo_status kolo_session_write_tables(kolo_session *s, const char *path, int64_t steps) {
    return kolo_tables_write(s->served->tables, path, steps);
}

kolo_status kolo_session_read_tables(kolo_session *s, const char *path) {
    return kolo_tables_read(s->served->tables, path);
}

static kolo_status join(kolo_served *d, const kolo_session_config *config, const char *text,
                        const kolo_session_servers *o, const kolo_session *session) {
    const kolo_consistency *c = &config->consistency;
    d->joined = true;
    d->weighted = kolo_consistency_is_weighted(c);
    KOLO_TRY(kolo_division_read(&text, &d->division));
    if (d->division.owners != o->servers) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the run has %d servers, not %d", d->division.owners,
                         o->servers);
    }
    KOLO_TRY(allocate(d, NULL, data_ranks(session) + o->joins));
    KOLO_TRY(find_entries(d, session));
    const kolo_parameters_opts opts = {
        .servers = o->servers,
        .parts = d->parts,
        .staleness = kolo_consistency_staleness(c),
        .leases = c->lease,
        .joins = o->joins,
        .replicas = o->replicas,
        .timeout_ms = o->timeout_ms,
    };
    return kolo_parameters_join(text, o->secret, d->values + d->state, &opts, &d->parameters);
}

void kolo_session_describe_join(const kolo_session *s, kolo_text *text) {
    kolo_division_print(&s->served->division, text);
    kolo_text_add(text, "%s", kolo_parameters_address(s->served->parameters));
}

kolo_status kolo_session_join(kolo_session *s, const char *text,
                              const kolo_session_servers *servers, int *number) {
    s->served = kolo_zalloc(sizeof *s->served);
    if (!s->served) return KOLO_NOMEM(sizeof *s->served);
    const kolo_status status = join(s->served, &s->opts, text, servers, s);
    if (status != KOLO_OK) {
        kolo_served_destroy(s->served);
        s->served = NULL;
        return status;
    }
    *number = kolo_parameters_number(s->served->parameters);
    return KOLO_OK;
}

kolo_status kolo_session_enter(kolo_session *s, int64_t *end) {
    uint64_t leases;
    KOLO_TRY(kolo_parameters_enter(s->served->parameters, &leases));
    *end = (int64_t)leases;
    KOLO_TRY(kolo_served_pull(s->served, s));
    (void)kolo_served_sums(s->served, s); /* what the others have done before */
    return KOLO_OK;
}

kolo_status kolo_session_connect(kolo_session *s, kolo_comm *world,
                                 const kolo_session_servers *servers, kolo_status status) {
    const kolo_served_opts opts = {
        .world = world,
        .servers = servers->servers,
        .replicas = servers->replicas,
        .joins = servers->joins,
        .steps = (int64_t)s->steps,
        .updates = servers->updates,
        .schedule = s->schedule,
    };
    KOLO_TRY(kolo_served_create(&s->opts, &opts, s, status, &s->served));
    s->tables = s->served->tables;
    return KOLO_OK;
}
