/* Measures the machine: the best of several timed rounds, since disturbances only add time. */
#include "inspect/machine.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "inspect/machine_loops.h"

static const int64_t budget_ns = 80000000; /* per measurement */
static const int64_t fma_rounds = 1 << 19; /* a few milliseconds */
static const size_t least = 1 << 16, most = (size_t)512 << 20;

/* The minimum time of `loop` within the budget, at least three rounds. */
static double least_seconds(int threads, kolo_machine_team team, int64_t items,
                            kolo_machine_loop loop, const void *job) {
    int64_t begin = kolo_now_ns(), best = INT64_MAX;
    for (int round = 0; round < 3 || kolo_now_ns() - begin < budget_ns; round++) {
        int64_t start = kolo_now_ns();
        team(threads, items, loop, job);
        best = kolo_min_i64(best, kolo_now_ns() - start);
    }
    return (double)kolo_max_i64(best, 1) / 1e9;
}

static kolo_status measure_flops(int threads, kolo_machine_team team, const kolo_perf_table *table,
                                 double *flops) {
    float *sums = kolo_zalloc((size_t)threads * sizeof *sums);
    if (!sums) return KOLO_NOMEM((size_t)threads * sizeof *sums);
    int64_t rounds = fma_rounds * threads;
    double seconds = least_seconds(threads, team, rounds, table->fma, &sums);
    *flops = (double)rounds * table->flops / seconds;
    kolo_free(sums);
    return KOLO_OK;
}

static kolo_status measure_memory(int threads, kolo_machine_team team, const kolo_perf_table *table,
                                  size_t bytes, double *rate) {
    int64_t count = (int64_t)(bytes / 3 / sizeof(float));
    float *memory = kolo_pages_map(bytes);
    if (!memory) return KOLO_NOMEM(bytes);
    kolo_perf_triad job = {
        .a = memory, .b = memory + count, .c = memory + 2 * count, .factor = 0.5F};
    int sweeps = 1; /* per timed round: short rounds would measure the clock */
    while ((size_t)sweeps * bytes < (size_t)4 << 20) sweeps *= 2;
    double best = 0;
    int64_t begin = kolo_now_ns();
    team(threads, count, table->triad, &job); /* first touch of the pages */
    for (int round = 0; round < 3 || kolo_now_ns() - begin < budget_ns; round++) {
        int64_t start = kolo_now_ns();
        for (int i = 0; i < sweeps; i++) team(threads, count, table->triad, &job);
        double seconds = (double)kolo_max_i64(kolo_now_ns() - start, 1) / 1e9;
        double here = (double)sweeps * (double)(3 * count) * sizeof(float) / seconds;
        if (here > best) best = here;
    }
    kolo_pages_unmap(memory, bytes);
    *rate = best;
    return KOLO_OK;
}

kolo_status kolo_machine_measure(int threads, kolo_machine_team team, size_t bytes,
                                 kolo_machine *machine) {
    int64_t begin = kolo_now_ns();
    const kolo_perf_table *table = KOLO_ISA_PICK(kolo_perf);
    kolo_machine m = {.isa = kolo_isa_describe(kolo_isa_now())->name,
                      .bytes = bytes < least  ? least
                               : bytes > most ? most
                                              : bytes};
    KOLO_TRY(measure_flops(threads, team, table, &m.flops_per_s));
    KOLO_TRY(measure_memory(threads, team, table, m.bytes, &m.bytes_per_s));
    m.seconds_spent = (double)(kolo_now_ns() - begin) / 1e9;
    *machine = m;
    return KOLO_OK;
}
