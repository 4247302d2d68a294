/* Allreduce by recursive vector halving and distance doubling (Rabenseifner, "Optimization of
 * collective reduction operations", ICCS 2004), for any number of ranks.
 *
 * With n = 2^k ranks, in each of k steps a rank exchanges half of its current range with a partner
 * at half the previous distance and reduces the half that it keeps, until it holds one complete
 * slice. k steps in reverse order gather the complete slices. The bytes are those of a ring, in
 * 2 log2 n steps.
 *
 * Otherwise, with p the largest power of two below n, the ranks beyond p are folded in: of the
 * first 2 (n - p) ranks, each even one first sends all its data to its odd neighbour, and finally
 * receives the result from it. Data is sent in chunks, as in alg_ring.c. */
#include "comm/schedule/writers.h"

typedef struct halving {
    const kolo_schedule_spec *spec;
    int power, folded; /* p, n - p */
    int index;         /* index among the p active ranks; -1: folded away */
    size_t chunk, scratch;
} halving;

static int index_of(const halving *h, int rank) {
    if (rank >= 2 * h->folded) return rank - h->folded;
    return rank % 2 == 1 ? rank / 2 : -1;
}

static int rank_at(const halving *h, int index) {
    return index < h->folded ? 2 * index + 1 : index + h->folded;
}

/* The first element of slice `index`. */
static size_t first_of(const halving *h, int index) {
    return kolo_slice_first(h->spec->count, h->power, index, h->spec->align);
}

/* Sends `out` to a peer and reduces the data received from it into `in`, in chunks; either may be
 * empty. */
static void exchange(const halving *h, kolo_schedule *s, int peer, range out, range in) {
    size_t longest = out.count > in.count ? out.count : in.count;
    range before = {0, 0};
    size_t half = h->scratch;
    for (size_t c = 0; c * h->chunk < longest; c++) {
        range from = kolo_range_chunk(out, h->chunk, c), to = kolo_range_chunk(in, h->chunk, c);
        kolo_schedule_round(s);
        kolo_schedule_reduce(s, before.first, half, before.count);
        half = half == h->scratch ? h->scratch + h->chunk : h->scratch;
        kolo_schedule_send(s, peer, KOLO_BUFFER_DATA, from.first, from.count);
        kolo_schedule_recv(s, peer, KOLO_BUFFER_SCRATCH, half, to.count);
        before = to;
    }
    kolo_schedule_round(s);
    kolo_schedule_reduce(s, before.first, half, before.count);
}

static range slices(const halving *h, int first, int count) {
    size_t from = first_of(h, first);
    return (range){from, first_of(h, first + count) - from};
}

/* The steps of an active rank; `low` is the first of the `width` slices of its current range. */
static void halve_and_double(const halving *h, kolo_schedule *s) {
    int low = 0;
    for (int width = h->power / 2; width > 0; width /= 2) {
        bool upper = h->index & width;
        int keep = upper ? low + width : low, give = upper ? low : low + width;
        exchange(h, s, rank_at(h, h->index ^ width), slices(h, give, width),
                 slices(h, keep, width));
        low = keep;
    }
    for (int width = 1; width < h->power; width *= 2) {
        int other = h->index & width ? low - width : low + width;
        int peer = rank_at(h, h->index ^ width);
        range out = slices(h, low, width), in = slices(h, other, width);
        kolo_schedule_round(s);
        kolo_schedule_send(s, peer, KOLO_BUFFER_DATA, out.first, out.count);
        kolo_schedule_recv(s, peer, KOLO_BUFFER_DATA, in.first, in.count);
        if (other < low) low = other;
    }
}

static void halving_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    range all = {0, spec->count}, none = {0, 0};
    if (spec->count == 0) return;
    halving h = {.spec = spec, .power = 1};
    while (2 * h.power <= spec->size) h.power *= 2;
    h.folded = spec->size - h.power;
    h.index = index_of(&h, spec->rank);
    h.chunk = spec->count < spec->chunk ? spec->count : spec->chunk;
    if (h.index < 0) {
        kolo_schedule_round(s);
        exchange(&h, s, spec->rank + 1, all, none);
        kolo_schedule_round(s);
        kolo_schedule_recv(s, spec->rank + 1, KOLO_BUFFER_DATA, 0, spec->count);
        return;
    }
    bool folds = spec->rank < 2 * h.folded;
    h.scratch = kolo_schedule_scratch(s, 2 * h.chunk);
    if (folds) exchange(&h, s, spec->rank - 1, none, all);
    halve_and_double(&h, s);
    if (!folds) return;
    kolo_schedule_round(s);
    kolo_schedule_send(s, spec->rank - 1, KOLO_BUFFER_DATA, 0, spec->count);
}

/* Folding replaces the step that rounding up adds. */
static double halving_steps(int n, int hosts) { return 2 * kolo_log2_up(n); }

static double halving_volume(int n, int hosts) {
    double folding = (n & (n - 1)) == 0 ? 0 : 2;
    return (kolo_volume_least(n) + folding) * kolo_ranks_per_link(n, hosts);
}

const kolo_algorithm_info kolo_allreduce_halving_doubling = {
    .steps = halving_steps,
    .volume = halving_volume,
    .memory_cost = {0.3, 50},
    .network_cost = {30, 950},
    .rows = {{.name = "halving-doubling",
              .algorithm = KOLO_ALGORITHM_HALVING_DOUBLING,
              .variant = KOLO_VARIANT_MESSAGES,
              .write = halving_write}},
};
