#pragma once
/* UCX as a carrier of messages between ranks, in a library of its own that is loaded on demand
 * (ucx_module.c), so that nothing else depends on UCX.
 *
 * A message is a header of a few bytes and a body. A long body may stay at its sender until the
 * receiver fetches it (rendezvous). The library exports one kolo_ucx_ops with the name
 * kolo_ucx_table.
 *
 * UCX neither authenticates senders nor encrypts; the receiver must check all messages
 * (ucx/receive.c). */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    KOLO_UCX_VERSION = 1,       /* of this interface; libraries of other versions are refused */
    KOLO_UCX_ADDRESS_MAX = 8192 /* bytes of a UCX worker address */
};

/* An operation in flight; embedded in the state of its owner. */
typedef struct kolo_ucx_request {
    /* Completion callback, successful or not: the memory used may be reused. Called from
     * `progress`, or before the call that starts the operation returns. */
    void (*done)(struct kolo_ucx_request *request, bool good);
} kolo_ucx_request;

typedef enum kolo_ucx_location {
    KOLO_UCX_BORROWED, /* valid until the callback returns */
    KOLO_UCX_BUFFERED, /* in UCX's buffers; if kept: until `release` */
    KOLO_UCX_REMOTE,   /* at its sender; if kept: until `fetch` or `release` */
} kolo_ucx_location;

typedef struct kolo_ucx_body {
    void *data; /* REMOTE: a descriptor */
    size_t bytes;
    kolo_ucx_location location;
} kolo_ucx_body;

/* Callbacks, called from `progress` only. */
typedef struct kolo_ucx_callbacks {
    void *arg;
    /* A message has arrived; returns true to keep a body that is BUFFERED or REMOTE. */
    bool (*arrived)(void *arg, const void *head, size_t head_bytes, const kolo_ucx_body *body);
    /* The peer is unreachable from now on. `why` is UCX's short reason. */
    void (*lost)(void *arg, int peer, const char *why);
} kolo_ucx_callbacks;

typedef struct kolo_ucx_opts {
    int size;              /* ranks */
    const char *interface; /* of the network; NULL: chosen by UCX */
    kolo_ucx_callbacks callbacks;
} kolo_ucx_opts;

/* All calls are made by one thread at a time; only `close` blocks. */
typedef struct kolo_ucx_ops {
    int version; /* KOLO_UCX_VERSION */
    /* `events` is readable if `progress` has work to do; owned by the library. UNSUPPORTED: no
     * usable device; NOMEM; IO. */
    kolo_status (*open)(const kolo_ucx_opts *opts, void **state, int *events);
    /* Preferred number of bytes per message. */
    size_t (*message_bytes)(const void *state);
    /* Address by which peers connect to this rank. UNSUPPORTED: more than KOLO_UCX_ADDRESS_MAX. */
    kolo_status (*address)(void *state, void *address, size_t *bytes);
    /* UNSUPPORTED: no common device; PEER. */
    kolo_status (*connect)(void *state, int peer, const void *address);
    void (*send)(void *state, int peer, const void *head, size_t head_bytes, const void *body,
                 size_t bytes, kolo_ucx_request *request);
    /* Fetches a REMOTE body, and releases it. */
    void (*fetch)(void *state, void *data, void *to, size_t bytes, kolo_ucx_request *request);
    void (*release)(void *state, void *data);
    /* True if there was any event. */
    bool (*progress)(void *state);
    /* Arms `events`; false if there already is work to do. */
    bool (*arm)(void *state);
    /* Closes all connections at once; operations in flight complete with an error in `progress`. */
    void (*abort)(void *state);
    /* Flushes sent messages for a short time, and closes. */
    void (*close)(void *state);
} kolo_ucx_ops;

/* Loads the library. UNSUPPORTED if it or UCX is not installed, or has another version. */
kolo_status kolo_ucx_load(const kolo_ucx_ops **ops);
