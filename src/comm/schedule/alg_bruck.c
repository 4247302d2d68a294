/* Allgather and reduce-scatter between ranks whose numbers differ by a power of two, in about
 * log2 n steps (Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems", IEEE TPDS 1997). They need few connections
 * (transport/tcp/sparse.c); alg_mesh.c needs those of all pairs.
 *
 * Block i of rank r is slice (r + i) mod n of the vector.
 *
 * Allgather: before the step of distance d = 1, 2, 4, ... a rank has its first d blocks. It sends
 * them to the rank d below, and receives its next ones, which are the first of the rank d above.
 * The last step moves only the n - d blocks that are missing.
 *
 * Reduce-scatter: the same steps backwards. In the step of distance d a rank sends its sums of
 * blocks d, d + 1, ... to the rank d above, and adds what the rank d below sends to its first
 * blocks. These sums are in SCRATCH: at most half of the vector, and as much to receive into.
 *
 * Blocks are adjacent in the vector, except after slice n - 1: a step has a message for the part
 * up to there and one for the rest. A rank sends and receives (n-1)/n of the vector, the lower
 * bound. */
#include "comm/schedule/writers.h"

/* The blocks that a step of this distance moves. */
static int blocks_of(int size, int distance) {
    return distance < size - distance ? distance : size - distance;
}

/* Of `n` blocks of a rank, from `first` on: part 0 ends with the vector, part 1 starts with it. */
static range part_of(const kolo_schedule_spec *spec, int rank, int first, int n, int part) {
    int begin = (rank + first) % spec->size, end = begin + n, size = spec->size;
    if (part == 0) {
        if (end > size) end = size;
    } else {
        begin = 0;
        end = end > size ? end - size : 0;
    }
    return (range){spec->firsts[begin], spec->firsts[end] - spec->firsts[begin]};
}

static void allgather_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    int n = spec->size;
    for (int d = 1; d < n; d *= 2) {
        int above = (spec->rank + d) % n, below = (spec->rank + n - d) % n;
        for (int part = 0; part < 2; part++) {
            range out = part_of(spec, spec->rank, 0, blocks_of(n, d), part);
            range in = part_of(spec, above, 0, blocks_of(n, d), part);
            kolo_schedule_round(s);
            kolo_schedule_send(s, below, KOLO_BUFFER_DATA, out.first, out.count);
            kolo_schedule_recv(s, above, KOLO_BUFFER_DATA, in.first, in.count);
        }
    }
}

/* ---- reduce-scatter ---- */

typedef struct sums {
    const kolo_schedule_spec *spec;
    size_t first, in; /* in SCRATCH: of the sums, of what is received */
    int n;            /* the first n blocks have sums; the others are still those of the source */
} sums;

/* Elements of this rank's first n blocks. */
static size_t elements(const kolo_schedule_spec *spec, int n) {
    return part_of(spec, spec->rank, 0, n, 0).count + part_of(spec, spec->rank, 0, n, 1).count;
}

/* Sends `n` blocks from `d` on, and receives as many into SCRATCH: those that have sums, and two
 * parts of the source. */
static void exchange(const sums *x, kolo_schedule *s, int d, int n) {
    const kolo_schedule_spec *spec = x->spec;
    int size = spec->size, summed = x->n - d < 0 ? 0 : x->n - d < n ? x->n - d : n;
    int above = (spec->rank + d) % size, below = (spec->rank + size - d) % size;
    size_t from = elements(spec, d), in = elements(spec, summed);
    kolo_schedule_round(s);
    kolo_schedule_send(s, above, KOLO_BUFFER_SCRATCH, x->first + from,
                       elements(spec, d + summed) - from);
    kolo_schedule_recv(s, below, KOLO_BUFFER_SCRATCH, x->in, in);
    for (int part = 0; part < 2; part++) {
        range out = part_of(spec, spec->rank, d + summed, n - summed, part);
        range own = part_of(spec, spec->rank, summed, n - summed, part);
        kolo_schedule_round(s);
        kolo_schedule_send(s, above, spec->source, out.first, out.count);
        kolo_schedule_recv(s, below, KOLO_BUFFER_SCRATCH, x->in + in, own.count);
        in += own.count;
    }
}

/* Adds `count` received elements, from `at` on, to those of this rank. */
static void add(const sums *x, kolo_schedule *s, kolo_buffer from, size_t first, size_t at,
                size_t count, bool last) {
    const kolo_schedule_spec *spec = x->spec;
    size_t to = last ? (spec->in_place ? spec->firsts[spec->rank] : 0) : x->first + at;
    kolo_schedule_accumulate(s, spec->rank, from, first, count, true);
    kolo_schedule_accumulate(s, spec->rank, KOLO_BUFFER_SCRATCH, x->in + at, count, false);
    kolo_schedule_store(s, spec->rank, last ? KOLO_BUFFER_DATA : KOLO_BUFFER_SCRATCH, to, count);
}

/* Adds the first n blocks, as received. */
static void add_blocks(sums *x, kolo_schedule *s, int n, bool last) {
    int summed = x->n < n ? x->n : n;
    size_t at = elements(x->spec, summed);
    kolo_schedule_round(s);
    add(x, s, KOLO_BUFFER_SCRATCH, x->first, 0, at, last);
    for (int part = 0; part < 2; part++) {
        range own = part_of(x->spec, x->spec->rank, summed, n - summed, part);
        add(x, s, x->spec->source, own.first, at, own.count, last);
        at += own.count;
    }
    if (n > x->n) x->n = n;
}

static void reduce_scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    sums x = {.spec = spec};
    int d = 1, n = spec->size;
    while (2 * d < n) d *= 2;
    int most = n - d > d / 2 ? n - d : d / 2; /* blocks of the first step, or of the second */
    x.first = kolo_schedule_scratch(s, elements(spec, most));
    x.in = kolo_schedule_scratch(s, elements(spec, most));
    for (; d > 0; d /= 2) {
        exchange(&x, s, d, blocks_of(n, d));
        add_blocks(&x, s, blocks_of(n, d), d == 1);
    }
}

const kolo_algorithm_row kolo_bruck_allgather = {
    .name = "allgather-bruck",
    .kind = KOLO_COLLECTIVE_ALLGATHER,
    .algorithm = KOLO_ALGORITHM_HALVING_DOUBLING,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = allgather_write,
};

const kolo_algorithm_row kolo_bruck_reduce_scatter = {
    .name = "reduce-scatter-bruck",
    .kind = KOLO_COLLECTIVE_REDUCE_SCATTER,
    .algorithm = KOLO_ALGORITHM_HALVING_DOUBLING,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = reduce_scatter_write,
};
