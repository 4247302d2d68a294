#pragma once
/* Allreduces of named tensors, posted in any order.
 *
 * All ranks must start the collectives of a communicator in the same order. Programs that cannot
 * guarantee this post their tensors by name instead. The ranks repeatedly agree on which tensors
 * all of them have posted, and reduce those. An agreement is one small allreduce (minimum) of a
 * byte per known name. A name that is new on some rank is first announced to all ranks once, with
 * its type, size and operation, and gets a number for later agreements. Tensors that become ready
 * together and have the same type and operation are fused in a buffer of at most `fusion_bytes`
 * (after Sergeev, Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow",
 * 2018).
 *
 *     int a, b;
 *     KOLO_TRY(kolo_named_post(named, "conv1.weight", w, n, KOLO_DTYPE_F32, KOLO_MEAN, &a));
 *     KOLO_TRY(kolo_named_post(named, "conv1.bias", v, m, KOLO_DTYPE_F32, KOLO_MEAN, &b));
 *     KOLO_TRY(kolo_named_wait_all(named, 0));
 *
 * There is no background thread: agreements and reductions make progress while a rank posts, tests,
 * waits or calls kolo_named_progress. While a posted tensor is incomplete, the rank must not call
 * other collectives of the communicator; once all are complete it may, if all ranks do so at the
 * same point. An object belongs to the thread of its communicator. Failures break the communicator,
 * on all ranks. */

#include "kolo/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_named kolo_named;

/* A zero field takes its default. All ranks must pass the same fusion_bytes. */
typedef struct kolo_named_opts {
    size_t fusion_bytes; /* maximum size of fused tensors; default 64 MiB; 1: no fusion */
    int64_t cycle_us;    /* minimum time between two agreements, during which more tensors may
                            become ready. A waiting rank starts an agreement at once if it has posted
                            tensors since the last one, otherwise after this time; default 1000 */
    int64_t stall_ms;    /* after a wait of this length, ask all ranks what they have posted, for
                            on_stall and the text of a TIMEOUT; default 60000, at most half of the
                            wait's deadline */
    /* Called once per wait with one line: which ranks have not posted the tensor that this rank has
     * been waiting for. */
    void (*on_stall)(void *arg, const char *text);
    void *arg;
} kolo_named_opts;

/* Creates the object; a collective call. Does not block. `opts` may be NULL. ARG; NOMEM. */
KOLO_API kolo_status kolo_named_create(kolo_comm *comm, const kolo_named_opts *opts,
                                       kolo_named **named);
/* Frees the object, before its communicator; breaks it if a tensor is incomplete. NULL is allowed.
 */
KOLO_API void kolo_named_destroy(kolo_named *named);

/* Posts `count` elements at `data` for an allreduce in place. They are borrowed until it is
 * complete. Does not block. The name (1 to 255 bytes) is copied and keeps its type, size and
 * operation. `*handle` is the number of the name in this process, the same at every post. ARG: the
 * name is posted and incomplete; or it has another type, size or operation, here or on another
 * rank, which the error shows: then all ranks fail. */
KOLO_API kolo_status kolo_named_post(kolo_named *named, const char *name, void *data, size_t count,
                                     kolo_dtype dtype, kolo_reduce_op op, int *handle);
/* Makes progress and sets `complete` if the tensor is complete. Does not block. */
KOLO_API kolo_status kolo_named_test(kolo_named *named, int handle, bool *complete);
/* Blocks until the tensor is complete; returns at once if it is not posted. timeout_ms 0: the
 * communicator's. TIMEOUT: names the tensor and the ranks that have not posted it. */
KOLO_API kolo_status kolo_named_wait(kolo_named *named, int handle, int64_t timeout_ms);
/* Blocks until all tensors posted by this rank are complete. Errors as for kolo_named_wait. */
KOLO_API kolo_status kolo_named_wait_all(kolo_named *named, int64_t timeout_ms);
/* Makes progress. Does not block. */
KOLO_API kolo_status kolo_named_progress(kolo_named *named);

/* Counters since creation, equal on ranks that have completed the same agreements. */
typedef struct kolo_named_counts {
    uint64_t agreements, tensors;
    uint64_t reductions; /* requests; one for several fused tensors */
    uint64_t names;
} kolo_named_counts;
KOLO_API kolo_named_counts kolo_named_count(const kolo_named *named);

#ifdef __cplusplus
}
#endif
