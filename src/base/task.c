#include "base/task.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct kolo_task {
    pthread_t thread;
    kolo_status (*run)(void *arg);
    void *arg;
    kolo_status status;
    char *error;
    atomic_bool ended; /* set by the thread after all it writes, read by kolo_task_has_ended */
};

static void *run(void *arg) {
    kolo_task *t = arg;
    t->status = t->run(t->arg);
    if (t->status != KOLO_OK) t->error = kolo_strdup(kolo_last_error());
    atomic_store(&t->ended, true);
    return NULL;
}

int kolo_thread_create(pthread_t *thread, void *(*start)(void *arg), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, start, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void kolo_lock_take(kolo_lock *lock) { pthread_mutex_lock(&lock->mutex); }

void kolo_lock_release(kolo_lock *lock) { pthread_mutex_unlock(&lock->mutex); }

kolo_status kolo_task_start(kolo_status (*body)(void *arg), void *arg, const char *what,
                            kolo_task **task) {
    kolo_task *t = kolo_zalloc(sizeof *t);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->run = body;
    t->arg = arg;
    const int error = kolo_thread_create(&t->thread, run, t);
    if (!error) {
        *task = t;
        return KOLO_OK;
    }
    kolo_free(t);
    return KOLO_FAIL(KOLO_ERR_NOMEM, "cannot start the thread that %s: %s", what,
                     kolo_errno_text(error));
}

bool kolo_task_has_ended(const kolo_task *task) { return atomic_load(&task->ended); }

static void destroy(kolo_task *t) {
    kolo_free(t->error);
    kolo_free(t);
}

kolo_status kolo_task_join(kolo_task *task) {
    if (!task) return KOLO_OK;
    pthread_join(task->thread, NULL);
    kolo_status status = task->status;
    if (status != KOLO_OK) {
        status = KOLO_FAIL(status, "%s", task->error ? task->error : "out of memory");
    }
    destroy(task);
    return status;
}

void kolo_task_destroy(kolo_task *task) {
    if (!task) return;
    pthread_join(task->thread, NULL);
    destroy(task);
}
