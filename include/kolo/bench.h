#pragma once
/* Benchmarks of collectives, services and codecs. */

#include "kolo/codec.h"
#include "kolo/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A zero field takes its default. */
typedef struct kolo_bench_allreduce_opts {
    const size_t *sizes; /* bytes, multiples of the element size; default 8, 1 Ki, 16 Ki, 256 Ki,
                            1 Mi and 16 Mi */
    int n_sizes;
    kolo_dtype dtype;
    kolo_reduce_op op;
    int hosts; /* treat the ranks as spread over this many hosts, at most one host per rank, in rank
                  order, to measure hierarchical on one machine; default: the real hosts */
    kolo_algorithm algorithm; /* default auto */
    int shards;               /* above 0: the reproducible allreduce of this many logical shards, at
                                 least one per rank; sum or mean, algorithm auto */
    bool private_buffers;     /* data in the process's own memory instead of registered memory */
    bool dirty;               /* each rank rewrites its data before each call, untimed, as training
                                 does; otherwise the same buffers are reduced repeatedly */
    bool work;                /* measure us_work too, for as long again */
    int64_t budget_ms;        /* per size; default 500 */
} kolo_bench_allreduce_opts;

/* The result for one size. */
typedef struct kolo_bench_row {
    size_t bytes;
    int ranks;
    kolo_algorithm algorithm; /* that ran */
    int iterations;
    double us_median, us_min, us_mean, us_max; /* over iterations, each the slowest rank's */
    double algbw_gigabytes_per_s;              /* bytes / us_median, in 10^9 bytes per second */
    double busbw_gigabytes_per_s;              /* algbw * 2 (ranks - 1) / ranks */
    double us_work; /* with the option `work`: processor time that a call takes from kernels that
                       run meanwhile; us_median where no thread makes progress beside them; NaN: not
                       measured, or calls take too long for that within the budget */
} kolo_bench_row;

/* Times in-place allreduces of each size. All ranks call it with the same options and get the same
 * rows. `*n_rows` is the capacity of `rows` on entry, the number of rows on return. An iteration is
 * a barrier and the timed call; its time is the maximum over ranks. The result of each size is
 * checked first. During the measurement each rank of a host with several is bound to one processor;
 * ranks share processors evenly where there are more ranks. Blocks; the errors of any collective.
 */
KOLO_API kolo_status kolo_bench_allreduce(kolo_comm *comm, const kolo_bench_allreduce_opts *opts,
                                          kolo_bench_row *rows, int *n_rows);

/* A zero field takes its default. */
typedef struct kolo_bench_ps_opts {
    const size_t *sizes; /* bytes; default 1 Ki, 16 Ki, 256 Ki, 1 Mi, 4 Mi, 16 Mi and 64 Mi */
    int n_sizes;
    int servers;          /* the last ranks, which then only serve; default: every rank is a worker
                             and a server */
    bool private_buffers; /* data in the process's own memory instead of registered memory */
    int64_t budget_ms;    /* per size; default 500 */
} kolo_bench_ps_opts;

/* The result for one size. */
typedef struct kolo_bench_ps_row {
    size_t bytes; /* of a worker's vector, which has one slice per server */
    int workers, servers;
    int iterations;                   /* of a worker: a push, then a pull of the whole vector */
    double us_median, us_min, us_max; /* over iterations, each the slowest worker's */
    double gigabytes_per_s;           /* 10^9 bytes per second pushed and pulled by all workers */
    /* The same of plain copies by all ranks at the same time, out of each other's memory where it
     * is mapped, on the processors where they run: the bound where ranks share memory. Of vectors
     * of this size, at least of 32 MiB, or of 32 times the largest size if that is less: smaller
     * ones may stay in caches and exceed it. */
    double copy_gigabytes_per_s;
} kolo_bench_ps_row;

/* Times pushes and pulls of each size between workers and servers (kolo/service.h). A server copies
 * what is pushed, and a worker copies it back when it pulls. All workers run at the same time,
 * without waiting for each other. All ranks call it with the same options and get the same rows.
 * `*n_rows` is the capacity of `rows` on entry, the number of rows on return. Blocks. ARG: no
 * worker; the errors of kolo_service_create and of any request. */
KOLO_API kolo_status kolo_bench_ps(kolo_comm *comm, const kolo_bench_ps_opts *opts,
                                   kolo_bench_ps_row *rows, int *n_rows);

/* A zero field takes its default. */
typedef struct kolo_bench_parameters_opts {
    const size_t *sizes; /* bytes of the parameters; default 1 Mi, 16 Mi and 64 Mi */
    int n_sizes;
    int servers;       /* the last ranks; default: every rank is a worker and owns a part */
    bool apart;        /* workers own no parts beside those of the servers */
    int buckets;       /* as in kolo_parameters_opts; default as many as have parts of 512 KiB */
    int64_t budget_ms; /* per size; default 500 */
} kolo_bench_parameters_opts;

/* The result for one size. */
typedef struct kolo_bench_parameters_row {
    size_t bytes;
    int workers, servers;
    int buckets; /* that each owner had parts of */
    int steps;
    double us_median, us_min, us_max; /* of steps, each the slowest worker's */
    double copy_gigabytes_per_s;      /* 10^9 bytes per second that all ranks together copy, as in
                                         kolo_bench_ps_row */
    double bound_us; /* of a step where ranks share memory: n workers need (3 n + 2) / 2 copies of
                        the parameters, since a step reads n gradients, reads and writes the
                        parameters, and copies them to n workers */
    double sent, received;  /* bytes between hosts in a step: the most of a rank */
    double update_ns;       /* of an element in an update, which reads two floats and writes one */
    double update_bound_ns; /* the time of an owner for a copy of as many bytes, 12 that are read or
                               written, while the owners copy */
} kolo_bench_parameters_row;

/* Times steps of bsp (kolo/parameters.h): all workers push a gradient, the owners update by SGD,
 * and the workers pull. Otherwise as kolo_bench_ps. FORMAT: wrong values. */
KOLO_API kolo_status kolo_bench_parameters(kolo_comm *comm, const kolo_bench_parameters_opts *opts,
                                           kolo_bench_parameters_row *rows, int *n_rows);

/* A zero field takes its default. */
typedef struct kolo_bench_table_opts {
    const size_t
        *sizes; /* bytes of a worker's batch of rows; default 64 Ki, 256 Ki, 1 Mi and 4 Mi */
    int n_sizes;
    int servers;       /* as in kolo_bench_ps_opts */
    size_t width;      /* floats of a row; default 16 */
    uint64_t rows;     /* of the table; default 1000000 */
    int64_t budget_ms; /* per size; default 500 */
} kolo_bench_table_opts;

/* The result for one size. Millions of rows per second, of one worker while all work. */
typedef struct kolo_bench_table_row {
    size_t bytes, batch; /* of a batch; its rows */
    int workers, servers;
    int iterations; /* of a worker */
    double pulled;  /* pulls alone */
    double pushed;  /* pushes alone */
    double both;    /* a pull and then a push of the same rows, each of which counts once */
    double copied;  /* the same of plain copies: a look into an index and a copy of the row to a
                       batch,  and back, by all servers, for all workers */
} kolo_bench_table_row;

/* Times pulls and pushes of random rows of a table (kolo/table.h) with the policy asp. The update
 * adds the gradient. All rows exist before. Otherwise as kolo_bench_ps. ARG: no worker, or a batch
 * of no row or too many; NOMEM; the errors of kolo_table_create and of any request. */
KOLO_API kolo_status kolo_bench_table(kolo_comm *comm, const kolo_bench_table_opts *opts,
                                      kolo_bench_table_row *rows, int *n_rows);

/* Speed and error of a codec. */
typedef struct kolo_bench_codec_row {
    size_t bytes, code_bytes; /* of the vector, of the encoded vector */
    /* 10^9 bytes of the vector per second; medians, one thread. Encoding includes error feedback,
     * decoding adds to a sum. */
    double encode_gigabytes_per_s, decode_gigabytes_per_s;
    double error;          /* ||x - decoded|| / ||x|| of one vector */
    double error_feedback; /* the same for the sums of 64 vectors with error feedback */
} kolo_bench_codec_row;

/* Times a codec on `count` normally distributed floats for about `budget_ms` (0: 500) and measures
 * its error on at most 2^18 of them. ARG: options that kolo_codec_encode rejects, a count of 0;
 * NOMEM. */
KOLO_API kolo_status kolo_bench_codec(const kolo_codec *codec, size_t count, int64_t budget_ms,
                                      kolo_bench_codec_row *row);

/* Calibrates AUTO: times every algorithm on this group at a small and a large size and uses the
 * results as the communicator's cost constants. Rank 0 writes them to the file `path` (NULL: no
 * file) for kolo_comm_load_costs; lines of other transports are kept. All ranks call it.
 * `budget_ms` is per measurement; default 100. ARG: a group of one. */
KOLO_API kolo_status kolo_bench_calibrate(kolo_comm *comm, const char *path, int64_t budget_ms);

#ifdef __cplusplus
}
#endif
