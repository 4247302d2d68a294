#pragma once
/* Allreduces of named tensors, posted in any order.
 *
 * Collectives of a communicator must be started in one order by all ranks. Programs that cannot
 * promise that post their tensors by name. The ranks then agree, again and again, on what all of
 * them have posted, and reduce that: an agreement is one small allreduce of a byte per name that
 * was ever posted (the smallest of the ranks' bytes says whether all have). Names that are new on
 * some rank are told to all once, with their type, size and operation, and so get the number under
 * which they are agreed on from then on. Tensors that become ready together and have one type and
 * operation travel together, in a buffer of at most `fusion_bytes`. (The idea is that of Sergeev,
 * Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018.)
 *
 *     int a, b;
 *     KOLO_TRY(kolo_named_post(named, "conv1.weight", w, n, KOLO_DTYPE_F32, KOLO_MEAN, &a));
 *     KOLO_TRY(kolo_named_post(named, "conv1.bias", v, m, KOLO_DTYPE_F32, KOLO_MEAN, &b));
 *     KOLO_TRY(kolo_named_wait_all(named, 0));
 *
 * There is no thread: agreements and reductions go on while a rank posts, tests, waits or calls
 * kolo_named_progress. While some posted tensor is not complete, a rank calls no other collective
 * of the communicator; when none is, it may, if all ranks do so at the same point. An object
 * belongs to the communicator's thread. Failures break the communicator, on all ranks. */

#include "kolo/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_named kolo_named;

/* Zero means the default. All ranks must give the same fusion_bytes. */
typedef struct kolo_named_opts {
    size_t fusion_bytes; /* of tensors that travel together; default 64 MiB; 1: each alone */
    int64_t cycle_us;    /* least time from one agreement to the next, in which more tensors can
                            come together; a rank that waits agrees at once on what it has posted
                            since, and after this time on the rest; default 1000 */
    int64_t stall_ms;    /* a wait that lasts so long asks all ranks what they have posted, for
                            on_stall and for the text of the deadline; default 60000, at most half
                            of the wait's deadline */
    /* Is told, in one line, which ranks have not posted what this one has waited for so long; once
     * per wait. */
    void (*on_stall)(void *arg, const char *text);
    void *arg;
} kolo_named_opts;

/* `opts` may be NULL. Every rank calls it at the same point; does not block. ARG; NOMEM. */
KOLO_API kolo_status kolo_named_create(kolo_comm *comm, const kolo_named_opts *opts,
                                       kolo_named **named);
/* Before the communicator. Tensors that are not complete break it. NULL is allowed. */
KOLO_API void kolo_named_destroy(kolo_named *named);

/* Posts `count` elements at `data` for an allreduce in place; they are borrowed until it is
 * complete. The name (1 to 255 bytes) is copied and stands for one type, size and operation for
 * good. `*handle` is the name's number in this process, the same at every post. Does not block.
 * ARG: the name is posted and not complete, or stands for something else, here or on another rank,
 * which the text shows; then all ranks fail. */
KOLO_API kolo_status kolo_named_post(kolo_named *named, const char *name, void *data, size_t count,
                                     kolo_dtype dtype, kolo_reduce_op op, int *handle);
/* Makes progress, and says whether the tensor is complete. Never blocks. */
KOLO_API kolo_status kolo_named_test(kolo_named *named, int handle, bool *complete);
/* Blocks until the tensor is complete; at once if it is not posted. timeout_ms 0: the
 * communicator's. TIMEOUT names the tensor and the ranks that have not posted it. */
KOLO_API kolo_status kolo_named_wait(kolo_named *named, int handle, int64_t timeout_ms);
/* Blocks until all that this rank has posted is complete. */
KOLO_API kolo_status kolo_named_wait_all(kolo_named *named, int64_t timeout_ms);
/* Never blocks. */
KOLO_API kolo_status kolo_named_progress(kolo_named *named);

/* Counters since the creation; the same on all ranks that have come equally far. */
typedef struct kolo_named_counts {
    uint64_t agreements, tensors, reductions,
        names; /* reductions: requests, of fused tensors one */
} kolo_named_counts;
KOLO_API kolo_named_counts kolo_named_count(const kolo_named *named);

#ifdef __cplusplus
}
#endif
