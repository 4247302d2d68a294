/* Allreduce in three stages, for hosts whose ranks reach each other faster than other hosts.
 *
 * Within each host the vector is cut into slices, one for each of its first `lanes` ranks (lanes is
 * the number of ranks of the smallest host), and reduce-scattered: local rank l holds the host's
 * sum of slice l. Then lane l, the local ranks l of all hosts, does a ring allreduce of that slice;
 * all lanes use the network at once, and a byte crosses it as often as in a ring of hosts with one
 * rank each. Then the host gathers the slices. Bytes from each host to the next: 2 (h-1)/h of the
 * vector, where a ring over all n ranks sends 2 (n-1)/n. */
#include "comm/algorithms.h"

/* Who is where. */
typedef struct layout {
    kolo_team host; /* the ranks of the own host */
    kolo_team lane; /* the ranks of the own lane, size 0 for a rank that has none */
    int lanes;
} layout;

static int host_of(const kolo_schedule_spec *spec, int rank) {
    return spec->hosts ? spec->hosts[rank] : 0;
}

/* How many ranks of the same host come before this one. */
static int local_index(const kolo_schedule_spec *spec, int rank) {
    int n = 0;
    for (int p = 0; p < rank; p++) n += host_of(spec, p) == host_of(spec, rank);
    return n;
}

/* Ranks of the smallest host: the least number of ranks that share one. */
static int count_lanes(const kolo_schedule_spec *spec) {
    int least = spec->size;
    for (int r = 0; r < spec->size; r++) {
        int n = 0;
        for (int p = 0; p < spec->size; p++) n += host_of(spec, p) == host_of(spec, r);
        if (n < least) least = n;
    }
    return least;
}

/* `ranks` is room for two lists of all. */
static layout find_layout(const kolo_schedule_spec *spec, int *ranks) {
    layout l = {.host.ranks = ranks, .lane.ranks = ranks + spec->size};
    int own = local_index(spec, spec->rank);
    l.lanes = count_lanes(spec);
    for (int r = 0; r < spec->size; r++) {
        if (host_of(spec, r) == host_of(spec, spec->rank)) {
            if (r == spec->rank) l.host.me = l.host.size;
            ranks[l.host.size++] = r;
        }
        if (own < l.lanes && local_index(spec, r) == own) {
            if (r == spec->rank) l.lane.me = l.lane.size;
            ranks[spec->size + l.lane.size++] = r;
        }
    }
    return l;
}

static void hierarchical_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    range all = {0, spec->count};
    int *ranks = kolo_alloc(2 * (size_t)spec->size * sizeof *ranks);
    if (!ranks) {
        s->failed = true;
        return;
    }
    layout l = find_layout(spec, ranks);
    kolo_mesh_reduce_scatter_write(spec, s, &l.host, l.lanes, all);
    if (l.lane.size > 0) {
        range slice = kolo_team_slice(all, l.lanes, l.host.me, spec->align);
        kolo_ring_write(spec, s, &l.lane, slice);
    }
    kolo_mesh_allgather_write(spec, s, &l.host, l.lanes, all);
    kolo_free(ranks);
}

const kolo_algorithm_row kolo_hierarchical_allreduce = {
    .name = "hierarchical",
    .kind = KOLO_COLLECTIVE_ALLREDUCE,
    .algorithm = KOLO_ALGORITHM_HIERARCHICAL,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = hierarchical_write,
};
