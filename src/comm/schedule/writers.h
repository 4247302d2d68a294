#pragma once
/* Helpers for the writers of schedules, alg_*.c. */

#include "comm/schedule/algorithms.h"

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

/* ---- terms of the cost model (costs.h) ---- */

/* Steps of a binary tree of n ranks. */
static inline double kolo_log2_up(int n) {
    double k = 0;
    for (int p = 1; p < n; p *= 2) k++;
    return k;
}

/* The least volume of an allreduce through one rank. */
static inline double kolo_volume_least(int n) { return 2.0 * (n - 1) / n; }

/* How many ranks share a host's link at a time, if all of them use it. */
static inline double kolo_ranks_per_link(int n, int hosts) {
    return hosts > 1 ? (double)n / hosts : 1;
}
