#pragma once
/* Attention: of whole sequences, by blocks of keys in a ring, and over a cache. */

#include "graph/graph.h"

/* attention: qkv [N,T,3C] (queries, keys, values, each heads times C/heads), when p > 0 also
 * rng_key i64 [], first_sample i64 [], then [mask i32 [N,T]] -> o [N,T,C], lse [N,heads,T]: per
 * head softmax(q k^T / sqrt(C/heads)) v over the keys whose mask is not 0, causal: up to the
 * query's own; lse is
 * the logarithm of the softmax denominator, infinite without keys (then o is 0). With p > 0 a
 * weight of the softmax is zeroed if its random number, of 16 bits, is below p, else divided by 1 -
 * p; p is rounded to a multiple of 2^-16. Random numbers as for dropout: those of query i, head h
 * of window n are lanes j % 8 of Philox's numbers at counter ((n all_heads + first_head + h) T + i)
 * ceil(T / 8) + j / 8, lane l being the lower half of number l, or from 4 on the upper half of
 * number l - 4. attention_bwd: do, qkv, o, lse, when p > 0 rng_key, first_sample, then [mask] ->
 * dqkv.
 *
 * attention_block: qkv [N,T,3C], kv [N,S,2C], o [N,T,C], lse [N,heads,T], when p > 0 rng_key,
 * first_sample, then [mask [N,S]] -> o, lse: those of attention to the keys before and to those of
 * kv. attention_block_bwd: do, qkv, kv, o, lse, when p > 0 rng_key, first_sample, then [mask] -> dq
 * [N,T,C], dkv [N,S,2C]: the part of the gradient by these keys, of the final o and lse. */
enum {
    KOLO_ATTENTION_HEADS,
    KOLO_ATTENTION_CAUSAL,
    KOLO_ATTENTION_P,
    KOLO_ATTENTION_LAYER,
    KOLO_ATTENTION_FIRST_HEAD, /* the number of head 0 among all_heads heads; 0 of 0: all */
    KOLO_ATTENTION_ALL_HEADS,
    KOLO_ATTENTION_SAMPLE,   /* window 0 has number first_sample + this */
    KOLO_ATTENTION_RING,     /* kolo_ring; 0: all positions are here */
    KOLO_ATTENTION_POSITION, /* of query 0 in the sequence */
    KOLO_ATTENTION_LENGTH,   /* positions of the sequence; 0: as many as there are queries */
    KOLO_ATTENTION_KEY,      /* of a block: the position of key 0 */
    KOLO_ATTENTION_TURN,     /* of a block: by how many ranks the keys are rotated */
    KOLO_ATTENTION_SEEN = KOLO_ATTENTION_CAUSAL, /* of a block: kolo_seen */
    KOLO_ATTENTION_INPUTS = 1,                   /* of attention, before rng_key or mask */
    KOLO_ATTENTION_BWD_INPUTS = 4,
    KOLO_ATTENTION_BLOCK_INPUTS = 4,
    KOLO_ATTENTION_BLOCK_BWD_INPUTS = 5,
};
/* The queries that see the keys of a block; with zigzag those of the second range see all, or all
 * see those of the first range. */
typedef enum kolo_seen {
    KOLO_SEEN_BY_ALL,
    KOLO_SEEN_BY_NONE,
    KOLO_SEEN_BY_SECOND,
    KOLO_SEEN_FIRST_BY_ALL,
} kolo_seen;
/* Each rank has some of the positions of a sequence, as bits. */
typedef enum kolo_ring {
    KOLO_RING_KEYS = 1,   /* and its queries see the keys of all ranks, until the pass ring */
    KOLO_RING_OWN = 2,    /* and they see its own keys */
    KOLO_RING_ZIGZAG = 4, /* queries and keys of a rank are two ranges each (kolo_position_of) */
} kolo_ring;
/* Heads of the whole op, of which this one has some. */
static inline int64_t kolo_attention_all_heads(const kolo_attr *attr) {
    int64_t all = attr[KOLO_ATTENTION_ALL_HEADS].i;
    return all > 0 ? all : attr[KOLO_ATTENTION_HEADS].i;
}
/* Positions of the whole sequence, of which there are `queries` here. */
static inline int64_t kolo_attention_length(const kolo_attr *attr, int64_t queries) {
    int64_t length = attr[KOLO_ATTENTION_LENGTH].i;
    return length > 0 ? length : queries;
}
/* Whether a node is attention, or its gradient, to the keys of all ranks of a ring. */
bool kolo_attention_rings(const kolo_node *n);
/* Weights with 16-bit random numbers below this are dropped. */
static inline uint32_t kolo_attention_limit(const kolo_attr *attr) {
    return (uint32_t)(attr[KOLO_ATTENTION_P].f * 0x1p16 + 0.5);
}
/* Inputs that dropout takes: rng_key and first_sample, or none. */
static inline int kolo_attention_draws(const kolo_attr *attr) {
    return attr[KOLO_ATTENTION_P].f > 0 ? 2 : 0;
}
extern const kolo_op kolo_op_attention, kolo_op_attention_bwd, kolo_op_attention_block,
    kolo_op_attention_block_bwd;

/* cache_write: cache [N,2K,P,D], x [N,T,C], positions i32 [N,T] -> cache': the last 2 K D channels
 * of token (n,t), keys and then values of K heads, become row positions[n,t] of these heads; a
 * position outside [0, P) writes nothing, and no two of a sample are equal. cached_attention: x
 * [N,T,(H + 2K) D], cache, positions -> o [N,T,H D]: attention, of which each head of keys and
 * values serves H / K heads of queries, over rows 0 to positions[n,t] of the cache; 0 for a
 * position outside it. */
extern const kolo_op kolo_op_cache_write, kolo_op_cached_attention;
