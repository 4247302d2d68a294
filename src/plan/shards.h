#pragma once
/* The sum of the gradients of logical shards, as plans see it.
 *
 * A reproducible step sums its L logical shards along one binary tree (kolo/comm.h). A rank runs
 * its shards in order. The gradients of a shard are complete in the region of gradients; there they
 * are combined with the sums to their left that are waiting for them, and the result is kept until
 * its own right sibling arrives. After the last shard, the rank has the values of its nodes: the
 * last one in the region itself, the others among the kept ones. Kept are at most log2 L values of
 * the size of the region for a rank with whole subtrees, and twice as many for any other. */

#include "plan/plan.h"

enum { KOLO_SHARD_NODES = 62 };

typedef struct kolo_shard_sum {
    int shards, first, end;           /* L; this place has [first, end) */
    int places, place;                /* that divide the shards; which this rank has */
    size_t *counts;                   /* by place */
    int *before;                      /* by shard of this place: values kept before it */
    uint32_t nodes[KOLO_SHARD_NODES]; /* of this place */
    int n_nodes;
    char *kept;      /* values at multiples of `bytes`, the nodes first */
    size_t bytes;    /* of the region of gradients, but for what is behind the last sum */
    int most;        /* values that `kept` has room for */
    kolo_comm *comm; /* whose registered memory `kept` is; NULL: own memory */
    /* While a shard runs: */
    int shard, depth; /* depth: values kept before it */
    int pairs;        /* of them to combine with the shard */
} kolo_shard_sum;

/* A sum over `shards`, not yet dealt, of a region of `bytes`, among `places` of which this rank has
 * `place`: ranks, or those of the axis dp. `comm`, with whose memory they sum, may be NULL. NOMEM.
 */
kolo_status kolo_shard_sum_create(int shards, size_t bytes, kolo_comm *comm, int places, int place,
                                  kolo_shard_sum **sum);
void kolo_shard_sum_destroy(kolo_shard_sum *sum);
/* Deals counts[p] shards to place p. Does not communicate. ARG: not L together; NOMEM. */
kolo_status kolo_shard_sum_deal(kolo_shard_sum *sum, const int *counts);
/* Begins shard `shard` of this place. What is added of a shard is added in the order of shards; the
 * stages of a pipeline add parts of the gradients at different times. */
void kolo_shard_sum_begin(kolo_shard_sum *sum, int shard);
/* Adds bytes [offset, offset + bytes) of the shard's gradients, which are complete in `region`. */
void kolo_shard_sum_fold(const kolo_shard_sum *sum, char *region, size_t offset, size_t bytes,
                         kolo_dtype dtype);
/* The value of node `i` of this place, after its last shard: in `region`, or among the kept ones.
 */
char *kolo_shard_sum_node(const kolo_shard_sum *sum, int i, char *region);
/* Makes `opts`, an allreduce in place from `offset` in `region` on, the sum over the shards of all
 * ranks. `parts` has room for KOLO_SHARD_NODES. */
void kolo_shard_sum_request(const kolo_shard_sum *sum, char *region, size_t offset,
                            kolo_request_opts *opts, kolo_part *parts);
