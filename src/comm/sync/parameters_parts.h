#pragma once
/* The parts of one rank where the parameters are divided into buckets, each of which has a part of
 * every owner: a request names its part (kolo_replicas_kind), and each part has an owner of its
 * own, so that one is updated and read while the next is pushed. */

#include "base/compiler.h"
#include "comm/sync/parameters_owner.h"

/* Of all owners, at most: a request has 16 bits for the number of a part. */
enum { KOLO_OWNER_PARTS_MOST = 1 << 16 };

typedef struct kolo_owner_parts kolo_owner_parts;

/* The parts of all ranks are those of the first bucket by owner, then of the second, and so on. */
typedef struct kolo_owner_parts_opts {
    const kolo_parameters_opts *parameters; /* borrowed */
    const kolo_owned *owned;                /* [buckets * owners] */
    int buckets, owners, index;             /* index: of this rank among the owners */
    int workers;
} kolo_owner_parts_opts;

/* The bytes that owner `index` of these options, with parts, allocates for its values, its state
 * and gradients; `remote`: workers whose pushes it receives, since it does not map their memory. */
KOLO_SHARED size_t kolo_owner_parts_needs(const kolo_parameters_opts *opts, int owners, int index,
                                          int workers, int remote);
/* NOMEM. */
kolo_status kolo_owner_parts_create(const kolo_owner_parts_opts *opts, kolo_owner_parts **made);
/* NULL is allowed. */
void kolo_owner_parts_destroy(kolo_owner_parts *parts);
/* The owner of this rank's part of a bucket. */
kolo_parameters_owner *kolo_owner_parts_at(const kolo_owner_parts *parts, int bucket);
/* The memory of the values of all parts, and where it is: see kolo_parameters_owner_place. */
size_t kolo_owner_parts_bytes(const kolo_owner_parts *parts);
void kolo_owner_parts_place(kolo_owner_parts *parts, void *memory);
/* As those of an owner, for all parts. */
void kolo_owner_parts_load(kolo_owner_parts *parts, const float *all);
kolo_status kolo_owner_parts_wait(kolo_owner_parts *parts);
/* The calls of a service; `arg`: a kolo_owner_parts. */
void kolo_owner_parts_serve(void *arg, kolo_service_call *call);
void kolo_owner_parts_lost(void *arg, int client, bool left, const char *reason);
