/* Allreduce around a ring, pipelined by chunk (Patarasuk and Yuan, "Bandwidth optimal all-reduce
 * algorithms for clusters of workstations", JPDC 2009).
 *
 * The vector is cut into one slice per rank. In n - 1 steps each rank passes a slice to its
 * successor and adds the one that comes from its predecessor; then rank r holds slice r + 1
 * complete. In n - 1 more steps the complete slices go once around. Each rank sends and receives 2
 * (n-1)/n of the vector, which is the least possible.
 *
 * A slice travels in chunks. Message m (step m / chunks, chunk m % chunks) is sent and received in
 * round m, and added in round m + 1, while message m + 1 is on its way: SCRATCH holds two chunks in
 * turn. */
#include "comm/algorithms.h"

typedef struct ring {
    const kolo_schedule_spec *spec;
    size_t chunk, chunks; /* elements of one; chunks of the longest slice */
} ring;

typedef struct range {
    size_t first, count;
} range;

static int wrap(int rank, int size) { return (rank % size + size) % size; }

/* Chunk `chunk` of slice `slice` (any integer, taken around the ring); may be empty. */
static range chunk_of(const ring *g, int slice, size_t chunk) {
    const kolo_schedule_spec *spec = g->spec;
    int k = wrap(slice, spec->size);
    size_t first = kolo_slice_first(spec->count, spec->size, k, spec->align);
    size_t end = kolo_slice_first(spec->count, spec->size, k + 1, spec->align);
    size_t from = first + chunk * g->chunk;
    if (from >= end) return (range){end, 0};
    return (range){from, end - from < g->chunk ? end - from : g->chunk};
}

static void add_send(const ring *g, kolo_schedule *s, range piece) {
    if (piece.count == 0) return;
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_SEND,
                                      .peer = wrap(g->spec->rank + 1, g->spec->size),
                                      .from_first = piece.first,
                                      .count = piece.count});
}

static void add_recv(const ring *g, kolo_schedule *s, kolo_buffer to, size_t first, size_t count) {
    if (count == 0) return;
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_RECV,
                                      .peer = wrap(g->spec->rank - 1, g->spec->size),
                                      .to = to,
                                      .to_first = first,
                                      .count = count});
}

static void add_reduce(kolo_schedule *s, range piece, size_t scratch) {
    if (piece.count == 0) return;
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_REDUCE,
                                      .to_first = piece.first,
                                      .from = KOLO_BUFFER_SCRATCH,
                                      .from_first = scratch,
                                      .count = piece.count});
}

/* Steps 0 .. n-2: pass on slice r - step, receive and add slice r - step - 1. */
static void reduce_scatter(const ring *g, kolo_schedule *s) {
    int rank = g->spec->rank;
    range before = {0, 0}; /* what the round before has received */
    size_t half = 0;
    for (int step = 0; step < g->spec->size - 1; step++) {
        for (size_t c = 0; c < g->chunks; c++) {
            range in = chunk_of(g, rank - step - 1, c);
            kolo_schedule_round(s);
            /* With one chunk in a slice the addition makes what is sent; else the link comes first.
             */
            if (g->chunks > 1) add_send(g, s, chunk_of(g, rank - step, c));
            add_reduce(s, before, half);
            half = half ? 0 : g->chunk;
            if (g->chunks == 1) add_send(g, s, chunk_of(g, rank - step, c));
            add_recv(g, s, KOLO_BUFFER_SCRATCH, half, in.count);
            before = in;
        }
    }
    kolo_schedule_round(s);
    add_reduce(s, before, half);
}

/* Steps 0 .. n-2: pass on slice r + 1 - step, receive slice r - step in its place. */
static void allgather(const ring *g, kolo_schedule *s) {
    int rank = g->spec->rank;
    for (int step = 0; step < g->spec->size - 1; step++) {
        for (size_t c = 0; c < g->chunks; c++) {
            range in = chunk_of(g, rank - step, c);
            /* The first round also holds the last addition, listed before this send. */
            if (step > 0 || c > 0) kolo_schedule_round(s);
            add_send(g, s, chunk_of(g, rank + 1 - step, c));
            add_recv(g, s, KOLO_BUFFER_DATA, in.first, in.count);
        }
    }
}

static void ring_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    size_t longest = kolo_slice_first(spec->count, spec->size, 1, spec->align);
    if (longest == 0) return;
    ring g = {.spec = spec, .chunk = longest < spec->chunk ? longest : spec->chunk};
    g.chunks = (longest + g.chunk - 1) / g.chunk;
    s->scratch = 2 * g.chunk;
    reduce_scatter(&g, s);
    allgather(&g, s);
}

const kolo_algorithm_row kolo_ring_allreduce = {
    .name = "ring",
    .kind = KOLO_COLLECTIVE_ALLREDUCE,
    .algorithm = KOLO_ALGORITHM_RING,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = ring_write,
};
