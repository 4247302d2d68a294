/* Direct exchange by messages: every rank sends to every other what that one needs, in one step.
 * The bytes are the least possible, the steps few; links and peers must bear all at once.
 *
 * Reduce-scatter: each rank sends slice p to rank p and combines what comes in, in the order of
 * ranks, so the result has the bits of the variants through memory. It goes in chunks: while those
 * of chunk c are on their way, those of chunk c - 1 are combined; SCRATCH holds two chunks of every
 * peer in turn. Allgather: each rank sends its slice to all. An allreduce is the one and then the
 * other (each node serves one slice, as a parameter server would). Gather, scatter and all-to-all
 * are a single step. */
#include "comm/algorithms.h"

typedef struct range {
    size_t first, count;
} range;

/* A reduce-scatter: slice p of everybody's `source` is combined in rank p. */
typedef struct exchange {
    const kolo_schedule_spec *spec;
    const size_t *firsts;
    size_t to_first;      /* where in DATA the own slice goes */
    size_t chunk;         /* elements */
    size_t scratch, half; /* two halves, a chunk for each rank in each */
} exchange;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static range chunk_of(const exchange *x, int slice, size_t c) {
    size_t first = x->firsts[slice], count = x->firsts[slice + 1] - first;
    size_t from = smaller(c * x->chunk, count);
    return (range){first + from, smaller(x->chunk, count - from)};
}

/* All ranks' values of chunk c of the own slice, in the order of ranks. */
static void add_sum(const exchange *x, kolo_schedule *s, size_t c) {
    const kolo_schedule_spec *spec = x->spec;
    range own = chunk_of(x, spec->rank, c);
    size_t base = x->scratch + c % 2 * x->half;
    if (own.count == 0) return;
    for (int p = 0; p < spec->size; p++) {
        bool here = p == spec->rank;
        kolo_schedule_add(
            s, (kolo_entry){.kind = p == 0 ? KOLO_ENTRY_COPY_FROM : KOLO_ENTRY_REDUCE_FROM,
                            .peer = spec->rank,
                            .to = KOLO_BUFFER_SUM,
                            .from = here ? spec->source : KOLO_BUFFER_SCRATCH,
                            .from_first = here ? own.first : base + (size_t)p * x->chunk,
                            .count = own.count});
    }
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_COPY_TO,
                                      .peer = spec->rank,
                                      .to = KOLO_BUFFER_DATA,
                                      .to_first = x->to_first + c * x->chunk,
                                      .from = KOLO_BUFFER_SUM,
                                      .count = own.count});
}

static void add_reduce_scatter(const kolo_schedule_spec *spec, kolo_schedule *s,
                               const size_t *firsts, size_t to_first) {
    size_t longest = 0;
    for (int p = 0; p < spec->size; p++) {
        if (firsts[p + 1] - firsts[p] > longest) longest = firsts[p + 1] - firsts[p];
    }
    if (longest == 0) return;
    exchange x = {.spec = spec, .firsts = firsts, .to_first = to_first};
    x.chunk = smaller(longest, spec->chunk);
    x.half = (size_t)spec->size * x.chunk;
    x.scratch = kolo_schedule_scratch(s, 2 * x.half);
    size_t chunks = (longest + x.chunk - 1) / x.chunk;
    for (size_t c = 0; c < chunks; c++) {
        size_t base = x.scratch + c % 2 * x.half;
        kolo_schedule_round(s);
        if (c > 0) add_sum(&x, s, c - 1);
        for (int i = 1; i < spec->size; i++) {
            int to = (spec->rank + i) % spec->size;
            int from = (spec->rank + spec->size - i) % spec->size;
            range out = chunk_of(&x, to, c);
            kolo_schedule_send(s, to, spec->source, out.first, out.count);
            kolo_schedule_recv(s, from, KOLO_BUFFER_SCRATCH, base + (size_t)from * x.chunk,
                               chunk_of(&x, spec->rank, c).count);
        }
    }
    kolo_schedule_round(s);
    add_sum(&x, s, chunks - 1);
}

/* Each rank's slice of DATA to all. */
static void add_allgather(const kolo_schedule_spec *spec, kolo_schedule *s, const size_t *firsts) {
    int n = spec->size, me = spec->rank;
    kolo_schedule_round(s);
    for (int i = 1; i < n; i++) {
        int to = (me + i) % n, from = (me + n - i) % n;
        kolo_schedule_send(s, to, KOLO_BUFFER_DATA, firsts[me], firsts[me + 1] - firsts[me]);
        kolo_schedule_recv(s, from, KOLO_BUFFER_DATA, firsts[from],
                           firsts[from + 1] - firsts[from]);
    }
}

static void reduce_scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    add_reduce_scatter(spec, s, spec->firsts, spec->in_place ? spec->firsts[spec->rank] : 0);
}

static void allgather_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    add_allgather(spec, s, spec->firsts);
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
