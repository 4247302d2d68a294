#pragma once
/* What benchmarks of several ranks share. */

#include "kolo/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* A barrier that leaves the processors to others: a rank that waits looks once in a millisecond. */
kolo_status kolo_bench_barrier(kolo_comm *comm);

/* Copies of vectors that no core's own cache holds, out of the memory of another rank where it is
 * mapped: of at least 32 MiB, or 32 times the largest one if that is less. */
typedef struct kolo_bench_copies {
    kolo_comm *comm;
    size_t least, most; /* bytes of a vector */
    char *memory, *to;
    const char *from;
    bool registered;
} kolo_bench_copies;

/* Allocates vectors of up to so many bytes: registered, which stay until the communicator ends, or
 * private to this process. A collective call. NOMEM; the errors of an allgather. */
kolo_status kolo_bench_copies_init(kolo_comm *comm, size_t most, bool registered,
                                   kolo_bench_copies *copies);
void kolo_bench_copies_fini(kolo_bench_copies *copies);
/* The bytes per microsecond that the ranks with `takes_part` together copy: each copies a vector of
 * this size, or the least one, repeatedly for this time, at the same time as the
 * others, on the processors where the ranks run. A larger `*rate` stays, since other programs only
 * make it smaller. A collective call; all ranks get the same number. */
kolo_status kolo_bench_copies_rate(const kolo_bench_copies *copies, size_t bytes, bool takes_part,
                                   int64_t budget_ms, double *rate);
