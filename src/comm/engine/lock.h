#pragma once
/* The lock of a family, where a thread makes progress (progress_thread.c).
 *
 * One recursive mutex makes communicators, requests and transports belong to one thread at a time;
 * the public functions hold it. Without a progress thread there is no lock, and these functions do
 * nothing. */

#include "comm/engine/comm.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct kolo_comm_lock {
    pthread_mutex_t mutex; /* protects everything but `waiters` */
    pthread_cond_t work;   /* `driven` or `stop` has changed, or something is in flight */
    int wake_fd;           /* an eventfd that ends the thread's sleep */
    bool driven;           /* a waiting caller makes progress, so the thread pauses */
    bool stop;
    bool paused;         /* the thread waits for `work` */
    bool sleeping_idle;  /* the thread sleeps with nothing in flight */
    _Atomic int waiters; /* callers that wait for the mutex; orders no data */
} kolo_comm_lock;

/* NOMEM, IO. */
kolo_status kolo_comm_lock_create(kolo_comm_lock **lock);
void kolo_comm_lock_destroy(kolo_comm_lock *lock);
/* Ends the thread's sleep or pause. */
void kolo_comm_lock_wake(kolo_comm_lock *lock);

kolo_comm *kolo_comm_enter(kolo_comm *comm);
bool kolo_comm_enter_if_free(kolo_comm *comm);
void kolo_comm_leave(kolo_comm *const *comm);
/* Holds the lock until the end of the enclosing block. */
#define KOLO_COMM_LOCK_SCOPE(comm)                                                   \
    kolo_comm *const lock_scope_ __attribute__((cleanup(kolo_comm_leave), unused)) = \
        kolo_comm_enter(comm)
