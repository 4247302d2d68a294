/* Allreduce in three stages, for hosts whose ranks communicate faster within the host than with
 * other hosts.
 *
 * `lanes` is the number of ranks of the smallest host. (1) Each host reduce-scatters the vector to
 * its first `lanes` ranks: local rank l holds the host's sum of slice l. (2) Lane l, the local
 * ranks l of all hosts, runs a ring allreduce of slice l; all lanes use the network at once.
 * (3) Each host allgathers the slices. Each host sends 2 (h-1)/h of the vector to the next host; a
 * ring over all n ranks sends 2 (n-1)/n.
 *
 * messages  Stages 1 and 3 are those of alg_mesh.c.
 * window    Ranks of a host access each other's vectors: local rank l reduces slice l of all of
 *           them and writes the result of stage 2 to all of them. No other rank accesses that
 *           slice, so one barrier at the end is enough. */
#include "base/memory.h"
#include "comm/schedule/writers.h"

/* Hosts and lanes. */
typedef struct layout {
    kolo_team host; /* the ranks of this host */
    kolo_team lane; /* the ranks of this lane; size 0: this rank is in none */
    int lanes;
} layout;

static int host_of(const kolo_schedule_spec *spec, int rank) {
    return spec->hosts ? spec->hosts[rank] : 0;
}

/* The number of lower ranks on the same host. */
static int local_index(const kolo_schedule_spec *spec, int rank) {
    int n = 0;
    for (int p = 0; p < rank; p++) n += host_of(spec, p) == host_of(spec, rank);
    return n;
}

/* The number of ranks of the smallest host. */
static int count_lanes(const kolo_schedule_spec *spec) {
    int least = spec->size;
    for (int r = 0; r < spec->size; r++) {
        int n = 0;
        for (int p = 0; p < spec->size; p++) n += host_of(spec, p) == host_of(spec, r);
        if (n < least) least = n;
    }
    return least;
}

/* `ranks` has room for 2 * size ranks. */
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

/* Reduces DATA[slice] of all ranks of the host into this rank's DATA. */
static void add_host_sum(const kolo_schedule_spec *spec, kolo_schedule *s, const kolo_team *host,
                         range slice) {
    if (host->size == 1) return;
    for (int i = 0; i < host->size; i++) {
        kolo_schedule_accumulate(s, kolo_team_rank(host, i), KOLO_BUFFER_DATA, slice.first,
                                 slice.count, i == 0);
    }
    kolo_schedule_store(s, spec->rank, KOLO_BUFFER_DATA, slice.first, slice.count);
}

/* Copies this rank's DATA[slice] to the other ranks of the host. */
static void add_host_copies(kolo_schedule *s, const kolo_team *host, range slice) {
    kolo_schedule_round(s);
    for (int i = 1; i < host->size && slice.count > 0; i++) { /* staggered, to spread the load */
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

static double hierarchical_steps(int n, int hosts) { return (n > hosts ? 2 : 0) + 2 * (hosts - 1); }

static double hierarchical_volume(int n, int hosts) {
    return 2.0 * (hosts - 1) / hosts + (hosts == 1 ? kolo_volume_least(n) : 0);
}

const kolo_algorithm_info kolo_allreduce_hierarchical = {
    .steps = hierarchical_steps,
    .volume = hierarchical_volume,
    .memory_cost = {0.4, 60},
    .network_cost = {30, 900},
    .spans_hosts = true,
    .rows = {{.name = "hierarchical",
              .algorithm = KOLO_ALGORITHM_HIERARCHICAL,
              .variant = KOLO_VARIANT_MESSAGES,
              .write = hierarchical_write},
             {.name = "hierarchical-window",
              .algorithm = KOLO_ALGORITHM_HIERARCHICAL,
              .variant = KOLO_VARIANT_WINDOW,
              .write = hierarchical_window}},
};
