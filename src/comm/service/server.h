#pragma once
/* The serving side of a service: its clients, and one thread that serves them. */

#include "comm/join/handshake.h"
#include "comm/transport/transport.h"
#include "kolo/service.h"

typedef struct kolo_server kolo_server;

/* Which clients connect where; `mapped` clients share memory through the transport. */
typedef struct kolo_server_place {
    kolo_transport *transport; /* NULL: no client's memory is mapped */
    const bool *local;         /* [size]: connects to the local listener, otherwise over TCP */
    const bool *mapped;        /* [size] */
    int size;                  /* ranks; clients that join later have the numbers after these */
} kolo_server_place;

/* Creates a server without clients. Options are resolved; `place` is copied. NOMEM; IO. */
kolo_status kolo_server_create(const kolo_service_opts *opts, const kolo_server_place *place,
                               kolo_server **server);
/* Adds the client of a rank and takes over the connection to it, also on failure, protected unless
 * `keys` is NULL. IO; NOMEM. */
kolo_status kolo_server_attach(kolo_server *s, int rank, int fd, const kolo_seal_keys *keys);
/* Waits for messages up to `timeout_ms` (-1: no limit) and processes them. */
void kolo_server_poll(kolo_server *server, int timeout_ms);

/* Adds the bytes exchanged with other hosts. Any thread. */
void kolo_server_traffic(kolo_server *server, uint64_t *sent, uint64_t *received);
/* Starts the thread, which first accepts all clients at the listeners (fd -1: none), which it takes
 * over. With `joins`, clients may connect there as long as it runs. What goes over TCP has that
 * protection. IO. */
kolo_status kolo_server_start(kolo_server *server, int local_listener, int tcp_listener,
                              const kolo_key *key, kolo_protection protection, int64_t deadline_ns);
/* Lets the thread call `completed`. Any thread; `server`: a kolo_server. */
void kolo_server_wake(void *server);
/* Ends the thread: nothing is served any longer. */
void kolo_server_stop(kolo_server *server);
/* The text of an error, which the clients get when the server is destroyed. */
void kolo_server_set_error(kolo_server *server, const char *text);
/* Stops the thread and closes the connections. NULL is allowed. */
void kolo_server_destroy(kolo_server *server);
/* In a forked child: closes its copies of the descriptors. */
void kolo_server_abandon(kolo_server *server);
