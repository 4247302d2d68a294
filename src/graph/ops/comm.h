#pragma once
/* Ops that communicate or compress what is sent; passes add them. */

#include "graph/graph.h"
#include "kolo/codec.h"

/* redistribute: x -> x under other placements (kolo_node.move), the only op that communicates until
 * the pass lower_comm makes posts and waits of it. A LOCAL tensor becomes whole by gathering: the
 * versions of all ranks lie one after the other along dimension 0. Those of one `unit` other than 0
 * share a bucket, in the order of their `place`. `early`: of what is there before the step
 * (pass/lag.c). kolo_redistribute adds one; it returns v where no rank would hold other data.
 * kolo_redistribute_as: of this local tensor, for flat shards. */
enum { KOLO_REDISTRIBUTE_UNIT, KOLO_REDISTRIBUTE_PLACE, KOLO_REDISTRIBUTE_EARLY };
kolo_value kolo_redistribute(kolo_graph *g, kolo_value v, const kolo_placements *from,
                             const kolo_placements *to);
kolo_value kolo_redistribute_as(kolo_graph *g, kolo_value v, const kolo_placements *from,
                                const kolo_placements *to, const kolo_tensor *tensor);
/* Whether v is a flat shard with cuts; then the elements of the whole, in the order of its memory,
 * that this rank holds. */
bool kolo_flat_range(const kolo_graph *g, kolo_value v, int64_t *first, int64_t *count);
/* Makes a state LOCAL: this rank has `version` of `versions`, which files hold as one tensor with
 * the ranks as dimension 0. */
void kolo_graph_make_local(kolo_graph *g, kolo_value state, int versions, int version);
/* Whether v is a leaf of which this rank has a slice, in tensor parallelism; `whole` is all of it.
 */
bool kolo_is_slice(const kolo_graph *g, kolo_value v);
/* The sum over the ranks of v, which each computes as a sum over its samples of x, on all ranks; v
 * where they are not sharded. */
kolo_value kolo_sum_over_samples(kolo_graph *g, kolo_value v, kolo_value x, bool of_rank);
extern const kolo_op kolo_op_redistribute;

/* own_range: x -> its elements from `first` on, in the order of its memory, a view. post: values of
 * one bucket -> the same values, in flight: only wait may read them. wait: outputs of post -> the
 * results of the collective (kolo_collective). Both are views, output i of input i, and an
 * allreduce is in place. The result of an allgather is separate memory; in it lies what is posted,
 * if that is a flat shard, and else the values of all ranks are concatenated along dimension 0. The
 * ranges that a reduce-scatter leaves to this rank are separate memory too, unless it is in place.
 * With `inside` both are part of the forward or backward pass and run in every micro-batch; `axes`
 * are those of the mesh whose groups communicate, a bit each. Added by the pass lower_comm.
 */
enum { KOLO_RANGE_FIRST };
enum {
    KOLO_COMM_BUCKET,
    KOLO_COMM_COLLECTIVE,
    KOLO_COMM_INSIDE,
    KOLO_COMM_AXES,
    KOLO_COMM_OF_SAMPLES, /* a sum over the samples: no other sum leads to it */
    KOLO_COMM_IN_PLACE,   /* a reduce-scatter: the own range stays where it is in the bucket */
    KOLO_COMM_KEPT,       /* from the first logical shard of a step to the last, in memory that no
                             other bucket uses */
    KOLO_COMM_OP,         /* of a reduction */
    KOLO_COMM_DEFERRAL,   /* a kolo_deferral, see the pass cross_step */
    KOLO_COMM_SUMMANDS,   /* a reduce-scatter in place: who reads the own range of the result adds
                             the ranges of all ranks, which stay to the end of the step */
    KOLO_COMM_ORDER,      /* of the redistributions that became buckets, the same on all ranks */
};
extern const kolo_op kolo_op_own_range, kolo_op_post, kolo_op_wait;

/* encode: x, residual -> code u8 [bytes], error: the code of x + residual by a codec
 * (kolo/codec.h), and what is lost. decode: codes [ranks * bytes] -> the sum of what they mean, in
 * rank order. Added by the pass compress. */
enum { KOLO_CODE_KIND, KOLO_CODE_RATIO };
/* The bytes of a code of `count` elements, a multiple of 8. */
int64_t kolo_code_bytes(const kolo_codec *codec, int64_t count);
extern const kolo_op kolo_op_encode, kolo_op_decode;

/* momentum_part: g, m, [w] -> part m + of_gradient g + of_weight w: what a rank adds to the
 * momentum of Adam. Added by the pass compress. */
enum { KOLO_MOMENTUM_PART, KOLO_MOMENTUM_OF_GRADIENT, KOLO_MOMENTUM_OF_WEIGHT };
extern const kolo_op kolo_op_momentum_part;

/* PowerSGD (Vogels, Karimireddy, Jaggi, 2019), of a gradient g as a matrix [n, m]: its first
 * dimension, and all others. power_project: g, error e, q [r, m] -> p [n, r] = (g + e) q^T; a row
 * of q that is zero is replaced by kolo_power_start of its places. power_basis: p -> b [n, r],
 * orthonormal columns; one that depends on those before is 0. power_back: g, e, b -> q [r, m] = b^T
 * (g + e), e' = g + e - b q. power_sum: b, q -> b q. Added by the pass compress. */
enum { KOLO_POWER_RANKS = 4 /* the largest r */ };
/* The norm, relative to its column, below which what is left of a column of p is rounding. */
#define KOLO_POWER_LEAST 1e-6
/* Place i of the first q, row-major: from -1 to 1, pseudo-random. */
double kolo_power_start(int64_t i);
extern const kolo_op kolo_op_power_project, kolo_op_power_basis, kolo_op_power_back,
    kolo_op_power_sum;
