#pragma once
/* The owner of rows of a table: processes the requests of workers, independently of the transport.
 * Calls and replies are those of kolo/service.h; tests may construct both.
 *
 * Requests that cannot be answered yet are kept: with bsp the pushes of a step until all have
 * arrived, which are then added in the order of ranks; pushes that have no room for the rows that
 * are to be saved, otherwise in the order of their arrival; with any bound the reads of workers
 * that are too far ahead, and those that would lack a push of their worker. */

#include "base/compiler.h"
#include "comm/sync/parameters_replica.h"
#include "comm/table/rows.h"
#include "kolo/service.h"

/* The key of a request is a number of ids, or what stands beside its kind. */
typedef enum kolo_table_request {
    KOLO_TABLE_PULL,   /* ids; the reply: their rows, and as its clock the staleness */
    KOLO_TABLE_PUSH,   /* ids, then their gradients */
    KOLO_TABLE_READ,   /* as PULL, at any time */
    KOLO_TABLE_FINISH, /* no key */
    KOLO_TABLE_STATS,  /* no key; the reply: kolo_table_stats */
    KOLO_TABLE_SAVE,   /* the clock: whether with ids that wait for their rows; the reply: the next
                          page, and as its clock whether there may be more */
    KOLO_TABLE_LOAD,   /* a page */
    KOLO_TABLE_MARK,   /* no key: the client saves what there is now; the reply: kolo_table_stats */
    KOLO_TABLE_FORGET, /* no key: the client saves no more */
    KOLO_TABLE_KINDS
} kolo_table_request;

/* Saved rows as a message: a head, then ids, ages, pushes and values of `room` rows, of which n are
 * used. */
typedef struct kolo_table_page {
    uint64_t version, n;
} kolo_table_page;

/* The bytes of a page. */
size_t kolo_table_page_bytes(const kolo_table_opts *opts, size_t room);
/* The arrays of a page for `room` rows. */
kolo_table_rows kolo_table_page_rows(void *page, size_t room);

/* About the memory that a rank of a table with these options needs, the owners of which get at most
 * n rows together, which may be saved while they change (`saved`): it is a worker (`works`), owns
 * rows (`owns`), or both. */
KOLO_SHARED size_t kolo_table_needs(const kolo_table_opts *opts, int workers, bool works, bool owns,
                                    uint64_t n, bool saved);

typedef struct kolo_table_owner kolo_table_owner;

/* `opts` is resolved, and borrowed. `secret`: see kolo_id_map_create. ARG: no row fits; NOMEM. */
kolo_status kolo_table_owner_create(const kolo_table_opts *opts, int workers, uint64_t secret,
                                    kolo_owner_reply *reply, kolo_table_owner **made);
void kolo_table_owner_destroy(kolo_table_owner *owner);
/* The memory that it touches with up to n rows; `saved`: see kolo_table_needs. */
size_t kolo_table_owner_needs(const kolo_table_opts *opts, int workers, uint64_t n, bool saved);
/* The calls of a service; `arg`: a kolo_table_owner. */
void kolo_table_owner_serve(void *arg, kolo_service_call *call);
void kolo_table_owner_lost(void *arg, int client, bool left, const char *reason);
/* Blocks until no worker is present. Any thread. */
void kolo_table_owner_wait(kolo_table_owner *owner);
/* Owners of rows as they lead and follow. */
extern const kolo_replicated kolo_replicated_rows;
