/* Programs: the table of schedules; sends, receives and slots.
 *
 * A micro-batch takes the slot of its number modulo the slots of the chunk, which are as many as
 * are in use at once. Receives are posted as early as their memory is free: activations when the
 * slot becomes free, gradients behind the forward pass. */
#include "plan/program/program.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "base/number.h"

#include <stdlib.h>
#include <string.h>

static const kolo_program_schedule *const schedules[] = {
    &kolo_program_gpipe, &kolo_program_1f1b, &kolo_program_interleaved,
    &kolo_program_zb_h1, &kolo_program_zbv,
};

enum { MOST_STAGES = 1024, MOST_MICRO_BATCHES = 1 << 16 };

static kolo_status refuse(const char *text) {
    kolo_text names = {0};
    for (size_t i = 0; i < KOLO_COUNT(schedules); i++) {
        kolo_text_add(&names, "%s%s%s", i > 0 ? ", " : "", schedules[i]->name,
                      schedules[i]->chunks == 0 ? ":CHUNKS" : "");
    }
    kolo_status status = KOLO_FAIL(KOLO_ERR_ARG, "no schedule of a pipeline is named \"%s\": %s",
                                   text, names.failed ? "" : names.text);
    kolo_text_fini(&names);
    return status;
}

kolo_status kolo_program_find(const char *text, const kolo_program_schedule **schedule,
                              int *chunks) {
    if (!text) text = "1f1b";
    const char *colon = strchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    for (size_t i = 0; i < KOLO_COUNT(schedules); i++) {
        const kolo_program_schedule *s = schedules[i];
        if (strlen(s->name) != length || strncmp(s->name, text, length) != 0) continue;
        if (colon && s->chunks > 0) break;
        char *end = NULL;
        long n = colon ? strtol(colon + 1, &end, 10) : s->chunks > 0 ? s->chunks : 2;
        if (n < 1 || n > KOLO_CHUNKS_MOST || (end && (*end || end == colon + 1))) {
            return KOLO_FAIL(KOLO_ERR_ARG, "schedule \"%s\": the chunks must be 1 to %d", text,
                             KOLO_CHUNKS_MOST);
        }
        *schedule = s;
        *chunks = (int)n;
        return KOLO_OK;
    }
    return refuse(text);
}

/* Whether another stage has the part that a message goes to or comes from. */
static bool has_peer(const kolo_program *p, int stage, int chunk, int step) {
    int other, part = kolo_program_part(p, stage, chunk) + step;
    if (part < 0 || part >= p->stages * p->chunks) return false;
    return kolo_program_stage_of(p, part, &other) != stage;
}

static kolo_program_op last_op(const kolo_program *p) {
    return p->schedule->splits ? KOLO_PROGRAM_WEIGHTS : KOLO_PROGRAM_BACKWARD;
}

static void count_slots(const kolo_program *p, const kolo_program_writer *w, int *slots) {
    int used[KOLO_CHUNKS_MOST] = {0};
    for (int i = 0; i < w->n_rows; i++) {
        const kolo_program_row *row = &w->rows[i];
        int *n = &used[row->chunk];
        if (row->op == KOLO_PROGRAM_FORWARD && ++*n > slots[row->chunk]) slots[row->chunk] = *n;
        if (row->op == last_op(p)) --*n;
    }
}

typedef struct builder {
    const kolo_program *p;
    int stage;
    kolo_stage_program *to;
} builder;

static void add_row(builder *b, kolo_program_op op, bool gradient, int micro_batch, int chunk) {
    b->to->rows[b->to->n_rows++] = (kolo_program_row){
        .op = op,
        .gradient = gradient,
        .micro_batch = micro_batch,
        .chunk = chunk,
        .slot = micro_batch % b->to->slots[chunk],
    };
}

/* The receive of activations, once the slot of the micro-batch is free. */
static void receive(builder *b, int micro_batch, int chunk) {
    if (micro_batch >= b->p->micro_batches || !has_peer(b->p, b->stage, chunk, -1)) return;
    add_row(b, KOLO_PROGRAM_RECEIVE, false, micro_batch, chunk);
}

static void add_messages(builder *b, const kolo_program_row *row) {
    const int i = row->micro_batch, c = row->chunk;
    add_row(b, row->op, false, i, c);
    if (row->op == KOLO_PROGRAM_FORWARD && has_peer(b->p, b->stage, c, 1)) {
        add_row(b, KOLO_PROGRAM_SEND, false, i, c);
        add_row(b, KOLO_PROGRAM_RECEIVE, true, i, c);
    }
    if (row->op == KOLO_PROGRAM_BACKWARD && has_peer(b->p, b->stage, c, -1)) {
        add_row(b, KOLO_PROGRAM_SEND, true, i, c);
    }
    if (row->op == last_op(b->p)) receive(b, i + b->to->slots[c], c);
}

static kolo_status build_stage(kolo_program *p, int stage, kolo_program_row *passes) {
    const size_t most = (size_t)p->chunks * (size_t)p->micro_batches * 7 + 1;
    builder b = {p, stage, &p->stage[stage]};
    kolo_program_writer w = {stage, p->stages, p->chunks, p->micro_batches, passes, 0};
    b.to->rows = kolo_alloc(most * sizeof *b.to->rows);
    b.to->slots = kolo_zalloc((size_t)p->chunks * sizeof *b.to->slots);
    if (!b.to->rows || !b.to->slots) return KOLO_NOMEM(most * sizeof *b.to->rows);
    p->schedule->write(&w);
    count_slots(p, &w, b.to->slots);
    for (int c = 0; c < p->chunks; c++) {
        for (int i = 0; i < b.to->slots[c]; i++) receive(&b, i, c);
    }
    for (int i = 0; i < w.n_rows; i++) add_messages(&b, &w.rows[i]);
    return KOLO_OK;
}

static kolo_status build(kolo_program *p) {
    const size_t most = (size_t)p->chunks * (size_t)p->micro_batches * 3 + 1;
    p->stage = kolo_zalloc((size_t)p->stages * sizeof *p->stage);
    kolo_program_row *passes = kolo_alloc(most * sizeof *passes);
    kolo_status status = p->stage && passes ? KOLO_OK : KOLO_NOMEM(most * sizeof *passes);
    for (int s = 0; status == KOLO_OK && s < p->stages; s++) status = build_stage(p, s, passes);
    kolo_free(passes);
    kolo_program_run run;
    const kolo_program_times equal = {1, 1, 1};
    return status == KOLO_OK ? kolo_program_check(p, &equal, &run, NULL) : status;
}

kolo_status kolo_program_create(const kolo_program_schedule *schedule, int stages, int chunks,
                                int micro_batches, kolo_program **program) {
    if (stages < 1 || stages > MOST_STAGES || micro_batches < 1 ||
        micro_batches > MOST_MICRO_BATCHES) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a pipeline has 1 to %d stages and 1 to %d micro-batches",
                         MOST_STAGES, MOST_MICRO_BATCHES);
    }
    kolo_program *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    *p = (kolo_program){schedule, stages, chunks, micro_batches, NULL};
    kolo_status status = build(p);
    if (status != KOLO_OK) {
        kolo_program_destroy(p);
        return status;
    }
    *program = p;
    return KOLO_OK;
}

void kolo_program_destroy(kolo_program *p) {
    if (!p) return;
    for (int s = 0; p->stage && s < p->stages; s++) {
        kolo_free(p->stage[s].rows);
        kolo_free(p->stage[s].slots);
    }
    kolo_free(p->stage);
    kolo_free(p);
}
