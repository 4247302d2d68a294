/* Broadcast along a binomial tree and the dissemination barrier (Hensgen, Finkel, Manber, "Two
 * algorithms for barrier synchronization", 1988): both by messages alone, in ceil(log2 n) steps.
 *
 * Broadcast: ranks are counted from the root. In the step of bit b, each rank below b that has the
 * data sends it to the rank b further on. The data goes in chunks, one after the other, so that a
 * rank deep in the tree receives chunk c while its parent already takes chunk c + 1.
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

const kolo_algorithm_row kolo_dissemination_barrier = {
    .name = "barrier-dissemination",
    .kind = KOLO_COLLECTIVE_BARRIER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = barrier_write,
};
