/* Allreduce in three stages, for hosts whose ranks reach each other faster than other hosts.
 *
 * Within each host the vector is cut into slices, one for each of its first `lanes` ranks (lanes is
 * the number of ranks of the smallest host), and reduce-scattered: local rank l holds the host's
 * sum of slice l. Then lane l, the local ranks l of all hosts, does a ring allreduce of that slice;
 * all lanes use the network at once, and a byte crosses it as often as in a ring of hosts with one
 * rank each. Then the host gathers the slices. Bytes from each host to the next: 2 (h-1)/h of the
 * vector, where a ring over all n ranks sends 2 (n-1)/n.
 *
 * messages  the stages inside a host are those of alg_mesh.c.
 * window    ranks of a host reach each other's vectors: local rank l combines slice l of all of
 *           them, and writes what the lane makes of it to all of them. Only it ever reads or writes
 *           that slice, so one barrier at the end is enough. */
#include "base/memory.h"
#include "comm/schedule/writers.h"

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

/* DATA[slice] of all ranks of the host, combined in the own one. */
static void add_host_sum(const kolo_schedule_spec *spec, kolo_schedule *s, const kolo_team *host,
                         range slice) {
    if (host->size == 1) return;
    for (int i = 0; i < host->size; i++) {
        kolo_schedule_gather(s, kolo_team_rank(host, i), KOLO_BUFFER_DATA, slice.first, slice.count,
                             i == 0);
    }
    kolo_schedule_store(s, spec->rank, KOLO_BUFFER_DATA, slice.first, slice.count);
}

/* The own DATA[slice] to the other ranks of the host. */
static void add_host_copies(kolo_schedule *s, const kolo_team *host, range slice) {
    kolo_schedule_round(s);
    for (int i = 1; i < host->size && slice.count > 0; i++) { /* not all to the same rank at once */
        kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_COPY_TO,
                                          .peer = kolo_team_rank(host, (host->me + i) % host->size),
                                          .to_first = slice.first,
                                          .from_first = slice.first,
                                          .count = slice.count});
    }
}

static void hierarchical_window(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    int *ranks = kolo_alloc(2 * (size_t)spec->size * sizeof *ranks);
    if (!ranks) {
        s->failed = true;
        return;
    }
    layout l = find_layout(spec, ranks);
    if (l.lane.size > 0) {
        range slice = kolo_team_slice((range){0, spec->count}, l.lanes, l.host.me, spec->align);
        add_host_sum(spec, s, &l.host, slice);
        kolo_ring_write(spec, s, &l.lane, slice);
        add_host_copies(s, &l.host, slice);
    }
    kolo_schedule_round(s);
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_BARRIER});
    kolo_free(ranks);
}

static double hierarchical_steps(int n, int hosts) { return 2 + 2 * (hosts - 1); }

static double hierarchical_volume(int n, int hosts) {
    return 2.0 * (hosts - 1) / hosts + (hosts == 1 ? kolo_volume_least(n) : 0);
}

const kolo_algorithm_info kolo_allreduce_hierarchical = {
    .steps = hierarchical_steps,
    .volume = hierarchical_volume,
    .memory_cost = {0.4, 60},
    .network_cost = {30, 900},
    .several_hosts = true,
    .rows = {{.name = "hierarchical",
              .algorithm = KOLO_ALGORITHM_HIERARCHICAL,
              .variant = KOLO_VARIANT_MESSAGES,
              .write = hierarchical_write},
             {.name = "hierarchical-window",
              .algorithm = KOLO_ALGORITHM_HIERARCHICAL,
              .variant = KOLO_VARIANT_WINDOW,
              .write = hierarchical_window}},
};
