/* The loop stands for kernels: it computes on memory that fits into a processor's own cache, which
 * a thread that makes progress on the same processor evicts. As in a step, it makes progress
 * between its parts too. It takes several milliseconds at least: a scheduler may let a thread wait
 * that long for a processor that computes. */
#include "comm/bench/work.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/status.h"

#include <math.h>
#include <time.h>

enum {
    FLOATS = 1 << 18,     /* 1 MiB */
    KERNEL_NS = 1000000,  /* between two calls of kolo_comm_progress */
    LOOP_TIMES = 3,       /* the time of a call: the loop */
    LOOP_LEAST_US = 5000, /* of it */
    CALLS_LEAST = 3,
    CALLS_MOST = 50,
    BUDGET_TIMES = 8, /* what the least number of calls may take */
    CALIBRATION_NS = 2000000,
};

typedef struct loop {
    float *memory;
    int64_t sweeps, kernel; /* of the memory, in all and between two calls */
} loop;

/* Copies of this loop at other places in the code may take twice as long, by their alignment. */
KOLO_NOINLINE static void sweep(float *memory) {
    for (int i = 0; i < FLOATS; i++) memory[i] = memory[i] * 0.999F + 0.001F;
}

/* The same code whether something is in flight or not. */
static kolo_status run(const loop *l, kolo_comm *comm) {
    for (int64_t i = 1; i <= l->sweeps; i++) {
        sweep(l->memory);
        if (i % l->kernel == 0) KOLO_TRY(kolo_comm_progress(comm));
    }
    return KOLO_OK;
}

/* Makes the loop take about `us`. */
static void calibrate(loop *l, double us) {
    int64_t n = 0, begin = kolo_now_ns(), spent = 0;
    for (; spent < CALIBRATION_NS; n++) {
        sweep(l->memory);
        spent = kolo_now_ns() - begin;
    }
    const double each_ns = (double)spent / (double)n;
    l->sweeps = kolo_max_i64(1, (int64_t)(us * 1e3 / each_ns));
    l->kernel = kolo_max_i64(1, (int64_t)(KERNEL_NS / each_ns));
}

static double median(double *us, int n) {
    kolo_sort_doubles(us, (size_t)n);
    return us[n / 2];
}

/* Time on the clock, and of all threads of this process on processors. */
typedef struct moment {
    int64_t ns, processor_ns;
} moment;

static moment now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (moment){kolo_now_ns(), (int64_t)t.tv_sec * 1000000000 + t.tv_nsec};
}

/* One measured call: the difference of both loops, in us. The processor time leaves out the wait,
 * in which a caller whose peer is late may spin. */
static kolo_status measure(kolo_comm *comm, const loop *l, kolo_request *request, double *us,
                           double *processor_us) {
    KOLO_TRY(kolo_barrier(comm));
    const moment begin = now();
    KOLO_TRY(run(l, comm));
    const moment end = now();
    KOLO_TRY(kolo_barrier(comm));
    const moment start = now();
    KOLO_TRY(kolo_request_start(request));
    KOLO_TRY(run(l, comm));
    const moment done = now();
    KOLO_TRY(kolo_request_wait(request, 0));
    *us = (double)(kolo_now_ns() - start.ns - (end.ns - begin.ns)) * 1e-3;
    *processor_us =
        (double)(done.processor_ns - start.processor_ns - (end.processor_ns - begin.processor_ns)) *
        1e-3;
    return KOLO_OK;
}

kolo_status kolo_bench_work(kolo_comm *comm, kolo_request *request, double us, int64_t budget_ms,
                            void (*rewrite)(void *arg), void *arg, double *us_work) {
    const double loop_us = fmax(LOOP_TIMES * us, LOOP_LEAST_US), each = 2 * loop_us + us;
    const double budget_us = 1e3 * (double)budget_ms;
    double found[CALLS_MOST], processor[CALLS_MOST];
    *us_work = NAN;
    if (CALLS_LEAST * (2 * LOOP_TIMES + 1) * us > BUDGET_TIMES * budget_us) return KOLO_OK;
    const int n = (int)fmin(CALLS_MOST, fmax(CALLS_LEAST, budget_us / each));
    loop l = {.memory = kolo_zalloc(FLOATS * sizeof *l.memory)};
    kolo_status status = l.memory ? KOLO_OK : KOLO_NOMEM(FLOATS * sizeof *l.memory);
    if (status == KOLO_OK) calibrate(&l, loop_us);
    for (int i = 0; i < n && status == KOLO_OK; i++) {
        if (rewrite) rewrite(arg);
        status = measure(comm, &l, request, &found[i], &processor[i]);
    }
    kolo_free(l.memory);
    KOLO_TRY(status);
    KOLO_TRY(kolo_allreduce(comm, found, (size_t)n, KOLO_DTYPE_F64, KOLO_MAX));
    KOLO_TRY(kolo_allreduce(comm, processor, (size_t)n, KOLO_DTYPE_F64, KOLO_MEAN));
    /* Threads of all ranks of a machine may run on the processor of one; hosts may be namespaces.
     */
    const int ranks = kolo_comm_local_size(comm) > 1 ? kolo_comm_local_size(comm) : 2;
    *us_work = fmin(median(found, n), ranks * median(processor, n));
    return KOLO_OK;
}
