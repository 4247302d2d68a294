/* Reduce, reduce-scatter and allgather in memory that all ranks access. Elements are reduced in
 * rank order, as in alg_direct.c, and each moves once.
 *
 * Reduce: every rank reduces one slice and writes it to the root, which spreads the work.
 * Reduce-scatter: every rank reduces its own slice. Allgather: every rank copies the other ranks'
 * slices. A barrier at the end keeps all data valid until no rank reads it. A reduce-scatter that
 * leaves the addition to its caller is its announcement. */
#include "comm/schedule/writers.h"

static void add_barrier(kolo_schedule *s) {
    kolo_schedule_round(s);
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_BARRIER});
}

/* Reduces [first, +count) of all contributions into DATA[to_first, ...) of rank `to`. */
static void add_sum(const kolo_schedule_spec *spec, kolo_schedule *s, size_t first, size_t count,
                    int to, size_t to_first) {
    if (count == 0) return;
    for (int p = 0; p < spec->size; p++) {
        kolo_schedule_accumulate(s, p, kolo_spec_source(spec, p), first, count, p == 0);
    }
    kolo_schedule_store(s, to, KOLO_BUFFER_DATA, to_first, count);
}

static void reduce_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    size_t first = kolo_slice_first(spec->count, spec->size, spec->rank, spec->align);
    size_t end = kolo_slice_first(spec->count, spec->size, spec->rank + 1, spec->align);
    add_sum(spec, s, first, end - first, spec->root, first);
    add_barrier(s);
}

static void reduce_scatter_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0 || spec->summands) return;
    size_t first = spec->firsts[spec->rank], count = spec->firsts[spec->rank + 1] - first;
    add_sum(spec, s, first, count, spec->rank, spec->in_place ? first : 0);
    add_barrier(s);
}

static void allgather_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    for (int i = 1; i < spec->size; i++) { /* staggered, to spread the load */
        int p = (spec->rank + i) % spec->size;
        size_t first = spec->firsts[p], count = spec->firsts[p + 1] - first;
        if (count == 0) continue;
        kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_COPY_FROM,
                                          .peer = p,
                                          .to_first = first,
                                          .from_first = first,
                                          .count = count});
    }
    add_barrier(s);
}

const kolo_algorithm_row kolo_window_reduce = {
    .name = "reduce-direct",
    .kind = KOLO_COLLECTIVE_REDUCE,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_WINDOW,
    .write = reduce_write,
};

const kolo_algorithm_row kolo_window_reduce_scatter = {
    .name = "reduce-scatter-direct",
    .kind = KOLO_COLLECTIVE_REDUCE_SCATTER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_WINDOW,
    .write = reduce_scatter_write,
};

const kolo_algorithm_row kolo_window_allgather = {
    .name = "allgather-direct",
    .kind = KOLO_COLLECTIVE_ALLGATHER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_WINDOW,
    .write = allgather_write,
};
