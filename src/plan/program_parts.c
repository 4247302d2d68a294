/* Rows of a program, and which stage has which part of the model. */
#include "plan/program.h"

void kolo_program_write(kolo_program_writer *w, kolo_program_op op, int micro_batch, int chunk) {
    w->rows[w->n_rows++] = (kolo_program_row){.op = op, .micro_batch = micro_batch, .chunk = chunk};
}

int kolo_program_part(const kolo_program *p, int stage, int chunk) {
    bool back = p->schedule->path == KOLO_PROGRAM_V && chunk % 2 == 1;
    return chunk * p->stages + (back ? p->stages - 1 - stage : stage);
}

int kolo_program_stage_of(const kolo_program *p, int part, int *chunk) {
    *chunk = part / p->stages;
    bool back = p->schedule->path == KOLO_PROGRAM_V && *chunk % 2 == 1;
    return back ? p->stages - 1 - part % p->stages : part % p->stages;
}
