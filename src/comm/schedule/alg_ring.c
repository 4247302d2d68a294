/* Allreduce around a ring, pipelined by chunk (Patarasuk and Yuan, "Bandwidth optimal all-reduce
 * algorithms for clusters of workstations", JPDC 2009).
 *
 * The vector is cut into one slice per rank. Reduce-scatter: in n - 1 steps each rank sends a slice
 * to its successor and reduces the slice from its predecessor, after which rank r holds the
 * complete slice r + 1. Allgather: in n - 1 steps the complete slices go once around the ring. Each
 * rank sends and receives 2 (n-1)/n of the vector, the lower bound.
 *
 * Slices are sent in chunks. Message m (step m / chunks, chunk m % chunks) is sent and received in
 * round m and reduced in round m + 1, while message m + 1 is in transit; SCRATCH is a double buffer
 * of two chunks, whose size is that of kolo_comm_set_tuning. The ring may cover a subset of the
 * ranks and a range of DATA, as alg_hierarchical.c uses it.
 *
 * The reduce-scatter alone keeps its input, cuts it into the slices of the ranks, and ends with
 * slice r on rank r. */
#include "comm/schedule/writers.h"

typedef struct ring {
    const kolo_team *team;
    range whole;
    size_t align, chunk, chunks; /* elements of one; chunks of the longest slice */
    size_t scratch;
} ring;

static int wrap(int rank, int size) { return (rank % size + size) % size; }

static int member(const ring *g, int i) { return kolo_team_rank(g->team, wrap(i, g->team->size)); }

/* Chunk `chunk` of slice `slice` modulo the ring's size; may be empty. */
static range chunk_of(const ring *g, int slice, size_t chunk) {
    range all = kolo_team_slice(g->whole, g->team->size, wrap(slice, g->team->size), g->align);
    return kolo_range_chunk(all, g->chunk, chunk);
}

static void add_send(const ring *g, kolo_schedule *s, range piece) {
    kolo_schedule_send(s, member(g, g->team->me + 1), KOLO_BUFFER_DATA, piece.first, piece.count);
}

static void add_recv(const ring *g, kolo_schedule *s, kolo_buffer to, size_t first, size_t count) {
    kolo_schedule_recv(s, member(g, g->team->me - 1), to, first, count);
}

/* Steps 0 .. n-2: send slice r - step, receive and reduce slice r - step - 1. */
static void reduce_scatter(const ring *g, kolo_schedule *s) {
    int me = g->team->me;
    range before = {0, 0}; /* received in the previous round */
    size_t half = g->scratch;
    for (int step = 0; step < g->team->size - 1; step++) {
        for (size_t c = 0; c < g->chunks; c++) {
            range in = chunk_of(g, me - step - 1, c);
            kolo_schedule_round(s);
            /* With one chunk per slice the reduction produces the data to send; otherwise send
             * first to keep the link busy. */
            if (g->chunks > 1) add_send(g, s, chunk_of(g, me - step, c));
            kolo_schedule_reduce(s, before.first, half, before.count);
            half = half == g->scratch ? g->scratch + g->chunk : g->scratch;
            if (g->chunks == 1) add_send(g, s, chunk_of(g, me - step, c));
            add_recv(g, s, KOLO_BUFFER_SCRATCH, half, in.count);
            before = in;
        }
    }
    kolo_schedule_round(s);
    if (g->chunks > 1) add_send(g, s, chunk_of(g, me + 1, 0));
    kolo_schedule_reduce(s, before.first, half, before.count);
    if (g->chunks == 1) add_send(g, s, chunk_of(g, me + 1, 0));
}

/* Steps 0 .. n-2: send slice r + 1 - step, receive slice r - step. */
static void allgather(const ring *g, kolo_schedule *s) {
    int me = g->team->me;
    for (int step = 0; step < g->team->size - 1; step++) {
        for (size_t c = 0; c < g->chunks; c++) {
            range in = chunk_of(g, me - step, c);
            if (step > 0 || c > 0) { /* otherwise it shares a round with the last reduction */
                kolo_schedule_round(s);
                add_send(g, s, chunk_of(g, me + 1 - step, c));
            }
            add_recv(g, s, KOLO_BUFFER_DATA, in.first, in.count);
        }
    }
}

void kolo_ring_write(const kolo_schedule_spec *spec, kolo_schedule *s, const kolo_team *team,
                     range whole) {
    size_t longest = kolo_team_slice(whole, team->size, 0, spec->align).count;
    if (longest == 0 || team->size == 1) return;
    ring g = {.team = team, .whole = whole, .align = spec->align};
    g.chunk = longest < spec->chunk ? longest : spec->chunk;
    g.chunks = (longest + g.chunk - 1) / g.chunk;
    g.scratch = kolo_schedule_scratch(s, 2 * g.chunk);
    reduce_scatter(&g, s);
    allgather(&g, s);
}

static void ring_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    kolo_team all = {.size = spec->size, .me = spec->rank};
    kolo_ring_write(spec, s, &all, (range){0, spec->count});
}

/* ---- the reduce-scatter alone ---- */

/* The sums of a slice that is passed on are in SCRATCH. */
typedef struct ring_sums {
    const kolo_schedule_spec *spec;
    size_t chunk, chunks; /* elements of one; chunks of the longest slice */
    size_t sums, halves;  /* in SCRATCH: of a slice; a double buffer of two chunks */
} ring_sums;

/* Chunk c of the slice that this rank receives in a step, and, with step - 1, sends in it. */
static range piece_of(const ring_sums *g, int step, size_t c) {
    int slice = wrap(g->spec->rank - 2 - step, g->spec->size);
    const size_t *firsts = g->spec->firsts;
    return kolo_range_chunk((range){firsts[slice], firsts[slice + 1] - firsts[slice]}, g->chunk, c);
}

static void send_sum(const ring_sums *g, kolo_schedule *s, int step, size_t c) {
    range out = piece_of(g, step - 1, c);
    kolo_schedule_send(s, wrap(g->spec->rank + 1, g->spec->size),
                       step == 0 ? g->spec->source : KOLO_BUFFER_SCRATCH,
                       step == 0 ? out.first : g->sums + c * g->chunk, out.count);
}

/* Adds chunk c, received into `half` in a step, to this rank's elements; the last slice is its own.
 */
static void add_sum(const ring_sums *g, kolo_schedule *s, int step, size_t c, size_t half) {
    const kolo_schedule_spec *spec = g->spec;
    bool last = step == spec->size - 2;
    range in = piece_of(g, step, c);
    size_t to = last ? (spec->in_place ? spec->firsts[spec->rank] : 0) : g->sums;
    kolo_schedule_accumulate(s, spec->rank, spec->source, in.first, in.count, true);
    kolo_schedule_accumulate(s, spec->rank, KOLO_BUFFER_SCRATCH, half, in.count, false);
    kolo_schedule_store(s, spec->rank, last ? KOLO_BUFFER_DATA : KOLO_BUFFER_SCRATCH,
                        to + c * g->chunk, in.count);
}

static size_t longest_slice(const kolo_schedule_spec *spec) {
    size_t longest = 0;
    for (int r = 0; r < spec->size; r++) {
        size_t slice = spec->firsts[r + 1] - spec->firsts[r];
        if (slice > longest) longest = slice;
    }
    return longest;
}

/* In step 0, ..., n-2: send slice r - 1 - step, receive slice r - 2 - step. */
static void reduce_scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    size_t longest = longest_slice(spec), before_c = 0;
    if (longest == 0) return;
    ring_sums g = {.spec = spec, .chunk = longest < spec->chunk ? longest : spec->chunk};
    g.chunks = (longest + g.chunk - 1) / g.chunk;
    g.sums = kolo_schedule_scratch(s, longest);
    g.halves = kolo_schedule_scratch(s, 2 * g.chunk);
    size_t half = g.halves, other = g.halves + g.chunk; /* received before, received next */
    int before = -1;                                    /* the step of the chunk received before */
    for (int step = 0; step < spec->size - 1; step++) {
        for (size_t c = 0; c < g.chunks; c++) {
            kolo_schedule_round(s);
            if (g.chunks > 1) send_sum(&g, s, step, c);
            if (before >= 0) add_sum(&g, s, before, before_c, half);
            if (g.chunks == 1) send_sum(&g, s, step, c);
            kolo_schedule_recv(s, wrap(spec->rank - 1, spec->size), KOLO_BUFFER_SCRATCH, other,
                               piece_of(&g, step, c).count);
            size_t swap = half;
            half = other;
            other = swap;
            before = step;
            before_c = c;
        }
    }
    kolo_schedule_round(s);
    add_sum(&g, s, before, before_c, half);
}

/* ---- cost ---- */

static double ring_steps(int n, int hosts) { return 2 * (n - 1); }

/* Only one rank of each host sends to the next host. */
static double ring_volume(int n, int hosts) { return kolo_volume_least(n); }

const kolo_algorithm_info kolo_allreduce_ring = {
    .steps = ring_steps,
    .volume = ring_volume,
    .memory_cost = {0.3, 50},
    .network_cost = {30, 900},
    .rows = {{.name = "ring",
              .algorithm = KOLO_ALGORITHM_RING,
              .variant = KOLO_VARIANT_MESSAGES,
              .write = ring_write}},
};

const kolo_algorithm_row kolo_ring_reduce_scatter = {
    .name = "reduce-scatter-ring",
    .kind = KOLO_COLLECTIVE_REDUCE_SCATTER,
    .algorithm = KOLO_ALGORITHM_RING,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = reduce_scatter_write,
};
