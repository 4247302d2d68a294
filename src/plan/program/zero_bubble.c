/* Zero-bubble schedules: the gradients of weights, on which no other stage waits, fill the gaps.
 *
 * ZB-H1 (ZB1P): 1F1B in which stage s computes the gradients of weights s micro-batches later. It
 * keeps as much as 1F1B does on its first stage. Qi et al., "Zero bubble pipeline parallelism",
 * 2023.
 *
 * ZBV: two chunks; the first one goes down the stages and the second one back up, so that the first
 * stage also has the end of the model. Qi et al., "Pipeline parallelism with controllable memory",
 * 2024. */
#include "base/integer.h"
#include "plan/program/program.h"

static void write_zb_h1(kolo_program_writer *w) {
    const int m = w->micro_batches;
    const int ahead = (int)kolo_min_i64(w->stages - 1 - w->stage, m);
    int weights = 0;
    for (int i = 0; i < ahead; i++) kolo_program_write(w, KOLO_PROGRAM_FORWARD, i, 0);
    for (int i = 0; i < m; i++) {
        if (i + ahead < m) kolo_program_write(w, KOLO_PROGRAM_FORWARD, i + ahead, 0);
        kolo_program_write(w, KOLO_PROGRAM_BACKWARD, i, 0);
        if (i >= w->stage) kolo_program_write(w, KOLO_PROGRAM_WEIGHTS, weights++, 0);
    }
    while (weights < m) kolo_program_write(w, KOLO_PROGRAM_WEIGHTS, weights++, 0);
}

const kolo_program_schedule kolo_program_zb_h1 = {
    .name = "zb-h1",
    .help = "1f1b with the gradients of weights computed later",
    .chunks = 1,
    .splits = true,
    .write = write_zb_h1,
};

/* The next pass of each kind and chunk. */
typedef struct zbv {
    kolo_program_writer *w;
    int next[3][2];
} zbv;

/* Micro-batches beyond the last are left out. */
static void pass(zbv *z, kolo_program_op op, int chunk) {
    int i = z->next[op][chunk]++;
    if (i < z->w->micro_batches) kolo_program_write(z->w, op, i, chunk);
}

static void forward(zbv *z, int chunk) { pass(z, KOLO_PROGRAM_FORWARD, chunk); }

static void backward(zbv *z, int chunk) {
    pass(z, KOLO_PROGRAM_BACKWARD, chunk);
    pass(z, KOLO_PROGRAM_WEIGHTS, chunk);
}

static void write_zbv(kolo_program_writer *w) {
    const int p = w->stages, s = w->stage;
    const int m = (int)kolo_max_i64(w->micro_batches, 2 * p - 1); /* that fill the pipeline */
    zbv z = {.w = w};
    const int *ahead = z.next[KOLO_PROGRAM_FORWARD];
    for (int i = 0; i < 2 * (p - s) - 1; i++) forward(&z, 0);
    for (int i = 0; i < s; i++) {
        forward(&z, 1);
        forward(&z, 0);
    }
    for (int i = 0; i < p - s; i++) {
        forward(&z, 1);
        backward(&z, 1);
    }
    while (ahead[1] < ahead[0] || ahead[0] < m) {
        if (ahead[0] < m) forward(&z, 0);
        backward(&z, 0);
        forward(&z, 1);
        backward(&z, 1);
    }
    for (int i = 0; i < s; i++) {
        pass(&z, KOLO_PROGRAM_BACKWARD, 0);
        pass(&z, KOLO_PROGRAM_BACKWARD, 1);
    }
    for (int i = 0; i < p - s; i++) backward(&z, 0);
    while (z.next[KOLO_PROGRAM_WEIGHTS][1] < m) pass(&z, KOLO_PROGRAM_WEIGHTS, 1);
    while (z.next[KOLO_PROGRAM_WEIGHTS][0] < m) pass(&z, KOLO_PROGRAM_WEIGHTS, 0);
}

const kolo_program_schedule kolo_program_zbv = {
    .name = "zbv",
    .help = "two chunks, down the stages and back up, with the gradients of weights in the gaps",
    .chunks = 2,
    .splits = true,
    .path = KOLO_PARTS_V,
    .write = write_zbv,
};
