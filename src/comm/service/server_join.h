#pragma once
/* Accepts the processes that join a service while it runs. */

#include "comm/join/handshake.h"
#include "kolo/service.h"

typedef struct kolo_joiners kolo_joiners;

/* The connection of one that has joined. */
typedef struct kolo_joined_client {
    int fd, number;
    kolo_seal_keys keys;
} kolo_joined_client;

/* Up to `most` processes may join, with the numbers from `first` on. `wake(arg)` is called after
 * each, in another thread. NOMEM; IO. */
kolo_status kolo_joiners_create(int first, int most, int64_t heartbeat_ms, void (*wake)(void *arg),
                                void *arg, kolo_joiners **joiners);
/* Starts to accept at the listeners (local, TCP; -1: none), which it takes over; `protection`: of
 * connections over TCP. IO. */
kolo_status kolo_joiners_start(kolo_joiners *joiners, int listeners[2], const kolo_key *key,
                               kolo_protection protection);
/* The next one that has joined; false: there is none. The caller clears the keys. */
bool kolo_joiners_take(kolo_joiners *joiners, kolo_joined_client *client);
/* Ends the threads: no process can join any longer. */
void kolo_joiners_stop(kolo_joiners *joiners);
/* Stops, and closes the listeners and the connections that were not taken. NULL is allowed. */
void kolo_joiners_destroy(kolo_joiners *joiners);
/* In a forked child: closes its copies of the descriptors. */
void kolo_joiners_abandon(kolo_joiners *joiners);
