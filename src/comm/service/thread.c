/* Threads of a service. */
#include "comm/service/thread.h"

#include "base/file.h"
#include "base/status.h"

#include <signal.h>

kolo_status kolo_service_thread_start(kolo_service_thread *t, void *(*run)(void *arg), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&t->thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "the thread of a service: %s", kolo_errno_text(error));
    }
    t->started = true;
    return KOLO_OK;
}

void kolo_service_thread_join(kolo_service_thread *t) {
    if (t->started) pthread_join(t->thread, NULL);
    t->started = false;
}
