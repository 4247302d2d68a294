#define _GNU_SOURCE
#include "comm/sync/parameters_owner.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/sync/owner_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

typedef kolo_owner_worker worker;
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

/* Whether a step may end before all gradients are in. */
static bool skips(const owner *o) { return o->opts->drop > 0 || o->opts->quorum > 0; }

/* Counts a read; returns its staleness. */
static uint64_t count_read(owner *o, int w, uint64_t clock) {
    const uint64_t made = clock - o->workers[w].from, least = kolo_owner_slowest(o);
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
    return kolo_owner_slowest(o) >= clock - bound;
}

/* The values of a reply, in the worker's memory if they can be copied there directly. Those that
 * workers copy themselves are copied once after an update. */
static const float *values_for(owner *o, const kolo_service_call *call) {
    const bool mapped = call->output && (uintptr_t)call->output % sizeof(float) == 0;
    if (o->current || o->has.values.count == 0) return o->values;
    if (mapped && (!o->placed || call->copied)) {
        o->opts->copy_values(o->opts->arg, call->output);
        return call->output;
    }
    o->opts->copy_values(o->opts->arg, o->values);
    o->current = true;
    return o->values;
}

/* Between its sums over the owners an update has changed some values and not others. */
static bool is_updating(const owner *o) { return o->sums && kolo_owner_sums_are_open(o->sums); }

static void answer_pull(owner *o, int w) {
    if (!o->workers[w].pull || is_updating(o) || !may_read(o, w, o->workers[w].pull->clock)) return;
    kolo_service_call *call = kolo_owner_take(&o->workers[w].pull);
    o->workers[w].read_at = o->version;
    if (o->adapt && !o->workers[w].after_barrier) o->workers[w].read_ns = o->now_ns();
    uint64_t stale = count_read(o, w, call->clock);
    kolo_owner_observe(o, (kolo_parameters_event){.read = true, .worker = w, .clock = call->clock});
    call->copied = !kolo_owner_is_active(&o->workers[w]); /* updates do not wait for it */
    o->reply(call, KOLO_OK, stale | (uint64_t)o->choice << KOLO_CHOICE_SHIFT, values_for(o, call),
             o->has.values.count * sizeof(float));
}

static void answer_state(owner *o, int w) {
    if (!o->workers[w].state || is_updating(o)) return;
    if (o->has.state.count > 0) o->opts->save(o->opts->arg, o->state);
    o->reply(kolo_owner_take(&o->workers[w].state), KOLO_OK, 0, o->state,
             o->has.state.count * sizeof(float));
}

/* ---- requests ---- */

/* After a push, or after a worker has gone or waits in a barrier. */
static void go_on(owner *o) {
    if (o->staleness == 0) kolo_owner_complete_step(o);
    kolo_owner_end_barrier(o);
    for (int w = 0; w < o->n_workers; w++) kolo_owner_answer_lease(o, w);
    for (int w = 0; w < o->n_workers; w++) answer_pull(o, w);
    for (int w = 0; w < o->n_workers; w++) answer_state(o, w);
}

static void leave(owner *o, int w, bool lost) {
    if (o->workers[w].gone) return;
    o->workers[w].gone = true;
    if (o->adapt) kolo_adapt_leave(o->adapt, w);
    if (o->workers[w].lease) o->reply(kolo_owner_take(&o->workers[w].lease), KOLO_OK, 0, NULL, 0);
    if (o->leases) kolo_leases_return(o->leases, w);
    o->n_present--;
    o->n_not_lost -= lost;
    pthread_mutex_lock(&o->mutex);
    o->stats.lost += lost;
    o->ended = o->n_present == 0;
    pthread_cond_signal(&o->all_gone);
    pthread_mutex_unlock(&o->mutex);
}

/* The connection is closed: the reply only frees the call. */
static void free_call(const owner *o, kolo_service_call *call) {
    if (call) o->reply(call, KOLO_OK, 0, NULL, 0);
}

void kolo_parameters_owner_lost(void *arg, int client, bool left, const char *reason) {
    owner *o = arg;
    const int number = worker_of(o, client);
    if (number >= o->n_workers) {
        const bool needed =
            o->sums && o->n_present > 0 && kolo_owner_sums_need(o->sums, client, left);
        if (needed) kolo_owner_end_job(o, "server rank", client, reason);
        return;
    }
    worker *w = &o->workers[number];
    w->n_staged = 0;
    free_call(o, kolo_owner_take(&w->push));
    free_call(o, kolo_owner_take(&w->pull));
    free_call(o, kolo_owner_take(&w->state));
    free_call(o, kolo_owner_take(&w->barrier));
    free_call(o, kolo_owner_take(&w->lease));
    const bool joined = number >= o->n_first; /* its errors are its own */
    const bool spared = joined || (!left && o->opts->spared > 0 && number >= o->opts->spared);
    if (!left && !w->gone) o->lost[number] = o->pushes[number] - w->skipped + 1;
    const bool needed = o->opts->needs_all && !spared && !w->gone;
    if (needed) kolo_owner_end_job(o, "worker", number, reason);
    leave(o, number, !left);
    if (!o->ends) go_on(o);
}

/* Whether the key of a push is a choice. */
static bool is_choice(const owner *o, uint64_t key) {
    if (!o->opts->adapts) return key == 0;
    return key <= UINT32_MAX && kolo_choice_level((uint32_t)key) < kolo_adapt_levels();
}

/* Whether the clock of a read is that of its worker: the number of its pushes or, once it has a
 * lease again, that of another worker, whose latest push this owner may lack. */
static bool is_clock(const owner *o, int number, const kolo_service_call *call) {
    const uint64_t own = o->pushes[number];
    uint64_t most = own;
    if (call->key == 0) return call->clock <= own + (o->workers[number].push != NULL);
    for (int w = 0; w < o->n_workers; w++) most = o->pushes[w] > most ? o->pushes[w] : most;
    return call->key == 1 && o->opts->leases && call->clock >= own && call->clock <= most + 1;
}

/* Whether a barrier has what its worker adds to the sum. */
static bool is_summand(const owner *o, const kolo_service_call *call) {
    return o->barrier_sum && call->input_bytes == o->has.gradient.count * sizeof(float) &&
           (uintptr_t)call->input % sizeof(float) == 0;
}

static bool is_valid(const owner *o, int number, const kolo_service_call *call) {
    const bool works = number < o->n_workers;
    if (call->kind == KOLO_OWNER_STOP) {
        return call->input_bytes == 0 && call->output_bytes == 0 && works == (call->clock > 0) &&
               call->clock <= KOLO_OWNER_POINT_MOST && call->key <= KOLO_STOP_FORGETS;
    }
    if (call->kind == KOLO_OWNER_SUMMANDS) return o->sums && kolo_owner_sums_fit(o->sums, call);
    if (!works) return false;
    const worker *w = &o->workers[number];
    const size_t input = call->input_bytes / sizeof(float);
    const size_t left = o->has.pushed.count - w->n_staged;
    if (!kolo_parameters_owner_fits(o, call)) return false;
    if (call->input_bytes % sizeof(float) && call->kind != KOLO_OWNER_CONFIGURE) return false;
    switch (call->kind) {
    case KOLO_OWNER_PULL:
        return input == 0 && !w->pull && is_clock(o, number, call);
    case KOLO_OWNER_STATE:
        return input == 0 && !w->state && is_clock(o, number, call);
    case KOLO_OWNER_PUSH:
    case KOLO_OWNER_PART:
        if (call->kind == KOLO_OWNER_PART ? !w->staged || input > left || call->key != w->n_staged
                                          : input != left) {
            return false;
        }
        if (call->kind == KOLO_OWNER_PUSH && !is_choice(o, call->key)) return false;
        return kolo_owner_is_active(w) && !w->push && call->clock == o->pushes[number] &&
               (uintptr_t)call->input % sizeof(float) == 0;
    case KOLO_OWNER_BARRIER:
        return (input == 0 || is_summand(o, call)) && kolo_owner_is_active(w) && !w->push;
    case KOLO_OWNER_SUM:
        return o->barrier_sum && input == 0;
    case KOLO_OWNER_LEASE:
        return o->leases && input == 0 && kolo_owner_is_active(w) && !w->lease &&
               call->clock <= KOLO_OWNER_POINT_MOST &&
               kolo_leases_of(o->leases, number) < KOLO_LEASES_MOST;
    case KOLO_OWNER_JOIN:
        return number >= o->n_first && w->gone && o->lost[number] == 0 && input == 0;
    case KOLO_OWNER_PAUSE:
        return input == 0 && call->clock > 0 && call->clock <= KOLO_OWNER_POINT_MOST;
    case KOLO_OWNER_ASSIGN:
        return kolo_owner_is_active(w) && kolo_owner_may_assign(o, call);
    case KOLO_OWNER_CONFIGURE:
        return kolo_owner_is_active(w) && kolo_owner_may_configure(o, call);
    case KOLO_OWNER_IDLE:
        return o->opts->leases && input == 0 && kolo_owner_is_active(w) && !w->push;
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

/* The gradient of a push, checked: where it lies, or what has come of it and the rest, unpacked. */
static kolo_status find_gradient(const owner *o, worker *x, const kolo_service_call *call,
                                 const float **gradient) {
    *gradient = call->input;
    if (x->n_staged > 0) {
        stage(x, call->input, call->input_bytes);
        x->n_staged = 0;
        *gradient = x->staged;
    }
    if (o->opts->check) KOLO_TRY(o->opts->check(o->opts->arg, *gradient));
    if (!x->unpacked) return KOLO_OK;
    KOLO_TRY(o->opts->unpack(o->opts->arg, *gradient, x->unpacked));
    *gradient = x->unpacked;
    return KOLO_OK;
}

/* A push that is an update. It needs an answer. */
static void apply_push(owner *o, int w, const kolo_service_call *call, const float *gradient) {
    worker *x = &o->workers[w];
    x->delay = o->version - x->read_at;
    kolo_owner_apply(o, gradient, 1, w, call->clock);
    o->pushes[w]++;
    kolo_owner_observe(o, (kolo_parameters_event){.worker = w, .clock = call->clock});
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
        o->taken[w] = o->staleness != 0 ? kolo_owner_take(&x->push) : NULL;
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
    x->after_barrier = false;
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
    const float *gradient;
    const kolo_status status = find_gradient(o, x, call, &gradient);
    if (status != KOLO_OK) {
        o->reply(call, status, 0, NULL, 0);
        return;
    }
    adapt(o, w);
    take_choice(o, (uint32_t)call->key);
    if (o->leases) kolo_leases_acknowledge(o->leases, w);
    if (skips(o) && x->read_at < o->version) {
        kolo_owner_take_late(o, w, call, gradient);
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

/* Answers a request that was taken before, as a copy. */
static bool answer_again(owner *o, int w, kolo_service_call *call) {
    if (!o->again || w >= o->n_workers) return false;
    const worker *x = &o->workers[w];
    const uint32_t next = (uint32_t)call->key + 1, after = ((uint32_t)call->key | 1) + 1;
    if (call->kind == KOLO_OWNER_PUSH && call->clock + 1 == o->pushes[w]) {
        o->reply(call, KOLO_OK, x->delay, NULL, 0);
    } else if (call->kind == KOLO_OWNER_BARRIER && after == 2 * x->barriers) {
        o->reply(call, KOLO_OK, o->reported_flags, o->reported,
                 (size_t)o->n_workers * sizeof *o->reported);
    } else if (call->kind == KOLO_OWNER_LEASE && next == x->asked) {
        o->reply(call, KOLO_OK, x->number, &x->resume, x->number > 0 ? sizeof x->resume : 0);
    } else if (call->kind == KOLO_OWNER_JOIN && w >= o->n_first && !x->gone) {
        /* No barrier has ended without it: the end of leases is that of its first answer. */
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
    if (answer_again(o, w, call)) return;
    if (lacks_pushes(o, w, call)) {
        kolo_status status = KOLO_FAIL(KOLO_ERR_PEER, "the replica lacks pushes that its leader "
                                                      "has taken: the connection between the "
                                                      "servers was lost");
        o->reply(call, status, 0, NULL, 0);
    } else if (o->ends && call->kind != KOLO_OWNER_FINISH) {
        o->reply(call, kolo_owner_fail(o), 0, NULL, 0);
    } else if (!is_valid(o, w, call)) {
        kolo_status status = KOLO_FAIL(
            KOLO_ERR_ARG, "an invalid request: kind %u, clock %llu, %zu and %zu bytes", call->kind,
            (unsigned long long)call->clock, call->input_bytes, call->output_bytes);
        o->reply(call, status, 0, NULL, 0);
    } else if (call->kind == KOLO_OWNER_SUMMANDS) {
        kolo_owner_sums_take(o->sums, call);
        o->reply(call, KOLO_OK, 0, NULL, 0);
        go_on(o);
    } else if (call->kind == KOLO_OWNER_JOIN) {
        kolo_owner_join(o, w, call);
    } else if (call->kind == KOLO_OWNER_PART) {
        take_part(o, w, call);
    } else if (call->kind == KOLO_OWNER_STOP) {
        kolo_owner_stop(o, w, call);
    } else if (call->kind == KOLO_OWNER_PAUSE) {
        kolo_owner_pause(o, w, call);
    } else if (call->kind == KOLO_OWNER_PULL) {
        if (call->key != 0) kolo_owner_go_on_at(o, w, call->clock);
        o->workers[w].pull = call;
        answer_pull(o, w);
    } else if (call->kind == KOLO_OWNER_IDLE) {
        o->workers[w].idle = true;
        o->reply(call, KOLO_OK, 0, NULL, 0);
        go_on(o);
    } else if (call->kind == KOLO_OWNER_LEASE) {
        o->workers[w].lease = call;
        o->end = call->clock;
        kolo_owner_answer_lease(o, w);
    } else if (call->kind == KOLO_OWNER_STATE) {
        o->workers[w].state = call;
        answer_state(o, w);
    } else if (call->kind == KOLO_OWNER_FINISH) {
        o->reply(call, KOLO_OK, 0, NULL, 0);
        leave(o, w, false);
        go_on(o);
    } else if (call->kind == KOLO_OWNER_SUM) {
        o->reply(call, KOLO_OK, 0, o->barrier_sum, o->has.gradient.count * sizeof(float));
    } else if (call->kind == KOLO_OWNER_BARRIER) {
        o->workers[w].barrier = call;
        if (call->input_bytes > 0) kolo_owner_add(o, o->barrier_sum, &o->n_given, call->input, 1);
        go_on(o);
    } else if (call->kind == KOLO_OWNER_ASSIGN) {
        kolo_owner_assign(o, call);
    } else if (call->kind == KOLO_OWNER_CONFIGURE) {
        kolo_owner_configure(o, call);
    } else {
        push(o, w, call);
    }
}

/* Pushes that are kept until a step is complete have a gradient each; others are applied one after
 * the other. */
static bool has_own_unpacked(const owner *o, int w) { return w == 0 || o->opts->staleness == 0; }

static bool allocate_unpacked(owner *o, size_t bytes) {
    bool all = true;
    for (int w = 0; w < o->n_workers; w++) {
        float **unpacked = &o->workers[w].unpacked;
        *unpacked = has_own_unpacked(o, w) ? kolo_alloc(bytes) : o->workers[0].unpacked;
        all = all && *unpacked;
    }
    return all;
}

void kolo_parameters_owner_destroy(owner *o) {
    if (!o) return;
    pthread_cond_destroy(&o->all_gone);
    pthread_mutex_destroy(&o->mutex);
    if (!o->placed) kolo_free(o->values);
    kolo_free(o->state);
    if (!o->sum_shared) kolo_free(o->sum);
    kolo_free((void *)o->summands);
    kolo_free(o->late);
    kolo_free(o->barrier_sum);
    for (int w = 0; w < o->n_workers && o->workers; w++) {
        kolo_free(o->workers[w].staged);
        if (has_own_unpacked(o, w)) kolo_free(o->workers[w].unpacked);
    }
    kolo_free(o->workers);
    kolo_free(o->pushes);
    kolo_free(o->lost);
    kolo_free(o->reported);
    kolo_free(o->taken);
    kolo_owner_sums_destroy(o->sums);
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
    o->n_first = o->n_present = o->n_not_lost = workers;
    o->n_workers = (int)n;
    o->has = *has;
    if (!opts->unpack) o->has.pushed = has->gradient;
    o->staleness = opts->staleness;
    o->current = true;
    o->now_ns = kolo_now_ns;
    size_t bytes = (has->values.count + 1) * sizeof(float);
    size_t sum_bytes = (has->gradient.count + 1) * sizeof(float);
    o->values = kolo_alloc(bytes);
    o->state = kolo_alloc((has->state.count + 1) * sizeof(float));
    o->sum = opts->staleness == 0 ? kolo_alloc(sum_bytes) : NULL;
    o->workers = kolo_zalloc(n * sizeof *o->workers);
    o->pushes = kolo_zalloc(n * sizeof *o->pushes);
    o->lost = kolo_zalloc(n * sizeof *o->lost);
    o->reported = kolo_zalloc(n * sizeof *o->reported);
    o->taken = kolo_zalloc(n * sizeof *o->taken);
    o->summands = kolo_zalloc(2 * n * sizeof *o->summands);
    const bool keeps = skips(o) && !opts->discard;
    o->late = keeps ? kolo_alloc(n * sum_bytes) : NULL;
    o->barrier_sum = opts->sums ? kolo_zalloc(sum_bytes) : NULL;
    bool all = o->values && o->state && (o->sum || opts->staleness != 0) && (o->late || !keeps) &&
               (o->barrier_sum || !opts->sums) && o->summands;
    if (opts->leases && kolo_leases_create((int)n, opts->first_lease, &o->leases) != KOLO_OK) {
        all = false;
    }
    const bool chooses = opts->adapts && has->gradient.first == 0;
    if (chooses && kolo_adapt_create(workers, &o->adapt) != KOLO_OK) all = false;
    for (size_t w = (size_t)workers; w < n && o->workers; w++) o->workers[w].gone = true;
    if (o->workers && opts->unpack) all = allocate_unpacked(o, sum_bytes) && all;
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
    return kind == KOLO_OWNER_PULL      ? o->has.values.count * sizeof *o->values
           : kind == KOLO_OWNER_STATE   ? o->has.state.count * sizeof *o->state
           : kind == KOLO_OWNER_SUM     ? o->has.gradient.count * sizeof *o->barrier_sum
           : kind == KOLO_OWNER_BARRIER ? (size_t)o->n_workers * sizeof *o->lost
           : kind == KOLO_OWNER_LEASE   ? sizeof o->workers->resume
                                        : 0;
}

bool kolo_parameters_owner_fits(const owner *o, const kolo_service_call *call) {
    const bool sets = call->kind == KOLO_OWNER_ASSIGN || call->kind == KOLO_OWNER_CONFIGURE;
    return call->kind < KOLO_OWNER_KINDS && (!sets || kolo_owner_is_settable(o)) &&
           call->output_bytes == kolo_parameters_owner_room(o, call->kind);
}

void kolo_parameters_owner_lead(owner *o) {
    for (int w = 0; w < o->n_workers; w++) {
        worker *x = &o->workers[w];
        x->push = x->pull = x->state = x->barrier = x->lease = NULL;
        x->n_staged = 0;
    }
    o->n_given = 0; /* a barrier that has not ended begins again */
    o->again = true;
}

void kolo_parameters_owner_set_reply(owner *o, kolo_owner_reply *reply) { o->reply = reply; }

void kolo_parameters_owner_set_clock(owner *o, int64_t (*now_ns)(void)) { o->now_ns = now_ns; }

kolo_status kolo_parameters_owner_stage(owner *o, int w) {
    const size_t bytes = (o->has.pushed.count + 1) * sizeof *o->workers[w].staged;
    o->workers[w].staged = kolo_alloc(bytes);
    return o->workers[w].staged ? KOLO_OK : KOLO_NOMEM(bytes);
}

size_t kolo_parameters_owner_bytes(const owner *o) {
    return o->has.values.count * sizeof *o->values;
}

void kolo_parameters_owner_place(owner *o, void *memory) {
    if (!o->placed) kolo_free(o->values);
    o->placed = true;
    o->values = memory;
}

void kolo_parameters_owner_share_sum(owner *o, float *sum) {
    if (!o->sum_shared) kolo_free(o->sum);
    o->sum_shared = true;
    o->sum = sum;
}

void kolo_parameters_owner_load(owner *o, const float *all) {
    kolo_owner_set_values(o, all + o->has.values.first + o->has.state.first);
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
    return o->ends ? kolo_owner_fail(o) : KOLO_OK;
}

void kolo_parameters_owner_stats(owner *o, kolo_parameters_stats *stats) {
    pthread_mutex_lock(&o->mutex);
    *stats = o->stats;
    pthread_mutex_unlock(&o->mutex);
}
