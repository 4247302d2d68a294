#pragma once
/* What the files of the pass lower_comm share: the members of buckets. */

#include "pass/comm_order.h"
#include "pass/pass.h"

/* In the order of their buckets. */
typedef enum member_class {
    SUM,      /* for updates */
    METRIC,   /* for outputs alone: in the last bucket of SUM */
    ROWS,     /* gathered */
    SCATTER,  /* sums of which each rank gets its range */
    GATHER,   /* ranges */
    JOIN,     /* ranges, each in its place in the next version of a parameter */
    INSIDE,   /* sums that the forward or backward pass reads */
    COLLECT,  /* slices of the samples that it reads as a whole */
    DEAL,     /* sums of which each rank gets a slice of the samples */
    EXCHANGE, /* moved by a link */
} member_class;

typedef struct lower_member {
    kolo_value value;  /* posted: the source of a redistribution */
    kolo_value synced; /* its result */
    member_class class;
    int32_t made; /* producer of value */
    int32_t held; /* the last reader of the parameters that it updates; -1: none */
    int32_t read; /* the first reader; INT32_MAX: none */
    int stage;    /* sums and gathers that lead to it, one after another */
    int unit, place;
    int order;      /* of the redistributions */
    kolo_axes axes; /* of the ranks that communicate */
    kolo_reduce_op op;
    kolo_dtype dtype;
    uint32_t chunks; /* of a stage, a bit each; 0: it has one */
    bool tied;       /* the gradient of a parameter that several stages have */
    bool early;      /* it is there before the step: nothing delays its POST */
    bool late;       /* of the backward pass, though it is there since the forward pass */
    bool behind;     /* computed behind the gradient of the first layer (late_weights.c) */
    bool of_leaf;    /* a parameter, which is there at any time */
    bool inside;     /* the forward or backward pass reads it, or the sum over micro-batches */
    int bucket;
    const kolo_redistribution *move;
} lower_member;

typedef struct lowerer {
    kolo_graph *g;
    lower_member *members; /* by bucket */
    int n_members;
    int *member_of;      /* by value: of which it is the result; -1: none */
    int32_t *posted;     /* by value: the result of the member whose memory it is; -1: none */
    int32_t *reads;      /* by value: readers, outputs included */
    kolo_value *arrived; /* by member: the output of WAIT */
    kolo_comm_bucket *buckets;
    int n_buckets;
    size_t in_flight;
    bool keep;  /* what is summed over logical shards */
    bool share; /* the ranks read each other's gradients */
    bool ahead; /* what is computed behind the gradient of the first layer has buckets of its own */
} lowerer;

/* Finds the members: the redistributions that are no views. last_reader, stage: by value, zeroed.
 * UNSUPPORTED: a node that is no update reads gathered rows, or no collective makes a change of
 * placements. */
kolo_status kolo_lower_find_members(lowerer *b, int32_t *last_reader, int *stage);
