/* GPipe: all forward passes, then all backward passes. A stage keeps all micro-batches. Huang et
 * al., "GPipe: efficient training of giant neural networks using pipeline parallelism", 2019. */
#include "plan/program/program.h"

static void write_gpipe(kolo_program_writer *w) {
    for (int i = 0; i < w->micro_batches; i++) kolo_program_write(w, KOLO_PROGRAM_FORWARD, i, 0);
    for (int i = 0; i < w->micro_batches; i++) kolo_program_write(w, KOLO_PROGRAM_BACKWARD, i, 0);
}

const kolo_program_schedule kolo_program_gpipe = {
    .name = "gpipe",
    .help = "all forward, then all backward passes",
    .chunks = 1,
    .write = write_gpipe,
};
