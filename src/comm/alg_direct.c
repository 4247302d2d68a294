/* Collectives straight through memory that all ranks reach.
 *
 * Allreduce: rank r owns slice r. It reads the slice from every rank in rank order, combines, and
 * writes the result into every rank's vector: one pass over memory, and all replicas have the same
 * bits in every variant because each element is always combined in rank order. window  in place, in
 * every rank's own vector; one barrier at the end. staged  private vectors pass through two halves
 * of SCRATCH: while chunk k is combined in one half, chunk k + 1 is copied into the other, so there
 * is one barrier per chunk. eager   tiny vectors: a copy travels with the announcement and every
 * rank combines all of it for itself; no barrier at all. Copies lie in a place that is not used
 * again before all ranks are through. Broadcast has the same three variants. A barrier is the
 * announcement itself, which all must make. */
#include "comm/algorithms.h"

static void add_barrier(kolo_schedule *s) {
    kolo_schedule_round(s);
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_BARRIER});
    kolo_schedule_round(s);
}

/* The sum over all ranks of buffer[first, +count), in rank order, into SUM. */
static void add_gather(const kolo_schedule_spec *spec, kolo_schedule *s, kolo_buffer buffer,
                       size_t first, size_t count) {
    for (int p = 0; p < spec->size; p++) {
        kolo_schedule_add(
            s, (kolo_entry){.kind = p == 0 ? KOLO_ENTRY_COPY_FROM : KOLO_ENTRY_REDUCE_FROM,
                            .peer = p,
                            .to = KOLO_BUFFER_SUM,
                            .from = buffer,
                            .from_first = first,
                            .count = count});
    }
}

static void add_store(kolo_schedule *s, int peer, kolo_buffer buffer, size_t first, size_t count) {
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_COPY_TO,
                                      .peer = peer,
                                      .to = buffer,
                                      .to_first = first,
                                      .from = KOLO_BUFFER_SUM,
                                      .count = count});
}

/* This rank's slice of buffer[base, +count): combined from all ranks and written to all ranks. */
static void add_slice(const kolo_schedule_spec *spec, kolo_schedule *s, kolo_buffer buffer,
                      size_t base, size_t count) {
    size_t first = kolo_slice_first(count, spec->size, spec->rank, spec->align);
    size_t end = kolo_slice_first(count, spec->size, spec->rank + 1, spec->align);
    if (first == end) return;
    add_gather(spec, s, buffer, base + first, end - first);
    for (int p = 0; p < spec->size; p++) add_store(s, p, buffer, base + first, end - first);
}

static void add_fetch(kolo_schedule *s, int peer, size_t to_first, kolo_buffer from,
                      size_t from_first, size_t count) {
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_COPY_FROM,
                                      .peer = peer,
                                      .to_first = to_first,
                                      .from = from,
                                      .from_first = from_first,
                                      .count = count});
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static void allreduce_window(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    add_slice(spec, s, KOLO_BUFFER_DATA, 0, spec->count);
    add_barrier(s);
}

static void allreduce_staged(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    size_t chunk = smaller(spec->chunk, spec->count), half = 0;
    s->scratch = 2 * chunk;
    kolo_schedule_round(s);
    kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, 0, KOLO_BUFFER_DATA, 0, chunk);
    add_barrier(s);
    for (size_t first = 0; first < spec->count; first += chunk, half = half ? 0 : chunk) {
        size_t count = smaller(chunk, spec->count - first), next = first + chunk;
        add_slice(spec, s, KOLO_BUFFER_SCRATCH, half, count);
        if (next < spec->count) {
            kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, half ? 0 : chunk, KOLO_BUFFER_DATA, next,
                               smaller(chunk, spec->count - next));
        }
        add_barrier(s);
        kolo_schedule_copy(s, KOLO_BUFFER_DATA, first, KOLO_BUFFER_SCRATCH, half, count);
    }
}

static void allreduce_eager(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    s->scratch = spec->count;
    kolo_schedule_round(s);
    kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, 0, KOLO_BUFFER_DATA, 0, spec->count);
    s->prologue = s->n_rounds;
    kolo_schedule_round(s);
    add_gather(spec, s, KOLO_BUFFER_SCRATCH, 0, spec->count);
    add_store(s, spec->rank, KOLO_BUFFER_DATA, 0, spec->count);
}

static void broadcast_window(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    kolo_schedule_round(s);
    if (spec->rank != spec->root) {
        add_fetch(s, spec->root, 0, KOLO_BUFFER_DATA, 0, spec->count);
    }
    add_barrier(s);
}

/* The root fills one half while the others empty the other one. */
static void broadcast_staged(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    bool root = spec->rank == spec->root;
    size_t chunk = smaller(spec->chunk, spec->count), half = 0;
    s->scratch = 2 * chunk;
    kolo_schedule_round(s);
    if (root) kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, 0, KOLO_BUFFER_DATA, 0, chunk);
    add_barrier(s);
    for (size_t first = 0; first < spec->count; first += chunk, half = half ? 0 : chunk) {
        size_t next = first + chunk;
        if (!root) {
            add_fetch(s, spec->root, first, KOLO_BUFFER_SCRATCH, half,
                      smaller(chunk, spec->count - first));
        } else if (next < spec->count) {
            kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, half ? 0 : chunk, KOLO_BUFFER_DATA, next,
                               smaller(chunk, spec->count - next));
        }
        add_barrier(s);
    }
}

static void broadcast_eager(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    s->scratch = spec->count;
    if (spec->rank == spec->root) {
        kolo_schedule_round(s);
        kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, 0, KOLO_BUFFER_DATA, 0, spec->count);
        s->prologue = s->n_rounds;
    } else {
        kolo_schedule_round(s);
        add_fetch(s, spec->root, 0, KOLO_BUFFER_SCRATCH, 0, spec->count);
    }
}

static void barrier_window(const kolo_schedule_spec *spec, kolo_schedule *s) {}

const kolo_algorithm_row kolo_direct_allreduce = {
    .name = "direct",
    .kind = KOLO_COLLECTIVE_ALLREDUCE,
    .algorithm = KOLO_ALGORITHM_DIRECT,
    .variant = KOLO_VARIANT_WINDOW,
    .write = allreduce_window,
};

const kolo_algorithm_row kolo_staged_allreduce = {
    .name = "direct-staged",
    .kind = KOLO_COLLECTIVE_ALLREDUCE,
    .algorithm = KOLO_ALGORITHM_DIRECT,
    .variant = KOLO_VARIANT_STAGED,
    .write = allreduce_staged,
};

const kolo_algorithm_row kolo_eager_allreduce = {
    .name = "direct-eager",
    .kind = KOLO_COLLECTIVE_ALLREDUCE,
    .algorithm = KOLO_ALGORITHM_DIRECT,
    .variant = KOLO_VARIANT_EAGER,
    .write = allreduce_eager,
};

const kolo_algorithm_row kolo_direct_broadcast = {
    .name = "broadcast-direct",
    .kind = KOLO_COLLECTIVE_BROADCAST,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_WINDOW,
    .write = broadcast_window,
};

const kolo_algorithm_row kolo_staged_broadcast = {
    .name = "broadcast-staged",
    .kind = KOLO_COLLECTIVE_BROADCAST,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_STAGED,
    .write = broadcast_staged,
};

const kolo_algorithm_row kolo_eager_broadcast = {
    .name = "broadcast-eager",
    .kind = KOLO_COLLECTIVE_BROADCAST,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_EAGER,
    .write = broadcast_eager,
};

const kolo_algorithm_row kolo_direct_barrier = {
    .name = "barrier-direct",
    .kind = KOLO_COLLECTIVE_BARRIER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_WINDOW,
    .write = barrier_window,
};
