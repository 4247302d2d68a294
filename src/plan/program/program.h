#pragma once
/* Programs of a pipeline: for each stage, the order in which it computes the micro-batches of a
 * step, sends and receives.
 *
 * A model is cut into `stages` x `chunks` parts, one behind the other. A stage is one rank along
 * the axis pp; it has a part for each chunk. Schedules (1f1b.c, gpipe.c, zero_bubble.c) write the
 * order of the forward and backward passes; kolo_program_create adds sends, receives and slots. A
 * *slot* is the memory of one micro-batch in one chunk: what its backward pass needs, what it
 * receives and sends.
 *
 * A SEND starts a message, a RECEIVE posts its buffer; neither blocks. A forward or backward pass
 * waits for what it reads, and for the completion of the message that was last sent from where it
 * writes. Messages between two parts arrive in the order in which they were sent. */

#include "base/text.h"
#include "kolo/status.h"
#include "pass/parts.h"

#include <stdbool.h>

typedef enum kolo_program_op {
    KOLO_PROGRAM_FORWARD,
    KOLO_PROGRAM_BACKWARD, /* the gradients of the inputs; without `splits` of the weights too */
    KOLO_PROGRAM_WEIGHTS,  /* the gradients of the weights */
    KOLO_PROGRAM_SEND,
    KOLO_PROGRAM_RECEIVE,
} kolo_program_op;

typedef struct kolo_program_row {
    kolo_program_op op;
    bool gradient; /* SEND, RECEIVE: of a gradient, else of activations */
    int micro_batch, chunk, slot;
} kolo_program_row;

typedef struct kolo_stage_program {
    kolo_program_row *rows;
    int n_rows;
    int *slots; /* by chunk */
} kolo_stage_program;

typedef struct kolo_program {
    const struct kolo_program_schedule *schedule;
    int stages, chunks, micro_batches;
    kolo_stage_program *stage;
} kolo_program;

/* The writer of one stage's passes, in order: room for stages x chunks x micro-batches x 3 rows. */
typedef struct kolo_program_writer {
    int stage, stages, chunks, micro_batches;
    kolo_program_row *rows;
    int n_rows;
} kolo_program_writer;

void kolo_program_write(kolo_program_writer *w, kolo_program_op op, int micro_batch, int chunk);

/* A row of the table of schedules. */
typedef struct kolo_program_schedule {
    const char *name, *help;
    int chunks;  /* parts of a stage; 0: as many as asked for, "name:CHUNKS" */
    bool splits; /* the gradients of weights are computed apart */
    kolo_parts_path path;
    void (*write)(kolo_program_writer *w);
} kolo_program_schedule;

extern const kolo_program_schedule kolo_program_gpipe, kolo_program_1f1b, kolo_program_interleaved,
    kolo_program_zb_h1, kolo_program_zbv;

/* Finds a schedule by its name, "1f1b" or "interleaved:2", and the chunks of a stage. NULL: 1f1b.
 * ARG: there is none of that name; lists them. */
kolo_status kolo_program_find(const char *text, const kolo_program_schedule **schedule,
                              int *chunks);

/* Writes the program of all stages and checks it. ARG: not for this many micro-batches. NOMEM. */
kolo_status kolo_program_create(const kolo_program_schedule *schedule, int stages, int chunks,
                                int micro_batches, kolo_program **program);
void kolo_program_destroy(kolo_program *program);

/* By part: the slots of its chunk, for kolo_cut_opts; room for all parts. */
void kolo_program_part_slots(const kolo_program *program, int *slots);
/* The part of the model that a stage has as `chunk`, from 0; and the stage and chunk of a part. */
int kolo_program_part(const kolo_program *program, int stage, int chunk);
int kolo_program_stage_of(const kolo_program *program, int part, int *chunk);

/* The times of passes: a chunk is 1 / chunks of a stage. */
typedef struct kolo_program_times {
    double forward, backward, weights; /* of a stage, in any unit */
} kolo_program_times;

/* What a run in virtual time shows. */
typedef struct kolo_program_run {
    double step;   /* the longest time that a stage takes from its first pass to its last */
    double busy;   /* of it, passes */
    double bubble; /* the rest as a part of the step */
} kolo_program_run;

/* Executes all stages together, symbolically. FORMAT: rows are missing or doubled, a pass comes
 * before what it depends on, a slot is used twice, gradients are not added up in the order of
 * micro-batches, messages have different orders on both sides, or the stages wait for each other;
 * names the stage and the row. `starts` (may be NULL): by stage, the start of each row. */
kolo_status kolo_program_check(const kolo_program *program, const kolo_program_times *times,
                               kolo_program_run *run, double **starts);

/* Appends a diagram in virtual time, then the rows of each stage. NOMEM. */
kolo_status kolo_program_print(const kolo_program *program, kolo_text *text);
