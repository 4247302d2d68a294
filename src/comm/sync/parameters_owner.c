#include "comm/sync/parameters_owner.h"

#include "base/memory.h"
#include "base/status.h"
#include "kolo/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A worker, as an owner sees it. */
typedef struct worker {
    bool gone;               /* has finished or is lost */
    kolo_service_call *push; /* kept until the clock is complete; bsp only */
    kolo_service_call *pull; /* kept until the others have caught up */
} worker;

/* The service's thread owns all but what the mutex protects. */
struct kolo_parameters_owner {
    const kolo_parameters_opts *opts;
    kolo_owner_reply *reply;
    kolo_owned has;
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
};

typedef kolo_parameters_owner owner;

int kolo_staleness_bin(uint64_t stale) {
    return stale < KOLO_STALENESS_BINS ? (int)stale : KOLO_STALENESS_BINS - 1;
}

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
    o->stats.reads[kolo_staleness_bin(stale)]++;
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
    o->reply(call, KOLO_OK, stale, o->values, o->has.values.count * sizeof(float));
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
        if (o->taken[w]) o->reply(o->taken[w], KOLO_OK, o->version, NULL, 0);
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
    o->reply(call, fail_missing(o), 0, NULL, 0);
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

void kolo_parameters_owner_lost(void *arg, int client, bool left, const char *reason) {
    owner *o = arg;
    if (client >= o->n_workers) return;
    worker *w = &o->workers[client];
    if (w->push) o->reply(w->push, KOLO_OK, 0, NULL, 0); /* goes nowhere */
    if (w->pull) o->reply(w->pull, KOLO_OK, 0, NULL, 0);
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
    case KOLO_OWNER_PULL:
        return input == 0 && output == o->has.values.count && !w->pull;
    case KOLO_OWNER_STATE:
        return input == 0 && output == o->has.state.count;
    case KOLO_OWNER_PUSH:
        return input == o->has.gradient.count && output == 0 && !w->gone && !w->push &&
               call->clock == o->pushes[call->client] &&
               (uintptr_t)call->input % sizeof(float) == 0;
    default:
        return call->kind == KOLO_OWNER_FINISH && input == 0 && output == 0;
    }
}

void kolo_parameters_owner_serve(void *arg, kolo_service_call *call) {
    owner *o = arg;
    int w = call->client;
    if (!is_valid(o, call)) {
        kolo_status status = KOLO_FAIL(
            KOLO_ERR_ARG, "an invalid request: kind %u, clock %llu, %zu and %zu bytes", call->kind,
            (unsigned long long)call->clock, call->input_bytes, call->output_bytes);
        o->reply(call, status, 0, NULL, 0);
    } else if (o->missing >= 0 && call->kind != KOLO_OWNER_FINISH) {
        refuse(o, call);
    } else if (call->kind == KOLO_OWNER_PULL) {
        o->workers[w].pull = call;
        answer_pull(o, w);
    } else if (call->kind == KOLO_OWNER_STATE) {
        if (o->has.state.count > 0) o->opts->save(o->opts->arg, o->state);
        o->reply(call, KOLO_OK, 0, o->state, o->has.state.count * sizeof(float));
    } else if (call->kind == KOLO_OWNER_FINISH) {
        o->reply(call, KOLO_OK, 0, NULL, 0);
        leave(o, w, false);
        go_on(o);
    } else if (o->opts->staleness == 0) {
        o->workers[w].push = call;
        go_on(o);
    } else {
        apply(o, call->input, 1, w, call->clock);
        o->pushes[w]++;
        observe(o, false, w, call->clock);
        o->reply(call, KOLO_OK, o->version, NULL, 0);
        go_on(o);
    }
}

void kolo_parameters_owner_destroy(owner *o) {
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

kolo_status kolo_parameters_owner_create(const kolo_parameters_opts *opts, const kolo_owned *has,
                                         int workers, kolo_owner_reply *reply, owner **made) {
    owner *o = kolo_zalloc(sizeof *o);
    if (!o) return KOLO_NOMEM(sizeof *o);
    const size_t n = (size_t)workers;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_cond_init(&o->all_gone, NULL);
    o->opts = opts;
    o->reply = reply;
    o->n_workers = o->n_present = workers;
    o->missing = -1;
    o->has = *has;
    size_t bytes = (has->values.count + has->state.count + 1) * sizeof(float);
    size_t sum_bytes = (has->gradient.count + 1) * sizeof(float);
    o->values = kolo_alloc(bytes);
    o->state = o->values ? o->values + has->values.count : NULL;
    o->sum = opts->staleness == 0 ? kolo_alloc(sum_bytes) : NULL;
    o->workers = kolo_zalloc(n * sizeof *o->workers);
    o->pushes = kolo_zalloc(n * sizeof *o->pushes);
    o->taken = kolo_zalloc(n * sizeof *o->taken);
    bool all = o->values && (o->sum || opts->staleness != 0);
    if (all && o->workers && o->pushes && o->taken) {
        *made = o;
        return KOLO_OK;
    }
    kolo_parameters_owner_destroy(o);
    return KOLO_NOMEM(bytes);
}

void kolo_parameters_owner_load(owner *o, const float *all) {
    const size_t first = o->has.values.first + o->has.state.first;
    memcpy(o->values, all + first, (o->has.values.count + o->has.state.count) * sizeof(float));
    if (o->opts->load) o->opts->load(o->opts->arg, o->values);
}

kolo_status kolo_parameters_owner_wait(owner *o) {
    pthread_mutex_lock(&o->mutex);
    while (!o->ended) pthread_cond_wait(&o->all_gone, &o->mutex);
    pthread_mutex_unlock(&o->mutex);
    return o->missing >= 0 ? fail_missing(o) : KOLO_OK;
}

void kolo_parameters_owner_stats(owner *o, kolo_parameters_stats *stats) {
    pthread_mutex_lock(&o->mutex);
    *stats = o->stats;
    pthread_mutex_unlock(&o->mutex);
}
