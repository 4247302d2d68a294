#pragma once
/* Accepts and authenticates connections.
 *
 *     server -> client   greeting: magic, nonce
 *     client -> server   join: magic, nonce, hello, proof over it
 *     server -> client   answer: magic, status, bytes, body, proof over all of it
 *
 * All messages have a fixed or bounded size. Unauthenticated connections are kept in a bounded
 * pending list. A connection that is idle for too long, violates the protocol or cannot prove
 * knowledge of the job's secret is rejected without affecting the others; the last reject reason is
 * kept for the error message. */

#include "comm/join/authentication.h"
#include "comm/transport/socket.h"

enum {
    KOLO_SOCKET_NAME_BYTES = 40,
    KOLO_LISTENER_PENDING = 64,        /* unauthenticated connections */
    KOLO_HANDSHAKE_BODY_MAX = 1 << 18, /* bytes of an answer's body */
};

/* Sent by a rank to introduce itself. */
typedef struct kolo_hello {
    int32_t rank, world;
    uint32_t generation;               /* of the group to join */
    int32_t transport;                 /* kolo_transport_choice */
    uint64_t host;                     /* equal if ranks can share memory */
    char name[KOLO_SOCKET_NAME_BYTES]; /* of its local socket */
    char address[KOLO_ADDRESS_BYTES];  /* of its TCP listener; "": the address of rank 0 */
    int32_t port;
    int32_t processors;      /* in its affinity mask */
    int32_t max_in_flight;   /* see kolo_comm_opts */
    uint32_t protection;     /* kolo_protection */
    int32_t connections;     /* kolo_connections; that of rank 0 counts */
    int32_t algorithm;       /* kolo_algorithm */
    uint64_t processors_key; /* equal if the masks are */
} kolo_hello;

/* An authenticated connection. */
typedef struct kolo_member {
    int fd;
    kolo_hello hello;
    kolo_nonces nonces;
} kolo_member;

typedef struct kolo_listener kolo_listener;

/* `fd` is a listening socket, owned by the caller. `local`: accepts only connections of this user.
 * NOMEM. */
kolo_status kolo_listener_create(int fd, const kolo_key *key, bool local, kolo_listener **listener);
/* Adds a descriptor that kolo_listener_accept polls too: PEER with *lost -1 when it is readable. */
void kolo_listener_watch(kolo_listener *listener, int fd);
void kolo_listener_destroy(kolo_listener *listener);
/* In a forked child: closes its copies of the connections. */
void kolo_listener_abandon(const kolo_listener *listener);
/* Waits for the next authenticated connection, whose `fd` the caller then owns. Also polls the
 * connections of `members` (fd -1: none), which are idle unless there is an error: PEER with
 * `*lost` when one is closed or readable. TIMEOUT; IO, also if no descriptor is left. */
kolo_status kolo_listener_accept(kolo_listener *listener, const kolo_member *members, int n_members,
                                 int64_t deadline_ns, kolo_member *member, int *lost);
/* "; 3 connections were rejected, the last because ...", or "". */
const char *kolo_listener_reject_reason(const kolo_listener *listener);

/* The client's side, up to sending the join. PEER if the connection is closed, FORMAT if the server
 * is not a kolo rank. */
kolo_status kolo_handshake_connect(int fd, const kolo_key *key, const kolo_hello *hello,
                                   int64_t deadline_ns, kolo_nonces *nonces);

/* Sends an authenticated message, with a descriptor if `passed` is not NULL. If `status` is an
 * error, the body is its text. */
kolo_status kolo_handshake_send(int fd, const kolo_key *key, const char *label,
                                const kolo_nonces *nonces, kolo_status status, const void *body,
                                size_t bytes, const int *passed, int64_t deadline_ns);
/* Receives an authenticated message with a body of exactly `bytes`. An error sent by the other side
 * is returned as this call's own. PEER if the proof is wrong. */
kolo_status kolo_handshake_recv(int fd, const kolo_key *key, const char *label,
                                const kolo_nonces *nonces, void *body, size_t bytes, int *passed,
                                int64_t deadline_ns);
/* After an error of the two functions above: states the likely causes if the other side has closed
 * the connection without an answer. Returns `status`. */
kolo_status kolo_handshake_explain(int fd, kolo_status status);
/* Both sides of a connection agree on the keys by which its data is protected from now on; without
 * `protection` there are none. Blocks. Errors as above. */
kolo_status kolo_handshake_keys(int fd, const kolo_key *key, const kolo_nonces *nonces, bool server,
                                kolo_protection protection, int64_t deadline_ns,
                                kolo_seal_keys *keys);
