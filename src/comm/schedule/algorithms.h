#pragma once
/* The table of algorithms.
 *
 * To add an allreduce algorithm, write alg_NAME.c, which defines a kolo_algorithm_info, and add a
 * row to KOLO_ALGORITHM_LIST in kolo/comm.h. Names, help, error messages, the cost model and its
 * file, benchmarks and tests follow from the list. */

#include "comm/schedule/schedule.h"

/* Time of an allreduce: steps * step_us + volume * MiB * mib_us; see costs.h. */
typedef struct kolo_comm_cost {
    double step_us, mib_us;
} kolo_comm_cost;

enum { KOLO_ALGORITHM_ROWS = 3 };

/* An allreduce algorithm. All fields but the flags are required. */
typedef struct kolo_algorithm_info {
    /* steps: how often the last rank to finish waits for another rank. volume: the part of the
     * vector that passes through the busiest rank, with several hosts through the busiest link. */
    double (*steps)(int ranks, int hosts);
    double (*volume)(int ranks, int hosts);
    /* Built-in cost constants; the choice depends on their order of magnitude. Memory: processes on
     * one host, measured by kolo bench allreduce --calibrate with 2 processes on two cores (AMD
     * EPYC). Network: 10 Gbit/s; a byte costs about the same in all algorithms, more where messages
     * collide at one rank (mesh) or exchanges do not overlap (halving-doubling). */
    kolo_comm_cost memory_cost, network_cost;
    bool spans_hosts; /* WINDOW needs DATA of the same host only; useless on one host */
    bool all_pairs;   /* each rank sends to all others: AUTO does not connect ranks for that */
    bool in_order;    /* all variants combine the elements of the ranks in their order */
    /* One row per variant, terminated by a row without a writer. An algorithm without a MESSAGES
     * row needs a transport with windows: ranks access each other's memory. */
    kolo_algorithm_row rows[KOLO_ALGORITHM_ROWS + 1];
} kolo_algorithm_info;

#define KOLO_ALGORITHM_EXTERN(code, row, name, description) \
    extern const kolo_algorithm_info kolo_allreduce_##row;
KOLO_ALGORITHM_LIST(KOLO_ALGORITHM_EXTERN)
#undef KOLO_ALGORITHM_EXTERN

/* `algorithm` of the reproducible allreduce, which is chosen by kolo_request_opts.shards. */
#define KOLO_ALGORITHM_REPRODUCIBLE KOLO_ALGORITHM_COUNT
extern const kolo_algorithm_row kolo_reproducible_allreduce, kolo_reproducible_window_allreduce,
    kolo_reproducible_eager_allreduce;

/* The other collectives. */
extern const kolo_algorithm_row kolo_tree_broadcast, kolo_direct_broadcast, kolo_staged_broadcast,
    kolo_eager_broadcast;
extern const kolo_algorithm_row kolo_dissemination_barrier, kolo_direct_barrier;
extern const kolo_algorithm_row kolo_tree_reduce, kolo_mesh_reduce, kolo_window_reduce;
extern const kolo_algorithm_row kolo_mesh_reduce_scatter, kolo_window_reduce_scatter,
    kolo_ring_reduce_scatter, kolo_bruck_reduce_scatter;
extern const kolo_algorithm_row kolo_mesh_allgather, kolo_window_allgather, kolo_bruck_allgather;
extern const kolo_algorithm_row kolo_mesh_gather, kolo_mesh_scatter, kolo_mesh_alltoall;

/* For backends; not in the table. */
extern const kolo_algorithm_row kolo_offloaded, kolo_offloaded_packed;

/* Of an algorithm other than AUTO. */
KOLO_SHARED const kolo_algorithm_info *kolo_algorithm_info_of(kolo_algorithm algorithm);
/* Whether a group on `hosts` hosts can use `algorithm`; `windows`: its ranks access each other's
 * memory. */
bool kolo_algorithm_usable(kolo_algorithm algorithm, bool windows, int hosts);
/* Whether `algorithm` uses windows within each host and messages between hosts. */
bool kolo_algorithm_spans_hosts(kolo_algorithm algorithm);
/* Whether each rank sends to all others. False for AUTO. */
bool kolo_algorithm_all_pairs(kolo_algorithm algorithm);
/* Whether it combines the elements of the ranks in their order. */
bool kolo_algorithm_in_order(kolo_algorithm algorithm);
/* Row i of the rows of all collectives, NULL past the last. */
KOLO_SHARED const kolo_algorithm_row *kolo_algorithm_row_at(size_t i);
/* The row of a collective, NULL if there is none. */
KOLO_SHARED const kolo_algorithm_row *
kolo_algorithm_find(kolo_collective kind, kolo_algorithm algorithm, kolo_variant variant);
