#pragma once
/* The door of a group: connections come in, and those that prove that they know the secret get
 * through.
 *
 *     server -> client   greeting: magic, nonce
 *     client -> server   join: magic, nonce, hello, proof over it
 *     server -> client   answer: magic, status, bytes, body, proof over all of it
 *
 * All messages have a fixed or bounded size. A connection that is silent for too long, says
 * something else or proves nothing is dropped, without disturbing the others; the reason of the
 * latest drop is kept for the error text if the group does not come together. */

#include "comm/join/authentication.h"
#include "comm/transport/socket.h"

enum {
    KOLO_SOCKET_NAME_BYTES = 40,
    KOLO_LISTENER_PENDING = 64,       /* connections that have not proven anything yet */
    KOLO_HANDSHAKE_BODY_MAX = 1 << 18 /* bytes of an answer's body */
};

/* What a rank says of itself. */
typedef struct kolo_hello {
    int32_t rank, world;
    uint32_t generation;               /* of the group that it means */
    int32_t transport;                 /* kolo_transport_choice */
    uint64_t host;                     /* equal where ranks can share memory */
    char name[KOLO_SOCKET_NAME_BYTES]; /* of its local socket */
    char address[KOLO_ADDRESS_BYTES];  /* where it can be reached; "": where rank 0 was found */
    int32_t port;
    int32_t processors;      /* that it may run on */
    uint64_t processors_key; /* equal where they are the same ones */
} kolo_hello;

/* A connection that has got through. */
typedef struct kolo_member {
    int fd;
    kolo_hello hello;
    kolo_nonces nonces;
} kolo_member;

typedef struct kolo_listener kolo_listener;

/* `listener` stays the caller's. `local`: only connections of the own user. NOMEM. */
kolo_status kolo_listener_create(int fd, const kolo_key *key, bool local, kolo_listener **listener);
/* A descriptor that kolo_listener_accept watches too: PEER with *lost -1 when it is readable. */
void kolo_listener_watch(kolo_listener *listener, int fd);
void kolo_listener_destroy(kolo_listener *listener);
/* The next one that gets through; its `fd` is the caller's. Meanwhile watches the connections of
 * those that are through already (fd -1: none), which say nothing while all is well: PEER with
 * `*lost` when one is closed or says something. TIMEOUT; IO: also when no descriptor is left. */
kolo_status kolo_listener_accept(kolo_listener *listener, const kolo_member *members, int n_members,
                                 int64_t deadline_ns, kolo_member *member, int *lost);
/* ", 3 connections were turned away, the last because ..." or "". */
const char *kolo_listener_reject_reason(const kolo_listener *listener);

/* The client's side, up to sending the join: PEER when closed, FORMAT when it is no kolo at all. */
kolo_status kolo_handshake_connect(int fd, const kolo_key *key, const kolo_hello *hello,
                                   int64_t deadline_ns, kolo_nonces *nonces);

/* A message of either side with its proof, and a descriptor if `passed` is not NULL. `status` is
 * the sender's; the body of a failure is its text. */
kolo_status kolo_handshake_send(int fd, const kolo_key *key, const char *label,
                                const kolo_nonces *nonces, kolo_status status, const void *body,
                                size_t bytes, const int *passed, int64_t deadline_ns);
/* Receives a body of exactly `bytes`; a failure that the other side sends becomes this call's. PEER
 * when the proof is wrong. */
kolo_status kolo_handshake_recv(int fd, const kolo_key *key, const char *label,
                                const kolo_nonces *nonces, void *body, size_t bytes, int *passed,
                                int64_t deadline_ns);
