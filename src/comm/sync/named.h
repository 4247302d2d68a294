#pragma once
/* The state of a kolo_named, which the agreement (named.c), the groups and the texts of stalls
 * share. */

#include "comm/sync/named_names.h"

enum { KOLO_NAMED_HEAD = 2 /* bytes of an agreement before those of the names */ };

typedef enum kolo_named_phase {
    KOLO_NAMED_IDLE,
    KOLO_NAMED_AGREEING,
    KOLO_NAMED_STARTING,
    KOLO_NAMED_SIZES,
    KOLO_NAMED_NAMES,
    KOLO_NAMED_TABLE,
} kolo_named_phase;

/* Fused tensors: named_groups.c. */
typedef struct kolo_named_group kolo_named_group;

struct kolo_named {
    kolo_comm *comm;
    kolo_named_opts opts;
    kolo_name_table names;
    kolo_named_phase phase;
    kolo_request *agreement; /* persistent */
    kolo_request *exchange;  /* of the phases after it */
    uint8_t *bytes;          /* [KOLO_NAMED_HEAD + ids_room]: of the agreement */
    size_t ids_room;
    bool needs_names, needs_table; /* requested by the agreement */
    uint64_t *sizes;               /* [size]: bytes of each rank's message */
    char *own, *all;               /* announcements of this rank and of all; owned */
    size_t own_bytes;
    size_t *counts; /* [size] */
    uint8_t *table; /* [size][table_ids]: 1: the rank has posted the tensor */
    size_t table_ids;
    kolo_named_group *first, **last; /* in the order of ids */
    int posted, unknown;             /* tensors not agreed on; those of them without id */
    int open;                        /* incomplete tensors */
    bool fresh;                      /* a tensor was posted since the last agreement began */
    bool want_table;
    int64_t begun_ns; /* when this rank joined the agreement */
    int64_t next_ns;  /* earliest start of the next agreement, unless a wait needs it */
    kolo_named_counts counted;
};

static inline kolo_named_tensor *kolo_named_tensor_of(kolo_named *m, size_t id) {
    return &m->names.tensors[m->names.by_id[id]];
}
