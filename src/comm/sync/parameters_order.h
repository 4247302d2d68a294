#pragma once
/* The order in which an owner of parameters takes requests: recorded in a file, or the same again.
 *
 * What an owner does follows from the requests and their order. Each worker sends its own in an
 * order that the program determines, so the workers of all requests, one after the other, are a
 * whole record, and a run in which owners take requests in that order has the same bits. In a
 * replay a request that is early waits until its turn. A worker that is lost must end a replay: its
 * owner then gets all other requests, to refuse them. */

#include "comm/sync/parameters_owner.h"

typedef struct kolo_order kolo_order;

/* For the requests of `workers` workers to `owner`, which is borrowed. Creates the file `record`,
 * or reads `replay`: one of them. ARG: the file is of another number of workers, or of a run that
 * lost one; FORMAT: it is no record, or damaged; IO; NOMEM. */
kolo_status kolo_order_create(const char *record, const char *replay, int workers,
                              kolo_owner_reply *reply, kolo_parameters_owner *owner,
                              kolo_order **order);
/* The calls of a service, which pass them on to the owner; `arg`: a kolo_order. */
void kolo_order_serve(void *arg, kolo_service_call *call);
void kolo_order_lost(void *arg, int client, bool left, const char *reason);
/* After the last request, in any thread: completes the file. ARG: a replay without some of the
 * recorded requests; IO. */
kolo_status kolo_order_finish(kolo_order *order);
/* Without kolo_order_finish discards the record. NULL is allowed. */
void kolo_order_destroy(kolo_order *order);
