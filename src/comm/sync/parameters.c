/* Parameters on servers: creation and the end; see kolo/parameters.h. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/service/waits.h"
#include "comm/sync/agree.h"
#include "comm/sync/byte_split.h"
#include "comm/sync/parameters_internal.h"

#include <string.h>

/* Where part i of one vector begins. */
static size_t begin_of(const kolo_parameters *p, int i) {
    const bool shared = p->opts.shared && p->n_workers < p->n_servers;
    const kolo_byte_split split =
        shared ? (kolo_byte_split){.workers = p->n_workers, .servers = p->n_servers - p->n_workers}
               : (kolo_byte_split){.workers = p->n_servers};
    const uint64_t all = kolo_byte_split_total(split), bucket = (uint64_t)(i / p->n_servers);
    return kolo_byte_split_part(p->count,
                                bucket * all + kolo_byte_split_before(split, i % p->n_servers),
                                all * (uint64_t)kolo_parameters_buckets(p));
}

static kolo_owned_span range_of(const kolo_parameters *p, int i) {
    const size_t first = begin_of(p, i);
    return (kolo_owned_span){first, begin_of(p, i + 1) - first};
}

/* What each part has. */
static void divide(kolo_parameters *p) {
    size_t values = 0, gradient = 0, state = 0, pushed = 0;
    for (int i = 0; i < p->n_parts; i++) {
        const kolo_parameters_part *part = p->opts.parts ? &p->opts.parts[i] : NULL;
        const kolo_owned_span range = range_of(p, i);
        p->owned[i] = (kolo_owned){range, range, {0, 0}, range};
        if (range.count > p->largest && !part) p->largest = range.count;
        if (!part) continue;
        const size_t packed = part->pushed > 0 ? part->pushed : part->gradient;
        const size_t counts[] = {part->values, part->gradient, part->state, packed};
        for (size_t k = 0; k < KOLO_COUNT(counts); k++) {
            if (counts[k] > p->largest) p->largest = counts[k];
        }
        p->owned[i] = (kolo_owned){{values, part->values},
                                   {gradient, part->gradient},
                                   {state, part->state},
                                   {pushed, packed}};
        values += part->values;
        gradient += part->gradient;
        state += part->state;
        pushed += packed;
    }
    p->opts.parts = NULL; /* of the caller */
}

/* ---- creation ---- */

static kolo_status check_drop(const kolo_parameters_opts *o, int workers) {
    if ((o->drop != 0 && o->staleness != 0) || (o->discard && o->drop == 0)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "gradients are dropped with a staleness of 0, and discarded "
                                       "if they are dropped");
    }
    if (o->quorum < 0 || o->quorum > workers || o->grace_ms < 0 || o->grace_ms > INT32_MAX ||
        (o->grace_ms > 0 && o->quorum == 0)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a quorum of %d of %d gradients, with a grace of %lld ms",
                         o->quorum, workers, (long long)o->grace_ms);
    }
    if (o->quorum > 0 && (o->drop != 0 || o->staleness != 0 || o->adapts)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a quorum with a staleness, with gradients that are dropped, "
                         "or with a bound that adapts: it is for bsp");
    }
    if (o->grace_ms > 0 && (o->replicas > 0 || o->record || o->replay)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a grace depends on the time: its run has no replicas, and is "
                         "not recorded or replayed");
    }
    if (o->drop >= 0 && o->drop < workers) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "steps without %d of %d gradients: at least one is needed",
                     o->drop, workers);
}

/* Workers whose gradients are in wait until the grace ends: their waits must not end before. */
static kolo_status check_grace(const kolo_comm *comm, const kolo_parameters_opts *o) {
    const int64_t wait_ms = o->timeout_ms > 0 ? o->timeout_ms : comm->timeout_ns / 1000000;
    if (o->grace_ms == 0 || o->grace_ms < wait_ms) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "a grace of %lld ms, and waits that end after %lld ms: give a shorter grace, "
                     "or a longer timeout_ms (--timeout)",
                     (long long)o->grace_ms, (long long)wait_ms);
}

/* `owns`: this rank is an owner. */
static kolo_status check_parts(const kolo_parameters_opts *o, size_t count, int owners, bool owns) {
    const int parts = owners * (o->buckets > 1 ? o->buckets : 1);
    size_t all = 0;
    for (int i = 0; i < parts; i++) {
        all += o->parts[i].values + o->parts[i].state;
        if (owns && o->parts[i].state > 0 && !o->save) {
            return KOLO_FAIL(KOLO_ERR_ARG, "parameters with a state that nothing saves");
        }
    }
    if (all == count) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "parts of %zu numbers of %zu initial ones", all, count);
}

static kolo_status check_exchange(const kolo_parameters_opts *o) {
    const bool bsp = o->staleness == 0 && o->drop == 0 && o->quorum == 0 && !o->adapts;
    const bool alone = o->shared || o->buckets > 1 || o->replicas > 0 || o->record || o->replay;
    if (!o->exchange || (bsp && !alone && o->needs_all && o->spared == 0)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "sums over the owners are for updates that all of them make by the same "
                     "gradients: a staleness of 0 and needs_all, without drop, quorum, adapts, "
                     "spared, shared, buckets, replicas, record and replay");
}

static kolo_status check_opts(const kolo_parameters_opts *o, size_t count, int ranks, int rank) {
    const bool owns = rank >= ranks - o->servers || o->servers <= 0 || o->shared;
    const bool bsp = o->staleness == 0 && o->drop == 0 && o->quorum == 0 && !o->adapts;
    if ((o->shared || o->buckets > 1) && (!bsp || o->replicas > 0 || o->record || o->replay)) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "parameters that servers share with workers, or parts in buckets, are for a "
            "staleness of 0, without drop, adapts, replicas, record and replay");
    }
    if (o->sums && (o->shared || o->buckets > 1)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "`sums` cannot be combined with `shared` or `buckets`: each "
                                       "owner must have one part");
    }
    if (owns && !o->update) return KOLO_FAIL(KOLO_ERR_ARG, "parameters without an update");
    if (o->servers < 0 || o->servers >= ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d servers of %d ranks: there must be a worker", o->servers,
                         ranks);
    }
    const int owners = o->servers > 0 && !o->shared ? o->servers : ranks;
    if (o->buckets < 0 || o->buckets > KOLO_OWNER_PARTS_MOST / owners) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d buckets of %d owners: at most %d parts", o->buckets,
                         owners, KOLO_OWNER_PARTS_MOST);
    }
    if (o->staleness < KOLO_STALENESS_ANY) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a staleness of %d: must be KOLO_STALENESS_ANY or at least 0",
                         o->staleness);
    }
    if (o->record && o->replay) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a run is recorded or replayed, not both");
    }
    if (o->leases && o->staleness == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "leases with a staleness of 0: workers with leases make "
                                       "different numbers of pushes, so that it must be above 0 or "
                                       "KOLO_STALENESS_ANY");
    }
    if (o->adapts && (o->staleness != 0 || o->drop != 0 || o->record || o->replay)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "bounds that adapt begin with a staleness of 0, and drop no gradients; "
                         "their run is not recorded or replayed, since they depend on the time");
    }
    if (o->joins < 0 ||
        (o->joins > 0 && (!o->leases || o->servers == 0 || o->record || o->replay))) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "%d workers may join: it needs leases and servers apart, without a record or a "
            "replay",
            o->joins);
    }
    if (o->replicas < 0 || o->replicas > 1 || (o->replicas == 1 && o->servers < 2)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%d replicas with %d servers: there may be 1, with 2 servers or more",
                         o->replicas, o->servers);
    }
    if (o->replicas > 0 && (o->record || o->replay)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a run that is recorded or replayed has no replicas: it "
                                       "does not outlive servers");
    }
    KOLO_TRY(check_drop(o, o->servers > 0 ? ranks - o->servers : ranks));
    KOLO_TRY(check_exchange(o));
    return o->parts ? check_parts(o, count, owners, owns) : KOLO_OK;
}

/* The order of the requests to owner i, if this rank has it. */
static kolo_status open_order(kolo_parameters *p, int i) {
    const char *path = p->opts.record ? p->opts.record : p->opts.replay;
    if (!path || !p->owner) return KOLO_OK;
    char *own = kolo_format("%s.%d", path, i);
    if (!own) return KOLO_NOMEM(strlen(path));
    const kolo_order_opts opts = {
        .record = p->opts.record ? own : NULL,
        .replay = p->opts.record ? NULL : own,
        .workers = p->n_workers,
        .owners = p->n_servers,
        .index = i,
        .staleness = p->opts.staleness,
        .drop = p->opts.quorum > 0 ? -p->opts.quorum : p->opts.drop,
        .leases = p->opts.leases,
        .update_hash = p->opts.update_hash,
        .reply = kolo_service_reply,
        .owner = p->owner,
    };
    kolo_status status = kolo_order_create(&opts, &p->order);
    kolo_free(own);
    return status;
}

/* Lets workers send their pushes in parts. Not in the middle of a push: a worker whose part is
 * refused leaves the others waiting. */
static kolo_status stage(const kolo_parameters *p, kolo_parameters_owner *owner) {
    for (int w = 0; w < p->n_workers && owner && kolo_parameters_buckets(p) == 1; w++) {
        const bool maps = p->opts.replicas == 0 && kolo_comm_maps(p->comm, w);
        if (maps) continue; /* it sends no parts, neither here nor to another server */
        KOLO_TRY(kolo_parameters_owner_stage(owner, w));
    }
    for (int i = 0; i < p->opts.joins && owner; i++) {
        KOLO_TRY(kolo_parameters_owner_stage(owner, p->n_workers + i));
    }
    return KOLO_OK;
}

static kolo_status start_request(void *service, kolo_service_request *request) {
    return kolo_service_start(service, request);
}

static bool test_request(void *service, const kolo_service_request *request) {
    return kolo_service_test(service, request);
}

static kolo_status wait_request(void *service, kolo_service_request *request) {
    return kolo_service_wait(service, request, 0);
}

static const kolo_owner_channel channel = {start_request, test_request, wait_request,
                                           kolo_service_reply};

/* Lets owner i make sums over all owners. */
static kolo_status exchange(const kolo_parameters *p, int i) {
    const int first = kolo_comm_size(p->comm) - p->n_servers;
    if (!p->opts.exchange || !p->owner) return KOLO_OK;
    return kolo_parameters_owner_exchange(p->owner, i, p->n_servers, first, &channel);
}

/* Creates what server i has of the part of the one before it. */
static kolo_status follow(kolo_parameters *p, int i) {
    if (p->opts.replicas == 0 || !p->owner) return KOLO_OK;
    const kolo_owned *has = &p->owned[kolo_replicas_followed(i, p->n_servers)];
    if (has->pushed.count > UINT32_MAX) { /* of keys */
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a part of %zu numbers is too large for a replica: use more servers",
                         has->pushed.count);
    }
    p->followed = p->opts;
    p->followed.arg = p->opts.replica_arg;
    KOLO_TRY(kolo_parameters_owner_create(&p->followed, has, p->n_workers, kolo_replicas_reply,
                                          &p->follower));
    KOLO_TRY(stage(p, p->follower));
    const kolo_replicas_opts opts = {
        .ranks = kolo_comm_size(p->comm),
        .workers = p->n_workers,
        .servers = p->n_servers,
        .joins = p->opts.joins,
        .index = i,
        .of = &kolo_replicated_parameters,
        .leader = p->owner,
        .follower = p->follower,
        .push_bytes = has->pushed.count * sizeof(float),
        .keeps = p->opts.staleness == 0,
        .channel = channel,
    };
    return kolo_replicas_create(&opts, &p->replicas);
}

/* Whether workers on this host copy values themselves. Values must only change after all workers
 * have read them, and started another request: in plain bsp an update has a push of each. Where
 * workers own parts too, all ranks copy beside each other anyway. */
static bool exposes(const kolo_parameters *p) {
    const kolo_parameters_opts *o = &p->opts;
    bool maps = false;
    for (int w = 0; w < p->n_workers; w++) maps = maps || kolo_comm_maps(p->comm, w);
    return maps && o->servers > 0 && !o->shared && o->staleness == 0 && o->drop == 0 &&
           o->quorum == 0 && !o->adapts && o->replicas == 0;
}

/* Puts the values into registered memory. */
static kolo_status expose_values(kolo_parameters *p) {
    const size_t bytes = kolo_owner_parts_bytes(p->parts_here);
    if (bytes == 0 || !exposes(p)) return KOLO_OK;
    KOLO_COMM_LOCK_SCOPE(p->comm);
    KOLO_TRY(kolo_segment_take(&p->comm->transport->segment, bytes, &p->exposed));
    p->exposed_bytes = bytes;
    kolo_owner_parts_place(p->parts_here, p->exposed);
    return KOLO_OK;
}

/* Not while a worker may still copy them: then they stay until the communicator ends. */
static void take_back_values(kolo_parameters *p) {
    kolo_comm *comm = p->exposed && !p->abandoned ? p->comm : NULL;
    if (!comm) return;
    KOLO_COMM_LOCK_SCOPE(comm);
    kolo_segment_give(&comm->transport->segment, p->exposed, p->exposed_bytes);
}

kolo_status kolo_parameters_allocate(kolo_parameters *p) {
    const size_t n = (size_t)p->n_parts, bytes = n * sizeof *p->pushes;
    p->pushes = kolo_zalloc(bytes);
    p->pulls = kolo_zalloc(bytes);
    p->signals = kolo_zalloc(bytes);
    p->owned = kolo_zalloc(n * sizeof *p->owned);
    p->early = kolo_zalloc(n * sizeof *p->early);
    p->moved = kolo_zalloc(n * sizeof *p->moved);
    p->ready = kolo_zalloc(n * sizeof *p->ready);
    if (!p->pushes || !p->pulls || !p->signals || !p->owned || !p->early || !p->moved ||
        !p->ready) {
        return KOLO_NOMEM(bytes);
    }
    divide(p);
    return KOLO_OK;
}

static kolo_status allocate(kolo_parameters *p, const float *initial, float **all) {
    int rank = kolo_comm_rank(p->comm), first_server = kolo_comm_size(p->comm) - p->n_servers;
    if (rank == 0 && p->count > 0 && !initial) {
        return KOLO_FAIL(KOLO_ERR_ARG, "parameters without initial values on rank 0");
    }
    KOLO_TRY(kolo_parameters_allocate(p));
    if (rank >= first_server) {
        const kolo_owner_parts_opts parts = {.parameters = &p->opts,
                                             .owned = p->owned,
                                             .buckets = kolo_parameters_buckets(p),
                                             .owners = p->n_servers,
                                             .index = rank - first_server,
                                             .workers = p->n_workers};
        KOLO_TRY(kolo_owner_parts_create(&parts, &p->parts_here));
        p->owner = kolo_owner_parts_at(p->parts_here, 0);
        KOLO_TRY(expose_values(p));
    }
    KOLO_TRY(stage(p, p->owner));
    KOLO_TRY(follow(p, rank - first_server));
    KOLO_TRY(exchange(p, rank - first_server));
    KOLO_TRY(open_order(p, rank - first_server));
    const size_t bytes = (p->count + 1) * sizeof **all;
    *all = kolo_alloc(bytes);
    return *all ? KOLO_OK : KOLO_NOMEM(bytes);
}

/* Gives the owners rank 0's values, by way of `all` [count]. */
static kolo_status distribute(kolo_parameters *p, const float *initial, float *all) {
    if (p->count == 0 || !all) return KOLO_OK;
    if (initial && kolo_comm_rank(p->comm) == 0) memcpy(all, initial, p->count * sizeof(float));
    KOLO_TRY(kolo_broadcast(p->comm, all, p->count, KOLO_DTYPE_F32, 0));
    if (p->parts_here) kolo_owner_parts_load(p->parts_here, all);
    if (p->follower) kolo_parameters_owner_load(p->follower, all);
    return KOLO_OK;
}

/* What serves the requests to a rank. */
static kolo_service_opts serving(const kolo_parameters *p) {
    const size_t held = 4 + (kolo_parameters_buckets(p) > 1 ? 2 * KOLO_BUCKETS_AHEAD : 0);
    const size_t numbers = held * p->largest + (p->opts.exchange ? 2 * p->opts.exchanged : 0);
    kolo_service_opts o = {.client_bytes = numbers * sizeof(float) + (1 << 20),
                           .joins = p->opts.joins,
                           .exposed = p->exposed,
                           .exposed_bytes = p->exposed_bytes,
                           .timeout_ms = p->opts.timeout_ms};
    if (p->replicas) {
        o.serve = kolo_replicas_serve;
        o.lost = kolo_replicas_lost;
        o.completed = kolo_replicas_completed;
        o.arg = p->replicas;
    } else if (p->order) {
        o.serve = kolo_order_serve;
        o.lost = kolo_order_lost;
        o.arg = p->order;
    } else if (p->parts_here && kolo_parameters_buckets(p) > 1) {
        o.serve = kolo_owner_parts_serve;
        o.lost = kolo_owner_parts_lost;
        o.arg = p->parts_here;
    } else if (p->owner) {
        o.serve = kolo_parameters_owner_serve;
        o.lost = kolo_parameters_owner_lost;
        o.due = kolo_parameters_owner_due;
        o.arg = p->owner;
    }
    return o;
}

static kolo_status build(kolo_parameters *p, const float *initial) {
    float *all = NULL;
    kolo_status status = kolo_agree(p->comm, allocate(p, initial, &all));
    if (status == KOLO_OK) status = distribute(p, initial, all);
    kolo_free(all);
    KOLO_TRY(status);
    const kolo_service_opts service = serving(p);
    KOLO_TRY(kolo_service_create(p->comm, &service, &p->service));
    if (p->works) kolo_service_report_progress(p->service);
    if (p->replicas) kolo_replicas_connect(p->replicas, p->service);
    if (p->owner) kolo_parameters_owner_connect(p->owner, p->service);
    return p->n_servers > 1 ? kolo_barrier(p->comm) : KOLO_OK; /* before the first request */
}

void kolo_parameters_free(kolo_parameters *p) {
    if (p->group) p->group->wait_hooks = NULL;
    kolo_service_destroy(p->service);
    kolo_order_destroy(p->order);
    kolo_replicas_destroy(p->replicas);
    kolo_owner_parts_destroy(p->parts_here);
    take_back_values(p);
    kolo_parameters_owner_destroy(p->follower);
    kolo_free(p->moved);
    kolo_free(p->pushes);
    kolo_free(p->early);
    kolo_free(p->pulls);
    kolo_free(p->signals);
    kolo_free(p->ready);
    kolo_free(p->owned);
    kolo_free(p);
}

kolo_status kolo_parameters_create(kolo_comm *comm, const float *initial, size_t count,
                                   const kolo_parameters_opts *opts, kolo_parameters **parameters) {
    int ranks = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    if (!opts) return KOLO_FAIL(KOLO_ERR_ARG, "parameters without options");
    KOLO_TRY(check_opts(opts, count, ranks, rank));
    KOLO_TRY(check_grace(comm, opts));
    kolo_parameters *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    *p = (kolo_parameters){.comm = comm,
                           .opts = *opts,
                           .count = count,
                           .n_servers = opts->servers > 0 && !opts->shared ? opts->servers : ranks,
                           .n_workers = opts->servers > 0 ? ranks - opts->servers : ranks,
                           .works = opts->servers == 0 || rank < ranks - opts->servers,
                           .number = -1};
    p->n_parts = p->n_servers * kolo_parameters_buckets(p);
    kolo_status status = build(p, initial);
    if (status != KOLO_OK) {
        kolo_parameters_free(p);
        return status;
    }
    *parameters = p;
    return KOLO_OK;
}

bool kolo_parameters_works(const kolo_parameters *p) { return p->works; }

static kolo_status check_owner(const kolo_parameters *p) {
    if (p->owner) return KOLO_OK;
    if (!p->comm) return KOLO_FAIL(KOLO_ERR_ARG, "a process that has joined owns no parameters");
    return KOLO_FAIL(KOLO_ERR_ARG, "rank %d owns no parameters", kolo_comm_rank(p->comm));
}

kolo_status kolo_parameters_stats_get(kolo_parameters *p, kolo_parameters_stats *stats) {
    KOLO_TRY(check_owner(p));
    kolo_parameters_owner_stats(p->owner, stats);
    return KOLO_OK;
}

bool kolo_parameters_has_lost(const kolo_parameters *p, int i) { return p->moved[i]; }

bool kolo_parameters_ended(kolo_parameters *p, int64_t timeout_ms) {
    for (int r = 0; p->parts_here && r < kolo_parameters_buckets(p); r++) {
        if (!kolo_parameters_owner_ended(kolo_owner_parts_at(p->parts_here, r), timeout_ms))
            return false;
    }
    return !p->follower || kolo_parameters_owner_ended(p->follower, timeout_ms);
}

/* Blocks until no worker is present. */
static kolo_status wait_for_workers(kolo_parameters *p) {
    if (p->service) kolo_service_begin_wait(p->service);
    kolo_status status = p->parts_here ? kolo_owner_parts_wait(p->parts_here) : KOLO_OK;
    if (status == KOLO_OK && p->follower) status = kolo_parameters_owner_wait(p->follower);
    if (p->service) kolo_service_end_wait(p->service);
    return status;
}

kolo_status kolo_parameters_wait(kolo_parameters *p) {
    KOLO_TRY(check_owner(p));
    KOLO_TRY(wait_for_workers(p));
    if (!p->order) return KOLO_OK;
    kolo_service_destroy(p->service); /* its thread changes the order until then */
    p->service = NULL;
    return kolo_order_finish(p->order);
}

void kolo_parameters_abandon(kolo_parameters *p) {
    p->abandoned = true;
    kolo_service_abandon(p->service, kolo_last_error());
}

void kolo_parameters_destroy(kolo_parameters *p) {
    if (!p || (p->comm && p->comm->inherited)) return;
    if (p->works && !p->abandoned) (void)kolo_parameters_finish(p);
    if (!p->abandoned) (void)wait_for_workers(p);
    kolo_parameters_free(p);
}
