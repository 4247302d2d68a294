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
 * ranks and a range of DATA, as alg_hierarchical.c uses it. */
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
