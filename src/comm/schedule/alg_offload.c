/* Collectives that a backend carries out (backend.h), as a single OFFLOADED entry.
 *
 * Scaling, the copy of an input to its location and the packing of several parts into SCRATCH stay
 * in the schedule. These writers are not in the table of algorithms: the schedule check does not
 * model backends. */
#include "comm/schedule/algorithms.h"

static void add_offloaded(const kolo_schedule_spec *spec, kolo_schedule *s, kolo_buffer to,
                          size_t to_first, kolo_buffer from) {
    kolo_schedule_round(s);
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_OFFLOADED,
                                      .to = to,
                                      .to_first = to_first,
                                      .from = from,
                                      .count = spec->count});
}

/* Kolo leaves the result of an in-place reduce-scatter in the rank's own slice, libraries at the
 * start of the vector: the backend works on a copy. */
static void offloaded_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    bool slice = spec->kind == KOLO_COLLECTIVE_REDUCE_SCATTER && spec->in_place;
    if (!slice) {
        add_offloaded(spec, s, KOLO_BUFFER_DATA, 0, spec->source);
        return;
    }
    size_t copy = kolo_schedule_scratch(s, spec->count);
    kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, copy, KOLO_BUFFER_DATA, 0, spec->count);
    add_offloaded(spec, s, KOLO_BUFFER_DATA, spec->firsts[spec->rank], KOLO_BUFFER_SCRATCH);
}

static void packed_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    size_t copy = kolo_schedule_scratch(s, spec->count);
    kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, copy, KOLO_BUFFER_DATA, 0, spec->count);
    add_offloaded(spec, s, KOLO_BUFFER_SCRATCH, copy, KOLO_BUFFER_SCRATCH);
    kolo_schedule_round(s);
    kolo_schedule_copy(s, KOLO_BUFFER_DATA, 0, KOLO_BUFFER_SCRATCH, copy, spec->count);
}

const kolo_algorithm_row kolo_offloaded = {
    .name = "offloaded", .variant = KOLO_VARIANT_OFFLOADED, .write = offloaded_write};
const kolo_algorithm_row kolo_offloaded_packed = {
    .name = "offloaded-packed", .variant = KOLO_VARIANT_OFFLOADED, .write = packed_write};
