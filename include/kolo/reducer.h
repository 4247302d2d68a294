#pragma once
/* Averages the gradients of a program's own training loop over the ranks, during the backward pass.
 *
 * A reducer is created once with the program's gradient buffers. In each step the program marks
 * each buffer as ready, in any order, as soon as its backward pass has computed it, and waits
 * before it uses the results:
 *
 *     kolo_reducer *reducer;                                            // once
 *     KOLO_TRY(kolo_reducer_create(comm, buffers, n, KOLO_DTYPE_F32, NULL, &reducer));
 *     ...
 *     KOLO_TRY(kolo_reducer_ready(reducer, i));                         // in each step
 *     KOLO_TRY(kolo_reducer_wait(reducer));
 *
 * Buffers are grouped into buckets. A bucket is reduced once all its buffers are ready, in an order
 * that is the same on all ranks: in the first step from the last buffer to the first, the usual
 * order of a backward pass; from the second step on, the order in which rank 0's buffers became
 * ready in the first (Li et al., "PyTorch distributed: experiences on accelerating data parallel
 * training", VLDB 2020). kolo_reducer_ready makes progress on the communication; a program with
 * long kernels may also call kolo_comm_progress between them.
 *
 * Before the first step the ranks need the same parameters, and those of a checkpoint that one rank
 * has read: kolo_reducer_broadcast copies them.
 *
 * If all buffers of all ranks are in registered memory (kolo_comm_alloc), they are reduced in
 * place; otherwise each bucket is copied to registered memory and back.
 *
 * A reducer belongs to the thread of its communicator. */

#include "kolo/codec.h"
#include "kolo/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_reducer kolo_reducer;

/* A zero field takes its default. All ranks must pass the same options. */
typedef struct kolo_reducer_opts {
    size_t bucket_bytes; /* minimum size of a bucket, except the last; default 1 MiB */
    bool sum;            /* compute the sum; default: the mean */
    kolo_codec codec;    /* f32 only: compression of the data sent; default: none. f16 and bf16 are
                            summed in that type; the other codecs are decoded and summed from the
                            codes of all ranks. Error feedback is kept per buffer. */
    bool join;           /* kolo_reducer_join may be called: in each step the ranks also exchange
                            a byte each: whether it has data left */
} kolo_reducer_opts;

/* Creates a reducer. A collective call: all ranks pass buffers of the same counts (tree_node is
 * ignored). Blocks for a small exchange. The buffers are borrowed until the reducer is destroyed.
 * ARG: no buffers, or a codec with a type other than f32; or the ranks disagree on the buffers,
 * their type or an option: the error shows the first difference. Invalid arguments of one rank are
 * an error on all ranks, and the communicator remains usable. NOMEM; the errors of an allgather. */
KOLO_API kolo_status kolo_reducer_create(kolo_comm *comm, const kolo_part *buffers, int n,
                                         kolo_dtype dtype, const kolo_reducer_opts *opts,
                                         kolo_reducer **reducer);
/* Marks buffer i, which holds this rank's gradient, as ready. It must not be accessed until the
 * wait. Does not block. ARG: no such buffer, or already marked in this step. */
KOLO_API kolo_status kolo_reducer_ready(kolo_reducer *reducer, int i);
/* The same for the buffers [first, first + n), such as those of a layer, or all of them if the
 * backward pass has computed them in one call. ARG: then none is marked. */
KOLO_API kolo_status kolo_reducer_ready_range(kolo_reducer *reducer, int first, int n);
/* Copies data of rank `root`, such as parameters and the state of an optimizer, to all ranks, which
 * pass parts of the same counts. A collective call, between steps. Blocks. ARG: a step has begun;
 * the errors of a broadcast. */
KOLO_API kolo_status kolo_reducer_broadcast(kolo_reducer *reducer, const kolo_part *parts, int n,
                                            kolo_dtype dtype, int root);
/* Blocks until every buffer holds the result, bitwise equal on all ranks, and ends the step. ARG:
 * some buffer, which the error names, is not ready; then the call does not wait. */
KOLO_API kolo_status kolo_reducer_wait(kolo_reducer *reducer);
/* For a rank that has no data left while others go on: takes part in their steps with gradients of
 * zeros, until all ranks have called it. The mean remains one over all ranks. Blocks. Overwrites
 * the buffers. `*last` is the rank that came last, the same on all ranks (the highest, if several
 * came between the same steps): its parameters have had all updates, so copy them to the others,
 * with the state of the optimizer (kolo_reducer_broadcast). Then steps may follow again.
 *
 *     for (int i = 0; i < batches; i++) {
 *         backward(reducer);                            // kolo_reducer_ready for each buffer
 *         KOLO_TRY(kolo_reducer_wait(reducer));
 *         update(parameters);
 *     }
 *     int last;
 *     KOLO_TRY(kolo_reducer_join(reducer, &last));
 *     KOLO_TRY(kolo_reducer_broadcast(reducer, parameters, n, KOLO_DTYPE_F32, last));
 *
 * Meanwhile the others communicate by the reducer only. ARG: the option `join` is not set, or a
 * step has begun. Errors as of kolo_reducer_wait. */
KOLO_API kolo_status kolo_reducer_join(kolo_reducer *reducer, int *last);
/* Frees a reducer, between steps and before its communicator. NULL is allowed. */
KOLO_API void kolo_reducer_destroy(kolo_reducer *reducer);

#ifdef __cplusplus
}
#endif
