#pragma once
/* The rows that alg_*.c bring to the table of algorithms. */

#include "comm/schedule.h"

extern const kolo_algorithm_row kolo_ring_allreduce;
extern const kolo_algorithm_row kolo_tree_broadcast;
extern const kolo_algorithm_row kolo_dissemination_barrier;
extern const kolo_algorithm_row kolo_direct_allreduce;
extern const kolo_algorithm_row kolo_staged_allreduce;
extern const kolo_algorithm_row kolo_eager_allreduce;
extern const kolo_algorithm_row kolo_direct_broadcast;
extern const kolo_algorithm_row kolo_staged_broadcast;
extern const kolo_algorithm_row kolo_eager_broadcast;
extern const kolo_algorithm_row kolo_direct_barrier;
extern const kolo_algorithm_row kolo_tree_reduce;
extern const kolo_algorithm_row kolo_window_reduce;
extern const kolo_algorithm_row kolo_mesh_reduce_scatter;
extern const kolo_algorithm_row kolo_window_reduce_scatter;
extern const kolo_algorithm_row kolo_mesh_allgather;
extern const kolo_algorithm_row kolo_window_allgather;
extern const kolo_algorithm_row kolo_mesh_gather;
extern const kolo_algorithm_row kolo_mesh_scatter;
extern const kolo_algorithm_row kolo_mesh_alltoall;
