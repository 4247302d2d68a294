#pragma once
/* UCX as a carrier of messages between ranks, in a library of its own that is loaded when it is
 * asked for (ucx_module.c), so that nothing else depends on UCX.
 *
 * A message is a head of a few bytes and a body. A body that is long may stay with its sender until
 * the receiver fetches it. The library exports one kolo_ucx_ops under the name kolo_ucx_table.
 *
 * UCX proves nothing about who sends and encrypts nothing: what comes must be checked by the
 * receiver (ucx/ucx.c). */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    KOLO_UCX_ISSUE = 1,          /* of what is below; another one is of another build */
    KOLO_UCX_ADDRESS_MOST = 8192 /* bytes of an address of UCX's */
};

/* An operation under way; it lies in what its owner knows it by. */
typedef struct kolo_ucx_ticket {
    /* It is over, for better or worse: the memory that it used is the caller's again. Called from
     * `progress`, or before the call that starts it returns. */
    void (*done)(struct kolo_ucx_ticket *ticket, bool good);
} kolo_ucx_ticket;

typedef enum kolo_ucx_place {
    KOLO_UCX_PASSING, /* here, until the call returns */
    KOLO_UCX_STAYING, /* here, until it is given back, if it is kept */
    KOLO_UCX_AWAY,    /* at its sender; if it is kept: to be fetched or given back */
} kolo_ucx_place;

typedef struct kolo_ucx_body {
    void *data; /* AWAY: only a name */
    size_t bytes;
    kolo_ucx_place place;
} kolo_ucx_body;

/* Whom the library tells; called from `progress` alone. */
typedef struct kolo_ucx_listener {
    void *arg;
    /* A message; true keeps a body that is STAYING or AWAY. */
    bool (*arrived)(void *arg, const void *head, size_t head_bytes, const kolo_ucx_body *body);
    /* Nothing more will come from or go to that peer. `why` is short, and UCX's. */
    void (*lost)(void *arg, int peer, const char *why);
} kolo_ucx_listener;

typedef struct kolo_ucx_opts {
    int size;              /* ranks */
    const char *interface; /* of the network; NULL: UCX's choice */
    kolo_ucx_listener listener;
} kolo_ucx_opts;

/* All calls belong to one thread at a time; none but `close` blocks. */
typedef struct kolo_ucx_ops {
    int issue; /* KOLO_UCX_ISSUE */
    /* `events` is readable when there is something to do, and belongs to the library. UNSUPPORTED:
     * no device that can be used; NOMEM; IO. */
    kolo_status (*open)(const kolo_ucx_opts *opts, void **state, int *events);
    /* Bytes of a body that travel best in one message. */
    size_t (*piece)(const void *state);
    /* What peers need to reach this rank. UNSUPPORTED: longer than KOLO_UCX_ADDRESS_MOST. */
    kolo_status (*address)(void *state, void *address, size_t *bytes);
    /* UNSUPPORTED: no common way; PEER. */
    kolo_status (*connect)(void *state, int peer, const void *address);
    void (*send)(void *state, int peer, const void *head, size_t head_bytes, const void *body,
                 size_t bytes, kolo_ucx_ticket *ticket);
    /* The body that is AWAY; it needs no giving back then. */
    void (*fetch)(void *state, void *data, void *to, size_t bytes, kolo_ucx_ticket *ticket);
    void (*give_back)(void *state, void *data);
    /* True when anything has moved. */
    bool (*progress)(void *state);
    /* From now on `events` tells; false when there is something to do already. */
    bool (*arm)(void *state);
    /* Ends all connections at once; what is under way ends, badly, in `progress`. */
    void (*cut)(void *state);
    /* Lets what has been sent go out first, within a moment. */
    void (*close)(void *state);
} kolo_ucx_ops;

/* The library. UNSUPPORTED when it, or UCX, is not there or does not fit. */
kolo_status kolo_ucx_load(const kolo_ucx_ops **ops);
