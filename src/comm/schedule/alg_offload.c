/* Collectives that a backend takes whole: one entry, WHOLE, from where the own contribution is.
 *
 * What goes around it stays ours: scales, the copy of an input to its place, the packing of several
 * parts into SCRATCH and back. No row of the table of algorithms, since what a WHOLE entry does is
 * the backend's, and nothing that could be proved here. */
#include "comm/schedule/algorithms.h"

static void add_whole(const kolo_schedule_spec *spec, kolo_schedule *s, kolo_buffer to,
                      size_t to_first, kolo_buffer from) {
    kolo_schedule_round(s);
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_WHOLE,
                                      .to = to,
                                      .to_first = to_first,
                                      .from = from,
                                      .count = spec->count});
}

/* A reduce-scatter in place leaves its result in the own slice, which libraries put to the start:
 * theirs works on a copy. */
static void whole_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    bool slice = spec->kind == KOLO_COLLECTIVE_REDUCE_SCATTER && spec->in_place;
    if (!slice) {
        add_whole(spec, s, KOLO_BUFFER_DATA, 0, spec->source);
        return;
    }
    size_t copy = kolo_schedule_scratch(s, spec->count);
    kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, copy, KOLO_BUFFER_DATA, 0, spec->count);
    add_whole(spec, s, KOLO_BUFFER_DATA, spec->firsts[spec->rank], KOLO_BUFFER_SCRATCH);
}

static void packed_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    size_t copy = kolo_schedule_scratch(s, spec->count);
    kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, copy, KOLO_BUFFER_DATA, 0, spec->count);
    add_whole(spec, s, KOLO_BUFFER_SCRATCH, copy, KOLO_BUFFER_SCRATCH);
    kolo_schedule_round(s);
    kolo_schedule_copy(s, KOLO_BUFFER_DATA, 0, KOLO_BUFFER_SCRATCH, copy, spec->count);
}

const kolo_algorithm_row kolo_whole = {
    .name = "whole", .variant = KOLO_VARIANT_WHOLE, .write = whole_write};
const kolo_algorithm_row kolo_whole_packed = {
    .name = "whole, packed", .variant = KOLO_VARIANT_WHOLE, .write = packed_write};
