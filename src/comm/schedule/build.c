/* Builds one rank's schedule: appending rounds and entries, and the prologue and epilogue that all
 * algorithms share. */
#include "base/memory.h"
#include "comm/schedule/schedule.h"

#include <string.h>

void kolo_schedule_round(kolo_schedule *s) {
    if (s->failed) return;
    if (s->n_rounds > 0 && s->rounds[s->n_rounds - 1] == s->n_entries) return;
    if (!KOLO_GROW(s->rounds, s->n_rounds, s->cap_rounds)) {
        s->failed = true;
        return;
    }
    s->rounds[s->n_rounds++] = s->n_entries;
}

void kolo_schedule_add(kolo_schedule *s, kolo_entry entry) {
    if (s->failed) return;
    if (s->n_rounds == 0) kolo_schedule_round(s);
    if (s->failed || !KOLO_GROW(s->entries, s->n_entries, s->cap_entries)) {
        s->failed = true;
        return;
    }
    s->entries[s->n_entries++] = entry;
}

size_t kolo_schedule_scratch(kolo_schedule *s, size_t count) {
    size_t first = s->scratch;
    s->scratch += count;
    return first;
}

void kolo_schedule_copy(kolo_schedule *s, kolo_buffer to, size_t to_first, kolo_buffer from,
                        size_t from_first, size_t count) {
    if (count == 0) return;
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_COPY,
                                      .to = to,
                                      .to_first = to_first,
                                      .from = from,
                                      .from_first = from_first,
                                      .count = count});
}

void kolo_schedule_send(kolo_schedule *s, int peer, kolo_buffer from, size_t first, size_t count) {
    if (count == 0) return;
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_SEND,
                                      .peer = peer,
                                      .from = from,
                                      .from_first = first,
                                      .count = count});
}

void kolo_schedule_recv(kolo_schedule *s, int peer, kolo_buffer to, size_t first, size_t count) {
    if (count == 0) return;
    kolo_schedule_add(
        s, (kolo_entry){
               .kind = KOLO_ENTRY_RECV, .peer = peer, .to = to, .to_first = first, .count = count});
}

void kolo_schedule_reduce(kolo_schedule *s, size_t to_first, size_t scratch, size_t count) {
    if (count == 0) return;
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_REDUCE,
                                      .to_first = to_first,
                                      .from = KOLO_BUFFER_SCRATCH,
                                      .from_first = scratch,
                                      .count = count});
}

void kolo_schedule_accumulate(kolo_schedule *s, int peer, kolo_buffer from, size_t first,
                              size_t count, bool start) {
    if (count == 0) return;
    kolo_schedule_add(s, (kolo_entry){.kind = start ? KOLO_ENTRY_COPY_FROM : KOLO_ENTRY_REDUCE_FROM,
                                      .peer = peer,
                                      .to = KOLO_BUFFER_SUM,
                                      .from = from,
                                      .from_first = first,
                                      .count = count});
}

void kolo_schedule_store(kolo_schedule *s, int peer, kolo_buffer to, size_t first, size_t count) {
    if (count == 0) return;
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_COPY_TO,
                                      .peer = peer,
                                      .to = to,
                                      .to_first = first,
                                      .from = KOLO_BUFFER_SUM,
                                      .count = count});
}

void kolo_schedule_remove(kolo_schedule *s, size_t index) {
    KOLO_ASSERT(index < s->n_entries);
    memmove(&s->entries[index], &s->entries[index + 1],
            (s->n_entries - index - 1) * sizeof *s->entries);
    s->n_entries--;
    for (size_t r = 0; r < s->n_rounds; r++) {
        if (s->rounds[r] > index) s->rounds[r]--;
    }
}

size_t kolo_schedule_widest(const kolo_schedule *s) {
    size_t widest = 0;
    for (size_t r = 0; r < s->n_rounds; r++) {
        size_t n = kolo_schedule_round_end(s, r) - s->rounds[r];
        if (n > widest) widest = n;
    }
    return widest;
}

/* ---- rounds that all algorithms share ---- */

static size_t slice_of(const size_t *firsts, int rank) { return firsts[rank + 1] - firsts[rank]; }

size_t kolo_spec_input(const kolo_schedule_spec *spec) {
    bool root = spec->rank == spec->root;
    if (spec->shards > 0) {
        int nodes = kolo_spec_nodes(spec, spec->rank, NULL);
        return (size_t)nodes * spec->count;
    }
    switch (spec->kind) {
    case KOLO_COLLECTIVE_ALLREDUCE:
    case KOLO_COLLECTIVE_REDUCE_SCATTER:
    case KOLO_COLLECTIVE_ALLTOALL:
        return spec->in_place ? 0 : spec->count;
    case KOLO_COLLECTIVE_REDUCE:
        return spec->in_place && root ? 0 : spec->count;
    case KOLO_COLLECTIVE_ALLGATHER:
        return spec->in_place ? 0 : slice_of(spec->firsts, spec->rank);
    case KOLO_COLLECTIVE_GATHER:
        return spec->in_place && root ? 0 : slice_of(spec->firsts, spec->rank);
    case KOLO_COLLECTIVE_SCATTER:
        return root ? spec->count : 0;
    default:
        return 0;
    }
}

size_t kolo_spec_data(const kolo_schedule_spec *spec) {
    bool root = spec->rank == spec->root;
    switch (spec->kind) {
    case KOLO_COLLECTIVE_ALLREDUCE:
    case KOLO_COLLECTIVE_BROADCAST:
    case KOLO_COLLECTIVE_ALLGATHER:
        return spec->count;
    case KOLO_COLLECTIVE_REDUCE:
    case KOLO_COLLECTIVE_GATHER:
        return root ? spec->count : 0;
    case KOLO_COLLECTIVE_REDUCE_SCATTER:
        return spec->in_place ? spec->count : slice_of(spec->firsts, spec->rank);
    case KOLO_COLLECTIVE_SCATTER:
        return spec->in_place && root ? 0 : slice_of(spec->firsts, spec->rank);
    case KOLO_COLLECTIVE_ALLTOALL:
        return spec->output_firsts[spec->size];
    default:
        return 0;
    }
}

kolo_buffer kolo_spec_source(const kolo_schedule_spec *spec, int rank) {
    kolo_buffer kept = spec->prescale ? KOLO_BUFFER_SCRATCH : KOLO_BUFFER_INPUT;
    if (spec->shards > 0) return KOLO_BUFFER_INPUT;
    switch (spec->kind) {
    case KOLO_COLLECTIVE_REDUCE:
        return rank == spec->root ? KOLO_BUFFER_DATA : kept;
    case KOLO_COLLECTIVE_REDUCE_SCATTER:
        return spec->in_place ? KOLO_BUFFER_DATA : kept;
    case KOLO_COLLECTIVE_GATHER:
        return rank == spec->root ? KOLO_BUFFER_DATA : KOLO_BUFFER_INPUT;
    case KOLO_COLLECTIVE_SCATTER:
        return KOLO_BUFFER_INPUT;
    case KOLO_COLLECTIVE_ALLTOALL:
        return spec->in_place ? KOLO_BUFFER_SCRATCH : KOLO_BUFFER_INPUT;
    default:
        return KOLO_BUFFER_DATA;
    }
}

static void add_scale(kolo_schedule *s, kolo_entry_kind kind, kolo_buffer buffer, size_t first,
                      size_t count) {
    if (count == 0) return;
    kolo_schedule_add(s,
                      (kolo_entry){.kind = kind, .to = buffer, .to_first = first, .count = count});
}

/* The rounds before the writer's: move this rank's contribution to `source` and prescale it. */
static void add_input_rounds(const kolo_schedule_spec *spec, kolo_schedule *s) {
    bool root = spec->rank == spec->root;
    size_t own = spec->firsts ? spec->firsts[spec->rank] : 0;
    size_t slice = spec->firsts ? slice_of(spec->firsts, spec->rank) : 0;
    kolo_schedule_round(s);
    if (spec->shards > 0 || (spec->size == 1 && spec->kind == KOLO_COLLECTIVE_ALLTOALL)) return;
    if (spec->source == KOLO_BUFFER_SCRATCH) {
        bool in_place = spec->in_place && spec->kind != KOLO_COLLECTIVE_REDUCE; /* not the root */
        kolo_buffer from = in_place ? KOLO_BUFFER_DATA : KOLO_BUFFER_INPUT;
        size_t to = kolo_schedule_scratch(s, spec->count); /* 0, which peers rely on */
        kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, to, from, 0, spec->count);
    } else if (!spec->in_place && (spec->kind == KOLO_COLLECTIVE_ALLREDUCE ||
                                   (spec->kind == KOLO_COLLECTIVE_REDUCE && root))) {
        kolo_schedule_copy(s, KOLO_BUFFER_DATA, 0, KOLO_BUFFER_INPUT, 0, spec->count);
    } else if (!spec->in_place && (spec->kind == KOLO_COLLECTIVE_ALLGATHER ||
                                   (spec->kind == KOLO_COLLECTIVE_GATHER && root))) {
        kolo_schedule_copy(s, KOLO_BUFFER_DATA, own, KOLO_BUFFER_INPUT, 0, slice);
    } else if (!spec->in_place && spec->kind == KOLO_COLLECTIVE_SCATTER && root) {
        kolo_schedule_copy(s, KOLO_BUFFER_DATA, 0, KOLO_BUFFER_INPUT, own, slice);
    }
    if (spec->prescale) add_scale(s, KOLO_ENTRY_PRESCALE, spec->source, 0, spec->count);
    s->prologue = s->n_rounds > 0 && s->rounds[s->n_rounds - 1] < s->n_entries ? s->n_rounds : 0;
}

/* A group of one rank, for which no writer runs. */
static void add_single_rank(const kolo_schedule_spec *spec, kolo_schedule *s) {
    bool moves =
        spec->kind == KOLO_COLLECTIVE_ALLTOALL || spec->kind == KOLO_COLLECTIVE_REDUCE_SCATTER;
    if (moves && !spec->in_place)
        kolo_schedule_copy(s, KOLO_BUFFER_DATA, 0, spec->source, 0, spec->count);
}

/* The round after the writer's: postscale the result. */
static void add_output_round(const kolo_schedule_spec *spec, kolo_schedule *s) {
    if (!spec->postscale) return;
    bool slice = spec->kind == KOLO_COLLECTIVE_REDUCE_SCATTER;
    size_t first = slice && spec->in_place ? spec->firsts[spec->rank] : 0;
    size_t count = slice ? slice_of(spec->firsts, spec->rank) : kolo_spec_data(spec);
    kolo_schedule_round(s);
    add_scale(s, KOLO_ENTRY_POSTSCALE, KOLO_BUFFER_DATA, first, count);
}

kolo_status kolo_schedule_build(const kolo_algorithm_row *row, const kolo_schedule_spec *given,
                                kolo_schedule *schedule) {
    kolo_schedule_spec spec = *given;
    KOLO_ASSERT(spec.size >= 1 && spec.rank >= 0 && spec.rank < spec.size);
    KOLO_ASSERT(spec.chunk >= 1 && spec.align >= 1);
    spec.source = kolo_spec_source(&spec, spec.rank);
    bool offloaded = row->variant == KOLO_VARIANT_OFFLOADED;
    kolo_schedule s = {.row = row,
                       .windows = row->variant != KOLO_VARIANT_MESSAGES && !offloaded,
                       .offloaded = offloaded && spec.size > 1};
    add_input_rounds(&spec, &s);
    kolo_schedule_round(&s);
    if (spec.size > 1 || spec.shards > 0) {
        row->write(&spec, &s);
    } else {
        add_single_rank(&spec, &s);
    }
    add_output_round(&spec, &s);
    if (s.n_rounds > 0 && s.rounds[s.n_rounds - 1] == s.n_entries) s.n_rounds--;
    if (s.failed) {
        kolo_schedule_fini(&s);
        return KOLO_FAIL(KOLO_ERR_NOMEM, "out of memory for the %s schedule of %zu elements",
                         row->name, spec.count);
    }
    *schedule = s;
    return KOLO_OK;
}

void kolo_schedule_fini(kolo_schedule *s) {
    kolo_free(s->entries);
    kolo_free(s->rounds);
    *s = (kolo_schedule){0};
}
