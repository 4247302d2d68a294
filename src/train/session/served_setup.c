/* How workers and owners of parameters connect: who owns what, where it is in the vectors that are
 * exchanged, and the initial values. */
#include "base/memory.h"
#include "comm/engine/family.h"
#include "comm/sync/parameters_parts.h"
#include "comm/sync/parameters_replica.h"
#include "train/session/agree.h"
#include "train/session/served_internal.h"

#include <string.h>

/* ---- who owns what ---- */

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
    const bool byte_split = config->consistency.kind == KOLO_CONSISTENCY_BSP && o->replicas == 0 &&
                            o->joins == 0 && optimizer->clip == 0 &&
                            !kolo_optimizer_scales(optimizer->kind) && workers > 1;
    const int hosts = kolo_served_hosts(config, o);
    const bool works =
        o->servers == 0 || (byte_split && o->servers < (hosts > 0 ? hosts : workers));
    const int owners = works ? ranks : o->servers;
    return (ownership){owners, works ? workers : 0, byte_split && owners > 1};
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

/* By which a worker clips what it pushes to these owners; 0: it does not. */
static double clip_of(const kolo_session_config *config, int owners) {
    const bool parts = kolo_consistency_updates_at_push(&config->consistency) && owners > 1;
    return parts ? config->plan.optimizer.clip : 0;
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
        .codes = config->codes,
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
    if (clip_of(config, by.owners) > 0) plan.optimizer.clip = 0;
    const int64_t samples = most_samples(config, plan.mesh.axes[0].size);
    KOLO_TRY(kolo_session_build(config, samples, &graph));
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

/* Takes an entry that has the errors of a gradient's codes. */
static void find_residual(const kolo_served *d, const char *name, int entry) {
    static const char prefix[] = "optimizer.residual.";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return;
    int row = kolo_division_find(&d->division, name + sizeof prefix - 1);
    for (; row >= 0; row = kolo_division_next(&d->division, row)) d->residuals[row] = entry;
}

/* Finds the tensors of the session, which must be what the owners have. */
static kolo_status find_entries(const kolo_served *d, const kolo_session *s) {
    int found = 0;
    for (int i = 0; i < d->division.n_rows; i++) d->entries[i] = d->residuals[i] = -1;
    for (int i = 0; i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(s->store, i);
        int row;
        find_residual(d, entry->name, i);
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

/* What is pushed in place of the gradient, and the errors of its codes. */
static kolo_status allocate_packed(kolo_served *d, kolo_comm *world) {
    const size_t parts = (size_t)kolo_division_parts(&d->division);
    size_t numbers = 0;
    d->packed_at = kolo_zalloc(3 * parts * sizeof *d->packed_at);
    if (!d->packed_at) return KOLO_NOMEM(parts * sizeof *d->packed_at);
    for (size_t i = 0; i < parts; i++) {
        d->packed_at[i] = numbers;
        numbers += d->parts[i].pushed;
    }
    d->n_packed = d->packed_at + parts;
    d->n_taken = d->n_packed + parts;
    d->residual = kolo_zalloc((d->gradient + 1) * sizeof *d->residual);
    if (!d->residual) return KOLO_NOMEM(d->gradient * sizeof *d->residual);
    return allocate_vector(d, world, numbers, &d->packed);
}

/* What a worker exchanges with the owners. */
static kolo_status allocate_vectors(kolo_served *d, kolo_comm *world) {
    const size_t rows = (size_t)d->division.n_rows + 1;
    d->states = kolo_alloc((d->state + 1) * sizeof *d->states);
    if (!d->states) return KOLO_NOMEM(d->state * sizeof *d->states);
    if (d->every > 0) {
        d->base = kolo_zalloc((d->values + 1) * sizeof *d->base);
        d->kept = kolo_zalloc((d->values + 1) * sizeof *d->kept);
        d->summed = kolo_zalloc(rows * sizeof *d->summed);
        if (!d->base || !d->kept || !d->summed) return KOLO_NOMEM(d->values * sizeof *d->base);
    }
    KOLO_TRY(allocate_vector(d, world, d->gradient, &d->pushed));
    KOLO_TRY(allocate_vector(d, world, d->values, &d->pulled));
    return d->packs ? allocate_packed(d, world) : KOLO_OK;
}

/* `workers`: those who may join included. */
static kolo_status allocate(kolo_served *d, int workers) {
    const size_t parts = (size_t)kolo_division_parts(&d->division);
    const size_t rows = (size_t)d->division.n_rows + 1;
    const size_t totals = kolo_division_totals(&d->division) * sizeof(float);
    d->parts = kolo_zalloc(parts * sizeof *d->parts);
    d->pushed_at = kolo_zalloc(parts * sizeof *d->pushed_at);
    d->pulled_at = kolo_zalloc(parts * sizeof *d->pulled_at);
    d->places = kolo_zalloc(rows * sizeof *d->places);
    d->entries = kolo_zalloc(2 * rows * sizeof *d->entries);
    d->residuals = d->entries ? d->entries + rows : NULL;
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
    return KOLO_OK;
}

/* Updates that were made before. Earlier versions did not store them. */
static double updates_before(const kolo_session *s, int64_t updates) {
    const bool at_push = kolo_consistency_updates_at_push(&s->opts.consistency);
    const int64_t every =
        kolo_consistency_has_rounds(&s->opts.consistency) ? s->opts.consistency.steps : 1;
    const int64_t derived = (int64_t)s->steps / every * (at_push ? ranks_of(s) / step_ranks(s) : 1);
    return (double)(updates > 0 ? updates : derived);
}

/* The values and states of all owners, from the session of rank 0. */
static kolo_status fill_initial(const kolo_served *d, const kolo_session *s, double updates,
                                float *initial) {
    const size_t at = (size_t)kolo_division_updates(&d->division) * sizeof updates;
    KOLO_TRY(kolo_served_place(d, s));
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        float *state = initial + d->parts[i].values;
        memcpy((char *)initial + at, &updates, sizeof updates);
        kolo_division_gather(&d->division, i, KOLO_ROWS_PULLED, false, d->places,
                             initial + kolo_division_totals(&d->division));
        kolo_division_gather(&d->division, i, KOLO_ROWS_STATE, false, d->places, state);
        initial = state + d->parts[i].state;
    }
    return KOLO_OK;
}

kolo_status kolo_served_configure(const kolo_served *d, double lr, int64_t steps) {
    const kolo_owner_settings settings = {.lr = lr, .steps = steps};
    return kolo_parameters_configure(d->parameters, &settings, sizeof settings);
}

static kolo_status assign(const kolo_served *d, const kolo_session *s, int64_t updates,
                          int64_t steps) {
    const size_t bytes = (d->values + d->state) * sizeof(float);
    float *initial = kolo_zalloc(bytes);
    if (!initial) return KOLO_NOMEM(bytes);
    kolo_status status = fill_initial(d, s, updates_before(s, updates), initial);
    if (status == KOLO_OK) status = kolo_served_configure(d, s->fixed_lr, steps);
    if (status == KOLO_OK) status = kolo_parameters_assign(d->parameters, initial);
    kolo_free(initial);
    return status;
}

kolo_status kolo_served_assign(kolo_served *d, const kolo_session *s, int64_t updates,
                               int64_t steps) {
    const size_t totals = kolo_division_totals(&d->division) * sizeof(float);
    if (rank_of(s) == 0) KOLO_TRY(assign(d, s, updates, steps));
    memset(d->totals, 0, totals); /* the owners count from here */
    memset(d->before, 0, totals);
    return kolo_served_load_residuals(d, s);
}

/* Completes the options on a server. */
static kolo_status serve(kolo_served *d, kolo_parameters_opts *opts) {
    if (d->follower) {
        KOLO_TRY(kolo_owner_serve(d->follower, &d->division, opts));
        opts->replica_arg = opts->arg;
    }
    return d->owner ? kolo_owner_serve(d->owner, &d->division, opts) : KOLO_OK;
}

/* Whether owners add up the errors of codes: see keeps_own_residuals. */
static bool sums_errors(const kolo_session_config *config) {
    return kolo_compresses(&config->codes) && config->consistency.kind != KOLO_CONSISTENCY_BSP;
}

static kolo_parameters_opts parameters_opts(const kolo_served *d, const kolo_session_config *config,
                                            const kolo_served_opts *o) {
    const kolo_consistency *c = &config->consistency;
    return (kolo_parameters_opts){
        .servers = o->servers,
        .shared = d->shared,
        .buckets = d->division.buckets,
        .parts = d->parts,
        .needs_all = true,
        .spared =
            kolo_consistency_outlives(c) && o->servers > 0 && !o->replay && !config->needs_workers,
        .staleness = kolo_consistency_staleness(c),
        .drop = c->drop,
        .discard = c->discard,
        .quorum = (int)c->quorum,
        .grace_ms = c->grace_ms,
        .adapts = c->kind == KOLO_CONSISTENCY_AUTO,
        .leases = c->lease,
        .sums = sums_errors(config),
        .first_lease = (uint64_t)(o->steps * (kolo_comm_size(o->world) - o->servers)),
        .record = o->record,
        .replay = o->replay,
        .update_hash = kolo_consistency_hash(c),
        .replicas = o->replicas,
        .joins = o->joins,
    };
}

/* The bytes of an owner here: in its plan, and in the vectors that are exchanged. */
static size_t bytes_of_owner(const kolo_served *d, const kolo_parameters_opts *p,
                             const kolo_served_opts *o, const kolo_owner *owner, int index) {
    const int workers = kolo_comm_size(o->world) - o->servers;
    int remote = 0;
    for (int w = 0; w < workers; w++) remote += o->replicas > 0 || !kolo_comm_maps(o->world, w);
    return kolo_owner_bytes(owner) +
           kolo_owner_parts_needs(p, d->division.owners, index, workers, remote);
}

/* While they are created each rank has the initial values of all owners. */
static size_t bytes_of_creation(const kolo_served *d, int index) {
    size_t numbers = d->values + d->state;
    for (int i = 0; i < kolo_division_parts(&d->division) && index >= 0; i++) {
        if (i % d->division.owners == index)
            numbers += 2 * (d->parts[i].values + d->parts[i].state);
    }
    return numbers * sizeof(float);
}

/* The bytes that this rank needs beside its session. */
static size_t bytes_of_rank(const kolo_served *d, const kolo_parameters_opts *p,
                            const kolo_served_opts *o, bool works) {
    const int owners = d->division.owners;
    const int index = kolo_comm_rank(o->world) - (kolo_comm_size(o->world) - owners);
    size_t numbers = works ? d->values + d->gradient + d->state : 0, bytes = 0;
    if (works && d->every > 0) numbers += 2 * d->values;
    if (d->packs) numbers += d->gradient;
    for (int i = 0; i < kolo_division_parts(&d->division) && d->packs; i++) {
        numbers += d->parts[i].pushed;
    }
    if (d->owner) bytes += bytes_of_owner(d, p, o, d->owner, index);
    if (d->follower) {
        bytes += bytes_of_owner(d, p, o, d->follower, kolo_replicas_followed(index, owners));
    }
    bytes += numbers * sizeof(float);
    const size_t created = bytes_of_creation(d, index);
    return created > bytes ? created : bytes;
}

static kolo_tables_opts tables_opts(const kolo_served_opts *o) {
    return (kolo_tables_opts){.world = o->world,
                              .servers = o->servers,
                              .replicas = o->replicas,
                              .steps = o->steps,
                              .schedule = o->schedule};
}

/* With its servers a run may need more memory than its workers, which have checked theirs. */
static kolo_status check_memory(const kolo_served *d, const kolo_session_config *config,
                                const kolo_parameters_opts *p, const kolo_served_opts *o,
                                bool works) {
    const kolo_tables_opts tables = tables_opts(o);
    kolo_memory_need own = o->need;
    own.served = (int64_t)bytes_of_rank(d, p, o, works);
    if (d->tables) own.tables = (int64_t)kolo_tables_needs(d->tables, config, &tables);
    return kolo_check_memory(o->world, &own);
}

static kolo_status connect(kolo_served *d, const kolo_session_config *config,
                           const kolo_served_opts *o, const kolo_session *session, float *initial) {
    kolo_parameters_opts opts = parameters_opts(d, config, o);
    KOLO_TRY(kolo_agree(o->world, serve(d, &opts)));
    KOLO_TRY(check_memory(d, config, &opts, o, session != NULL));
    kolo_status status = KOLO_OK;
    if (initial) status = fill_initial(d, session, updates_before(session, o->updates), initial);
    KOLO_TRY(kolo_agree(o->world, status));
    return kolo_parameters_create(o->world, initial, d->values + d->state, &opts, &d->parameters);
}

/* The codec, which the rows of the last rank have not. */
static void take_codec(kolo_served *d, const kolo_session_config *config, bool works) {
    d->division.codec = config->codes.codec;
    d->packs = works && kolo_compresses(&config->codes);
}

static kolo_status prepare(kolo_served *d, const kolo_session_config *config,
                           const kolo_served_opts *o, kolo_session *session) {
    d->weighted = kolo_consistency_is_weighted(&config->consistency);
    if (kolo_consistency_has_rounds(&config->consistency)) d->every = config->consistency.steps;
    take_codec(d, config, session != NULL);
    KOLO_TRY(allocate(d, kolo_comm_size(o->world) + o->joins));
    if (!session) return KOLO_OK;
    d->clip = clip_of(config, d->division.owners);
    KOLO_TRY(allocate_vectors(d, o->world));
    KOLO_TRY(find_entries(d, session));
    return kolo_served_load_residuals(d, session);
}

static kolo_status create(kolo_served *d, const kolo_session_config *config,
                          const kolo_served_opts *o, kolo_session *session, kolo_status status) {
    kolo_served_opts all = *o;
    KOLO_TRY(kolo_agree(o->world, status));
    KOLO_TRY(kolo_broadcast(o->world, &all.steps, 1, KOLO_DTYPE_I64, 0));
    KOLO_TRY(kolo_agree(o->world, make_owners(d, config, &all)));
    KOLO_TRY(kolo_division_broadcast(&d->division, o->world));
    KOLO_TRY(kolo_agree(o->world, prepare(d, config, o, session)));
    const kolo_tables_opts tables = tables_opts(&all);
    if (config->tables.names) KOLO_TRY(kolo_tables_find(config, &tables, &d->tables));
    const size_t bytes = (d->values + d->state) * sizeof(float);
    float *initial = session && rank_of(session) == 0 ? kolo_zalloc(bytes) : NULL;
    const bool failed = session && rank_of(session) == 0 && !initial;
    status = kolo_agree(o->world, failed ? KOLO_NOMEM(bytes) : KOLO_OK);
    if (status == KOLO_OK) status = connect(d, config, &all, session, initial);
    kolo_free(initial);
    if (status == KOLO_OK && session) status = kolo_served_join_group(d, session, o);
    if (status != KOLO_OK || !d->tables) return status;
    return kolo_tables_open(d->tables, config, &tables);
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
    if (d->joined) kolo_free(d->packed);
    kolo_free(d->packed_at);
    kolo_free(d->residual);
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
        .need = servers->need,
    };
    KOLO_TRY(kolo_served_create(&s->opts, &opts, s, status, &s->served));
    s->tables = s->served->tables;
    return KOLO_OK;
}

/* ---- processes that join ---- */

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
    take_codec(d, config, true);
    d->clip = clip_of(config, d->division.owners);
    KOLO_TRY(allocate(d, data_ranks(session) + o->joins));
    KOLO_TRY(allocate_vectors(d, NULL));
    KOLO_TRY(find_entries(d, session));
    const kolo_parameters_opts opts = {
        .servers = o->servers,
        .parts = d->parts,
        .staleness = kolo_consistency_staleness(c),
        .leases = c->lease,
        .sums = sums_errors(config),
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
