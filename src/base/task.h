#pragma once
/* Threads of the library, which take no signals: those are for the threads of the program; and a
 * lock between threads. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <pthread.h>
#include <stdbool.h>

/* pthread_create with all signals blocked in the thread; returns its error number. */
KOLO_SHARED int kolo_thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg);

/* ---- a lock between threads, for sources without <pthread.h> ---- */

typedef struct kolo_lock {
    pthread_mutex_t mutex;
} kolo_lock;
#define KOLO_LOCK_INIT \
    { PTHREAD_MUTEX_INITIALIZER }

/* Waits until no other thread has it; a thread must not take it twice. */
KOLO_SHARED void kolo_lock_take(kolo_lock *lock);
KOLO_SHARED void kolo_lock_release(kolo_lock *lock);

/* ---- a function that runs in a thread of its own, with its status ---- */

typedef struct kolo_task kolo_task;

/* Starts run(arg). `what` it is, "writes checkpoints", is for the error. NOMEM: no thread. */
KOLO_SHARED kolo_status kolo_task_start(kolo_status (*run)(void *arg), void *arg, const char *what,
                                        kolo_task **task);
/* Whether it has ended, so that joining does not wait. */
KOLO_SHARED bool kolo_task_has_ended(const kolo_task *task);
/* Waits for its end and frees it. Returns its status, with its error; OK for NULL. */
KOLO_SHARED kolo_status kolo_task_join(kolo_task *task);
/* The same where another error is returned, which it leaves in place. */
KOLO_SHARED void kolo_task_destroy(kolo_task *task);
