/* Parameters on servers; see kolo/parameters.h. */
#include "kolo/parameters.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/family.h"
#include "comm/sync/adapt.h"
#include "comm/sync/agree.h"
#include "comm/sync/law.h"
#include "comm/sync/parameters_order.h"
#include "comm/sync/parameters_owner.h"
#include "comm/sync/parameters_parts.h"
#include "comm/sync/parameters_replica.h"
#include "kolo/service.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Numbers of a piece of a push, at least; buckets whose parts are in flight, so that the links to
 * all owners are busy for the same time. */
enum { PART_LEAST = 1 << 14, BUCKETS_AHEAD = 3, PARTS_MOST = 1 << 16 };

/* What an owner has been sent of the next push, or of the one that is in flight. */
typedef struct early {
    kolo_service_request part[KOLO_PUSH_PARTS_MOST];
    int n;
    size_t sent; /* numbers */
} early;

struct kolo_parameters {
    kolo_comm *comm;
    kolo_parameters_opts opts;
    kolo_service *service;
    size_t count;                     /* of the initial values */
    size_t largest;                   /* part of a vector */
    int n_workers, n_servers, number; /* number: of a worker that has joined; -1: a rank */
    int n_parts;                      /* of all owners, which are n_servers */
    bool works, pushing, finished, abandoned;
    uint64_t clock;
    uint32_t choice;                      /* of the bound, as a read has returned it last */
    kolo_owner_parts *parts_here;         /* what this rank owns; NULL: nothing, */
    kolo_parameters_owner *owner;         /* and its first part */
    kolo_order *order;                    /* recorded or replayed; NULL: neither */
    kolo_parameters_opts followed;        /* of `follower` */
    kolo_parameters_owner *follower;      /* of the part of the server before; NULL: none */
    kolo_replicas *replicas;              /* both; NULL: none */
    bool *moved;                          /* [n_servers]: its part is at the next one */
    kolo_owned *owned;                    /* [n_parts] */
    kolo_service_request *pushes, *pulls; /* [n_parts] */
    kolo_service_request *signals;        /* [n_parts] */
    bool *ready;                          /* [n_parts]: with buckets, the gradient is final */
    int n_pushed, n_pulled;               /* parts that are requested in this step */
    float *reads_into;                    /* see kolo_parameters_pull_early */
    early *early;                         /* [n_parts] */
    kolo_service_request lease;           /* in flight if `asked` */
    bool asked;
    int held;                             /* leases that no push has acknowledged */
    bool idle;                            /* it has reported to the owners that it has none */
    bool goes_on;                         /* it has one again, and reads before it computes */
    uint64_t resume;                      /* the clock of the reply to `lease` */
    uint32_t rests, leases;               /* requests of these kinds that were answered */
    const float *pushed;                  /* the gradient of the latest push */
    uint64_t parts;                       /* sent before the rest of pushes */
    uint64_t reads[KOLO_STALENESS_BINS];  /* of this worker, by staleness */
    uint64_t delays[KOLO_STALENESS_BINS]; /* of its gradients */
};

static int buckets_of(const kolo_parameters *p) {
    return p->opts.buckets > 1 ? p->opts.buckets : 1;
}

/* Where part i of one vector begins. */
static size_t begin_of(const kolo_parameters *p, int i) {
    const bool shared = p->opts.shared && p->n_workers < p->n_servers;
    const kolo_law law = shared ? (kolo_law){p->n_workers, p->n_servers - p->n_workers}
                                : (kolo_law){p->n_servers, 0};
    const uint64_t all = kolo_law_all(law), bucket = (uint64_t)(i / p->n_servers);
    return kolo_law_cut(p->count, bucket * all + kolo_law_before(law, i % p->n_servers),
                        all * (uint64_t)buckets_of(p));
}

static kolo_owned_span range_of(const kolo_parameters *p, int i) {
    const size_t first = begin_of(p, i);
    return (kolo_owned_span){first, begin_of(p, i + 1) - first};
}

/* What each part has. */
static void divide(kolo_parameters *p) {
    size_t values = 0, gradient = 0, state = 0;
    for (int i = 0; i < p->n_parts; i++) {
        const kolo_parameters_part *part = p->opts.parts ? &p->opts.parts[i] : NULL;
        const kolo_owned_span range = range_of(p, i);
        p->owned[i] = (kolo_owned){range, range, {0, 0}};
        if (range.count > p->largest && !part) p->largest = range.count;
        if (!part) continue;
        const size_t counts[] = {part->values, part->gradient, part->state};
        for (size_t k = 0; k < KOLO_COUNT(counts); k++) {
            if (counts[k] > p->largest) p->largest = counts[k];
        }
        p->owned[i] =
            (kolo_owned){{values, part->values}, {gradient, part->gradient}, {state, part->state}};
        values += part->values;
        gradient += part->gradient;
        state += part->state;
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

static kolo_status check_opts(const kolo_parameters_opts *o, size_t count, int ranks, int rank) {
    const bool owns = rank >= ranks - o->servers || o->servers <= 0 || o->shared;
    const bool bsp = o->staleness == 0 && o->drop == 0 && o->quorum == 0 && !o->adapts;
    if ((o->shared || o->buckets > 1) && (!bsp || o->replicas > 0 || o->record || o->replay)) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "parameters that servers share with workers, or parts in buckets, are for a "
            "staleness of 0, without drop, adapts, replicas, record and replay");
    }
    if (o->buckets < 0 || o->buckets > PARTS_MOST / ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d buckets of %d owners: at most %d parts", o->buckets,
                         ranks, PARTS_MOST);
    }
    if (owns && !o->update) return KOLO_FAIL(KOLO_ERR_ARG, "parameters without an update");
    if (o->servers < 0 || o->servers >= ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d servers of %d ranks: there must be a worker", o->servers,
                         ranks);
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
    if (o->joins < 0 || (o->joins > 0 && (!o->leases || o->servers == 0 || o->replicas > 0 ||
                                          o->record || o->replay))) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "%d workers may join: it needs leases and servers apart, without replicas, "
            "a record or a replay",
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
    if (!o->parts) return KOLO_OK;
    const int owners = o->servers > 0 && !o->shared ? o->servers : ranks;
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
    for (int w = 0; w < p->n_workers && owner && buckets_of(p) == 1; w++) {
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

/* Creates what server i has of the part of the one before it. */
static kolo_status follow(kolo_parameters *p, int i) {
    if (p->opts.replicas == 0 || !p->owner) return KOLO_OK;
    const kolo_owned *has = &p->owned[kolo_replicas_followed(i, p->n_servers)];
    p->followed = p->opts;
    p->followed.arg = p->opts.replica_arg;
    KOLO_TRY(kolo_parameters_owner_create(&p->followed, has, p->n_workers, kolo_replicas_reply,
                                          &p->follower));
    KOLO_TRY(stage(p, p->follower));
    const kolo_replicas_opts opts = {
        .ranks = kolo_comm_size(p->comm),
        .workers = p->n_workers,
        .servers = p->n_servers,
        .index = i,
        .staleness = p->opts.staleness,
        .leader = p->owner,
        .follower = p->follower,
        .followed = *has,
        .channel = {start_request, test_request, wait_request, kolo_service_reply},
    };
    return kolo_replicas_create(&opts, &p->replicas);
}

static kolo_status allocate_requests(kolo_parameters *p) {
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
    KOLO_TRY(allocate_requests(p));
    if (rank >= first_server) {
        const kolo_owner_parts_opts parts = {.parameters = &p->opts,
                                             .owned = p->owned,
                                             .buckets = buckets_of(p),
                                             .owners = p->n_servers,
                                             .index = rank - first_server,
                                             .workers = p->n_workers};
        KOLO_TRY(kolo_owner_parts_create(&parts, &p->parts_here));
        p->owner = kolo_owner_parts_at(p->parts_here, 0);
    }
    KOLO_TRY(stage(p, p->owner));
    KOLO_TRY(follow(p, rank - first_server));
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
    const size_t held = 4 + (buckets_of(p) > 1 ? 2 * BUCKETS_AHEAD : 0);
    kolo_service_opts o = {.client_bytes = held * p->largest * sizeof(float) + (1 << 20),
                           .joins = p->opts.joins,
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
    } else if (p->parts_here && buckets_of(p) > 1) {
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
    if (p->replicas) kolo_replicas_connect(p->replicas, p->service);
    return p->opts.replicas > 0 ? kolo_barrier(p->comm) : KOLO_OK; /* before the first request */
}

static void free_parameters(kolo_parameters *p) {
    kolo_service_destroy(p->service);
    kolo_order_destroy(p->order);
    kolo_replicas_destroy(p->replicas);
    kolo_owner_parts_destroy(p->parts_here);
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
    p->n_parts = p->n_servers * buckets_of(p);
    kolo_status status = build(p, initial);
    if (status != KOLO_OK) {
        free_parameters(p);
        return status;
    }
    *parameters = p;
    return KOLO_OK;
}

/* ---- a worker that joins ---- */

const char *kolo_parameters_address(const kolo_parameters *p) {
    return p->service ? kolo_service_address(p->service) : NULL;
}

int kolo_parameters_number(const kolo_parameters *p) { return p->number; }

static kolo_status connect_joined(kolo_parameters *p, const char *address,
                                  const char *secret_file) {
    const kolo_service_opts service = {.timeout_ms = p->opts.timeout_ms};
    int client;
    KOLO_TRY(allocate_requests(p));
    KOLO_TRY(kolo_service_join(address, secret_file, &service, &p->service, &client));
    p->n_workers = kolo_service_server_rank(p->service, 0); /* servers are the last ranks */
    p->number = client - p->n_servers;
    if (kolo_service_server_count(p->service) == p->n_servers) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "the run has %d servers, not %d",
                     kolo_service_server_count(p->service), p->n_servers);
}

kolo_status kolo_parameters_join(const char *address, const char *secret_file, size_t count,
                                 const kolo_parameters_opts *opts, kolo_parameters **parameters) {
    if (!opts) return KOLO_FAIL(KOLO_ERR_ARG, "parameters without options");
    kolo_parameters *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    *p = (kolo_parameters){.opts = *opts,
                           .count = count,
                           .n_servers = opts->servers,
                           .n_parts = opts->servers,
                           .works = true,
                           .abandoned = true, /* until it takes part */
                           .idle = opts->staleness != KOLO_STALENESS_ANY};
    kolo_status status = opts->joins > 0 && opts->servers > 0
                             ? connect_joined(p, address, secret_file)
                             : KOLO_FAIL(KOLO_ERR_ARG, "parameters that nobody may join");
    if (status != KOLO_OK) {
        free_parameters(p);
        return status;
    }
    *parameters = p;
    return KOLO_OK;
}

/* ---- the worker ---- */

bool kolo_parameters_works(const kolo_parameters *p) { return p->works; }

static kolo_status check_worker(const kolo_parameters *p) {
    if (p->works && p->service) return KOLO_OK;
    if (p->works) return KOLO_FAIL(KOLO_ERR_ARG, "a request after the wait for all workers");
    return KOLO_FAIL(KOLO_ERR_ARG, "rank %d is a server only: workers push and pull",
                     kolo_comm_rank(p->comm));
}

/* The server that has part i now. */
static int server_of(const kolo_parameters *p, int i) {
    return p->moved[i] ? kolo_replicas_follower(i, p->n_servers) : i % p->n_servers;
}

/* A request to the owner of part i without data, as errors name it. */
static kolo_service_request request_of(const kolo_parameters *p, int i, uint32_t kind) {
    static const char *const names[] = {
        [KOLO_OWNER_PULL] = "a pull of parameters",
        [KOLO_OWNER_PUSH] = "a push of gradients",
        [KOLO_OWNER_PART] = "a part of a push",
        [KOLO_OWNER_FINISH] = "the end of this worker",
        [KOLO_OWNER_STATE] = "a read of optimizer state",
        [KOLO_OWNER_REST] = "the wait for all workers",
        [KOLO_OWNER_LEASE] = "a request for a lease",
        [KOLO_OWNER_IDLE] = "a report of having no lease",
        [KOLO_OWNER_STOP] = "an agreement on the end of the run",
        [KOLO_OWNER_JOIN] = "a worker that joins",
    };
    const bool names_part = p->opts.replicas > 0 || buckets_of(p) > 1;
    return (kolo_service_request){.server = kolo_service_server_rank(p->service, server_of(p, i)),
                                  .name = names[kind],
                                  .kind = kolo_replicas_kind(kind, names_part ? i : 0),
                                  .clock = p->clock};
}

/* The data of a push to the owner of part i: what no part has sent. */
static void add_gradient(const kolo_parameters *p, int i, kolo_service_request *q) {
    const kolo_owned_span *span = &p->owned[i].gradient;
    q->input = p->pushed + span->first + p->early[i].sent;
    q->input_bytes = (span->count - p->early[i].sent) * sizeof *p->pushed;
}

/* Waits for the parts of the push to the owner of part i; returns the first error. */
static kolo_status end_parts(kolo_parameters *p, int i) {
    early *e = &p->early[i];
    kolo_status first = KOLO_OK;
    char text[256] = "";
    for (int k = 0; k < e->n; k++) {
        kolo_status status = kolo_service_wait(p->service, &e->part[k], 0);
        if (status == KOLO_OK || first != KOLO_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    e->n = 0;
    e->sent = 0;
    return first == KOLO_OK ? first : KOLO_FAIL(first, "%s", text);
}

/* After a request to the owner of part i has failed, returns OK if the replica has the part now.
 * Then it has got the latest push, unless that was complete. */
static kolo_status move(kolo_parameters *p, int i, kolo_status status) {
    const int server = kolo_service_server_rank(p->service, server_of(p, i));
    if (p->opts.replicas == 0 || !kolo_service_is_lost(p->service, server)) return status;
    if (p->moved[i]) return status; /* the replica is lost, too */
    p->moved[i] = true;
    (void)end_parts(p, i); /* the replica gets the whole push */
    if (!p->pushing || kolo_service_wait(p->service, &p->pushes[i], 0) == KOLO_OK) return KOLO_OK;
    p->pushes[i].server = kolo_service_server_rank(p->service, server_of(p, i));
    add_gradient(p, i, &p->pushes[i]);
    return kolo_service_start(p->service, &p->pushes[i]);
}

/* After a request has failed, returns OK if the server that has part i now can get it. */
static kolo_status redirect(kolo_parameters *p, int i, const kolo_service_request *q,
                            kolo_status status) {
    const int now = kolo_service_server_rank(p->service, server_of(p, i));
    if (q->server == now) return move(p, i, status);
    return kolo_service_is_lost(p->service, q->server) ? KOLO_OK : status;
}

/* Starts a request to the owner of part i. */
static kolo_status start(kolo_parameters *p, int i, kolo_service_request *q) {
    kolo_status status = kolo_service_start(p->service, q);
    if (status == KOLO_OK) return status;
    KOLO_TRY(redirect(p, i, q, status));
    q->server = kolo_service_server_rank(p->service, server_of(p, i));
    if (q == &p->pushes[i]) add_gradient(p, i, q);
    return kolo_service_start(p->service, q);
}

/* Waits for a request to the owner of part i, which the replica gets again if that is lost. */
static kolo_status await(kolo_parameters *p, int i, kolo_service_request *q) {
    const bool pushes = q == &p->pushes[i];
    kolo_status status = kolo_service_wait(p->service, q, 0);
    if (status == KOLO_OK) return status;
    KOLO_TRY(redirect(p, i, q, status));
    if (!pushes) { /* move has sent a push */
        q->server = kolo_service_server_rank(p->service, server_of(p, i));
        KOLO_TRY(kolo_service_start(p->service, q));
    }
    return kolo_service_wait(p->service, q, 0);
}

static kolo_status run(kolo_parameters *p, int i, kolo_service_request *q) {
    KOLO_TRY(start(p, i, q));
    return await(p, i, q);
}

/* Waits for the requests to the owners of parts [first, end); returns the first error. */
static kolo_status wait_for(kolo_parameters *p, kolo_service_request *requests, int first,
                            int end) {
    kolo_status failed = KOLO_OK;
    char text[256] = "";
    for (int i = first; i < end; i++) {
        kolo_status status = await(p, i, &requests[i]);
        if (status == KOLO_OK || failed != KOLO_OK) continue;
        failed = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    return failed == KOLO_OK ? failed : KOLO_FAIL(failed, "%s", text);
}

/* After an error: waits for the requests to the owners of the first n parts. */
static kolo_status fail_after(kolo_parameters *p, kolo_service_request *requests, int n,
                              kolo_status status) {
    char text[256];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    (void)wait_for(p, requests, 0, n);
    return KOLO_FAIL(status, "%s", text);
}

/* Starts a push to the owner of part i, or a read of what it has. */
static kolo_status start_part(kolo_parameters *p, int i, uint32_t kind, uint64_t clock,
                              float *output) {
    const kolo_owned *has = &p->owned[i];
    const kolo_owned_span *part = kind == KOLO_OWNER_PULL ? &has->values : &has->state;
    kolo_service_request *q = kind == KOLO_OWNER_PUSH ? &p->pushes[i] : &p->pulls[i];
    *q = request_of(p, i, kind);
    q->clock = clock;
    q->key = kind == KOLO_OWNER_PUSH ? p->choice : p->goes_on;
    if (kind == KOLO_OWNER_PUSH) {
        add_gradient(p, i, q);
    } else {
        q->output = output + part->first;
        q->output_bytes = part->count * sizeof(float);
    }
    return start(p, i, q);
}

/* Starts the pushes of the first `end` parts that are not in flight, with the clock before them. */
static kolo_status start_pushes(kolo_parameters *p, int end, uint64_t clock) {
    for (; p->n_pushed < end; p->n_pushed++) {
        KOLO_TRY(start_part(p, p->n_pushed, KOLO_OWNER_PUSH, clock, NULL));
    }
    return KOLO_OK;
}

static kolo_status start_pulls(kolo_parameters *p, int end, uint64_t clock, float *values) {
    for (; p->n_pulled < end; p->n_pulled++) {
        KOLO_TRY(start_part(p, p->n_pulled, KOLO_OWNER_PULL, clock, values));
    }
    return KOLO_OK;
}

/* The parts of so many buckets. */
static int parts_of(const kolo_parameters *p, int buckets) {
    return (buckets < buckets_of(p) ? buckets : buckets_of(p)) * p->n_servers;
}

/* Reads all parts; with buckets pushes the rest of the gradient, a few buckets ahead of the reads.
 */
static kolo_status read_buckets(kolo_parameters *p, float *values) {
    for (int r = 0; r < buckets_of(p); r++) {
        const int ahead = parts_of(p, r + BUCKETS_AHEAD);
        if (p->pushing) KOLO_TRY(start_pushes(p, ahead, p->clock - 1));
        KOLO_TRY(start_pulls(p, ahead, p->clock, values));
        KOLO_TRY(wait_for(p, p->pulls, parts_of(p, r), parts_of(p, r + 1)));
    }
    return KOLO_OK;
}

/* The largest clock that the owners have replied. */
static uint64_t largest_reply(const kolo_parameters *p, const kolo_service_request *requests) {
    uint64_t largest = 0;
    for (int i = 0; i < p->n_parts; i++) {
        const uint64_t clock = requests[i].reply_clock & UINT32_MAX; /* without a choice */
        if (clock > largest) largest = clock;
    }
    return largest;
}

static kolo_status end_push(kolo_parameters *p) {
    if (!p->pushing) return KOLO_OK;
    kolo_status status = wait_for(p, p->pushes, 0, p->n_pushed);
    char text[256] = "";
    if (status != KOLO_OK) snprintf(text, sizeof text, "%s", kolo_last_error());
    p->pushing = false;
    p->n_pushed = 0;
    for (int i = 0; i < p->n_parts; i++) { /* an owner refuses a push after an error of a part */
        const kolo_status part = end_parts(p, i);
        if (part == KOLO_OK) continue;
        status = part;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    if (status != KOLO_OK) return KOLO_FAIL(status, "%s", text);
    p->delays[kolo_staleness_bin(largest_reply(p, p->pushes))]++;
    return KOLO_OK;
}

/* Sends a request without data to each owner; also if one is lost: the others wait for it. */
static kolo_status signal_all(kolo_parameters *p, uint32_t kind, kolo_status first) {
    char text[256];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    for (int k = 0; k < 2 * p->n_parts; k++) { /* starts all, then waits for them */
        const int i = k % p->n_parts;
        kolo_service_request *q = &p->signals[i];
        if (k < p->n_parts) *q = request_of(p, i, kind);
        if (!q->name) continue; /* not started */
        const kolo_status status = k < p->n_parts ? start(p, i, q) : await(p, i, q);
        if (status != KOLO_OK) q->name = NULL;
        if (status == KOLO_OK || first != KOLO_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    return first == KOLO_OK ? first : KOLO_FAIL(first, "%s", text);
}

kolo_status kolo_parameters_pull(kolo_parameters *p, float *values) {
    KOLO_TRY(check_worker(p));
    const kolo_status status = read_buckets(p, values);
    const int started = p->n_pulled;
    p->n_pulled = 0;
    p->reads_into = NULL;
    if (status != KOLO_OK) return fail_after(p, p->pulls, started, status);
    p->goes_on = false;
    const uint32_t choice = (uint32_t)(p->pulls[0].reply_clock >> KOLO_CHOICE_SHIFT);
    if (choice > p->choice) p->choice = choice; /* a replica may be behind */
    p->reads[kolo_staleness_bin(largest_reply(p, p->pulls))]++;
    return end_push(p);
}

int kolo_parameters_staleness(const kolo_parameters *p) {
    return p->opts.adapts ? kolo_adapt_staleness(kolo_choice_level(p->choice)) : p->opts.staleness;
}

kolo_status kolo_parameters_read_state(kolo_parameters *p, float *state) {
    KOLO_TRY(check_worker(p));
    for (int i = 0; i < p->n_parts; i++) {
        const kolo_status status = start_part(p, i, KOLO_OWNER_STATE, p->clock, state);
        if (status != KOLO_OK) return fail_after(p, p->pulls, i, status);
    }
    return wait_for(p, p->pulls, 0, p->n_parts);
}

void kolo_parameters_count_reads(const kolo_parameters *p, uint64_t *counts) {
    for (int i = 0; i < KOLO_STALENESS_BINS; i++) counts[i] += p->reads[i];
}

void kolo_parameters_count_delays(const kolo_parameters *p, uint64_t *counts) {
    for (int i = 0; i < KOLO_STALENESS_BINS; i++) counts[i] += p->delays[i];
}

static kolo_status check_push(const kolo_parameters *p) {
    KOLO_TRY(check_worker(p));
    if (!p->pushing && !p->finished) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, p->finished ? "a push after the end: this worker has finished"
                                               : "two pushes in a row: pull the parameters first");
}

void kolo_parameters_pull_early(kolo_parameters *p, float *values) {
    if (buckets_of(p) > 1) p->reads_into = values;
}

/* Whether few buckets are in flight before this one. */
static bool has_room(const kolo_parameters *p, int bucket) {
    bool done = true;
    const int before = bucket - BUCKETS_AHEAD;
    if (before < 0) return true;
    for (int i = parts_of(p, before); i < parts_of(p, before + 1) && done; i++) {
        done = kolo_service_test(p->service, p->reads_into ? &p->pulls[i] : &p->pushes[i]);
    }
    return done;
}

/* Pushes, in their order, the parts that are final, and reads what the owners make of them. */
static kolo_status push_ready(kolo_parameters *p, const float *gradient) {
    p->pushed = gradient;
    while (p->n_pushed < p->n_parts && p->ready[p->n_pushed] &&
           has_room(p, p->n_pushed / p->n_servers)) {
        KOLO_TRY(start_pushes(p, p->n_pushed + 1, p->clock));
        p->parts++;
        if (p->reads_into) KOLO_TRY(start_pulls(p, p->n_pushed, p->clock + 1, p->reads_into));
    }
    return KOLO_OK;
}

kolo_status kolo_parameters_push_early(kolo_parameters *p, const float *gradient, int i,
                                       size_t ready) {
    KOLO_TRY(check_push(p));
    if (i < 0 || i >= p->n_parts || ready > p->owned[i].gradient.count) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%zu numbers of part %d", ready, i);
    }
    early *e = &p->early[i];
    const kolo_owned_span *part = &p->owned[i].gradient;
    if (buckets_of(p) > 1) {
        p->ready[i] = ready == part->count;
        return push_ready(p, gradient);
    }
    /* So there are not more than most. */
    const size_t least = part->count / KOLO_PUSH_PARTS_MOST + PART_LEAST;
    kolo_service_request *q = &e->part[e->n];
    if (ready < e->sent + least) return KOLO_OK;
    *q = request_of(p, i, KOLO_OWNER_PART);
    if (kolo_service_maps(p->service, q->server)) return KOLO_OK;
    q->key = e->sent;
    q->input = gradient + part->first + e->sent;
    q->input_bytes = (ready - e->sent) * sizeof *gradient;
    const kolo_status status = kolo_service_start(p->service, q);
    if (status != KOLO_OK) return move(p, i, status); /* nothing is sent so far */
    e->n++;
    e->sent = ready;
    p->parts++;
    return KOLO_OK;
}

void kolo_parameters_traffic(kolo_parameters *p, uint64_t *sent, uint64_t *received) {
    *sent = *received = 0;
    if (p->service) kolo_service_traffic(p->service, sent, received);
}

uint64_t kolo_parameters_count_parts(const kolo_parameters *p) { return p->parts; }

kolo_status kolo_parameters_push(kolo_parameters *p, const float *gradient) {
    KOLO_TRY(check_push(p));
    p->pushed = gradient;
    memset(p->ready, 0, (size_t)p->n_parts * sizeof *p->ready);
    const kolo_status status = start_pushes(p, parts_of(p, BUCKETS_AHEAD), p->clock);
    if (status != KOLO_OK) {
        const int started = p->n_pushed;
        p->n_pushed = 0;
        return fail_after(p, p->pushes, started, status);
    }
    p->pushing = true;
    p->clock++;
    if (p->held > 0) p->held--;
    return KOLO_OK;
}

/* Completes a push that no pull follows: pushes its other buckets, a few ahead of the replies. */
static kolo_status complete_push(kolo_parameters *p) {
    kolo_status status = KOLO_OK;
    for (int r = 0; p->pushing && p->n_pushed < p->n_parts && status == KOLO_OK; r++) {
        status = start_pushes(p, parts_of(p, r + BUCKETS_AHEAD), p->clock - 1);
        if (status == KOLO_OK) status = wait_for(p, p->pushes, parts_of(p, r), parts_of(p, r + 1));
    }
    return status == KOLO_OK ? end_push(p) : fail_after(p, p->pushes, p->n_pushed, status);
}

kolo_status kolo_parameters_finish(kolo_parameters *p) {
    KOLO_TRY(check_worker(p));
    if (p->finished) return KOLO_OK;
    p->finished = true;
    return signal_all(p, KOLO_OWNER_FINISH, complete_push(p));
}

/* Starts a rest at all owners, before it waits for one: their steps may need each other's. */
static kolo_status rest(kolo_parameters *p, uint64_t *lost) {
    const size_t n = (size_t)p->n_workers + (size_t)p->opts.joins;
    for (int i = 0; i < p->n_parts; i++) {
        kolo_service_request *q = &p->pulls[i];
        *q = request_of(p, i, KOLO_OWNER_REST);
        q->key = p->rests;
        q->output = lost + (size_t)i * n;
        q->output_bytes = n * sizeof *lost;
        kolo_status status = start(p, i, q);
        if (status != KOLO_OK) return fail_after(p, p->pulls, i, status);
    }
    return wait_for(p, p->pulls, 0, p->n_parts);
}

kolo_status kolo_parameters_rest(kolo_parameters *p, uint64_t *lost, bool *asked) {
    const size_t n = (size_t)p->n_workers + (size_t)p->opts.joins, all = n * (size_t)p->n_parts;
    KOLO_TRY(check_worker(p));
    if (p->pushing || p->finished) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         p->finished ? "a rest after the end" : "a rest after a push: pull first");
    }
    uint64_t *seen = kolo_zalloc(all * sizeof *seen);
    if (!seen) return KOLO_NOMEM(all * sizeof *seen);
    kolo_status status = rest(p, seen);
    p->rests += status == KOLO_OK;
    for (size_t w = 0; w < n && lost && status == KOLO_OK; w++) {
        /* One that dies in the rest is lost to some owners only, after all its pushes. */
        lost[w] = seen[w];
        for (size_t at = w; at < all && lost[w] == 0; at += n) lost[w] = seen[at];
    }
    if (status == KOLO_OK && asked) *asked = p->pulls[0].reply_clock > 0;
    kolo_free(seen);
    return status;
}

kolo_status kolo_parameters_ask(kolo_parameters *p, uint64_t end) {
    KOLO_TRY(check_worker(p));
    if (!p->opts.leases || p->asked || p->finished) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s",
                         p->asked ? "the answer to an earlier request for a lease is not taken"
                                  : "a request for a lease after the end, or without `leases`");
    }
    const bool bounded = p->opts.staleness != KOLO_STALENESS_ANY;
    if (bounded && p->held == 0 && p->pushing) { /* its clock holds up those who have leases */
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a request for a lease after the push of the last one, with "
                         "a staleness of %d: pull first, or ask before the push",
                         p->opts.staleness);
    }
    if (bounded && p->held == 0 && !p->idle) { /* the others go on without it */
        KOLO_TRY(signal_all(p, KOLO_OWNER_IDLE, KOLO_OK));
        p->idle = true;
    }
    p->lease = request_of(p, 0, KOLO_OWNER_LEASE);
    p->lease.key = p->leases;
    p->lease.clock = end;
    p->lease.output = &p->resume;
    p->lease.output_bytes = sizeof p->resume;
    KOLO_TRY(start(p, 0, &p->lease));
    p->asked = true;
    return KOLO_OK;
}

kolo_status kolo_parameters_lease(kolo_parameters *p, bool *given, uint64_t *number) {
    KOLO_TRY(check_worker(p));
    if (!p->asked) return KOLO_FAIL(KOLO_ERR_ARG, "no lease was asked for");
    p->asked = false;
    KOLO_TRY(await(p, 0, &p->lease));
    p->leases++;
    *given = p->lease.reply_clock > 0;
    if (!*given) return KOLO_OK;
    *number = p->lease.reply_clock - 1;
    p->held++;
    if (!p->idle) return KOLO_OK;
    p->idle = false;
    p->goes_on = true;
    p->clock = p->resume;
    return KOLO_OK;
}

/* Takes part at all owners, the first one last, or at none: then *end is 0. */
static kolo_status try_to_enter(kolo_parameters *p, uint64_t *end) {
    *end = 1;
    int i = p->n_servers;
    while (i > 0 && *end > 0) {
        kolo_service_request q = request_of(p, --i, KOLO_OWNER_JOIN);
        KOLO_TRY(run(p, i, &q));
        *end = q.reply_clock;
    }
    for (int k = i + 1; k < p->n_servers && *end == 0; k++) {
        kolo_service_request q = request_of(p, k, KOLO_OWNER_FINISH);
        KOLO_TRY(run(p, k, &q));
    }
    return KOLO_OK;
}

kolo_status kolo_parameters_enter(kolo_parameters *p, uint64_t *end) {
    static const int64_t timeout_ms = 30000, nap_ns = 10000000;
    const int64_t most_ms = p->opts.timeout_ms > 0 ? p->opts.timeout_ms : timeout_ms;
    const int64_t deadline_ns = kolo_now_ns() + kolo_ms_to_ns(most_ms);
    KOLO_TRY(check_worker(p));
    if (p->number < 0 || !p->abandoned) {
        return KOLO_FAIL(KOLO_ERR_ARG, "only a process that has joined takes part later, and once");
    }
    for (;;) {
        KOLO_TRY(try_to_enter(p, end));
        if (*end > 0) break;
        if (kolo_now_ns() > deadline_ns) {
            return KOLO_FAIL(KOLO_ERR_TIMEOUT,
                             "the workers have waited for each other for %lld ms: nobody can join",
                             (long long)most_ms);
        }
        nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
    }
    p->abandoned = false;
    return KOLO_OK;
}

bool kolo_parameters_reads_again(const kolo_parameters *p) { return p->goes_on; }

kolo_status kolo_parameters_stop(kolo_parameters *p, bool asks, uint64_t next, uint64_t *at) {
    if (!p->service) return KOLO_FAIL(KOLO_ERR_ARG, "a request after the wait for all workers");
    if (p->opts.record || p->opts.replay) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a run that is recorded or replayed does not stop early: "
                                       "its length would depend on the time");
    }
    if (p->works && next == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a worker that passes no point before it stops");
    }
    kolo_service_request q = request_of(p, 0, KOLO_OWNER_STOP);
    q.key = asks;
    q.clock = p->works ? next : 0;
    KOLO_TRY(run(p, 0, &q));
    *at = q.reply_clock;
    return KOLO_OK;
}

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
    for (int r = 0; p->parts_here && r < buckets_of(p); r++) {
        if (!kolo_parameters_owner_ended(kolo_owner_parts_at(p->parts_here, r), timeout_ms))
            return false;
    }
    return !p->follower || kolo_parameters_owner_ended(p->follower, timeout_ms);
}

kolo_status kolo_parameters_wait(kolo_parameters *p) {
    KOLO_TRY(check_owner(p));
    KOLO_TRY(kolo_owner_parts_wait(p->parts_here));
    if (p->follower) KOLO_TRY(kolo_parameters_owner_wait(p->follower));
    if (!p->order) return KOLO_OK;
    kolo_service_destroy(p->service); /* its thread changes the order until then */
    p->service = NULL;
    return kolo_order_finish(p->order);
}

void kolo_parameters_abandon(kolo_parameters *p) { p->abandoned = true; }

void kolo_parameters_destroy(kolo_parameters *p) {
    if (!p || (p->comm && p->comm->inherited)) return;
    if (p->works && !p->abandoned) (void)kolo_parameters_finish(p);
    if (p->parts_here && !p->abandoned) (void)kolo_owner_parts_wait(p->parts_here);
    if (p->follower && !p->abandoned) (void)kolo_parameters_owner_wait(p->follower);
    free_parameters(p);
}
