/* Threads of a service. */
#include "comm/service/thread.h"

#include "base/file.h"
#include "base/status.h"
#include "base/task.h"

kolo_status kolo_service_thread_start(kolo_service_thread *t, void *(*run)(void *arg), void *arg) {
    int error = kolo_thread_create(&t->thread, run, arg);
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
