/* Collectives in memory that all ranks access.
 *
 * Allreduce: rank r owns slice r. It reads the slice from every rank in rank order, reduces, and
 * writes the result to every rank's vector, in one pass over memory. Each element is reduced in
 * rank order in every variant, so all ranks and variants give the same bits.
 *
 * window  In place in every rank's vector, with one barrier at the end.
 * staged  For private vectors: data outside the rank's own slice passes through two halves of
 *         SCRATCH. While chunk k is reduced in one half, chunk k + 1 is copied into the other, with
 *         one barrier per chunk.
 * eager   For tiny vectors: a copy is sent with the announcement and every rank reduces all of it,
 *         its own part from its vector. No barrier: the copies' memory is reused only after all
 *         ranks have finished.
 *
 * Broadcast has the same three variants. A barrier is the announcement itself. */
#include "comm/schedule/writers.h"

static void add_barrier(kolo_schedule *s) {
    kolo_schedule_round(s);
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_BARRIER});
    kolo_schedule_round(s);
}

/* Reduces buffer[first, +count) of all ranks into SUM, in rank order. */
static void add_sum(const kolo_schedule_spec *spec, kolo_schedule *s, kolo_buffer buffer,
                    size_t first, size_t count) {
    for (int p = 0; p < spec->size; p++)
        kolo_schedule_accumulate(s, p, buffer, first, count, p == 0);
}

/* Reduces this rank's slice of buffer[base, +count) from all ranks and writes it to all ranks. */
static void add_slice(const kolo_schedule_spec *spec, kolo_schedule *s, kolo_buffer buffer,
                      size_t base, size_t count) {
    size_t first = kolo_slice_first(count, spec->size, spec->rank, spec->align);
    size_t end = kolo_slice_first(count, spec->size, spec->rank + 1, spec->align);
    if (first == end) return;
    add_sum(spec, s, buffer, base + first, end - first);
    for (int p = 0; p < spec->size; p++)
        kolo_schedule_store(s, p, buffer, base + first, end - first);
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

/* A chunk: DATA[first, +count), staged in SCRATCH[half, +count) of every rank. */
typedef struct piece {
    size_t first, half, count;
} piece;

/* Copies a chunk between DATA and SCRATCH, except this rank's own slice, which is never staged. */
static void copy_others(const kolo_schedule_spec *spec, kolo_schedule *s, piece p, bool in) {
    size_t own = kolo_slice_first(p.count, spec->size, spec->rank, spec->align);
    size_t end = kolo_slice_first(p.count, spec->size, spec->rank + 1, spec->align);
    const size_t parts[2][2] = {{0, own}, {end, p.count}};
    for (int i = 0; i < 2; i++) {
        size_t first = parts[i][0], count = parts[i][1] - first;
        if (in) {
            kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, p.half + first, KOLO_BUFFER_DATA,
                               p.first + first, count);
        } else {
            kolo_schedule_copy(s, KOLO_BUFFER_DATA, p.first + first, KOLO_BUFFER_SCRATCH,
                               p.half + first, count);
        }
    }
}

/* Reduces this rank's slice of a chunk from its own DATA and the others' SCRATCH, and writes it
 * back to all of them. */
static void add_staged_slice(const kolo_schedule_spec *spec, kolo_schedule *s, piece c) {
    size_t own = kolo_slice_first(c.count, spec->size, spec->rank, spec->align);
    size_t count = kolo_slice_first(c.count, spec->size, spec->rank + 1, spec->align) - own;
    for (int p = 0; p < spec->size; p++) {
        bool own_rank = p == spec->rank;
        kolo_schedule_accumulate(s, p, own_rank ? KOLO_BUFFER_DATA : KOLO_BUFFER_SCRATCH,
                                 own + (own_rank ? c.first : c.half), count, p == 0);
    }
    for (int p = 0; p < spec->size; p++) {
        bool own_rank = p == spec->rank;
        kolo_schedule_store(s, p, own_rank ? KOLO_BUFFER_DATA : KOLO_BUFFER_SCRATCH,
                            own + (own_rank ? c.first : c.half), count);
    }
}

static void allreduce_staged(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    size_t chunk = smaller(spec->chunk, spec->count);
    s->scratch = 2 * chunk;
    piece now = {0, 0, chunk};
    kolo_schedule_round(s);
    copy_others(spec, s, now, true);
    add_barrier(s);
    while (now.count > 0) {
        size_t first = now.first + now.count;
        piece next = {first, now.half ? 0 : chunk, smaller(chunk, spec->count - first)};
        add_staged_slice(spec, s, now);
        copy_others(spec, s, next, true);
        add_barrier(s);
        copy_others(spec, s, now, false);
        now = next;
    }
}

static void allreduce_eager(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    s->scratch = spec->count;
    kolo_schedule_round(s);
    kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, 0, KOLO_BUFFER_DATA, 0, spec->count);
    s->prologue = s->n_rounds;
    kolo_schedule_round(s);
    for (int p = 0; p < spec->size; p++) {
        kolo_buffer from = p == spec->rank ? KOLO_BUFFER_DATA : KOLO_BUFFER_SCRATCH;
        kolo_schedule_accumulate(s, p, from, 0, spec->count, p == 0);
    }
    kolo_schedule_store(s, spec->rank, KOLO_BUFFER_DATA, 0, spec->count);
}

static void broadcast_window(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (spec->count == 0) return;
    kolo_schedule_round(s);
    if (spec->rank != spec->root) {
        add_fetch(s, spec->root, 0, KOLO_BUFFER_DATA, 0, spec->count);
    }
    add_barrier(s);
}

/* The root fills one half while the other ranks read the other half. */
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

static double direct_steps(int n, int hosts) { return 1; }

static double direct_volume(int n, int hosts) { return kolo_volume_least(n); }

const kolo_algorithm_info kolo_allreduce_direct = {
    .steps = direct_steps,
    .volume = direct_volume,
    .memory_cost = {0.3, 20},
    .network_cost = {30, 900},
    .in_order = true,
    .rows = {{.name = "direct",
              .algorithm = KOLO_ALGORITHM_DIRECT,
              .variant = KOLO_VARIANT_WINDOW,
              .write = allreduce_window},
             {.name = "direct-staged",
              .algorithm = KOLO_ALGORITHM_DIRECT,
              .variant = KOLO_VARIANT_STAGED,
              .write = allreduce_staged},
             {.name = "direct-eager",
              .algorithm = KOLO_ALGORITHM_DIRECT,
              .variant = KOLO_VARIANT_EAGER,
              .write = allreduce_eager}},
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
