/* Communicators in a forked child: the list of all that this process has, and the fork handlers.
 * The list is process-wide, as a fork is. */
#include "comm/engine/forked.h"

#include "comm/engine/lock.h"

#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex =
    PTHREAD_MUTEX_INITIALIZER; /* protects `first`, registered_next, services */
static kolo_comm *first;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

/* A lock may have been held by a thread that does not exist in the child. */
static void make_inert(kolo_comm *comm) {
    comm->inherited = true;
    comm->lock = NULL;
    comm->n_flight = 0;
    comm->n_messages = 0;
    comm->broken = KOLO_ERR_ARG;
    snprintf(comm->broken_text, sizeof comm->broken_text,
             "the communicator of rank %d belongs to the parent process: a forked child cannot use "
             "it",
             comm->rank);
    for (kolo_comm *c = comm->children; c; c = c->sibling) make_inert(c);
}

static void in_child(void) {
    for (kolo_comm *c = first; c; c = c->registered_next) {
        if (c->lock) close(c->lock->wake_fd);
        for (kolo_service_link *l = c->services; l; l = l->next) l->abandon(l);
        if (c->transport->ops->abandon) c->transport->ops->abandon(c->transport);
        atomic_store_explicit(&c->user, 0, memory_order_relaxed);
        make_inert(c);
    }
    unlock();
}

static void install(void) { (void)pthread_atfork(lock, unlock, in_child); }

void kolo_fork_register(kolo_comm *whole) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    lock();
    whole->registered_next = first;
    first = whole;
    unlock();
}

void kolo_fork_forget(kolo_comm *whole) {
    lock();
    kolo_comm **at = &first;
    while (*at && *at != whole) at = &(*at)->registered_next;
    if (*at) *at = whole->registered_next;
    unlock();
}

void kolo_fork_add_service(kolo_comm *whole, kolo_service_link *service) {
    lock();
    service->next = whole->services;
    whole->services = service;
    unlock();
}

void kolo_fork_remove_service(kolo_comm *whole, kolo_service_link *service) {
    lock();
    kolo_service_link **at = &whole->services;
    while (*at && *at != service) at = &(*at)->next;
    if (*at) *at = service->next;
    unlock();
}
