/* A program as text: a diagram in virtual time, a line for each stage and a column for each unit of
 * time; then the rows of each stage. */
#include "base/memory.h"
#include "plan/program/program.h"

#include <stdio.h>
#include <string.h>

enum { CELL = 8 };

static char letter(kolo_program_op op) { return "FBW"[op]; }

/* "F3", with several chunks "F3b". */
static void name_pass(const kolo_program *p, const kolo_program_row *row, char name[CELL]) {
    char chunk[2] = {p->chunks > 1 ? (char)('a' + row->chunk) : '\0', '\0'};
    snprintf(name, CELL, "%c%d%s", letter(row->op), row->micro_batch % 10000, chunk);
}

static int width_of(const kolo_program *p) {
    char number[16];
    return snprintf(number, sizeof number, "%d", p->micro_batches - 1) + 2 + (p->chunks > 1);
}

static void print_timeline(const kolo_program *p, int stage, const double *starts,
                           kolo_text *text) {
    const int width = width_of(p);
    double at = 0;
    kolo_text_add(text, "stage %-3d ", stage);
    for (int i = 0; i < p->stage[stage].n_rows; i++) {
        const kolo_program_row *row = &p->stage[stage].rows[i];
        if (row->op > KOLO_PROGRAM_WEIGHTS) continue;
        for (; at + 0.5 < starts[i]; at++) kolo_text_add(text, "%-*s", width, ".");
        char name[CELL];
        name_pass(p, row, name);
        kolo_text_add(text, "%-*s", width, name);
        at++;
        bool two = row->op == KOLO_PROGRAM_BACKWARD && !p->schedule->splits;
        if (two) kolo_text_add(text, "%-*s", width, name);
        at += two;
    }
    kolo_text_add(text, "\n");
}

static void print_rows(const kolo_program *p, int stage, kolo_text *text) {
    const kolo_stage_program *s = &p->stage[stage];
    kolo_text_add(text, "stage %d: slots", stage);
    for (int c = 0; c < p->chunks; c++) kolo_text_add(text, " %d", s->slots[c]);
    kolo_text_add(text, "; rows");
    for (int i = 0; i < s->n_rows; i++) {
        const kolo_program_row *row = &s->rows[i];
        char name[CELL];
        if (row->op < KOLO_PROGRAM_SEND) {
            name_pass(p, row, name);
            kolo_text_add(text, " %s", name);
            continue;
        }
        const kolo_program_row of = {
            .op = row->gradient ? KOLO_PROGRAM_BACKWARD : KOLO_PROGRAM_FORWARD,
            .micro_batch = row->micro_batch,
            .chunk = row->chunk,
        };
        name_pass(p, &of, name);
        kolo_text_add(text, row->op == KOLO_PROGRAM_SEND ? " %s>" : " <%s", name);
    }
    kolo_text_add(text, "\n");
}

kolo_status kolo_program_print(const kolo_program *p, kolo_text *text) {
    const double chunks = p->chunks;
    const kolo_program_times units = {chunks, chunks, chunks}; /* a pass of a chunk takes 1 */
    kolo_program_run run;
    kolo_arena arena = {0};
    double **starts = kolo_arena_alloc(&arena, (size_t)p->stages * sizeof(double *));
    bool enough = starts != NULL;
    for (int s = 0; enough && s < p->stages; s++) {
        starts[s] = kolo_arena_alloc(&arena, (size_t)p->stage[s].n_rows * sizeof **starts + 1);
        enough = starts[s] != NULL;
    }
    kolo_status status =
        enough ? kolo_program_check(p, &units, &run, starts) : KOLO_NOMEM(sizeof(double *));
    if (status == KOLO_OK) {
        kolo_text_add(text,
                      "schedule %s: %d stages, %d chunk%s each, %d micro-batches, bubble %.2f %% "
                      "where F, B and W take equal times\n",
                      p->schedule->name, p->stages, p->chunks, p->chunks > 1 ? "s" : "",
                      p->micro_batches, 100 * run.bubble);
        for (int s = 0; s < p->stages; s++) print_timeline(p, s, starts[s], text);
        for (int s = 0; s < p->stages; s++) print_rows(p, s, text);
    }
    kolo_arena_fini(&arena);
    return status;
}
