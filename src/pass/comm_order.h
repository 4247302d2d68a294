#pragma once
/* The order of computation and communication: where posts and waits stand among the other nodes. */

#include "graph/graph.h"

/* A bucket of redistributions that is posted and awaited as one. */
typedef struct kolo_comm_bucket {
    kolo_node *post, *wait;
    size_t bytes;
    bool limited;   /* counts towards the bytes in flight */
    bool on_demand; /* its values can be posted at any time, and are when they are needed */
} kolo_comm_bucket;

/* Node `node` precedes the POST of a bucket. */
typedef struct kolo_comm_before {
    int32_t node;
    int bucket;
} kolo_comm_before;

/* Node `node` comes after another, which it does not read. */
typedef struct kolo_comm_after {
    int32_t node, after; /* an earlier node */
} kolo_comm_after;

typedef struct kolo_comm_order_opts {
    const kolo_comm_bucket *buckets; /* those on demand in the order in which they are needed */
    int n_buckets;
    const kolo_comm_before *before; /* by bucket */
    int n_before;
    const kolo_comm_after *after; /* of a node the last one holds */
    int n_after;
    size_t in_flight; /* most bytes of limited buckets between POST and WAIT; one is always allowed
                       */
} kolo_comm_order_opts;

/* Reorders the nodes of a graph whose posts and waits are somewhere, and whose redistributions are
 * no longer read; these are removed.
 *
 * Nodes keep their order as far as data allow. A POST follows the last node that it depends on; one
 * on demand stands before the WAIT of the one needed earlier, as far as the limit of bytes allows.
 * A WAIT stands as late as possible: where no other node can run, for the first that has to be
 * awaited by the forward and backward pass; for a limited bucket, before the POST that would exceed
 * the limit. Updates come last, after WAITs in the order of their POSTs, and updates in place after
 * all of those, so that the step can no longer fail after parameters have changed. FORMAT: a cycle.
 * NOMEM. */
kolo_status kolo_comm_order(kolo_graph *g, const kolo_comm_order_opts *opts);
