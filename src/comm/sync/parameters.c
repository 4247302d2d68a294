/* Parameters on servers; see kolo/parameters.h.
 *
 * The owner of a range serves pushes and pulls in the thread of a service. What it may not answer
 * yet it keeps: with bsp the pushes of a clock until all workers have sent theirs, which are then
 * added where they lie, in the workers' memory if that is mapped; with any bound the reads of
 * workers that are too far ahead. An update releases them. Since one thread does it all, a read
 * never sees half an update, and needs no version to be pinned. */
#include "kolo/parameters.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "kolo/service.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PULL, PUSH, FINISH, STATE }; /* kinds of requests */

/* A part of a vector, in numbers. */
typedef struct span {
    size_t first, count;
} span;

/* What an owner has, as parts of the vectors of all owners. */
typedef struct owned {
    span values, gradient, state;
} owned;

/* A worker, as an owner sees it. */
typedef struct worker {
    bool gone;               /* has finished or is lost */
    kolo_service_call *push; /* kept until the clock is complete; bsp only */
    kolo_service_call *pull; /* kept until the others have caught up */
} worker;

/* The owner of a range. The service's thread owns all but what the mutex protects. */
typedef struct owner {
    const kolo_parameters_opts *opts;
    owned has;
    int n_workers, n_present;
    float *values, *state;     /* one after the other */
    float *sum;                /* of gradients; bsp only */
    worker *workers;           /* [n_workers] */
    uint64_t *pushes;          /* [n_workers]: taken by updates */
    kolo_service_call **taken; /* [n_workers]: of the clock that is being completed */
    uint64_t version;
    int missing;           /* a lost worker that ends the job; -1: none */
    char why[160];         /* it is missing */
    pthread_mutex_t mutex; /* protects the following; the others are constant once `ended` */
    pthread_cond_t all_gone;
    bool ended; /* no worker is present */
    kolo_parameters_stats stats;
} owner;

struct kolo_parameters {
    kolo_comm *comm;
    kolo_parameters_opts opts;
    kolo_service *service;
    size_t count; /* of the initial values */
    int n_workers, n_servers;
    bool works, pushing, finished, abandoned;
    uint64_t clock;
    owner *owner;                         /* NULL: owns nothing */
    owned *owned;                         /* [n_servers] */
    kolo_service_request *pushes, *pulls; /* [n_servers] */
    uint64_t reads[KOLO_STALENESS_BINS];  /* of this worker, by staleness */
};

/* The range of server i of one vector. */
static span range_of(size_t count, int n_servers, int i) {
    size_t s = (size_t)i, all = (size_t)n_servers, left = count % all;
    return (span){count / all * s + (s < left ? s : left), count / all + (s < left)};
}

/* What each server owns. */
static void divide(kolo_parameters *p) {
    size_t values = 0, gradient = 0, state = 0;
    for (int i = 0; i < p->n_servers; i++) {
        const kolo_parameters_part *part = p->opts.parts ? &p->opts.parts[i] : NULL;
        const span range = range_of(p->count, p->n_servers, i);
        p->owned[i] = (owned){range, range, {0, 0}};
        if (!part) continue;
        p->owned[i] =
            (owned){{values, part->values}, {gradient, part->gradient}, {state, part->state}};
        values += part->values;
        gradient += part->gradient;
        state += part->state;
    }
    p->opts.parts = NULL; /* of the caller */
}

static int bin_of(uint64_t stale) {
    return stale < KOLO_STALENESS_BINS ? (int)stale : KOLO_STALENESS_BINS - 1;
}

/* ---- the owner ---- */

/* The fewest pushes of a worker that is still waited for; UINT64_MAX: there is none. */
static uint64_t slowest(const owner *o) {
    uint64_t least = UINT64_MAX;
    for (int w = 0; w < o->n_workers; w++) {
        if (!o->workers[w].gone && o->pushes[w] < least) least = o->pushes[w];
    }
    return least;
}

static void observe(const owner *o, bool read, int w, uint64_t clock) {
    kolo_parameters_event event = {
        .read = read, .worker = w, .clock = clock, .pushes = o->pushes, .workers = o->n_workers};
    if (o->opts->observe) o->opts->observe(o->opts->arg, &event);
}

/* Counts a read; returns its staleness. */
static uint64_t count_read(owner *o, uint64_t clock) {
    uint64_t least = slowest(o), stale = least < clock ? clock - least : 0;
    pthread_mutex_lock(&o->mutex);
    o->stats.reads[bin_of(stale)]++;
    if ((int)stale > o->stats.largest) o->stats.largest = (int)stale;
    pthread_mutex_unlock(&o->mutex);
    return stale;
}

/* Whether a worker at this clock may read now. */
static bool may_read(const owner *o, uint64_t clock) {
    uint64_t bound = (uint64_t)o->opts->staleness;
    if (o->opts->staleness == KOLO_STALENESS_ANY || clock <= bound) return true;
    return slowest(o) >= clock - bound;
}

static void answer_pull(owner *o, int w) {
    kolo_service_call *call = o->workers[w].pull;
    if (!call || !may_read(o, call->clock)) return;
    o->workers[w].pull = NULL;
    uint64_t stale = count_read(o, call->clock);
    observe(o, true, w, call->clock);
    kolo_service_reply(call, KOLO_OK, stale, o->values, o->has.values.count * sizeof(float));
}

/* Changes the values by a gradient: that of worker w, or if w is -1 the sum of n. */
static void apply(owner *o, const float *gradient, int n, int w, uint64_t clock) {
    kolo_parameters_update u = {.first = o->has.values.first,
                                .count = o->has.values.count,
                                .values = o->values,
                                .gradient = gradient,
                                .workers = n,
                                .worker = w,
                                .clock = clock,
                                .version = o->version};
    if (o->has.values.count > 0) o->opts->update(o->opts->arg, &u);
    o->version++;
    pthread_mutex_lock(&o->mutex);
    o->stats.version = o->version;
    pthread_mutex_unlock(&o->mutex);
}

/* Bsp: updates once the pushes of all workers are in. */
static void complete_clock(owner *o) {
    int n = 0;
    uint64_t clock = 0;
    const size_t count = o->has.gradient.count;
    for (int w = 0; w < o->n_workers; w++) {
        if (!o->workers[w].gone && !o->workers[w].push) return;
    }
    for (int w = 0; w < o->n_workers; w++) {
        kolo_service_call *call = o->workers[w].push;
        if (!call) continue;
        clock = call->clock;
        if (n++ == 0 && count > 0) {
            memcpy(o->sum, call->input, count * sizeof(float));
        } else if (count > 0) {
            (void)kolo_combine(o->sum, call->input, count, KOLO_DTYPE_F32, KOLO_SUM);
        }
    }
    if (n == 0) return;
    apply(o, o->sum, n, -1, clock);
    for (int w = 0; w < o->n_workers; w++) { /* all, before a reply detects a lost worker */
        o->taken[w] = o->workers[w].push;
        o->workers[w].push = NULL;
        o->pushes[w] += o->taken[w] != NULL;
        if (o->taken[w]) observe(o, false, w, clock);
    }
    for (int w = 0; w < o->n_workers; w++) {
        if (o->taken[w]) kolo_service_reply(o->taken[w], KOLO_OK, o->version, NULL, 0);
    }
}

/* After a push, or after a worker has gone. */
static void go_on(owner *o) {
    if (o->opts->staleness == 0) complete_clock(o);
    for (int w = 0; w < o->n_workers; w++) answer_pull(o, w);
}

static void leave(owner *o, int w, bool lost) {
    if (o->workers[w].gone) return;
    o->workers[w].gone = true;
    o->n_present--;
    pthread_mutex_lock(&o->mutex);
    o->stats.lost += lost;
    o->ended = o->n_present == 0;
    pthread_cond_signal(&o->all_gone);
    pthread_mutex_unlock(&o->mutex);
}

static kolo_status fail_missing(const owner *o) {
    return KOLO_FAIL(KOLO_ERR_PEER, "worker %d is lost: %s", o->missing, o->why);
}

static void refuse(const owner *o, kolo_service_call *call) {
    kolo_service_reply(call, fail_missing(o), 0, NULL, 0);
}

/* The job ends: what is kept will not be answered. */
static void refuse_kept(owner *o) {
    for (int i = 0; i < o->n_workers; i++) {
        worker *w = &o->workers[i];
        if (w->push) refuse(o, w->push);
        if (w->pull) refuse(o, w->pull);
        w->push = w->pull = NULL;
    }
}

static void lost(void *arg, int client, bool left, const char *reason) {
    owner *o = arg;
    if (client >= o->n_workers) return;
    worker *w = &o->workers[client];
    if (w->push) kolo_service_reply(w->push, KOLO_OK, 0, NULL, 0); /* goes nowhere */
    if (w->pull) kolo_service_reply(w->pull, KOLO_OK, 0, NULL, 0);
    w->push = w->pull = NULL;
    if (o->opts->needs_all && !w->gone && o->missing < 0) {
        o->missing = client;
        snprintf(o->why, sizeof o->why, "%s", left ? "it ended after an error" : reason);
    }
    leave(o, client, !left);
    if (o->missing >= 0) {
        refuse_kept(o);
    } else {
        go_on(o);
    }
}

static bool is_valid(const owner *o, const kolo_service_call *call) {
    if (call->client >= o->n_workers) return false;
    const worker *w = &o->workers[call->client];
    const size_t input = call->input_bytes / sizeof(float);
    const size_t output = call->output_bytes / sizeof(float);
    if (call->input_bytes % sizeof(float) || call->output_bytes % sizeof(float)) return false;
    switch (call->kind) {
    case PULL:
        return input == 0 && output == o->has.values.count && !w->pull;
    case STATE:
        return input == 0 && output == o->has.state.count;
    case PUSH:
        return input == o->has.gradient.count && output == 0 && !w->gone && !w->push &&
               call->clock == o->pushes[call->client] &&
               (uintptr_t)call->input % sizeof(float) == 0;
    default:
        return call->kind == FINISH && input == 0 && output == 0;
    }
}

static void serve(void *arg, kolo_service_call *call) {
    owner *o = arg;
    int w = call->client;
    if (!is_valid(o, call)) {
        kolo_status status = KOLO_FAIL(
            KOLO_ERR_ARG, "an invalid request: kind %u, clock %llu, %zu and %zu bytes", call->kind,
            (unsigned long long)call->clock, call->input_bytes, call->output_bytes);
        kolo_service_reply(call, status, 0, NULL, 0);
    } else if (o->missing >= 0 && call->kind != FINISH) {
        refuse(o, call);
    } else if (call->kind == PULL) {
        o->workers[w].pull = call;
        answer_pull(o, w);
    } else if (call->kind == STATE) {
        if (o->has.state.count > 0) o->opts->save(o->opts->arg, o->state);
        kolo_service_reply(call, KOLO_OK, 0, o->state, o->has.state.count * sizeof(float));
    } else if (call->kind == FINISH) {
        kolo_service_reply(call, KOLO_OK, 0, NULL, 0);
        leave(o, w, false);
        go_on(o);
    } else if (o->opts->staleness == 0) {
        o->workers[w].push = call;
        go_on(o);
    } else {
        apply(o, call->input, 1, w, call->clock);
        o->pushes[w]++;
        observe(o, false, w, call->clock);
        kolo_service_reply(call, KOLO_OK, o->version, NULL, 0);
        go_on(o);
    }
}

static void owner_destroy(owner *o) {
    if (!o) return;
    pthread_cond_destroy(&o->all_gone);
    pthread_mutex_destroy(&o->mutex);
    kolo_free(o->values);
    kolo_free(o->sum);
    kolo_free(o->workers);
    kolo_free(o->pushes);
    kolo_free(o->taken);
    kolo_free(o);
}

static kolo_status owner_create(const kolo_parameters *p, int server, owner **made) {
    owner *o = kolo_zalloc(sizeof *o);
    if (!o) return KOLO_NOMEM(sizeof *o);
    size_t n = (size_t)p->n_workers;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_cond_init(&o->all_gone, NULL);
    o->opts = &p->opts;
    o->n_workers = o->n_present = p->n_workers;
    o->missing = -1;
    o->has = p->owned[server];
    size_t bytes = (o->has.values.count + o->has.state.count + 1) * sizeof(float);
    size_t sum_bytes = (o->has.gradient.count + 1) * sizeof(float);
    o->values = kolo_alloc(bytes);
    o->state = o->values ? o->values + o->has.values.count : NULL;
    o->sum = p->opts.staleness == 0 ? kolo_alloc(sum_bytes) : NULL;
    o->workers = kolo_zalloc(n * sizeof *o->workers);
    o->pushes = kolo_zalloc(n * sizeof *o->pushes);
    o->taken = kolo_zalloc(n * sizeof *o->taken);
    bool all = o->values && (o->sum || p->opts.staleness != 0);
    if (all && o->workers && o->pushes && o->taken) {
        *made = o;
        return KOLO_OK;
    }
    owner_destroy(o);
    return KOLO_NOMEM(bytes);
}

/* ---- creation ---- */

static kolo_status check_opts(const kolo_parameters_opts *o, size_t count, int ranks, int rank) {
    const bool owns = rank >= ranks - o->servers || o->servers <= 0;
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
    if (!o->parts) return KOLO_OK;
    const int owners = o->servers > 0 ? o->servers : ranks;
    size_t all = 0;
    for (int i = 0; i < owners; i++) {
        all += o->parts[i].values + o->parts[i].state;
        if (owns && o->parts[i].state > 0 && !o->save) {
            return KOLO_FAIL(KOLO_ERR_ARG, "parameters with a state that nothing saves");
        }
    }
    if (all == count) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "parts of %zu numbers of %zu initial ones", all, count);
}

static kolo_status allocate(kolo_parameters *p, const float *initial, float **all) {
    int rank = kolo_comm_rank(p->comm), first_server = kolo_comm_size(p->comm) - p->n_servers;
    if (rank == 0 && p->count > 0 && !initial) {
        return KOLO_FAIL(KOLO_ERR_ARG, "parameters without initial values on rank 0");
    }
    size_t bytes = (size_t)p->n_servers * sizeof *p->pushes;
    p->pushes = kolo_zalloc(bytes);
    p->pulls = kolo_zalloc(bytes);
    p->owned = kolo_zalloc((size_t)p->n_servers * sizeof *p->owned);
    if (!p->pushes || !p->pulls || !p->owned) return KOLO_NOMEM(bytes);
    divide(p);
    if (rank >= first_server) KOLO_TRY(owner_create(p, rank - first_server, &p->owner));
    bytes = (p->count + 1) * sizeof **all;
    *all = kolo_alloc(bytes);
    return *all ? KOLO_OK : KOLO_NOMEM(bytes);
}

/* The ranks agree on success so far. */
static kolo_status agree(kolo_comm *comm, kolo_status status) {
    int32_t worst = (int32_t)status;
    KOLO_TRY(kolo_allreduce(comm, &worst, 1, KOLO_DTYPE_I32, KOLO_MAX));
    KOLO_TRY(status);
    if (worst == KOLO_OK) return KOLO_OK;
    return KOLO_FAIL((kolo_status)worst,
                     "another rank cannot create the parameters: see its error");
}

/* Gives the owners rank 0's values, by way of `all` [count]. */
static kolo_status distribute(kolo_parameters *p, const float *initial, float *all) {
    if (p->count == 0 || !all) return KOLO_OK;
    if (initial && kolo_comm_rank(p->comm) == 0) memcpy(all, initial, p->count * sizeof(float));
    KOLO_TRY(kolo_broadcast(p->comm, all, p->count, KOLO_DTYPE_F32, 0));
    const owner *o = p->owner;
    if (!o) return KOLO_OK;
    const size_t first = o->has.values.first + o->has.state.first;
    memcpy(o->values, all + first, (o->has.values.count + o->has.state.count) * sizeof(float));
    if (o->opts->load) o->opts->load(o->opts->arg, o->values);
    return KOLO_OK;
}

static kolo_status build(kolo_parameters *p, const float *initial) {
    float *all = NULL;
    kolo_status status = agree(p->comm, allocate(p, initial, &all));
    if (status == KOLO_OK) status = distribute(p, initial, all);
    kolo_free(all);
    KOLO_TRY(status);
    size_t range = 1;
    for (int i = 0; i < p->n_servers; i++) {
        const owned *has = &p->owned[i];
        const size_t counts[] = {has->values.count, has->gradient.count, has->state.count};
        for (size_t k = 0; k < KOLO_COUNT(counts); k++) {
            if ((counts[k] + 1) * sizeof(float) > range) range = (counts[k] + 1) * sizeof(float);
        }
    }
    kolo_service_opts service = {.serve = p->owner ? serve : NULL,
                                 .lost = lost,
                                 .arg = p->owner,
                                 .client_bytes = 4 * range + (1 << 20),
                                 .timeout_ms = p->opts.timeout_ms};
    return kolo_service_create(p->comm, &service, &p->service);
}

static void free_parameters(kolo_parameters *p) {
    kolo_service_destroy(p->service);
    owner_destroy(p->owner);
    kolo_free(p->pushes);
    kolo_free(p->pulls);
    kolo_free(p->owned);
    kolo_free(p);
}

kolo_status kolo_parameters_create(kolo_comm *comm, const float *initial, size_t count,
                                   const kolo_parameters_opts *opts, kolo_parameters **parameters) {
    int ranks = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    if (!opts) return KOLO_FAIL(KOLO_ERR_ARG, "parameters without options");
    KOLO_TRY(check_opts(opts, count, ranks, rank));
    kolo_parameters *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    *p = (kolo_parameters){.comm = comm,
                           .opts = *opts,
                           .count = count,
                           .n_servers = opts->servers > 0 ? opts->servers : ranks,
                           .n_workers = opts->servers > 0 ? ranks - opts->servers : ranks,
                           .works = opts->servers == 0 || rank < ranks - opts->servers};
    kolo_status status = build(p, initial);
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
    if (p->works) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "rank %d is a server only: workers push and pull",
                     kolo_comm_rank(p->comm));
}

/* Waits for all of `n` requests; returns the first error. */
static kolo_status wait_all(kolo_parameters *p, kolo_service_request *requests, int n) {
    kolo_status first = KOLO_OK;
    char text[256] = "";
    for (int i = 0; i < n; i++) {
        kolo_status status = kolo_service_wait(p->service, &requests[i], 0);
        if (status == KOLO_OK || first != KOLO_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    return first == KOLO_OK ? first : KOLO_FAIL(first, "%s", text);
}

/* Starts a request to each owner; on failure waits for those that were started. */
static kolo_status start_all(kolo_parameters *p, kolo_service_request *requests, uint32_t kind,
                             const float *input, float *output) {
    for (int i = 0; i < p->n_servers; i++) {
        const owned *has = &p->owned[i];
        const span *part = kind == PUSH   ? &has->gradient
                           : kind == PULL ? &has->values
                                          : &has->state;
        const size_t first = part->first, n = part->count;
        kolo_service_request *q = &requests[i];
        *q = (kolo_service_request){.server = kolo_service_server_rank(p->service, i),
                                    .kind = kind,
                                    .clock = p->clock,
                                    .input = input ? input + first : NULL,
                                    .input_bytes = input ? n * sizeof(float) : 0,
                                    .output = output ? output + first : NULL,
                                    .output_bytes = output ? n * sizeof(float) : 0};
        kolo_status status = kolo_service_start(p->service, q);
        if (status != KOLO_OK) {
            char text[256];
            snprintf(text, sizeof text, "%s", kolo_last_error());
            (void)wait_all(p, requests, i);
            return KOLO_FAIL(status, "%s", text);
        }
    }
    return KOLO_OK;
}

static kolo_status end_push(kolo_parameters *p) {
    if (!p->pushing) return KOLO_OK;
    p->pushing = false;
    return wait_all(p, p->pushes, p->n_servers);
}

kolo_status kolo_parameters_pull(kolo_parameters *p, float *values) {
    KOLO_TRY(check_worker(p));
    KOLO_TRY(start_all(p, p->pulls, PULL, NULL, values));
    KOLO_TRY(wait_all(p, p->pulls, p->n_servers));
    uint64_t stale = 0;
    for (int i = 0; i < p->n_servers; i++) {
        if (p->pulls[i].reply_clock > stale) stale = p->pulls[i].reply_clock;
    }
    p->reads[bin_of(stale)]++;
    return end_push(p);
}

kolo_status kolo_parameters_read_state(kolo_parameters *p, float *state) {
    KOLO_TRY(check_worker(p));
    KOLO_TRY(start_all(p, p->pulls, STATE, NULL, state));
    return wait_all(p, p->pulls, p->n_servers);
}

void kolo_parameters_count_reads(const kolo_parameters *p, uint64_t *counts) {
    for (int i = 0; i < KOLO_STALENESS_BINS; i++) counts[i] += p->reads[i];
}

kolo_status kolo_parameters_push(kolo_parameters *p, const float *gradient) {
    KOLO_TRY(check_worker(p));
    if (p->pushing || p->finished) {
        return KOLO_FAIL(KOLO_ERR_ARG, p->finished
                                           ? "a push after the end: this worker has finished"
                                           : "two pushes in a row: pull the parameters first");
    }
    KOLO_TRY(start_all(p, p->pushes, PUSH, gradient, NULL));
    p->pushing = true;
    p->clock++;
    return KOLO_OK;
}

kolo_status kolo_parameters_finish(kolo_parameters *p) {
    KOLO_TRY(check_worker(p));
    if (p->finished) return KOLO_OK;
    p->finished = true;
    kolo_status first = end_push(p);
    char text[256];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    for (int i = 0; i < p->n_servers; i++) { /* also if one is lost: the others wait for it */
        kolo_service_request q = {.server = kolo_service_server_rank(p->service, i),
                                  .kind = FINISH};
        kolo_status status = kolo_service_run(p->service, &q, 0);
        if (status == KOLO_OK || first != KOLO_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    return first == KOLO_OK ? first : KOLO_FAIL(first, "%s", text);
}

kolo_status kolo_parameters_stats_get(kolo_parameters *p, kolo_parameters_stats *stats) {
    if (!p->owner) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank %d owns no parameters", kolo_comm_rank(p->comm));
    }
    pthread_mutex_lock(&p->owner->mutex);
    *stats = p->owner->stats;
    pthread_mutex_unlock(&p->owner->mutex);
    return KOLO_OK;
}

static void await_end(owner *o) {
    pthread_mutex_lock(&o->mutex);
    while (!o->ended) pthread_cond_wait(&o->all_gone, &o->mutex);
    pthread_mutex_unlock(&o->mutex);
}

kolo_status kolo_parameters_wait(kolo_parameters *p) {
    if (!p->owner) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank %d owns no parameters", kolo_comm_rank(p->comm));
    }
    await_end(p->owner);
    return p->owner->missing >= 0 ? fail_missing(p->owner) : KOLO_OK;
}

void kolo_parameters_abandon(kolo_parameters *p) { p->abandoned = true; }

void kolo_parameters_destroy(kolo_parameters *p) {
    if (!p || p->comm->inherited) return;
    owner *o = p->owner;
    if (p->works && !p->abandoned) (void)kolo_parameters_finish(p);
    if (o && !p->abandoned) await_end(o);
    free_parameters(p);
}
