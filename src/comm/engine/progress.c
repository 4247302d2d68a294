/* Who makes progress over a network: one thread, which sleeps until a peer says something.
 *
 * In shared memory the caller makes progress, between its kernels and in waits: data lies still
 * there until it is looked at, and looking is cheap. Over a network a link is idle whenever a
 * message that has come is not answered by the next one, and a kernel may run for longer than a
 * chunk is on its way; so the engine itself must run beside the kernels. That is what the thread
 * does: it sleeps on the transport's `events`, and runs the engine on what wakes it.
 *
 * A family of communicators has one thread, that of the whole group, which looks after all.
 *
 * One mutex, which callers of the public functions hold (KOLO_COMM_LOCK_SCOPE), makes communicator,
 * requests and transport belong to one thread at a time. A caller that waits would only be woken by
 * the thread, so it drives the engine itself and the thread rests: messages are then answered
 * without a change of threads. The mutex is not fair; the thread lets callers that want it go
 * first.
 *
 * Where some peers are in memory, which wakes nobody, the thread looks every POLL_NS while requests
 * are in flight. Heartbeats go out from here too, whatever the caller does: so it never sleeps for
 * long next to one. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "comm/engine/engine.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { POLL_NS = 200000, TICK_MOST_NS = 100000000, TICKS_OF_HEARTBEAT = 8 };

typedef struct kolo_progress_thread {
    pthread_t thread;
    pthread_mutex_t lock; /* of everything but `wanted` */
    pthread_cond_t work;  /* `driven` or `stop` has changed, or something is in flight */
    int wake;             /* an eventfd that ends the thread's sleep */
    int64_t tick_ns;      /* the longest sleep */
    bool driven, stop;
    bool resting;       /* in `work` */
    bool sleeping_long; /* with nothing in flight */
    _Atomic int wanted; /* callers that wait for the lock; no data hangs on it */
} kolo_progress_thread;

/* Sleeps on the transport and on `wake` (-1: none). */
static void sleep_on(const kolo_comm *comm, int wake, int64_t ns) {
    struct pollfd polls[2] = {{.fd = comm->transport->events, .events = POLLIN},
                              {.fd = wake, .events = POLLIN}};
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)ppoll(polls, 2, &time, NULL);
    uint64_t count;
    if (polls[1].revents) (void)!read(wake, &count, sizeof count);
}

/* Whether there is nothing to do but to sleep on the transport; the lock is held. */
static bool may_sleep(const kolo_comm *comm) {
    while (comm->parent) comm = comm->parent; /* whose transport moves all */
    kolo_transport *t = comm->transport;
    return !t->ops->arm || t->ops->arm(t);
}

static void lock_after_callers(kolo_progress_thread *p) {
    while (atomic_load_explicit(&p->wanted, memory_order_relaxed) > 0) sched_yield();
    pthread_mutex_lock(&p->lock);
}

static void rest(kolo_progress_thread *p) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += p->tick_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    p->resting = true;
    (void)pthread_cond_clockwait(&p->work, &p->lock, CLOCK_MONOTONIC, &until);
    p->resting = false;
}

/* One look at everything; what fails breaks the communicator, which the caller finds. */
static bool look(kolo_comm *comm) {
    bool moved = false;
    if (comm->broken != KOLO_OK) { /* the peers shall still hear why */
        (void)comm->transport->ops->progress(comm->transport, &moved);
        return false;
    }
    if (kolo_engine_progress(comm, &moved) == KOLO_OK && !moved && kolo_family_in_flight(comm)) {
        (void)kolo_family_watch(comm);
    }
    return moved;
}

static void *run(void *arg) {
    kolo_comm *comm = arg;
    kolo_progress_thread *p = comm->progress;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (p->driven) {
            rest(p);
            continue;
        }
        bool moved = look(comm), flight = kolo_family_in_flight(comm);
        bool sleep = !moved && may_sleep(comm);
        p->sleeping_long = sleep && !flight;
        pthread_mutex_unlock(&p->lock);
        if (sleep) {
            sleep_on(comm, p->wake, flight && comm->transport->no_wakeup ? POLL_NS : p->tick_ns);
        }
        lock_after_callers(p);
        p->sleeping_long = false;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* The thread takes no signal of the program. */
static int create_thread(kolo_comm *comm) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&comm->progress->thread, NULL, run, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void free_progress(kolo_comm *comm) {
    kolo_progress_thread *p = comm->progress;
    if (p->wake >= 0) close(p->wake);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    kolo_free(p);
    comm->progress = NULL;
}

int64_t kolo_progress_tick_ns(int64_t heartbeat_ms) {
    return kolo_min_i64(TICK_MOST_NS, kolo_ms_to_ns(heartbeat_ms) / TICKS_OF_HEARTBEAT);
}

kolo_status kolo_progress_start(kolo_comm *comm, int64_t heartbeat_ms) {
    if (comm->transport->events < 0) return KOLO_OK;
    kolo_progress_thread *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&p->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_cond_init(&p->work, NULL);
    comm->progress = p;
    p->tick_ns = kolo_progress_tick_ns(heartbeat_ms);
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = p->wake < 0 ? errno : create_thread(comm);
    if (error == 0) return KOLO_OK;
    free_progress(comm);
    return KOLO_FAIL(KOLO_ERR_IO, "the progress thread: %s", kolo_errno_text(error));
}

static void wake_up(kolo_progress_thread *p) {
    uint64_t one = 1;
    (void)!write(p->wake, &one, sizeof one);
    pthread_cond_signal(&p->work);
}

void kolo_progress_stop(kolo_comm *comm) {
    kolo_progress_thread *p = comm->progress;
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    wake_up(p);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    free_progress(comm);
}

kolo_comm *kolo_comm_enter(kolo_comm *comm) {
    kolo_progress_thread *p = comm->progress;
    if (!p) return comm;
    atomic_fetch_add_explicit(&p->wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_sub_explicit(&p->wanted, 1, memory_order_relaxed);
    return comm;
}

bool kolo_comm_enter_if_free(kolo_comm *comm) {
    return !comm->progress || pthread_mutex_trylock(&comm->progress->lock) == 0;
}

/* What was started meanwhile is the thread's to look after, unless its caller goes on to wait. */
void kolo_comm_leave(kolo_comm *const *comm) {
    kolo_progress_thread *p = (*comm)->progress;
    if (!p) return;
    bool look_after = kolo_family_in_flight(*comm) && !p->driven;
    if (look_after && p->resting) pthread_cond_signal(&p->work);
    if (look_after && p->sleeping_long && kolo_comm_whole(*comm)->transport->no_wakeup) wake_up(p);
    pthread_mutex_unlock(&p->lock);
}

void kolo_progress_drive(kolo_comm *comm, bool drive) {
    if (comm->progress) comm->progress->driven = drive;
}

void kolo_progress_sleep(kolo_comm *comm, int64_t ns) {
    kolo_progress_thread *p = comm->progress;
    bool sleep = may_sleep(comm);
    pthread_mutex_unlock(&p->lock);
    if (sleep) sleep_on(comm, -1, ns);
    (void)kolo_comm_enter(comm);
}
