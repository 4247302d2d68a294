#pragma once
/* The lock of a family, where a thread makes progress (progress_thread.c).
 *
 * One recursive mutex makes communicators, requests and transports belong to one thread at a time;
 * the public functions hold it. Without a progress thread there is no lock, and these functions do
 * nothing.
 *
 * A program may use a family in one thread at a time. Functions that communicate claim the family
 * while they run, and fail if another thread of the program has claimed it. Since each rank could
 * refuse another one of two calls, and the others would be matched with each other, this breaks the
 * communicator.
 *
 * After kolo_comm_allow_threads, several threads may use it: nothing is claimed, and a thread that
 * waits releases the lock between its polls. One waiting thread makes progress (`driven`), the
 * others sleep until it reports a completion or leaves. */

#include "comm/engine/comm.h"

#include <pthread.h>
#include <stdatomic.h>

#define KOLO_TWO_THREADS                                                         \
    "two threads use the communicator of rank %d at once: use one communicator " \
    "per thread, or a mutex around all calls"

typedef struct kolo_comm_lock {
    pthread_mutex_t mutex; /* protects everything but `waiters` and `inside` */
    pthread_cond_t work;   /* `driven` or `stop` has changed, or something is in flight */
    int wake_fd;           /* an eventfd that ends the thread's sleep */
    pthread_cond_t moved;  /* something may be complete, or `driven` has changed; for followers */
    int followers;         /* callers that wait while another one makes progress */
    int woken;             /* followers that have been woken and wait for the mutex */
    int depth;             /* of nested calls of the caller that holds the mutex */
    bool shared;           /* several threads of the program use the family */
    bool driven;           /* a waiting caller makes progress, so the thread pauses */
    bool stop;
    bool paused;         /* the thread waits for `work` */
    bool sleeping_idle;  /* the thread sleeps with nothing in flight */
    _Atomic int waiters; /* callers that wait for the mutex; orders no data */
    _Atomic int inside;  /* calls in progress where several threads use the family */
    long asking;         /* the thread that calls `interrupted`; 0: none */
} kolo_comm_lock;

/* NOMEM, IO. */
kolo_status kolo_comm_lock_create(kolo_comm_lock **lock);
void kolo_comm_lock_destroy(kolo_comm_lock *lock);
/* Ends the thread's sleep or pause. */
void kolo_comm_lock_wake(kolo_comm_lock *lock);

/* Whether the caller, which holds the lock, may release it in a wait: not in nested calls, whose
 * callers rely on it. */
bool kolo_comm_may_release(const kolo_comm *comm);
/* Releases the lock, which the caller may, and takes it again. */
void kolo_comm_unlock(kolo_comm *comm);
void kolo_comm_relock(kolo_comm *comm);

/* Wakes the followers. The lock is held. */
void kolo_comm_wake_followers(const kolo_comm *comm);
/* Waits for `moved`, for a moment at most. The lock is held, and released meanwhile. */
void kolo_comm_follow(kolo_comm *comm);
/* Whether callers wait for the lock of a family that several threads use. */
bool kolo_comm_wanted(const kolo_comm *comm);

/* Calls, which may be nested, take the lock, wait for it or not, and release it. */
void kolo_comm_lock_take(kolo_comm *comm);
bool kolo_comm_enter_if_free(kolo_comm *comm);
void kolo_comm_lock_give(kolo_comm *comm);
static inline kolo_comm *kolo_comm_enter(kolo_comm *comm) {
    if (comm->lock) kolo_comm_lock_take(comm);
    return comm;
}
static inline void kolo_comm_leave(kolo_comm *const *comm) {
    if ((*comm)->lock) kolo_comm_lock_give(*comm);
}
/* NULL, with an error text, if another thread of the program is in a call. Then the call of that
 * thread, or the next one, breaks the communicator (kolo_comm_check). */
kolo_comm *kolo_comm_claim(kolo_comm *comm);
void kolo_comm_release(kolo_comm *const *comm);
/* Claims the family until the end of the enclosing block, or returns ARG from the function. */
#define KOLO_COMM_CLAIM(comm)                                                     \
    kolo_comm *const claim_ __attribute__((cleanup(kolo_comm_release), unused)) = \
        kolo_comm_claim(comm);                                                    \
    if (!claim_) return KOLO_ERR_ARG
/* Holds the lock until the end of the enclosing block. */
#define KOLO_COMM_LOCK_SCOPE(comm)                                                   \
    kolo_comm *const lock_scope_ __attribute__((cleanup(kolo_comm_leave), unused)) = \
        kolo_comm_enter(comm)
