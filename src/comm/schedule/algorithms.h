#pragma once
/* The rows that alg_*.c bring to the table of algorithms, and what they share. */

#include "comm/schedule/schedule.h"

extern const kolo_algorithm_row kolo_ring_allreduce, kolo_tree_allreduce,
    kolo_double_tree_allreduce, kolo_halving_allreduce, kolo_mesh_allreduce,
    kolo_hierarchical_allreduce, kolo_hierarchical_window_allreduce, kolo_fixed_allreduce,
    kolo_fixed_window_allreduce, kolo_fixed_eager_allreduce;
extern const kolo_algorithm_row kolo_direct_allreduce, kolo_staged_allreduce, kolo_eager_allreduce;
extern const kolo_algorithm_row kolo_tree_broadcast, kolo_direct_broadcast, kolo_staged_broadcast,
    kolo_eager_broadcast;
extern const kolo_algorithm_row kolo_dissemination_barrier, kolo_direct_barrier;
extern const kolo_algorithm_row kolo_tree_reduce, kolo_window_reduce;
extern const kolo_algorithm_row kolo_mesh_reduce_scatter, kolo_window_reduce_scatter;
extern const kolo_algorithm_row kolo_mesh_allgather, kolo_window_allgather;
extern const kolo_algorithm_row kolo_mesh_gather, kolo_mesh_scatter, kolo_mesh_alltoall;
/* For backends; not in the table. */
extern const kolo_algorithm_row kolo_offloaded, kolo_offloaded_packed;

/* Elements of a buffer. */
typedef struct range {
    size_t first, count;
} range;

/* Some of the ranks, in order; `me` is this rank's place among them. */
typedef struct kolo_team {
    const int *ranks; /* NULL: place i is rank i */
    int size, me;
} kolo_team;

static inline int kolo_team_rank(const kolo_team *team, int place) {
    return team->ranks ? team->ranks[place] : place;
}

/* Slice `part` of `parts`. */
static inline range kolo_team_slice(range whole, int parts, int part, size_t align) {
    size_t first = kolo_slice_first(whole.count, parts, part, align);
    size_t end = kolo_slice_first(whole.count, parts, part + 1, align);
    return (range){whole.first + first, end - first};
}

/* Chunk c of a range; empty behind its end. */
static inline range kolo_range_chunk(range whole, size_t chunk, size_t c) {
    size_t from = c * chunk < whole.count ? c * chunk : whole.count, left = whole.count - from;
    return (range){whole.first + from, left < chunk ? left : chunk};
}

/* Allreduce of a part of DATA among a team. */
void kolo_ring_write(const kolo_schedule_spec *spec, kolo_schedule *s, const kolo_team *team,
                     range whole);
/* The first `owners` members of a team get a slice of `whole` each; and give it to all others. */
void kolo_mesh_reduce_scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s,
                                    const kolo_team *team, int owners, range whole);
void kolo_mesh_allgather_write(const kolo_schedule_spec *spec, kolo_schedule *s,
                               const kolo_team *team, int owners, range whole);
