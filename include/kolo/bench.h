#pragma once
/* Measuring collectives between the ranks of a job, and codecs. */

#include "kolo/codec.h"
#include "kolo/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero means the default. */
typedef struct kolo_bench_allreduce_opts {
    const size_t *sizes; /* bytes of data, multiples of an element's; default 8, 1 Ki, 16 Ki, 256
                            Ki, 1 Mi and 16 Mi */
    int n_sizes;
    kolo_dtype dtype;
    kolo_reduce_op op;
    int hosts; /* the ranks are taken to be spread over so many hosts, at most one each, in order,
                  as hierarchical needs them; default: as they are */
    kolo_algorithm algorithm; /* default auto */
    int shards;               /* the reproducible allreduce of so many logical shards, at least as
                                 many as ranks, a sum or mean, algorithm auto; default: not */
    bool private_buffers;     /* data in the process's own memory instead of registered memory */
    bool dirty;        /* each rank rewrites its data before each call, outside of the time, as
                          training does; else the same buffers are reduced again and again */
    int64_t budget_ms; /* per size; default 500 */
} kolo_bench_allreduce_opts;

/* One size. */
typedef struct kolo_bench_row {
    size_t bytes;
    int ranks;
    kolo_algorithm algorithm; /* that was run */
    int iterations;
    double us_median, us_min, us_mean, us_max; /* over iterations, of the slowest rank in each */
    double algbw_gbps;                         /* bytes / us_median, in 10^9 bytes per second */
    double busbw_gbps;                         /* algbw * 2 (ranks - 1) / ranks */
} kolo_bench_row;

/* Times allreduces in place, size after size; every rank of the group calls it with the same
 * options, and all get the same rows. `*n_rows` is the room in `rows` and becomes their number. Per
 * size: a barrier, the timed call, the maximum over ranks of each iteration, the median over
 * iterations. Checks a result of each size first. While it measures, each rank is bound to a
 * processor: of its own where there are as many, else as many ranks to each. Blocks; the error of
 * any collective. */
KOLO_API kolo_status kolo_bench_allreduce(kolo_comm *comm, const kolo_bench_allreduce_opts *opts,
                                          kolo_bench_row *rows, int *n_rows);

/* What a codec costs and loses. */
typedef struct kolo_bench_codec_row {
    size_t bytes, code_bytes;        /* of the vector and of its code */
    double encode_gbps, decode_gbps; /* 10^9 bytes of the vector per second, medians of one thread;
                                        encoding with error feedback, decoding adds to a sum */
    double error;                    /* ||x - decoded|| / ||x|| of one vector */
    double error_feedback; /* the same of the sums over 64 fresh vectors with error feedback */
} kolo_bench_codec_row;

/* Times a codec on `count` normally distributed floats for about `budget_ms` (0: 500) and measures
 * its errors on at most 2^18 of them. ARG: what kolo_codec_encode refuses, a count of 0; NOMEM. */
KOLO_API kolo_status kolo_bench_codec(const kolo_codec *codec, size_t count, int64_t budget_ms,
                                      kolo_bench_codec_row *row);

/* Measures every algorithm on this group at a small and a large size, takes the results as the
 * constants from which AUTO chooses from now on, and writes them for kolo_comm_load_costs to the
 * file `path` (rank 0; what it has of other transports stays; NULL: nowhere). All ranks call it.
 * `budget_ms` is for each measurement; default 100. ARG: a group of one. */
KOLO_API kolo_status kolo_bench_calibrate(kolo_comm *comm, const char *path, int64_t budget_ms);

#ifdef __cplusplus
}
#endif
