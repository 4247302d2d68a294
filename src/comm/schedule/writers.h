#pragma once
/* Helpers for the writers of schedules, alg_*.c. */

#include "comm/schedule/algorithms.h"

/* A range of elements of a buffer. */
typedef struct range {
    size_t first, count;
} range;

/* An ordered subset of the ranks, of which this rank is member `me`. */
typedef struct kolo_team {
    const int *ranks; /* NULL: member i is rank i */
    int size, me;
} kolo_team;

static inline int kolo_team_rank(const kolo_team *team, int member) {
    return team->ranks ? team->ranks[member] : member;
}

/* Slice `part` of a range cut into `parts`. */
static inline range kolo_team_slice(range whole, int parts, int part, size_t align) {
    size_t first = kolo_slice_first(whole.count, parts, part, align);
    size_t end = kolo_slice_first(whole.count, parts, part + 1, align);
    return (range){whole.first + first, end - first};
}

/* Chunk c of a range; empty past its end. */
static inline range kolo_range_chunk(range whole, size_t chunk, size_t c) {
    size_t from = c * chunk < whole.count ? c * chunk : whole.count, left = whole.count - from;
    return (range){whole.first + from, left < chunk ? left : chunk};
}

/* Ring allreduce of a range of DATA within a team. */
void kolo_ring_write(const kolo_schedule_spec *spec, kolo_schedule *s, const kolo_team *team,
                     range whole);
/* Reduce-scatter of a range of DATA to the first `owners` members of a team, a slice each;
 * allgather of these slices to all members. */
void kolo_mesh_reduce_scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s,
                                    const kolo_team *team, int owners, range whole);
void kolo_mesh_allgather_write(const kolo_schedule_spec *spec, kolo_schedule *s,
                               const kolo_team *team, int owners, range whole);

/* ---- terms of the cost model, see costs.h ---- */

/* Depth of a binary tree of n ranks. */
static inline double kolo_log2_up(int n) {
    double k = 0;
    for (int p = 1; p < n; p *= 2) k++;
    return k;
}

/* The lower bound of the volume of an allreduce of n ranks. */
static inline double kolo_volume_least(int n) { return 2.0 * (n - 1) / n; }

/* Ranks that share a host's link. */
static inline double kolo_ranks_per_link(int n, int hosts) {
    return hosts > 1 ? (double)n / hosts : 1;
}
