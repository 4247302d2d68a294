/* The lock of a family of communicators. The mutex is not fair: the progress thread lets callers
 * that wait for it go first. */
#define _GNU_SOURCE
#include "comm/engine/lock.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/family.h"
#include "kolo/embed.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>
#include <time.h>
#include <unistd.h>

enum { FOLLOW_NS = 20000000 }; /* until a follower checks its deadline and for interruptions */

kolo_status kolo_comm_lock_create(kolo_comm_lock **lock) {
    kolo_comm_lock *l = kolo_zalloc(sizeof *l);
    if (!l) return KOLO_NOMEM(sizeof *l);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->wake_fd < 0) {
        int error = errno;
        kolo_free(l);
        return KOLO_FAIL(KOLO_ERR_IO, "the progress thread: %s", kolo_errno_text(error));
    }
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&l->mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->moved, NULL);
    *lock = l;
    return KOLO_OK;
}

void kolo_comm_lock_destroy(kolo_comm_lock *lock) {
    close(lock->wake_fd);
    pthread_mutex_destroy(&lock->mutex);
    pthread_cond_destroy(&lock->work);
    pthread_cond_destroy(&lock->moved);
    kolo_free(lock);
}

void kolo_comm_lock_wake(kolo_comm_lock *lock) {
    uint64_t one = 1;
    (void)!write(lock->wake_fd, &one, sizeof one);
    pthread_cond_signal(&lock->work);
}

void kolo_comm_wake_followers(const kolo_comm *comm) {
    kolo_comm_lock *l = comm->lock;
    if (!l || l->followers == 0) return;
    l->woken = l->followers;
    pthread_cond_broadcast(&l->moved);
}

void kolo_comm_follow(kolo_comm *comm) {
    kolo_comm_lock *l = comm->lock;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += FOLLOW_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    l->followers++;
    l->depth = 0;
    (void)pthread_cond_clockwait(&l->moved, &l->mutex, CLOCK_MONOTONIC, &until);
    l->depth = 1;
    l->followers--;
    if (l->woken > 0) l->woken--;
}

static bool shared(const kolo_comm *comm) { return comm->lock && comm->lock->shared; }

bool kolo_comm_wanted(const kolo_comm *comm) {
    if (!shared(comm) || comm->lock->depth > 1) return false;
    return comm->lock->woken > 0 ||
           atomic_load_explicit(&comm->lock->waiters, memory_order_relaxed) > 0;
}

static void lock_mutex(kolo_comm_lock *l) {
    atomic_fetch_add_explicit(&l->waiters, 1, memory_order_relaxed);
    pthread_mutex_lock(&l->mutex);
    atomic_fetch_sub_explicit(&l->waiters, 1, memory_order_relaxed);
}

bool kolo_comm_may_release(const kolo_comm *comm) { return comm->lock && comm->lock->depth == 1; }

void kolo_comm_unlock(kolo_comm *comm) {
    comm->lock->depth = 0;
    pthread_mutex_unlock(&comm->lock->mutex);
}

void kolo_comm_relock(kolo_comm *comm) {
    lock_mutex(comm->lock);
    comm->lock->depth = 1;
}

static void begin_call(kolo_comm_lock *l) {
    if (l->depth++ == 0) atomic_fetch_add_explicit(&l->inside, 1, memory_order_relaxed);
}

void kolo_comm_lock_take(kolo_comm *comm) {
    lock_mutex(comm->lock);
    begin_call(comm->lock);
}

bool kolo_comm_enter_if_free(kolo_comm *comm) {
    if (!comm->lock) return true;
    if (pthread_mutex_trylock(&comm->lock->mutex) != 0) return false;
    begin_call(comm->lock);
    return true;
}

/* Requests that were started meanwhile need the thread, unless the caller goes on to wait. */
void kolo_comm_lock_give(kolo_comm *comm) {
    kolo_comm_lock *l = comm->lock;
    bool needs_thread = kolo_family_in_flight(comm) && !l->driven;
    if (needs_thread && l->paused) pthread_cond_signal(&l->work);
    if (needs_thread && l->sleeping_idle && kolo_comm_whole(comm)->transport->no_wakeup) {
        kolo_comm_lock_wake(l);
    }
    if (--l->depth == 0) atomic_fetch_sub_explicit(&l->inside, 1, memory_order_relaxed);
    pthread_mutex_unlock(&l->mutex);
}

/* Makes a thread the user of the family, if no other one is. A process of one thread has no other
 * one, and needs no atomic exchange, which takes longer than the rest of a call's checks. */
static bool take_use(kolo_comm *whole, uintptr_t own) {
    uintptr_t user = atomic_load_explicit(&whole->user, memory_order_relaxed);
    if (user == own) return true;
    if (user == 0 && __libc_single_threaded) {
        atomic_store_explicit(&whole->user, own, memory_order_relaxed);
        return true;
    }
    user = 0;
    return atomic_compare_exchange_strong_explicit(&whole->user, &user, own, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Whether a function of the program, which this thread has called in its progress or as a hook,
 * uses the communicator: it would make progress inside of progress, or call the hook again. */
static bool calls_back(kolo_comm *comm) {
    kolo_comm *whole = kolo_comm_whole(comm);
    uintptr_t own = (uintptr_t)pthread_self();
    if (atomic_load_explicit(&whole->progressing, memory_order_relaxed) != own) return false;
    (void)KOLO_FAIL(
        KOLO_ERR_ARG,
        "the function of an operation, or a hook, uses the communicator of rank %d that "
        "has called it",
        whole->rank);
    return true;
}

kolo_comm *kolo_comm_claim(kolo_comm *comm) {
    if (!comm) {
        (void)KOLO_FAIL(KOLO_ERR_ARG, "the communicator, or the request, is NULL");
        return NULL;
    }
    if (calls_back(comm)) return NULL;
    if (shared(comm)) {
        atomic_fetch_add_explicit(&comm->lock->inside, 1, memory_order_relaxed);
        return comm;
    }
    kolo_comm *whole = kolo_comm_whole(comm);
    if (!take_use(whole, (uintptr_t)pthread_self())) {
        atomic_store_explicit(&whole->misused, true, memory_order_relaxed);
        (void)KOLO_FAIL(KOLO_ERR_ARG, KOLO_TWO_THREADS, whole->rank);
        return NULL;
    }
    whole->claims++;
    return comm;
}

void kolo_comm_release(kolo_comm *const *comm) {
    if (!*comm) return;
    if (shared(*comm)) { /* from here on the communicator may be destroyed */
        atomic_fetch_sub_explicit(&(*comm)->lock->inside, 1, memory_order_release);
        return;
    }
    kolo_comm *whole = kolo_comm_whole(*comm);
    if (--whole->claims == 0) atomic_store_explicit(&whole->user, 0, memory_order_release);
}

kolo_status kolo_comm_allow_threads(kolo_comm *comm) {
    if (!comm || comm->parent || (comm->size > 1 && !comm->lock)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "kolo_comm_allow_threads: needs a whole group that was "
                                       "created with progress_thread");
    }
    if (!comm->lock) KOLO_TRY(kolo_comm_lock_create(&comm->lock)); /* a group of one */
    comm->lock->shared = true;
    return KOLO_OK;
}
