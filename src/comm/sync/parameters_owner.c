#define _GNU_SOURCE
#include "comm/sync/parameters_owner.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/sync/adapt.h"
#include "comm/sync/leases.h"
#include "kolo/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A worker, as an owner sees it. */
typedef struct worker {
    bool gone;               /* has finished or is lost */
    bool idle;               /* has no lease: clocks do not wait for it */
    uint64_t skipped;        /* of its clock, without a push */
    uint64_t from;           /* of its clock: the bound counts from here, modulo 2^64 */
    int64_t read_ns;         /* when it has read last; 0: its step is not timed, */
    bool rested;             /* since it rests before it */
    uint64_t read_at;        /* the version that it has read last */
    uint64_t delay;          /* of its latest push */
    kolo_service_call *rest; /* it waits until no worker is active */
    uint32_t rests;          /* that have ended */
    kolo_service_call *push; /* kept until the step is complete; bsp only */
    const float *gradient;   /* of `push` */
    float *staged; /* the first n_staged numbers of its next push; NULL: it sends no parts */
    size_t n_staged;
    kolo_service_call *pull;  /* kept until the others have caught up */
    kolo_service_call *lease; /* kept until one returns, or all are acknowledged */
    uint32_t asked;           /* for leases, and answered; the latest answer: */
    uint64_t number, resume;  /* as in the reply */
    uint64_t point; /* it calls kolo_parameters_stop again before it passes this; 0: none */
    float *late;    /* the sum of n_late gradients that came after their steps */
    int n_late;
    uint64_t late_clock; /* of the latest of them */
} worker;

/* The service's thread owns all but what the mutex protects. */
struct kolo_parameters_owner {
    const kolo_parameters_opts *opts;
    kolo_owner_reply *reply;
    kolo_owned has;
    int n_workers, n_first; /* those who may join included; without them */
    int n_present;
    float *values, *state;         /* one after the other */
    float *sum;                    /* of gradients; bsp only */
    worker *workers;               /* [n_workers] */
    float *late;                   /* of all workers; only if late gradients are kept */
    uint64_t *pushes;              /* [n_workers]: taken, and skipped with leases: the clock */
    uint64_t *lost;                /* [n_workers]: as kolo_parameters_rest gives it */
    uint64_t *reported;            /* [n_workers]: the same, at the end of a rest, */
    bool reported_stop;            /* and `stops` */
    kolo_service_call **taken;     /* [n_workers]: of the step that is being completed */
    kolo_leases *leases;           /* NULL: none */
    int staleness;                 /* the bound now */
    kolo_adapt *adapt;             /* at the first owner, of a bound that adapts; else NULL */
    uint32_t choice, taken_choice; /* the latest, which this owner has made; which it has taken */
    double samples, loss;          /* as `progress` gave them last */
    int64_t (*now_ns)(void);
    bool again;        /* workers may send what it has taken: kolo_parameters_owner_lead */
    int64_t quorum_ns; /* when a quorum of the step was in; 0: it is not */
    int64_t alive_ns;  /* when a worker has made progress last */
    bool stops;        /* a rank has asked for it */
    uint64_t stop_at;  /* the point where all workers stop; 0: not known */
    uint64_t end;      /* of the leases that are asked for since the latest rest; 0: none */
    uint64_t version;
    int missing;           /* a lost worker that ends the job; -1: none */
    char why[160];         /* it is missing */
    pthread_mutex_t mutex; /* protects the following; the others are constant once `ended` */
    pthread_cond_t all_gone;
    bool ended; /* no worker is present */
    kolo_parameters_stats stats;
};

typedef kolo_parameters_owner owner;

/* The worker that a client is: ranks are workers, then servers, and those who join come after them.
 * n_workers or more: it is none. */
static int worker_of(const owner *o, int client) {
    if (client < o->n_first) return client;
    const int joined = client - o->opts->servers;
    return joined < o->n_first ? o->n_workers : joined;
}

int kolo_staleness_bin(uint64_t stale) {
    return stale < KOLO_STALENESS_BINS ? (int)stale : KOLO_STALENESS_BINS - 1;
}

int kolo_choice_level(uint32_t choice) {
    return (int)(choice & ((1U << KOLO_CHOICE_LEVEL_BITS) - 1));
}

/* The smallest clock of a worker that is still waited for, without what is before a change of the
 * bound; UINT64_MAX: there is none. */
static uint64_t slowest(const owner *o) {
    uint64_t least = UINT64_MAX;
    for (int w = 0; w < o->n_workers; w++) {
        const worker *x = &o->workers[w];
        const bool waits = x->gone || x->idle || (o->opts->adapts && x->rest);
        if (!waits && o->pushes[w] - x->from < least) least = o->pushes[w] - x->from;
    }
    return least;
}

/* Whether a step may end before all gradients are in. */
static bool skips(const owner *o) { return o->opts->drop > 0 || o->opts->quorum > 0; }

static void observe(const owner *o, kolo_parameters_event event) {
    event.pushes = o->pushes;
    event.workers = o->n_workers;
    if (o->opts->observe) o->opts->observe(o->opts->arg, &event);
}

/* Removes a kept call. Before the reply: one that fails ends its worker, whose calls get replies.
 */
static kolo_service_call *take(kolo_service_call **kept) {
    kolo_service_call *call = *kept;
    *kept = NULL;
    return call;
}

/* Counts a read; returns its staleness. */
static uint64_t count_read(owner *o, int w, uint64_t clock) {
    const uint64_t made = clock - o->workers[w].from, least = slowest(o);
    const uint64_t stale = least < made ? made - least : 0;
    pthread_mutex_lock(&o->mutex);
    o->stats.reads[kolo_staleness_bin(stale)]++;
    if ((int)stale > o->stats.largest) o->stats.largest = (int)stale;
    pthread_mutex_unlock(&o->mutex);
    return stale;
}

/* Whether worker w, at this clock, may read now. */
static bool may_read(const owner *o, int w, uint64_t clock) {
    const uint64_t bound = (uint64_t)o->staleness;
    if (skips(o)) return !o->workers[w].push;
    if (o->opts->adapts && o->staleness == 0) return !o->workers[w].push;
    clock -= o->workers[w].from;
    if (o->staleness == KOLO_STALENESS_ANY || clock <= bound) return true;
    return slowest(o) >= clock - bound;
}

static void answer_pull(owner *o, int w) {
    if (!o->workers[w].pull || !may_read(o, w, o->workers[w].pull->clock)) return;
    kolo_service_call *call = take(&o->workers[w].pull);
    o->workers[w].read_at = o->version;
    if (o->adapt && !o->workers[w].rested) o->workers[w].read_ns = o->now_ns();
    uint64_t stale = count_read(o, w, call->clock);
    observe(o, (kolo_parameters_event){.read = true, .worker = w, .clock = call->clock});
    o->reply(call, KOLO_OK, stale | (uint64_t)o->choice << KOLO_CHOICE_SHIFT, o->values,
             o->has.values.count * sizeof(float));
}

/* The loss of the latest update. */
static void add_loss(owner *o) {
    double samples = 0, loss = 0;
    if (!o->opts->progress) return;
    o->opts->progress(o->opts->arg, &samples, &loss);
    if (samples > o->samples) {
        kolo_adapt_add_loss(o->adapt, (loss - o->loss) / (samples - o->samples));
    }
    o->samples = samples;
    o->loss = loss;
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
                                .version = o->version,
                                .present = o->n_present};
    if (o->has.values.count > 0) o->opts->update(o->opts->arg, &u);
    if (o->adapt) add_loss(o);
    o->version++;
    pthread_mutex_lock(&o->mutex);
    o->stats.version = o->version;
    pthread_mutex_unlock(&o->mutex);
}

/* ---- bsp ---- */

/* Adds n gradients to `total` of them in `sum`. */
static void add_gradients(const owner *o, float *sum, int *total, const float *gradient, int n) {
    const size_t count = o->has.gradient.count;
    if (*total == 0 && count > 0) {
        memcpy(sum, gradient, count * sizeof *sum);
    } else if (count > 0) {
        (void)kolo_combine(sum, gradient, count, KOLO_DTYPE_F32, KOLO_SUM);
    }
    *total += n;
}

/* Whether steps wait for a worker, unless they drop it. */
static bool is_active(const worker *w) { return !w->gone && !w->rest; }

/* Whether `in` gradients, of `active` workers, are enough, now or since the grace is over. */
static bool is_quorum(owner *o, int in, int active) {
    const int64_t grace_ns = kolo_ms_to_ns(o->opts->grace_ms);
    if (in == 0 || in < kolo_min_i64(o->opts->quorum, active)) {
        o->quorum_ns = 0;
        return false;
    }
    if (in >= active || grace_ns == 0) return true;
    if (o->quorum_ns == 0) o->quorum_ns = o->now_ns();
    return o->now_ns() - o->quorum_ns >= grace_ns;
}

/* Whether the gradients that a step waits for are in. Without any active worker: whether gradients
 * of earlier steps are left. */
static bool is_complete(owner *o) {
    int active = 0, in = 0;
    bool left = false;
    for (int w = 0; w < o->n_workers; w++) {
        const worker *x = &o->workers[w];
        in += x->push != NULL;
        active += is_active(x);
        left |= x->n_late > 0;
    }
    if (active == 0) return left;
    if (o->opts->quorum > 0) return is_quorum(o, in, active);
    const int needed = active - o->opts->drop;
    return in >= (needed > 1 ? needed : 1);
}

/* The sum of the gradients that are in, each after the late ones of its worker, and of the late
 * ones of workers that are not active; with a quorum of all late ones. Returns how many gradients
 * that is. */
static int sum_gradients(owner *o, uint64_t *clock) {
    int n = 0;
    *clock = 0;
    for (int w = 0; w < o->n_workers; w++) {
        worker *x = &o->workers[w];
        if (x->n_late > 0 && (x->push || !is_active(x) || o->opts->quorum > 0)) {
            add_gradients(o, o->sum, &n, x->late, x->n_late);
            if (x->late_clock > *clock) *clock = x->late_clock;
            x->n_late = 0;
        }
        if (!x->push) continue;
        add_gradients(o, o->sum, &n, x->gradient, 1);
        if (x->push->clock > *clock) *clock = x->push->clock;
    }
    return n;
}

static void complete_step(owner *o) {
    uint64_t clock;
    if (!is_complete(o)) return;
    const int n = sum_gradients(o, &clock);
    o->quorum_ns = 0;
    apply(o, o->sum, n, -1, clock);
    for (int w = 0; w < o->n_workers; w++) { /* all, before a reply detects a lost worker */
        const kolo_service_call *call = o->taken[w] = take(&o->workers[w].push);
        o->pushes[w] += call != NULL;
        if (call) observe(o, (kolo_parameters_event){.worker = w, .clock = call->clock});
    }
    for (int w = 0; w < o->n_workers; w++) {
        if (o->taken[w]) o->reply(o->taken[w], KOLO_OK, 0, NULL, 0);
    }
}

/* A gradient whose step is over: it waits for the next one of its worker, or is discarded. */
static void take_late(owner *o, int w, kolo_service_call *call, const float *gradient) {
    worker *x = &o->workers[w];
    const uint64_t delay = o->version - x->read_at;
    if (!o->opts->discard) {
        add_gradients(o, x->late, &x->n_late, gradient, 1);
        x->late_clock = call->clock;
    }
    o->pushes[w]++;
    x->delay = delay;
    observe(o, (kolo_parameters_event){.late = true, .worker = w, .clock = call->clock});
    o->reply(call, KOLO_OK, delay, NULL, 0);
}

/* Once no worker is active, those that rest go on together, with the same report and knowledge of
 * whether a rank has asked for the end of the run. */
static void end_rest(owner *o) {
    const size_t bytes = (size_t)o->n_workers * sizeof *o->lost;
    for (int w = 0; w < o->n_workers; w++) {
        if (is_active(&o->workers[w])) return;
    }
    o->end = 0;
    memcpy(o->reported, o->lost, bytes); /* a reply may detect another loss */
    o->reported_stop = o->stops;
    for (int w = 0; w < o->n_workers; w++) {
        kolo_service_call *call = take(&o->workers[w].rest);
        o->workers[w].rests += call != NULL;
        o->workers[w].read_ns = 0; /* evaluations and checkpoints are no part of a step */
        o->workers[w].rested = true;
        if (o->opts->adapts) o->workers[w].from = o->pushes[w];
        if (call) o->reply(call, KOLO_OK, o->reported_stop, o->reported, bytes);
    }
}

/* ---- leases ---- */

/* The clock with which a worker goes on that had no lease: that of the slowest that has one, or if
 * none has the largest, so that all begin alike. Never an earlier one. */
static uint64_t clock_to_go_on(const owner *o, int w) {
    const uint64_t own = o->pushes[w];
    uint64_t clock = slowest(o);
    if (!o->workers[w].idle) return own;
    if (clock == UINT64_MAX) {
        clock = 0;
        for (int i = 0; i < o->n_workers; i++) {
            if (!o->workers[i].gone && o->pushes[i] > clock) clock = o->pushes[i];
        }
    }
    return clock > own ? clock : own;
}

/* Clocks wait for a worker again. */
static void go_on_at(owner *o, int w, uint64_t clock) {
    worker *x = &o->workers[w];
    if (!x->idle) return;
    x->idle = false;
    x->skipped += clock - o->pushes[w];
    o->pushes[w] = clock;
}

/* A worker that has leases goes on with these. */
static void answer_lease(owner *o, int w) {
    worker *x = &o->workers[w];
    const kolo_service_call *call = x->lease;
    uint64_t number;
    if (!call) return;
    const uint64_t stop = o->stop_at * (uint64_t)o->n_first;
    const uint64_t end = stop > 0 && stop < call->clock ? stop : call->clock;
    if (kolo_leases_take(o->leases, w, end, &number)) {
        x->asked++;
        x->number = number + 1;
        x->resume = clock_to_go_on(o, w);
        go_on_at(o, w, x->resume);
        o->reply(take(&x->lease), KOLO_OK, x->number, &x->resume, sizeof x->resume);
    } else if (kolo_leases_of(o->leases, w) > 0 || kolo_leases_out(o->leases) == 0) {
        x->asked++;
        x->number = 0;
        o->reply(take(&x->lease), KOLO_OK, 0, NULL, 0);
    }
}

/* ---- the end of the run ---- */

/* Finds the point where the workers stop: one that none of them has passed or may pass before it
 * calls again, and before which all leases are that were given out. */
static void choose_stop(owner *o) {
    uint64_t most = 1;
    if (!o->stops || o->stop_at > 0) return;
    for (int w = 0; w < o->n_workers; w++) {
        const worker *x = &o->workers[w];
        if (x->gone) continue;
        if (x->point == 0) return; /* it has not called yet */
        if (x->point > most) most = x->point;
    }
    if (o->leases) {
        const uint64_t n = (uint64_t)o->n_first, next = kolo_leases_next(o->leases);
        const uint64_t given = next / n + (next % n > 0);
        if (given > most) most = given;
    }
    o->stop_at = most;
}

static void stop(owner *o, int w, kolo_service_call *call) {
    if (w < o->n_workers) o->workers[w].point = call->clock;
    o->stops |= call->key != 0;
    choose_stop(o);
    o->reply(call, KOLO_OK, o->stop_at, NULL, 0);
}

/* ---- requests ---- */

/* After a push, or after a worker has gone or rests. */
static void go_on(owner *o) {
    if (o->staleness == 0) complete_step(o);
    end_rest(o);
    for (int w = 0; w < o->n_workers; w++) answer_lease(o, w);
    for (int w = 0; w < o->n_workers; w++) answer_pull(o, w);
}

static void leave(owner *o, int w, bool lost) {
    if (o->workers[w].gone) return;
    o->workers[w].gone = true;
    if (o->adapt) kolo_adapt_leave(o->adapt, w);
    if (o->workers[w].lease) o->reply(take(&o->workers[w].lease), KOLO_OK, 0, NULL, 0);
    if (o->leases) kolo_leases_return(o->leases, w);
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
    if (call) o->reply(call, fail_missing(o), 0, NULL, 0);
}

/* The job ends: what is kept will not be answered. */
static void refuse_kept(owner *o) {
    for (int i = 0; i < o->n_workers; i++) {
        worker *w = &o->workers[i];
        refuse(o, take(&w->push));
        refuse(o, take(&w->pull));
        refuse(o, take(&w->rest));
        refuse(o, take(&w->lease));
    }
}

/* The connection is closed: the reply only frees the call. */
static void free_call(const owner *o, kolo_service_call *call) {
    if (call) o->reply(call, KOLO_OK, 0, NULL, 0);
}

void kolo_parameters_owner_lost(void *arg, int client, bool left, const char *reason) {
    owner *o = arg;
    const int number = worker_of(o, client);
    if (number >= o->n_workers) return;
    worker *w = &o->workers[number];
    w->n_staged = 0;
    free_call(o, take(&w->push));
    free_call(o, take(&w->pull));
    free_call(o, take(&w->rest));
    free_call(o, take(&w->lease));
    const bool joined = number >= o->n_first; /* its errors are its own */
    const bool spared = joined || (!left && o->opts->spared > 0 && number >= o->opts->spared);
    if (!left && !w->gone) o->lost[number] = o->pushes[number] - w->skipped + 1;
    if (o->opts->needs_all && !spared && !w->gone && o->missing < 0) {
        o->missing = number;
        snprintf(o->why, sizeof o->why, "%s", left ? "it ended after an error" : reason);
    }
    leave(o, number, !left);
    if (o->missing >= 0) {
        refuse_kept(o);
    } else {
        go_on(o);
    }
}

/* Whether the key of a push is a choice. */
static bool is_choice(const owner *o, uint64_t key) {
    if (!o->opts->adapts) return key == 0;
    return key <= UINT32_MAX && kolo_choice_level((uint32_t)key) < kolo_adapt_levels();
}

static bool is_valid(const owner *o, int number, const kolo_service_call *call) {
    const bool works = number < o->n_workers;
    if (call->kind == KOLO_OWNER_STOP) {
        return call->input_bytes == 0 && call->output_bytes == 0 && works == (call->clock > 0);
    }
    if (!works) return false;
    const worker *w = &o->workers[number];
    const size_t input = call->input_bytes / sizeof(float);
    const size_t left = o->has.gradient.count - w->n_staged;
    if (call->input_bytes % sizeof(float) || !kolo_parameters_owner_fits(o, call)) return false;
    switch (call->kind) {
    case KOLO_OWNER_PULL:
        return input == 0 && !w->pull && (call->key == 0 || call->clock >= o->pushes[number]);
    case KOLO_OWNER_STATE:
    case KOLO_OWNER_ALIVE:
        return input == 0;
    case KOLO_OWNER_PUSH:
    case KOLO_OWNER_PART:
        if (call->kind == KOLO_OWNER_PART ? !w->staged || input > left || call->key != w->n_staged
                                          : input != left) {
            return false;
        }
        if (call->kind == KOLO_OWNER_PUSH && !is_choice(o, call->key)) return false;
        return is_active(w) && !w->push && call->clock == o->pushes[number] &&
               (uintptr_t)call->input % sizeof(float) == 0;
    case KOLO_OWNER_REST:
        return input == 0 && is_active(w) && !w->push;
    case KOLO_OWNER_LEASE:
        return o->leases && input == 0 && is_active(w) && !w->lease &&
               kolo_leases_of(o->leases, number) < KOLO_LEASES_MOST;
    case KOLO_OWNER_JOIN:
        return number >= o->n_first && w->gone && o->lost[number] == 0 && input == 0;
    case KOLO_OWNER_IDLE:
        return o->opts->leases && input == 0 && is_active(w) && !w->push;
    default:
        return call->kind == KOLO_OWNER_FINISH && input == 0;
    }
}

/* Appends numbers to what has come of a worker's next push. */
static void stage(worker *x, const void *data, size_t bytes) {
    if (bytes > 0) memcpy(x->staged + x->n_staged, data, bytes);
    x->n_staged += bytes / sizeof *x->staged;
}

static void take_part(owner *o, int w, kolo_service_call *call) {
    stage(&o->workers[w], call->input, call->input_bytes);
    pthread_mutex_lock(&o->mutex);
    o->stats.parts++;
    pthread_mutex_unlock(&o->mutex);
    o->reply(call, KOLO_OK, 0, NULL, 0);
}

/* The gradient of a push: where it lies, or what has come of it and the rest. */
static const float *gradient_of(worker *x, const kolo_service_call *call) {
    if (x->n_staged == 0) return call->input;
    stage(x, call->input, call->input_bytes);
    x->n_staged = 0;
    return x->staged;
}

/* A push that is an update. It needs an answer. */
static void apply_push(owner *o, int w, const kolo_service_call *call, const float *gradient) {
    worker *x = &o->workers[w];
    x->delay = o->version - x->read_at;
    apply(o, gradient, 1, w, call->clock);
    o->pushes[w]++;
    observe(o, (kolo_parameters_event){.worker = w, .clock = call->clock});
}

/* Takes a choice that a push has: the pushes of a step that is not complete become updates if there
 * are no steps any more, and the bound counts from here. */
static void take_choice(owner *o, uint32_t choice) {
    if (!o->opts->adapts || choice <= o->taken_choice) return;
    o->taken_choice = choice;
    if (choice > o->choice) o->choice = choice;
    o->staleness = kolo_adapt_staleness(kolo_choice_level(choice));
    for (int w = 0; w < o->n_workers; w++) { /* all, before a reply detects a lost worker */
        worker *x = &o->workers[w];
        o->taken[w] = o->staleness != 0 ? take(&x->push) : NULL;
        if (o->taken[w]) apply_push(o, w, o->taken[w], x->gradient);
        x->from = o->pushes[w];
    }
    for (int w = 0; w < o->n_workers; w++) {
        if (o->taken[w]) o->reply(o->taken[w], KOLO_OK, o->workers[w].delay, NULL, 0);
    }
}

/* Counts the time of a step, and after enough of them chooses a bound. */
static void adapt(owner *o, int w) {
    worker *x = &o->workers[w];
    x->rested = false;
    if (!o->adapt || x->read_ns == 0) return;
    kolo_adapt_add_step(o->adapt, w, (double)(o->now_ns() - x->read_ns) / 1e9);
    x->read_ns = 0;
    if (o->choice > o->taken_choice || !kolo_adapt_is_due(o->adapt)) return;
    const int now = kolo_choice_level(o->choice), next = kolo_adapt_choose(o->adapt, now);
    if (next == now) return;
    o->choice =
        ((o->choice >> KOLO_CHOICE_LEVEL_BITS) + 1) << KOLO_CHOICE_LEVEL_BITS | (uint32_t)next;
}

static void push(owner *o, int w, kolo_service_call *call) {
    worker *x = &o->workers[w];
    const float *gradient = gradient_of(x, call);
    adapt(o, w);
    take_choice(o, (uint32_t)call->key);
    if (o->leases) kolo_leases_acknowledge(o->leases, w);
    if (skips(o) && x->read_at < o->version) {
        take_late(o, w, call, gradient);
    } else if (o->staleness == 0) {
        x->push = call;
        x->gradient = gradient;
        x->delay = o->version - x->read_at;
    } else {
        apply_push(o, w, call, gradient);
        o->reply(call, KOLO_OK, x->delay, NULL, 0);
    }
    go_on(o);
}

/* A worker joins while the others make steps, unless they are about to end. At the first owner the
 * lease that a worker has asked for shows that all have passed the latest rest, at all owners. */
static void join(owner *o, int w, kolo_service_call *call) {
    worker *x = &o->workers[w];
    const bool first = o->has.gradient.first == 0;
    bool between = !first || o->end > 0;
    for (int i = 0; i < o->n_workers; i++) between &= !o->workers[i].rest;
    if (o->n_present == 0 || o->stops) {
        kolo_status status = KOLO_FAIL(KOLO_ERR_ARG, "the run is about to end: nobody can join it");
        o->reply(call, status, 0, NULL, 0);
        return;
    }
    if (between) {
        const uint64_t least = slowest(o);
        x->gone = false;
        x->idle = o->staleness != KOLO_STALENESS_ANY;
        /* Its clock begins at 0, but it lacks no pushes: nobody's staleness counts them. */
        x->from = x->idle || least == UINT64_MAX ? 0 : 0 - least;
        o->n_present++;
    }
    o->reply(call, KOLO_OK, !between ? 0 : first ? o->end : 1, NULL, 0);
}

/* Requests to join, and of those who have left, are no progress. */
static void note_progress(owner *o, const kolo_service_call *call) {
    static const uint32_t others =
        1 << KOLO_OWNER_JOIN | 1 << KOLO_OWNER_FINISH | 1 << KOLO_OWNER_STOP;
    const bool waits = call->kind == KOLO_OWNER_ALIVE && call->key == 0;
    if (!waits && !(others >> call->kind & 1)) o->alive_ns = o->now_ns();
}

static void answer_alive(const owner *o, kolo_service_call *call) {
    o->reply(call, KOLO_OK, (uint64_t)(o->now_ns() - o->alive_ns) / 1000000, NULL, 0);
}

/* Answers a request that was taken before, as a copy. */
static bool answer_again(owner *o, int w, kolo_service_call *call) {
    if (!o->again || w >= o->n_workers) return false;
    const worker *x = &o->workers[w];
    const uint32_t next = (uint32_t)call->key + 1;
    if (call->kind == KOLO_OWNER_PUSH && call->clock + 1 == o->pushes[w]) {
        o->reply(call, KOLO_OK, x->delay, NULL, 0);
    } else if (call->kind == KOLO_OWNER_REST && next == x->rests) {
        o->reply(call, KOLO_OK, o->reported_stop, o->reported,
                 (size_t)o->n_workers * sizeof *o->reported);
    } else if (call->kind == KOLO_OWNER_LEASE && next == x->asked) {
        o->reply(call, KOLO_OK, x->number, &x->resume, x->number > 0 ? sizeof x->resume : 0);
    } else if (call->kind == KOLO_OWNER_JOIN && w >= o->n_first && !x->gone) {
        /* No rest has ended without it: the end of leases is that of its first answer. */
        o->reply(call, KOLO_OK, o->has.gradient.first == 0 ? o->end : 1, NULL, 0);
    } else {
        return false;
    }
    return true;
}

/* Whether a worker has made pushes that a lost owner took, and this one has no copies of. */
static bool lacks_pushes(const owner *o, int w, const kolo_service_call *call) {
    const bool counts = call->kind == KOLO_OWNER_PUSH || call->kind == KOLO_OWNER_PART ||
                        ((call->kind == KOLO_OWNER_PULL || call->kind == KOLO_OWNER_STATE) &&
                         call->key == 0); /* else the clock is that of a lease */
    if (!o->again || !counts || w >= o->n_workers) return false;
    return call->clock > o->pushes[w] + (o->workers[w].push != NULL);
}

void kolo_parameters_owner_serve(void *arg, kolo_service_call *call) {
    owner *o = arg;
    const int w = worker_of(o, call->client);
    if (call->kind < KOLO_OWNER_ALIVE) note_progress(o, call);
    if (answer_again(o, w, call)) return;
    if (lacks_pushes(o, w, call)) {
        kolo_status status = KOLO_FAIL(KOLO_ERR_PEER, "the replica lacks pushes that its leader "
                                                      "has taken: the connection between the "
                                                      "servers was lost");
        o->reply(call, status, 0, NULL, 0);
    } else if (!is_valid(o, w, call)) {
        kolo_status status = KOLO_FAIL(
            KOLO_ERR_ARG, "an invalid request: kind %u, clock %llu, %zu and %zu bytes", call->kind,
            (unsigned long long)call->clock, call->input_bytes, call->output_bytes);
        o->reply(call, status, 0, NULL, 0);
    } else if (o->missing >= 0 && call->kind != KOLO_OWNER_FINISH) {
        refuse(o, call);
    } else if (call->kind == KOLO_OWNER_ALIVE) {
        note_progress(o, call);
        answer_alive(o, call);
    } else if (call->kind == KOLO_OWNER_JOIN) {
        join(o, w, call);
    } else if (call->kind == KOLO_OWNER_PART) {
        take_part(o, w, call);
    } else if (call->kind == KOLO_OWNER_STOP) {
        stop(o, w, call);
    } else if (call->kind == KOLO_OWNER_PULL) {
        if (call->key != 0) go_on_at(o, w, call->clock);
        o->workers[w].pull = call;
        answer_pull(o, w);
    } else if (call->kind == KOLO_OWNER_IDLE) {
        o->workers[w].idle = true;
        o->reply(call, KOLO_OK, 0, NULL, 0);
        go_on(o);
    } else if (call->kind == KOLO_OWNER_LEASE) {
        o->workers[w].lease = call;
        o->end = call->clock;
        answer_lease(o, w);
    } else if (call->kind == KOLO_OWNER_STATE) {
        if (o->has.state.count > 0) o->opts->save(o->opts->arg, o->state);
        o->reply(call, KOLO_OK, 0, o->state, o->has.state.count * sizeof(float));
    } else if (call->kind == KOLO_OWNER_FINISH) {
        o->reply(call, KOLO_OK, 0, NULL, 0);
        leave(o, w, false);
        go_on(o);
    } else if (call->kind == KOLO_OWNER_REST) {
        o->workers[w].rest = call;
        go_on(o);
    } else {
        push(o, w, call);
    }
}

void kolo_parameters_owner_destroy(owner *o) {
    if (!o) return;
    pthread_cond_destroy(&o->all_gone);
    pthread_mutex_destroy(&o->mutex);
    kolo_free(o->values);
    kolo_free(o->sum);
    kolo_free(o->late);
    for (int w = 0; w < o->n_workers && o->workers; w++) kolo_free(o->workers[w].staged);
    kolo_free(o->workers);
    kolo_free(o->pushes);
    kolo_free(o->lost);
    kolo_free(o->reported);
    kolo_free(o->taken);
    kolo_leases_destroy(o->leases);
    kolo_adapt_destroy(o->adapt);
    kolo_free(o);
}

kolo_status kolo_parameters_owner_create(const kolo_parameters_opts *opts, const kolo_owned *has,
                                         int workers, kolo_owner_reply *reply, owner **made) {
    owner *o = kolo_zalloc(sizeof *o);
    if (!o) return KOLO_NOMEM(sizeof *o);
    const size_t n = (size_t)workers + (size_t)opts->joins;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_cond_init(&o->all_gone, NULL);
    o->opts = opts;
    o->reply = reply;
    o->n_first = o->n_present = workers;
    o->n_workers = (int)n;
    o->missing = -1;
    o->has = *has;
    o->staleness = opts->staleness;
    o->now_ns = kolo_now_ns;
    o->alive_ns = kolo_now_ns();
    size_t bytes = (has->values.count + has->state.count + 1) * sizeof(float);
    size_t sum_bytes = (has->gradient.count + 1) * sizeof(float);
    o->values = kolo_alloc(bytes);
    o->state = o->values ? o->values + has->values.count : NULL;
    o->sum = opts->staleness == 0 ? kolo_alloc(sum_bytes) : NULL;
    o->workers = kolo_zalloc(n * sizeof *o->workers);
    o->pushes = kolo_zalloc(n * sizeof *o->pushes);
    o->lost = kolo_zalloc(n * sizeof *o->lost);
    o->reported = kolo_zalloc(n * sizeof *o->reported);
    o->taken = kolo_zalloc(n * sizeof *o->taken);
    const bool keeps = skips(o) && !opts->discard;
    o->late = keeps ? kolo_alloc(n * sum_bytes) : NULL;
    bool all = o->values && (o->sum || opts->staleness != 0) && (o->late || !keeps);
    if (opts->leases && kolo_leases_create((int)n, opts->first_lease, &o->leases) != KOLO_OK) {
        all = false;
    }
    const bool chooses = opts->adapts && has->gradient.first == 0;
    if (chooses && kolo_adapt_create(workers, &o->adapt) != KOLO_OK) all = false;
    for (size_t w = (size_t)workers; w < n && o->workers; w++) o->workers[w].gone = true;
    if (all && o->workers && o->pushes && o->lost && o->reported && o->taken) {
        for (size_t w = 0; w < n && keeps; w++) {
            o->workers[w].late = o->late + w * has->gradient.count;
        }
        *made = o;
        return KOLO_OK;
    }
    kolo_parameters_owner_destroy(o);
    return KOLO_NOMEM(bytes);
}

int kolo_parameters_owner_due(void *arg) {
    owner *o = arg;
    if (o->quorum_ns == 0) return -1;
    const int64_t left_ns = o->quorum_ns + kolo_ms_to_ns(o->opts->grace_ms) - o->now_ns();
    if (left_ns > 0) return (int)kolo_min_i64(left_ns / 1000000 + 1, INT32_MAX);
    go_on(o);
    return -1; /* the next quorum needs a request */
}

size_t kolo_parameters_owner_room(const owner *o, uint32_t kind) {
    return kind == KOLO_OWNER_PULL    ? o->has.values.count * sizeof *o->values
           : kind == KOLO_OWNER_STATE ? o->has.state.count * sizeof *o->state
           : kind == KOLO_OWNER_REST  ? (size_t)o->n_workers * sizeof *o->lost
           : kind == KOLO_OWNER_LEASE ? sizeof o->workers->resume
                                      : 0;
}

bool kolo_parameters_owner_fits(const owner *o, const kolo_service_call *call) {
    return call->kind < KOLO_OWNER_KINDS &&
           call->output_bytes == kolo_parameters_owner_room(o, call->kind);
}

void kolo_parameters_owner_lead(owner *o) {
    for (int w = 0; w < o->n_workers; w++) {
        worker *x = &o->workers[w];
        x->push = x->pull = x->rest = x->lease = NULL;
        x->n_staged = 0;
    }
    o->again = true;
}

void kolo_parameters_owner_set_reply(owner *o, kolo_owner_reply *reply) { o->reply = reply; }

void kolo_parameters_owner_set_clock(owner *o, int64_t (*now_ns)(void)) {
    o->now_ns = now_ns;
    o->alive_ns = now_ns();
}

kolo_status kolo_parameters_owner_stage(owner *o, int w) {
    const size_t bytes = (o->has.gradient.count + 1) * sizeof *o->workers[w].staged;
    o->workers[w].staged = kolo_alloc(bytes);
    return o->workers[w].staged ? KOLO_OK : KOLO_NOMEM(bytes);
}

void kolo_parameters_owner_load(owner *o, const float *all) {
    const size_t first = o->has.values.first + o->has.state.first;
    memcpy(o->values, all + first, (o->has.values.count + o->has.state.count) * sizeof(float));
    if (o->opts->load) o->opts->load(o->opts->arg, o->values);
}

bool kolo_parameters_owner_ended(owner *o, int64_t timeout_ms) {
    const int64_t deadline_ns = kolo_now_ns() + kolo_ms_to_ns(timeout_ms);
    const struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                                   .tv_nsec = deadline_ns % 1000000000};
    int late = 0;
    pthread_mutex_lock(&o->mutex);
    while (!o->ended && late == 0) {
        late = pthread_cond_clockwait(&o->all_gone, &o->mutex, CLOCK_MONOTONIC, &until);
    }
    const bool ended = o->ended;
    pthread_mutex_unlock(&o->mutex);
    return ended;
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
