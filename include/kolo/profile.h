#pragma once
/* Where the time of a training step goes: each op, each phase, beside what the machine could do. */

#include "kolo/comm.h"
#include "kolo/phase.h"
#include "kolo/train.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One kernel, POST or WAIT of the step, in the order in which they run. */
typedef struct kolo_profile_row {
    kolo_phase phase;
    const char *op;        /* "conv2d_bwd_data" */
    const char *kernel;    /* "dnn_conv2d_bwd_data"; "" for POST and WAIT */
    const char *library;   /* the library's name for what runs, "brgconv:avx2"; "" where none */
    const char *parameter; /* that it is about, "conv1.weight"; "" where there is none */
    const char *shape;     /* of its first output */
    /* All of a whole step, in which kernels run once for each micro-batch. */
    double ms;           /* median over the steps */
    double alone_ms;     /* least time when repeated at once, its data in the caches */
    double bound_ms;     /* see kolo_profile */
    double flops, bytes; /* as the op's cost says; a multiply-add is two */
    bool slow;           /* a reference loop, Kolo's or the library's */
} kolo_profile_row;

/* What a profile found. The bound of a row is its time alone where it computes, that is where
 * its flops at the machine's peak take longer than its bytes at the memory's; else the time of its
 * bytes at the memory's rate, or its time alone where that is less. */
typedef struct kolo_profile {
    int threads, workers;
    int64_t batch, accumulate, parameters, steps;
    const char *isa;
    double peak_flops, peak_bytes; /* a second, measured here by short loops, of all threads */
    int64_t swept_bytes;           /* of memory, for peak_bytes: as much as the step touches */
    double step_ms, fastest_ms;    /* the median step and the fastest, input included */
    double bound_ms;               /* sum over rows */
    double phase_ms[KOLO_PHASES];  /* medians */
    int64_t arena_bytes, scratch_bytes, gradient_bytes, store_bytes, peak_rss_bytes;
    const kolo_profile_row *rows;
    int n_rows;
} kolo_profile;

/* Zero means the default. */
typedef struct kolo_profile_opts {
    int64_t steps; /* to take medians over, after two that warm up; default 10 */
} kolo_profile_opts;

/* Profiles the training step that `train` describes, with its data in memory (as
 * kolo_train_opts.in_memory), as this rank of `comm` (NULL: alone); all ranks call it. The numbers
 * are this rank's. Blocks. Free the result with kolo_profile_destroy.
 * Errors: those of kolo_train; IO: the trace cannot be written. */
KOLO_API kolo_status kolo_profile_train(kolo_comm *comm, const kolo_train_opts *train,
                                        const kolo_profile_opts *opts, kolo_profile **profile);
/* NULL is allowed. */
KOLO_API void kolo_profile_destroy(kolo_profile *profile);

#ifdef __cplusplus
}
#endif
