/* Direct exchange by messages: every rank sends its data to all others in one step. Bytes and steps
 * are minimal; links and receivers must handle all messages at once.
 *
 * Reduce-scatter: each rank sends slice p to rank p and reduces the received slices in rank order,
 * so the result has the same bits as the variants in memory. Slices are sent in chunks: chunk c is
 * in transit while chunk c - 1 is reduced; SCRATCH is a double buffer with one chunk per peer.
 * Allgather: each rank sends its slice to all others. An allreduce is a reduce-scatter and an
 * allgather: each rank acts as the parameter server of one slice. A reduce is a reduce-scatter with
 * one slice, the root's. Gather, scatter and all-to-all are single steps. */
#include "comm/schedule/writers.h"

/* A reduce-scatter in a team: member i reduces slice i of all members' `source`. */
typedef struct exchange {
    const kolo_schedule_spec *spec;
    const kolo_team *team;
    const size_t *firsts; /* of the slices; NULL: `whole` is cut evenly among `owners` members,
                             from `first_owner` on */
    range whole;
    int owners, first_owner;
    size_t to_first;      /* of this member's slice in DATA */
    size_t chunk;         /* elements */
    size_t scratch, half; /* a double buffer, one chunk per member in each half */
} exchange;

static range slice_of(const exchange *x, int i) {
    if (x->firsts) return (range){x->firsts[i], x->firsts[i + 1] - x->firsts[i]};
    i -= x->first_owner;
    if (i < 0 || i >= x->owners) return (range){0, 0};
    return kolo_team_slice(x->whole, x->owners, i, x->spec->align);
}

static range chunk_of(const exchange *x, int i, size_t c) {
    return kolo_range_chunk(slice_of(x, i), x->chunk, c);
}

/* Reduces chunk c of this member's slice, in the order of members. */
static void add_sum(const exchange *x, kolo_schedule *s, size_t c) {
    const kolo_schedule_spec *spec = x->spec;
    range own = chunk_of(x, x->team->me, c);
    size_t base = x->scratch + c % 2 * x->half;
    if (own.count == 0) return;
    for (int i = 0; i < x->team->size; i++) {
        bool own_data = i == x->team->me;
        kolo_schedule_accumulate(s, spec->rank, own_data ? spec->source : KOLO_BUFFER_SCRATCH,
                                 own_data ? own.first : base + (size_t)i * x->chunk, own.count,
                                 i == 0);
    }
    kolo_schedule_store(s, spec->rank, KOLO_BUFFER_DATA, x->to_first + c * x->chunk, own.count);
}

static void add_reduce_scatter(exchange *x, kolo_schedule *s) {
    const kolo_team *team = x->team;
    size_t longest = 0;
    for (int i = 0; i < team->size; i++) {
        if (slice_of(x, i).count > longest) longest = slice_of(x, i).count;
    }
    if (longest == 0 || team->size == 1) return;
    x->chunk = longest < x->spec->chunk ? longest : x->spec->chunk;
    x->half = (size_t)team->size * x->chunk;
    x->scratch = slice_of(x, team->me).count ? kolo_schedule_scratch(s, 2 * x->half) : 0;
    size_t chunks = (longest + x->chunk - 1) / x->chunk;
    for (size_t c = 0; c < chunks; c++) {
        size_t base = x->scratch + c % 2 * x->half;
        kolo_schedule_round(s);
        if (c > 0) add_sum(x, s, c - 1);
        for (int i = 1; i < team->size; i++) {
            int to = (team->me + i) % team->size, from = (team->me + team->size - i) % team->size;
            range out = chunk_of(x, to, c);
            kolo_schedule_send(s, kolo_team_rank(team, to), x->spec->source, out.first, out.count);
            kolo_schedule_recv(s, kolo_team_rank(team, from), KOLO_BUFFER_SCRATCH,
                               base + (size_t)from * x->chunk, chunk_of(x, team->me, c).count);
        }
    }
    kolo_schedule_round(s);
    add_sum(x, s, chunks - 1);
}

/* Each member sends its slice of DATA to all others. */
static void add_allgather(const exchange *x, kolo_schedule *s) {
    const kolo_team *team = x->team;
    range own = slice_of(x, team->me);
    kolo_schedule_round(s);
    for (int i = 1; i < team->size; i++) {
        int to = (team->me + i) % team->size, from = (team->me + team->size - i) % team->size;
        range in = slice_of(x, from);
        kolo_schedule_send(s, kolo_team_rank(team, to), KOLO_BUFFER_DATA, own.first, own.count);
        kolo_schedule_recv(s, kolo_team_rank(team, from), KOLO_BUFFER_DATA, in.first, in.count);
    }
}

void kolo_mesh_reduce_scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s,
                                    const kolo_team *team, int owners, range whole) {
    exchange x = {.spec = spec, .team = team, .owners = owners, .whole = whole};
    x.to_first = slice_of(&x, team->me).first;
    add_reduce_scatter(&x, s);
}

void kolo_mesh_allgather_write(const kolo_schedule_spec *spec, kolo_schedule *s,
                               const kolo_team *team, int owners, range whole) {
    exchange x = {.spec = spec, .team = team, .owners = owners, .whole = whole};
    add_allgather(&x, s);
}

static void allreduce_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    kolo_team all = {.size = spec->size, .me = spec->rank};
    range whole = {0, spec->count};
    kolo_mesh_reduce_scatter_write(spec, s, &all, spec->size, whole);
    kolo_mesh_allgather_write(spec, s, &all, spec->size, whole);
}

static void reduce_scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    kolo_team all = {.size = spec->size, .me = spec->rank};
    exchange x = {.spec = spec, .team = &all, .firsts = spec->firsts};
    x.to_first = spec->in_place ? spec->firsts[spec->rank] : 0;
    add_reduce_scatter(&x, s);
}

/* The root owns the whole vector. */
static void reduce_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    kolo_team all = {.size = spec->size, .me = spec->rank};
    exchange x = {.spec = spec,
                  .team = &all,
                  .whole = {0, spec->count},
                  .owners = 1,
                  .first_owner = spec->root};
    add_reduce_scatter(&x, s);
}

static void allgather_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    kolo_team all = {.size = spec->size, .me = spec->rank};
    add_allgather(&(exchange){.spec = spec, .team = &all, .firsts = spec->firsts}, s);
}

static void gather_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    const size_t *firsts = spec->firsts;
    if (spec->rank != spec->root) {
        kolo_schedule_send(s, spec->root, KOLO_BUFFER_INPUT, 0,
                           firsts[spec->rank + 1] - firsts[spec->rank]);
        return;
    }
    for (int p = 0; p < spec->size; p++) {
        if (p == spec->root) continue;
        kolo_schedule_recv(s, p, KOLO_BUFFER_DATA, firsts[p], firsts[p + 1] - firsts[p]);
    }
}

static void scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    const size_t *firsts = spec->firsts;
    if (spec->rank != spec->root) {
        kolo_schedule_recv(s, spec->root, KOLO_BUFFER_DATA, 0,
                           firsts[spec->rank + 1] - firsts[spec->rank]);
        return;
    }
    for (int p = 0; p < spec->size; p++) {
        if (p == spec->root) continue;
        kolo_schedule_send(s, p, KOLO_BUFFER_INPUT, firsts[p], firsts[p + 1] - firsts[p]);
    }
}

static void alltoall_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    const size_t *in = spec->firsts, *out = spec->output_firsts;
    int n = spec->size, me = spec->rank;
    if (!spec->in_place) {
        kolo_schedule_copy(s, KOLO_BUFFER_DATA, out[me], spec->source, in[me], in[me + 1] - in[me]);
    }
    for (int i = 1; i < n; i++) {
        int to = (me + i) % n, from = (me + n - i) % n;
        kolo_schedule_send(s, to, spec->source, in[to], in[to + 1] - in[to]);
        kolo_schedule_recv(s, from, KOLO_BUFFER_DATA, out[from], out[from + 1] - out[from]);
    }
}

static double mesh_steps(int n, int hosts) { return 2; }

static double mesh_volume(int n, int hosts) {
    return kolo_volume_least(n) * kolo_ranks_per_link(n, hosts);
}

const kolo_algorithm_info kolo_allreduce_mesh = {
    .steps = mesh_steps,
    .volume = mesh_volume,
    .memory_cost = {0.4, 60},
    .network_cost = {45, 1000},
    .all_pairs = true,
    .in_order = true,
    .rows = {{.name = "mesh",
              .algorithm = KOLO_ALGORITHM_MESH,
              .variant = KOLO_VARIANT_MESSAGES,
              .write = allreduce_write}},
};

/* For operations that are not commutative: the tree combines in another order. */
const kolo_algorithm_row kolo_mesh_reduce = {
    .name = "reduce-mesh",
    .kind = KOLO_COLLECTIVE_REDUCE,
    .algorithm = KOLO_ALGORITHM_MESH,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = reduce_write,
};

const kolo_algorithm_row kolo_mesh_reduce_scatter = {
    .name = "reduce-scatter-mesh",
    .kind = KOLO_COLLECTIVE_REDUCE_SCATTER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = reduce_scatter_write,
};

const kolo_algorithm_row kolo_mesh_allgather = {
    .name = "allgather-mesh",
    .kind = KOLO_COLLECTIVE_ALLGATHER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = allgather_write,
};

const kolo_algorithm_row kolo_mesh_gather = {
    .name = "gather-mesh",
    .kind = KOLO_COLLECTIVE_GATHER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = gather_write,
};

const kolo_algorithm_row kolo_mesh_scatter = {
    .name = "scatter-mesh",
    .kind = KOLO_COLLECTIVE_SCATTER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = scatter_write,
};

const kolo_algorithm_row kolo_mesh_alltoall = {
    .name = "all-to-all-mesh",
    .kind = KOLO_COLLECTIVE_ALLTOALL,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = alltoall_write,
};
