/* Rows of a program, and which stage has which part of the model. */
#include "plan/program/program.h"

void kolo_program_write(kolo_program_writer *w, kolo_program_op op, int micro_batch, int chunk) {
    w->rows[w->n_rows++] = (kolo_program_row){.op = op, .micro_batch = micro_batch, .chunk = chunk};
}

static kolo_parts parts_of(const kolo_program *p) {
    return (kolo_parts){p->stages, p->chunks, p->schedule->path};
}

int kolo_program_part(const kolo_program *p, int stage, int chunk) {
    const kolo_parts parts = parts_of(p);
    return kolo_parts_at(&parts, stage, chunk);
}

int kolo_program_stage_of(const kolo_program *p, int part, int *chunk) {
    const kolo_parts parts = parts_of(p);
    return kolo_parts_stage(&parts, part, chunk);
}

void kolo_program_part_slots(const kolo_program *p, int *slots) {
    for (int part = 0; part < p->stages * p->chunks; part++) {
        int chunk;
        const int stage = kolo_program_stage_of(p, part, &chunk);
        slots[part] = p->stage[stage].slots[chunk];
    }
}
