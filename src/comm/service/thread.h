#pragma once
/* A thread of a service, which receives no signals of the program. */

#include "kolo/status.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct kolo_service_thread {
    pthread_t thread;
    bool started;
} kolo_service_thread;

/* IO. */
kolo_status kolo_service_thread_start(kolo_service_thread *t, void *(*run)(void *arg), void *arg);
/* Waits for its end; nothing if it was not started. */
void kolo_service_thread_join(kolo_service_thread *t);
