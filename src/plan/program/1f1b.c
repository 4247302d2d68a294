/* 1F1B: after a warm-up, each stage computes one forward and one backward pass in turn, so that it
 * keeps no more micro-batches than there are stages behind it, itself included. Narayanan et al.,
 * "PipeDream", 2019; with one update per step: Fan et al., "DAPPLE", 2021.
 *
 * Interleaved: a stage has several chunks of the model, and the order of passes is that of 1F1B
 * over groups of `stages` micro-batches, each of which goes through all chunks; what the last group
 * lacks is left out. Narayanan et al., "Efficient large-scale language model training on GPU
 * clusters using Megatron-LM", 2021. */
#include "base/integer.h"
#include "plan/program/program.h"

/* The k-th pass of a stage, counted over all chunks; the forward pass takes the chunks in ascending
 * order, the backward pass in descending order. */
static void write_pass(kolo_program_writer *w, kolo_program_op op, int k) {
    const int group = w->stages * w->chunks, in_group = k % group;
    const int chunk = w->chunks > 1 ? in_group / w->stages : 0;
    const int micro_batch = w->chunks > 1 ? k / group * w->stages + in_group % w->stages : k;
    bool forward = op == KOLO_PROGRAM_FORWARD;
    if (micro_batch >= w->micro_batches) return;
    kolo_program_write(w, op, micro_batch, forward ? chunk : w->chunks - 1 - chunk);
}

static void write_1f1b(kolo_program_writer *w) {
    const int behind = w->stages - 1 - w->stage;
    const int groups = (w->micro_batches + w->stages - 1) / w->stages;
    const int all = w->chunks > 1 ? groups * w->stages * w->chunks : w->micro_batches;
    const int wanted = w->chunks > 1 ? 2 * behind + (w->chunks - 1) * w->stages : behind;
    const int ahead = (int)kolo_min_i64(wanted, all);
    for (int k = 0; k < ahead; k++) write_pass(w, KOLO_PROGRAM_FORWARD, k);
    for (int k = 0; k < all; k++) {
        if (k + ahead < all) write_pass(w, KOLO_PROGRAM_FORWARD, k + ahead);
        write_pass(w, KOLO_PROGRAM_BACKWARD, k);
    }
}

const kolo_program_schedule kolo_program_1f1b = {
    .name = "1f1b",
    .help = "one forward, one backward pass in turn",
    .chunks = 1,
    .write = write_1f1b,
};

const kolo_program_schedule kolo_program_interleaved = {
    .name = "interleaved",
    .help = "1f1b with several chunks of the model on each stage",
    .write = write_1f1b,
};
