/* Allreduce by recursive vector halving and distance doubling (Rabenseifner, "Optimization of
 * collective reduction operations", ICCS 2004), for any number of ranks.
 *
 * With n = 2^k ranks, in k steps each rank exchanges half of what it still works on with a partner
 * at half the distance of the step before, and combines the half that it keeps; it ends with one
 * slice complete. In k more steps, the other way round, the complete slices come together. So the
 * bytes are those of a ring in 2 log2 n steps.
 *
 * With other numbers the ranks beyond the largest power of two, p, are folded in: of the first
 * 2 (n - p) ranks each even one gives all its data to its odd neighbour before, and gets the result
 * from it behind. Data goes in chunks, as in alg_ring.c. */
#include "comm/schedule/writers.h"

typedef struct halving {
    const kolo_schedule_spec *spec;
    int power, folded; /* p, n - p */
    int place;         /* among the p ranks that work; -1: folded away */
    size_t chunk, scratch;
} halving;

static int place_of(const halving *h, int rank) {
    if (rank >= 2 * h->folded) return rank - h->folded;
    return rank % 2 == 1 ? rank / 2 : -1;
}

static int rank_at(const halving *h, int place) {
    return place < h->folded ? 2 * place + 1 : place + h->folded;
}

/* Where slice `place` starts. */
static size_t first_of(const halving *h, int place) {
    return kolo_slice_first(h->spec->count, h->power, place, h->spec->align);
}

/* Sends `out` to a peer and combines what comes from it with `in`, in chunks; either may be empty.
 */
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

/* The steps of one of the p ranks; `low` is the first of the `width` slices that it works on. */
static void halve_and_double(const halving *h, kolo_schedule *s) {
    int low = 0;
    for (int width = h->power / 2; width > 0; width /= 2) {
        bool upper = h->place & width;
        int keep = upper ? low + width : low, give = upper ? low : low + width;
        exchange(h, s, rank_at(h, h->place ^ width), slices(h, give, width),
                 slices(h, keep, width));
        low = keep;
    }
    for (int width = 1; width < h->power; width *= 2) {
        int other = h->place & width ? low - width : low + width;
        int peer = rank_at(h, h->place ^ width);
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
    h.place = place_of(&h, spec->rank);
    h.chunk = spec->count < spec->chunk ? spec->count : spec->chunk;
    if (h.place < 0) {
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

/* Folding takes the place of the step that rounding up adds. */
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
