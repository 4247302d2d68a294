#pragma once
/* The requesting side of a service: a connection to each server.
 *
 * One thread at a time *drives* the connections: a caller that waits, or, while requests are in
 * flight and no caller waits, a thread of the library. The driver owns the state of connections;
 * the mutex protects only who drives, which requests were started, and which are complete. No
 * system call that concerns a connection is made while it is held. */

#include "comm/engine/activity.h"
#include "comm/transport/seal.h"
#include "comm/transport/transport.h"
#include "kolo/service.h"

typedef struct kolo_client kolo_client;

/* Creates a client without servers. `transport`: of the group; `size`: its ranks; `activity`: of
 * this rank, borrowed. NOMEM; IO. */
kolo_status kolo_client_create(kolo_transport *transport, int size, int64_t timeout_ms,
                               kolo_activity *activity, kolo_client **client);
/* Adds a server and takes over the connection to it, also on failure, protected unless `keys` is
 * NULL. `mapped`: it shares memory with this rank through the transport. IO; NOMEM. */
kolo_status kolo_client_attach(kolo_client *client, int server, int fd, bool mapped,
                               const kolo_seal_keys *keys);
/* Adds a server that is lost already. */
void kolo_client_attach_lost(kolo_client *client, int server);
/* Whether a server shares memory with this rank. */
bool kolo_client_maps(const kolo_client *client, int server);
/* Before the first request: calls `completed` whenever requests are complete, from any thread. */
void kolo_client_set_completed(kolo_client *client, void (*completed)(void *arg), void *arg);
/* Adds the bytes exchanged with other hosts. Any thread. */
void kolo_client_traffic(kolo_client *client, uint64_t *sent, uint64_t *received);
/* See kolo_service_is_lost. */
bool kolo_client_is_lost(kolo_client *client, int server);
/* The text of an error, which the servers get when this client is destroyed. */
void kolo_client_set_error(kolo_client *client, const char *text);
/* NULL is allowed. */
void kolo_client_destroy(kolo_client *client);
/* In a forked child: closes its copies of the descriptors. */
void kolo_client_abandon(kolo_client *client);

/* See kolo_service_start; `waits`: the caller waits next, so the thread need not make progress. */
kolo_status kolo_client_start(kolo_client *c, kolo_service_request *q, bool waits);
kolo_status kolo_client_wait(kolo_client *c, kolo_service_request *q, int64_t timeout_ms);
/* See kolo_service_hold. */
void kolo_client_hold(kolo_client *c);
void kolo_client_release(kolo_client *c);
void kolo_client_release_sent(kolo_client *c);
/* See kolo_service_report_progress, kolo_service_await and kolo_service_has_progress. */
void kolo_client_report_progress(kolo_client *c);
kolo_status kolo_client_await(kolo_client *c, kolo_service_request *q, int64_t timeout_ms);
bool kolo_client_has_progress(kolo_client *c, int server, int64_t timeout_ms);
bool kolo_client_test(kolo_client *client, const kolo_service_request *request);
