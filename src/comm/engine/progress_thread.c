/* The progress thread: runs the engine beside the program's kernels.
 *
 * In shared memory the caller makes progress, between its kernels and in waits, unless the option
 * progress_thread asks for a thread: then it polls, as described below. Over a network a
 * link stays idle from the arrival of a message until the next one is sent, and a kernel may run
 * for longer than a chunk takes to transfer. So a thread sleeps on the transport's `events` and
 * runs the engine when they wake it. It serves a whole family of communicators.
 *
 * A caller that waits would only be woken by the thread. So it drives the engine itself while the
 * thread pauses: messages are then answered without a context switch.
 *
 * Where some peers are in memory, which wakes no thread, it polls every POLL_NS while requests
 * are in flight. It also sends the heartbeats, whatever the caller does, so it never sleeps for
 * longer than a fraction of one. */
#define _GNU_SOURCE
#include "comm/engine/progress_thread.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/task.h"
#include "comm/engine/engine.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/engine/watch.h"

#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

enum { POLL_NS = 200000, TICK_MOST_NS = 100000000, TICKS_OF_HEARTBEAT = 8 };

typedef struct kolo_progress_thread {
    pthread_t thread;
    int64_t tick_ns; /* the longest sleep */
} kolo_progress_thread;

/* Sleeps until the transport or `wake_fd` (-1: none) has an event. */
static void sleep_on(const kolo_comm *comm, int wake_fd, int64_t ns) {
    struct pollfd polls[2] = {{.fd = comm->transport->events, .events = POLLIN},
                              {.fd = wake_fd, .events = POLLIN}};
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)ppoll(polls, 2, &time, NULL);
    uint64_t count;
    if (polls[1].revents) (void)!read(wake_fd, &count, sizeof count);
}

/* Whether there is nothing to do but to sleep; the lock is held. */
static bool may_sleep(const kolo_comm *comm) {
    while (comm->parent) comm = comm->parent; /* its transport receives for the whole family */
    kolo_transport *t = comm->transport;
    return !t->ops->arm || t->ops->arm(t);
}

static void lock_after_callers(kolo_comm_lock *l) {
    while (atomic_load_explicit(&l->waiters, memory_order_relaxed) > 0) sched_yield();
    pthread_mutex_lock(&l->mutex);
}

static void pause_thread(kolo_comm_lock *l, int64_t tick_ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += tick_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    l->paused = true;
    (void)pthread_cond_clockwait(&l->work, &l->mutex, CLOCK_MONOTONIC, &until);
    l->paused = false;
}

/* One round of progress. A failure breaks communicators, which the caller detects; the reason is
 * still delivered to the peers. */
static bool poll_once(kolo_comm *comm) {
    bool moved;
    (void)kolo_engine_progress(comm, &moved);
    bool flight = kolo_family_in_flight(comm);
    if (!moved && flight) (void)kolo_family_watch(comm);
    return moved && (comm->broken == KOLO_OK || flight);
}

static void *run(void *arg) {
    kolo_comm *comm = arg;
    kolo_comm_lock *l = comm->lock;
    int64_t tick_ns = comm->progress->tick_ns;
    pthread_mutex_lock(&l->mutex);
    while (!l->stop) {
        if (l->driven) {
            pause_thread(l, tick_ns);
            continue;
        }
        bool moved = poll_once(comm), flight = kolo_family_in_flight(comm);
        bool sleep = !moved && may_sleep(comm);
        l->sleeping_idle = sleep && !flight;
        pthread_mutex_unlock(&l->mutex);
        if (sleep) {
            sleep_on(comm, l->wake_fd, flight && comm->transport->no_wakeup ? POLL_NS : tick_ns);
        }
        lock_after_callers(l);
        l->sleeping_idle = false;
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

static void free_progress(kolo_comm *comm) {
    if (comm->lock) kolo_comm_lock_destroy(comm->lock);
    kolo_free(comm->progress);
    comm->lock = NULL;
    comm->progress = NULL;
}

int64_t kolo_progress_tick_ns(int64_t heartbeat_ms) {
    return kolo_min_i64(TICK_MOST_NS, kolo_ms_to_ns(heartbeat_ms) / TICKS_OF_HEARTBEAT);
}

kolo_status kolo_progress_start(kolo_comm *comm, const kolo_comm_opts *opts) {
    bool wanted = opts->progress_thread && comm->size > 1;
    if (comm->transport->events < 0 && !wanted) return KOLO_OK;
    comm->progress = kolo_zalloc(sizeof *comm->progress);
    if (!comm->progress) return KOLO_NOMEM(sizeof *comm->progress);
    comm->progress->tick_ns = kolo_progress_tick_ns(opts->heartbeat_ms);
    kolo_status status = kolo_comm_lock_create(&comm->lock);
    int error = status == KOLO_OK ? kolo_thread_create(&comm->progress->thread, run, comm) : 0;
    if (error != 0) {
        status = KOLO_FAIL(KOLO_ERR_IO, "the progress thread: %s", kolo_errno_text(error));
    }
    if (status != KOLO_OK) free_progress(comm);
    return status;
}

void kolo_progress_stop(kolo_comm *comm) {
    kolo_comm_lock *l = comm->lock;
    if (!l) return;
    if (comm->progress) {
        pthread_mutex_lock(&l->mutex);
        l->stop = true;
        kolo_comm_lock_wake(l);
        pthread_mutex_unlock(&l->mutex);
        pthread_join(comm->progress->thread, NULL);
    }
    free_progress(comm);
}

bool kolo_progress_has_thread(const kolo_comm *comm) {
    return comm->lock || comm->backend; /* MPI's library, or the network, does */
}

bool kolo_progress_drive(kolo_comm *comm) {
    if (!comm->lock || comm->lock->driven) return false;
    comm->lock->driven = true;
    return true;
}

void kolo_progress_end_drive(kolo_comm *comm, bool only) {
    if (!only) return;
    comm->lock->driven = false;
    kolo_comm_wake_followers(comm);
}

void kolo_progress_let_in(kolo_comm *comm, void (*meanwhile)(int64_t ns), int64_t ns) {
    kolo_comm_lock *l = comm->lock;
    bool release = kolo_comm_may_release(comm);
    if (release) kolo_comm_unlock(comm);
    meanwhile(ns);
    if (!release) return;
    lock_after_callers(l);
    l->depth = 1;
}

void kolo_progress_sleep(kolo_comm *comm, int64_t ns) {
    bool sleep = may_sleep(comm);
    bool release = kolo_comm_may_release(comm);
    if (release) kolo_comm_unlock(comm);
    if (sleep) sleep_on(comm, -1, ns);
    if (release) kolo_comm_relock(comm);
}
