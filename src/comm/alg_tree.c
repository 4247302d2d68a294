/* Reduce and broadcast along a binomial tree, and the dissemination barrier (Hensgen, Finkel,
 * Manber, "Two algorithms for barrier synchronization", 1988): all by messages alone, in ceil(log2
 * n) steps.
 *
 * Broadcast: ranks are counted from the root. In the step of bit b, each rank below b that has the
 * data sends it to the rank b further on. The data goes in chunks, one after the other, so that a
 * rank deep in the tree receives chunk c while its parent already takes chunk c + 1.
 *
 * Reduce: the same tree the other way. A rank combines its own chunk with those of its children, in
 * SCRATCH (the root in DATA), and passes the sum on to its parent.
 *
 * Barrier: in the step of distance d each rank sends an empty message d ranks on and waits for the
 * one from d ranks back; after the last step it has heard, over others, of every rank. */
#include "comm/algorithms.h"

/* The bit by which rank `me` (counted from the root) receives: its highest one. */
static int highest_bit(int me) {
    int bit = 1;
    while (bit <= me / 2) bit *= 2;
    return bit;
}

static void broadcast_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    int n = spec->size, me = (spec->rank - spec->root + n) % n;
    for (size_t first = 0; first < spec->count; first += spec->chunk) {
        size_t left = spec->count - first, count = left < spec->chunk ? left : spec->chunk;
        int bit = 1;
        if (me > 0) {
            bit = highest_bit(me);
            kolo_schedule_round(s);
            kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_RECV,
                                              .peer = (me - bit + spec->root) % n,
                                              .to_first = first,
                                              .count = count});
            bit *= 2;
        }
        kolo_schedule_round(s);
        for (; me + bit < n; bit *= 2) {
            kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_SEND,
                                              .peer = (me + bit + spec->root) % n,
                                              .from_first = first,
                                              .count = count});
        }
    }
}

/* One chunk: from the children, combined, to the parent. `slots` is room for a chunk of every child
 * and of the sum. */
static void reduce_chunk(const kolo_schedule_spec *spec, kolo_schedule *s, size_t slots,
                         size_t chunk, size_t first, size_t count) {
    int n = spec->size, me = (spec->rank - spec->root + n) % n;
    int lowest = me > 0 ? 2 * highest_bit(me) : 1; /* of a child */
    size_t slot = slots, children = 0;
    kolo_schedule_round(s);
    for (int bit = lowest; me + bit < n; bit *= 2, slot += chunk, children++) {
        kolo_schedule_recv(s, (me + bit + spec->root) % n, KOLO_BUFFER_SCRATCH, slot, count);
    }
    kolo_buffer sum = me == 0 ? KOLO_BUFFER_DATA : KOLO_BUFFER_SCRATCH;
    size_t sum_first = me == 0 ? first : slot;
    if (children > 0) {
        kolo_schedule_round(s);
        for (size_t i = 0; i <= children; i++) {
            kolo_schedule_add(
                s, (kolo_entry){.kind = i == 0 ? KOLO_ENTRY_COPY_FROM : KOLO_ENTRY_REDUCE_FROM,
                                .peer = spec->rank,
                                .to = KOLO_BUFFER_SUM,
                                .from = i == 0 ? spec->source : KOLO_BUFFER_SCRATCH,
                                .from_first = i == 0 ? first : slots + (i - 1) * chunk,
                                .count = count});
        }
        kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_COPY_TO,
                                          .peer = spec->rank,
                                          .to = sum,
                                          .to_first = sum_first,
                                          .from = KOLO_BUFFER_SUM,
                                          .count = count});
    }
    if (me == 0) return;
    int parent = (me - highest_bit(me) + spec->root) % n;
    kolo_schedule_round(s);
    if (children > 0) {
        kolo_schedule_send(s, parent, sum, sum_first, count);
    } else {
        kolo_schedule_send(s, parent, spec->source, first, count);
    }
}

static void reduce_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    int n = spec->size, me = (spec->rank - spec->root + n) % n, children = 0;
    for (int bit = me > 0 ? 2 * highest_bit(me) : 1; me + bit < n; bit *= 2) children++;
    size_t chunk = spec->count < spec->chunk ? spec->count : spec->chunk;
    size_t slots = children ? kolo_schedule_scratch(s, (size_t)(children + 1) * chunk) : 0;
    for (size_t first = 0; first < spec->count; first += chunk) {
        size_t left = spec->count - first;
        reduce_chunk(spec, s, slots, chunk, first, left < chunk ? left : chunk);
    }
}

static void barrier_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    int n = spec->size;
    for (int distance = 1; distance < n; distance *= 2) {
        kolo_schedule_round(s);
        kolo_schedule_add(
            s, (kolo_entry){.kind = KOLO_ENTRY_SEND, .peer = (spec->rank + distance) % n});
        kolo_schedule_add(
            s, (kolo_entry){.kind = KOLO_ENTRY_RECV, .peer = (spec->rank - distance + n) % n});
    }
}

const kolo_algorithm_row kolo_tree_broadcast = {
    .name = "broadcast-tree",
    .kind = KOLO_COLLECTIVE_BROADCAST,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = broadcast_write,
};

const kolo_algorithm_row kolo_tree_reduce = {
    .name = "reduce-tree",
    .kind = KOLO_COLLECTIVE_REDUCE,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = reduce_write,
};

const kolo_algorithm_row kolo_dissemination_barrier = {
    .name = "barrier-dissemination",
    .kind = KOLO_COLLECTIVE_BARRIER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = barrier_write,
};
