#pragma once
/* Record and replay of the order in which an owner of parameters processes requests.
 *
 * The state of an owner follows from the requests and their order. Each worker sends its requests
 * in an order that the program determines, so a record is the sequence of workers, and a run whose
 * owners process requests in that order has the same bits. In a replay an early request waits for
 * its turn. The loss of a worker ends a replay: the owner then gets all other requests, to refuse
 * them. */

#include "comm/sync/parameters_owner.h"

typedef struct kolo_order kolo_order;

typedef struct kolo_order_opts {
    const char *record, *replay;  /* a file to create or one to read: one of them; not kept */
    int workers, owners, index;   /* index: of the owner */
    int staleness, drop;          /* as in kolo_parameters_opts */
    bool leases;                  /* the same */
    uint64_t update_hash;         /* the same */
    kolo_owner_reply *reply;      /* refuses requests */
    kolo_parameters_owner *owner; /* gets the requests; borrowed */
} kolo_order_opts;

/* ARG: the file to create exists, or the one to read is of another owner or of a run with other
 * options, or one that lost a worker; FORMAT: it is no record, or damaged; IO; NOMEM. */
kolo_status kolo_order_create(const kolo_order_opts *opts, kolo_order **order);
/* The calls of a service, which pass them on to the owner; `arg`: a kolo_order. */
void kolo_order_serve(void *arg, kolo_service_call *call);
void kolo_order_lost(void *arg, int client, bool left, const char *reason);
/* Once the service that calls the above is destroyed: completes the file. ARG: a replay without
 * some of the recorded requests; IO. */
kolo_status kolo_order_finish(kolo_order *order);
/* Without kolo_order_finish discards the record. NULL is allowed. */
void kolo_order_destroy(kolo_order *order);
