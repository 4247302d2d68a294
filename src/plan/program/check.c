/* The symbolic execution of a program: the stages in turn run their rows until they have to wait
 * for another one, until all are done or none can proceed. Start and end of a row follow from the
 * rows before it on its stage and from the messages that it waits for, whatever the order in which
 * the stages are visited. Messages take no time. */
#include "base/memory.h"
#include "plan/program/program.h"

/* A message of one micro-batch, by part that receives it. Times are negative until known. */
typedef struct message {
    double sent, arrived; /* started; received by its reader's memory */
    int send_slot;
    bool posted;
} message;

/* One micro-batch in one part. */
typedef struct cell {
    bool done[3]; /* by pass */
    double end[3];
    message in[2]; /* activations to this part, gradients to this part */
} cell;

/* What is in order on one part. */
typedef struct part_state {
    int passed[3];            /* micro-batches, by pass */
    int sent[2], received[2]; /* messages to this part: activations, gradients */
} part_state;

typedef struct check {
    const kolo_program *p;
    const kolo_program_times *times;
    int n_parts;
    cell *cells;       /* by part and micro-batch */
    part_state *parts; /* by part */
    int *owners;       /* by stage, chunk and slot: the micro-batch that has it, or -1 */
    int most_slots;
    int *at;       /* by stage: the next row */
    double *clock; /* by stage: the end of its last pass */
    double *first; /* by stage: the start of its first pass; negative: none yet */
} check;

typedef enum outcome { DONE, WAITS, WRONG } outcome;

static cell *cell_of(const check *c, int part, int micro_batch) {
    return &c->cells[part * c->p->micro_batches + micro_batch];
}

static int *owner_of(const check *c, int stage, const kolo_program_row *row) {
    return &c->owners[(stage * c->p->chunks + row->chunk) * c->most_slots + row->slot];
}

static const char *const op_names[] = {"forward", "backward", "weights", "send", "receive"};

static outcome wrong(int stage, int at, const kolo_program_row *row, const char *why) {
    (void)KOLO_FAIL(KOLO_ERR_FORMAT, "stage %d, row %d, %s%s of micro-batch %d in chunk %d: %s",
                    stage, at, op_names[row->op],
                    row->op < KOLO_PROGRAM_SEND ? ""
                    : row->gradient             ? " of the gradient"
                                                : " of activations",
                    row->micro_batch, row->chunk, why);
    return WRONG;
}

static bool same_stage(const check *c, int part, int other) {
    int unused;
    return kolo_program_stage_of(c->p, part, &unused) ==
           kolo_program_stage_of(c->p, other, &unused);
}

/* When the input of a pass is there: -1 not yet, -2 never. */
static double input_time(const check *c, int part, int micro_batch, bool gradient) {
    const int from = gradient ? part + 1 : part - 1;
    if (from < 0 || from >= c->n_parts) return 0;
    const cell *own = cell_of(c, part, micro_batch), *other = cell_of(c, from, micro_batch);
    const int pass = gradient ? KOLO_PROGRAM_BACKWARD : KOLO_PROGRAM_FORWARD;
    if (same_stage(c, part, from)) return other->done[pass] ? other->end[pass] : -2;
    return own->in[gradient].posted ? own->in[gradient].arrived : -2;
}

/* When the message that was last sent from a slot has left it: -1 not yet. */
static double left_time(const check *c, int part, const kolo_program_row *row, bool gradient) {
    const int to = gradient ? part - 1 : part + 1;
    if (to < 0 || to >= c->n_parts) return 0;
    for (int i = row->micro_batch - 1; i >= 0; i--) {
        const message *m = &cell_of(c, to, i)->in[gradient];
        if (m->sent >= 0 && m->send_slot == row->slot) return m->arrived;
    }
    return 0;
}

static double time_of(const check *c, kolo_program_op op) {
    const double of[] = {c->times->forward, c->times->backward, c->times->weights};
    bool both = op == KOLO_PROGRAM_BACKWARD && !c->p->schedule->splits;
    return (of[op] + (both ? c->times->weights : 0)) / c->p->chunks;
}

static double larger(double a, double b) { return a > b ? a : b; }

static outcome run_pass(const check *c, int stage, const kolo_program_row *row, double *start) {
    const int part = kolo_program_part(c->p, stage, row->chunk), at = c->at[stage];
    cell *own = cell_of(c, part, row->micro_batch);
    int *owner = owner_of(c, stage, row);
    const bool gradient = row->op == KOLO_PROGRAM_BACKWARD;
    if (row->op == KOLO_PROGRAM_WEIGHTS && !c->p->schedule->splits) {
        return wrong(stage, at, row, "the backward pass computes them");
    }
    if (own->done[row->op]) return wrong(stage, at, row, "for the second time");
    if (c->parts[part].passed[row->op] != row->micro_batch) {
        return wrong(stage, at, row, "not in the order of micro-batches");
    }
    if (row->op != KOLO_PROGRAM_FORWARD && !own->done[row->op - 1]) {
        return wrong(stage, at, row, "before the pass that it continues");
    }
    if (row->op == KOLO_PROGRAM_FORWARD && *owner < 0) *owner = row->micro_batch;
    if (*owner != row->micro_batch) return wrong(stage, at, row, "another one has its slot");
    *start = larger(c->clock[stage], 0);
    if (row->op != KOLO_PROGRAM_WEIGHTS) {
        const double input = input_time(c, part, row->micro_batch, gradient);
        const double left = left_time(c, part, row, gradient);
        if (input <= -2) return wrong(stage, at, row, "nothing receives its input");
        if (input < 0 || left < 0) return WAITS;
        *start = larger(*start, larger(input, left));
    }
    if (c->first[stage] < 0) c->first[stage] = *start;
    c->clock[stage] = own->end[row->op] = *start + time_of(c, row->op);
    own->done[row->op] = true;
    c->parts[part].passed[row->op]++;
    const bool last =
        row->op == (c->p->schedule->splits ? KOLO_PROGRAM_WEIGHTS : KOLO_PROGRAM_BACKWARD);
    if (last) *owner = -1;
    return DONE;
}

static outcome run_message(const check *c, int stage, const kolo_program_row *row, double *start) {
    const int part = kolo_program_part(c->p, stage, row->chunk), at = c->at[stage];
    const bool sends = row->op == KOLO_PROGRAM_SEND;
    const int peer = row->gradient == sends ? part - 1 : part + 1, to = sends ? peer : part;
    const int pass = row->gradient ? KOLO_PROGRAM_BACKWARD : KOLO_PROGRAM_FORWARD;
    int *owner = owner_of(c, stage, row);
    if (peer < 0 || peer >= c->n_parts || same_stage(c, part, peer)) {
        return wrong(stage, at, row, "there is no other stage for it");
    }
    message *m = &cell_of(c, to, row->micro_batch)->in[row->gradient];
    int *order = sends ? c->parts[to].sent : c->parts[to].received;
    if (order[row->gradient] != row->micro_batch) {
        return wrong(stage, at, row, "messages are not in the order of micro-batches");
    }
    *start = larger(c->clock[stage], 0);
    if (sends) {
        const cell *own = cell_of(c, part, row->micro_batch);
        if (!own->done[pass]) return wrong(stage, at, row, "before it is computed");
        if (pass == KOLO_PROGRAM_FORWARD && *owner != row->micro_batch) {
            return wrong(stage, at, row, "its slot is free already");
        }
        m->sent = own->end[pass];
        m->send_slot = row->slot;
        *start = m->sent;
    } else {
        if (!row->gradient && *owner < 0) *owner = row->micro_batch;
        if (*owner != row->micro_batch) return wrong(stage, at, row, "another one has its slot");
        m->posted = true;
        m->arrived = -1;
    }
    order[row->gradient]++;
    if (m->sent >= 0 && m->posted) m->arrived = sends ? larger(m->sent, *start) : m->sent;
    return DONE;
}

/* Every pass was run, and what was received was sent. */
static kolo_status check_complete(const check *c) {
    for (int part = 0; part < c->n_parts; part++) {
        int chunk, stage = kolo_program_stage_of(c->p, part, &chunk);
        const part_state *s = &c->parts[part];
        for (int op = 0; op < (c->p->schedule->splits ? 3 : 2); op++) {
            if (s->passed[op] == c->p->micro_batches) continue;
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "stage %d, chunk %d: %d %s passes of %d micro-batches", stage, chunk,
                             s->passed[op], op_names[op], c->p->micro_batches);
        }
        for (int k = 0; k < 2; k++) {
            if (s->sent[k] == s->received[k]) continue;
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "stage %d, chunk %d: %d messages are sent, %d received", stage, chunk,
                             s->sent[k], s->received[k]);
        }
    }
    return KOLO_OK;
}

static kolo_status run_rows(const check *c, double **starts) {
    const kolo_program *p = c->p;
    int left = p->stages;
    for (bool moved = true; moved && left > 0;) {
        moved = false;
        left = 0;
        for (int s = 0; s < p->stages; s++) {
            outcome now = DONE;
            while (c->at[s] < p->stage[s].n_rows) {
                const kolo_program_row *row = &p->stage[s].rows[c->at[s]];
                double start = 0;
                now = row->op < KOLO_PROGRAM_SEND ? run_pass(c, s, row, &start)
                                                  : run_message(c, s, row, &start);
                if (now == WRONG) return KOLO_ERR_FORMAT;
                if (now == WAITS) break;
                if (starts) starts[s][c->at[s]] = start;
                c->at[s]++;
                moved = true;
            }
            left += now == WAITS;
        }
    }
    for (int s = 0; left > 0 && s < p->stages; s++) {
        if (c->at[s] == p->stage[s].n_rows) continue;
        (void)wrong(s, c->at[s], &p->stage[s].rows[c->at[s]],
                    "waits for ever: the stages wait for each other");
        return KOLO_ERR_FORMAT;
    }
    return check_complete(c);
}

static void measure(const check *c, kolo_program_run *run) {
    const double both = c->times->forward + c->times->backward + c->times->weights;
    *run = (kolo_program_run){.busy = both * c->p->micro_batches};
    for (int s = 0; s < c->p->stages; s++) {
        run->step = larger(run->step, c->clock[s] - c->first[s]);
    }
    run->bubble = run->step > 0 ? 1 - run->busy / run->step : 0;
}

static kolo_status check_slots(const kolo_program *p, int *most) {
    *most = 1;
    for (int s = 0; s < p->stages; s++) {
        for (int c = 0; c < p->chunks; c++) {
            if (p->stage[s].slots[c] > *most) *most = p->stage[s].slots[c];
        }
        for (int i = 0; i < p->stage[s].n_rows; i++) {
            const kolo_program_row *row = &p->stage[s].rows[i];
            bool right = row->micro_batch >= 0 && row->micro_batch < p->micro_batches &&
                         row->chunk >= 0 && row->chunk < p->chunks && row->slot >= 0 &&
                         row->slot < p->stage[s].slots[row->chunk];
            if (right) continue;
            (void)wrong(s, i, row, "there is no such micro-batch, chunk or slot");
            return KOLO_ERR_FORMAT;
        }
    }
    return KOLO_OK;
}

kolo_status kolo_program_check(const kolo_program *p, const kolo_program_times *times,
                               kolo_program_run *run, double **starts) {
    check c = {.p = p, .times = times, .n_parts = p->stages * p->chunks};
    KOLO_TRY(check_slots(p, &c.most_slots));
    const size_t parts = (size_t)c.n_parts, stages = (size_t)p->stages;
    const size_t cells = parts * (size_t)p->micro_batches;
    const size_t slots = parts * (size_t)c.most_slots;
    kolo_arena arena = {0};
    c.cells = kolo_arena_alloc(&arena, cells * sizeof *c.cells);
    c.parts = kolo_arena_alloc(&arena, parts * sizeof *c.parts);
    c.owners = kolo_arena_alloc(&arena, slots * sizeof *c.owners);
    c.at = kolo_arena_alloc(&arena, stages * sizeof *c.at);
    c.clock = kolo_arena_alloc(&arena, stages * sizeof *c.clock);
    c.first = kolo_arena_alloc(&arena, stages * sizeof *c.first);
    kolo_status status = KOLO_OK;
    if (!c.cells || !c.parts || !c.owners || !c.at || !c.clock || !c.first) {
        status = KOLO_NOMEM(cells * sizeof *c.cells);
    }
    for (size_t i = 0; status == KOLO_OK && i < cells; i++) {
        c.cells[i] = (cell){.in = {{.sent = -1, .arrived = -1}, {.sent = -1, .arrived = -1}}};
    }
    for (size_t i = 0; status == KOLO_OK && i < slots; i++) c.owners[i] = -1;
    for (size_t s = 0; status == KOLO_OK && s < stages; s++) {
        c.at[s] = 0;
        c.clock[s] = c.first[s] = -1;
    }
    for (size_t i = 0; status == KOLO_OK && i < parts; i++)
        c.parts[i] = (part_state){{0}, {0}, {0}};
    if (status == KOLO_OK) status = run_rows(&c, starts);
    if (status == KOLO_OK) measure(&c, run);
    kolo_arena_fini(&arena);
    return status;
}
