#pragma once
/* Gradients of a program's own training loop, averaged over the ranks while they are made.
 *
 * A reducer is given the program's gradient buffers once. In each step the program says of each
 * buffer, as soon as its backward pass has made it and in any order, that it is ready, and waits
 * before it uses them:
 *
 *     kolo_reducer *reducer;                                            // once
 *     KOLO_TRY(kolo_reducer_create(comm, buffers, n, KOLO_DTYPE_F32, NULL, &reducer));
 *     ...
 *     KOLO_TRY(kolo_reducer_ready(reducer, i));                         // in each step
 *     KOLO_TRY(kolo_reducer_wait(reducer));
 *
 * Buffers travel in buckets, each as soon as all of its buffers are ready, in an order that is the
 * same on all ranks: at first that of the buffers from the last to the first, which is how backward
 * passes make them; from the second step on the one in which rank 0's became ready in the first
 * (Li et al., "PyTorch distributed: experiences on accelerating data parallel training", VLDB
 * 2020). Each kolo_reducer_ready gives the communication some time; a program with long kernels may
 * also call kolo_comm_progress between them.
 *
 * If all buffers of all ranks are in registered memory (kolo_comm_alloc), they are reduced where
 * they lie; otherwise a bucket is gathered in registered memory and copied back. */

#include "kolo/codec.h"
#include "kolo/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_reducer kolo_reducer;

/* Zero means the default. All ranks must give the same. */
typedef struct kolo_reducer_opts {
    size_t bucket_bytes; /* least bytes of a bucket, but for the last; default 1 MiB */
    bool sum;            /* default: the mean */
    kolo_codec codec;    /* f32 only: what travels; default: the buffers themselves. With f16 and
                            bf16 sums are made in that type, with the others from every rank's code.
                            Error feedback is kept for each buffer. */
} kolo_reducer_opts;

/* All ranks call it at the same point with buffers of the same counts (the parts' tree_node is not
 * used); the buffers are borrowed until the reducer is destroyed. Blocks for a small exchange. ARG:
 * a codec for another type than f32, no buffers, ranks that disagree; NOMEM; any error of an
 * allreduce. */
KOLO_API kolo_status kolo_reducer_create(kolo_comm *comm, const kolo_part *buffers, int n,
                                         kolo_dtype dtype, const kolo_reducer_opts *opts,
                                         kolo_reducer **reducer);
/* Buffer i holds this rank's gradient and is the reducer's until the wait. Does not block. ARG: no
 * such buffer, or ready already in this step. */
KOLO_API kolo_status kolo_reducer_ready(kolo_reducer *reducer, int i);
/* Blocks until every buffer holds the result, on all ranks the same bits; ends the step. ARG, and
 * nothing is waited for: a buffer is not ready, which is named. */
KOLO_API kolo_status kolo_reducer_wait(kolo_reducer *reducer);
/* Before the communicator, between steps. NULL is allowed. */
KOLO_API void kolo_reducer_destroy(kolo_reducer *reducer);

#ifdef __cplusplus
}
#endif
