#pragma once
/* Profiles of a training step: the time of each op and phase, and its lower bound on this machine.
 */

#include "kolo/comm.h"
#include "kolo/phase.h"
#include "kolo/train.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One kernel, POST or WAIT of the step, in execution order. */
typedef struct kolo_profile_row {
    kolo_phase phase;
    const char *op;        /* "conv2d_bwd_data" */
    const char *kernel;    /* "dnn_conv2d_bwd_data"; "" for POST and WAIT */
    const char *library;   /* the library's name of the implementation, "brgconv:avx2", or "" */
    const char *parameter; /* "conv1.weight", or "" */
    const char *shape;     /* of its first output */
    /* Per step; kernels run once for each micro-batch. */
    double ms;           /* median over the steps */
    double alone_ms;     /* minimum when repeated at once, with warm caches */
    double bound_ms;     /* see kolo_profile */
    double flops, bytes; /* by the cost formula of the op; a multiply-add is two */
    bool slow;           /* a reference implementation, Kolo's or the library's */
} kolo_profile_row;

/* A profile. The bound of a row is a lower bound of its time. Compute-bound rows (flops at peak
 * rate take longer than bytes at memory bandwidth): alone_ms. Others: bytes at memory bandwidth, or
 * alone_ms if that is less. */
typedef struct kolo_profile {
    int threads, workers;
    int64_t batch, accumulate, parameters, steps;
    const char *isa;
    double peak_flops, peak_bytes; /* per second, of all threads, measured by short loops */
    int64_t swept_bytes;           /* working set of peak_bytes: as much as a step touches */
    double step_ms, fastest_ms;    /* median and fastest step, input included */
    double together_ms; /* median of the steps, until the last rank of `together` has ended them;
                           without, step_ms */
    double bound_ms;    /* sum over rows */
    double phase_ms[KOLO_PHASES]; /* medians */
    int regions; /* whose operations ran at the same time, in lanes; 0 unless they were asked for */
    int tried;   /* these, and regions that were slower so */
    int64_t arena_bytes, scratch_bytes, gradient_bytes, store_bytes, peak_rss_bytes;
    const kolo_profile_row *rows;
    int n_rows;
} kolo_profile;

/* A zero field takes its default. */
typedef struct kolo_profile_opts {
    int64_t steps; /* measured, after two warm-up steps, or those that try lanes; default 10 */
    bool lanes; /* as the options of the run have them, instead of one operation after another; the
                   ms of a row is then its share of the time of its region */
    bool times_only;     /* neither kernels by themselves nor the machine are measured: alone_ms,
                            bound_ms, isa and the peaks stay 0 */
    kolo_comm *together; /* with `comm` NULL: each rank of this group profiles a step of a single
                            rank, which updates as ranks do that others can interrupt, not in place,
                            and all begin each measured step at the same time; then the call is
                            collective in it, with equal options, and fails on all ranks if it does
                            on one. NULL: this process alone */
} kolo_profile_opts;

/* Profiles the training step that `train` describes, with in_memory data, as this rank of `comm`
 * (NULL: a single rank). Collective; the numbers are of this rank. Blocks. Free the result with
 * kolo_profile_destroy. Errors of kolo_train; IO: the trace cannot be written. */
KOLO_API kolo_status kolo_profile_train(kolo_comm *comm, const kolo_train_opts *train,
                                        const kolo_profile_opts *opts, kolo_profile **profile);
/* NULL is allowed. */
KOLO_API void kolo_profile_destroy(kolo_profile *profile);

#ifdef __cplusplus
}
#endif
