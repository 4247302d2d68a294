/* Programs of pipelines: bubbles and slots against the formulas of the papers, and the checker
 * against programs with one row in the wrong place. */
#include "base/integer.h"
#include "base/memory.h"
#include "plan/program/program.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

static kolo_program *make(const char *name, int stages, int micro_batches) {
    const kolo_program_schedule *schedule;
    kolo_program *p;
    int chunks;
    assert_int_equal(kolo_program_find(name, &schedule, &chunks), KOLO_OK);
    assert_int_equal(kolo_program_create(schedule, stages, chunks, micro_batches, &p), KOLO_OK);
    return p;
}

/* ---- bubbles ---- */

/* The bubble as a part of a step with equal times of F, B and W, of p stages and m micro-batches:
 * Huang et al., 2019; Narayanan et al., 2021; Qi et al., 2023 and 2024. */
static double none_split(double p, double m, double v) { return (p - 1) / (v * m + p - 1); }
static double zb_h1(double p, double m, double v) {
    (void)v;
    return (p - 1) / (3 * m + p - 1); /* (p - 1) (F + B - W) */
}
static double zbv(double p, double m, double v) {
    (void)p, (void)m, (void)v;
    return 0;
}

/* The micro-batches that the stage with the most of them keeps, in chunks. */
static int keeps_all(int p, int m, int v) { return (void)p, m * v; }
static int keeps_stages(int p, int m, int v) { return (void)m, p * v; }
static int keeps_interleaved(int p, int m, int v) { return (void)m, p * v + p - 1; }

static const struct {
    const char *name;
    int chunks;
    double (*bubble)(double p, double m, double v);
    int (*kept)(int p, int m, int v);
} formulas[] = {
    {"gpipe", 1, none_split, keeps_all},
    {"1f1b", 1, none_split, keeps_stages},
    {"interleaved:2", 2, none_split, keeps_interleaved},
    {"interleaved:4", 4, none_split, keeps_interleaved},
    {"zb-h1", 1, zb_h1, keeps_stages},
    {"zbv", 2, zbv, keeps_stages},
};

/* The most chunks whose forward pass has run and whose last pass has not, over the stages. */
static int most_kept(const kolo_program *p) {
    int most = 0;
    const kolo_program_op last = p->schedule->splits ? KOLO_PROGRAM_WEIGHTS : KOLO_PROGRAM_BACKWARD;
    for (int s = 0; s < p->stages; s++) {
        int kept = 0;
        for (int i = 0; i < p->stage[s].n_rows; i++) {
            kept += p->stage[s].rows[i].op == KOLO_PROGRAM_FORWARD;
            if (kept > most) most = kept;
            kept -= p->stage[s].rows[i].op == last;
        }
    }
    return most;
}

static void bubbles_are_those_of_the_papers(void **state) {
    static const int stages[] = {4, 8, 64};
    const kolo_program_times equal = {1, 1, 1};
    for (size_t f = 0; f < KOLO_COUNT(formulas); f++) {
        for (size_t k = 0; k < KOLO_COUNT(stages); k++) {
            for (int m = 2 * stages[k]; m <= 3 * stages[k]; m += stages[k]) {
                kolo_program *p = make(formulas[f].name, stages[k], m);
                kolo_program_run run;
                assert_int_equal(kolo_program_check(p, &equal, &run, NULL), KOLO_OK);
                const double right = formulas[f].bubble(stages[k], m, formulas[f].chunks);
                if (fabs(run.bubble - right) > 1e-9) {
                    fail_msg("%s, %d stages, %d micro-batches: bubble %.6f, not %.6f",
                             formulas[f].name, stages[k], m, run.bubble, right);
                }
                const int kept = formulas[f].kept(stages[k], m, formulas[f].chunks);
                if (most_kept(p) != kept) {
                    fail_msg("%s, %d stages, %d micro-batches: %d kept, not %d", formulas[f].name,
                             stages[k], m, most_kept(p), kept);
                }
                kolo_program_destroy(p);
            }
        }
    }
}

/* Clipping needs the norm of all gradients, so no stage begins the next step before all have ended
 * this one. Only the stages of a zbv end at different times. */
static double until_all_end(const kolo_program *p) {
    const kolo_program_times equal = {1, 1, 1};
    double **starts = kolo_alloc((size_t)p->stages * sizeof *starts), end = 0;
    kolo_program_run run;
    assert_non_null(starts);
    for (int s = 0; s < p->stages; s++) {
        starts[s] = kolo_alloc((size_t)p->stage[s].n_rows * sizeof **starts);
        assert_non_null(starts[s]);
    }
    assert_int_equal(kolo_program_check(p, &equal, &run, starts), KOLO_OK);
    for (int s = 0; s < p->stages; s++) {
        for (int i = 0; i < p->stage[s].n_rows; i++) {
            const bool both =
                p->stage[s].rows[i].op == KOLO_PROGRAM_BACKWARD && !p->schedule->splits;
            if (p->stage[s].rows[i].op >= KOLO_PROGRAM_SEND) continue;
            end = fmax(end, starts[s][i] + (both ? 2.0 : 1.0) / p->chunks);
        }
        kolo_free(starts[s]);
    }
    kolo_free(starts);
    return 1 - run.busy / end;
}

static void clipping_adds_a_bubble_to_zbv_alone(void **state) {
    static const int stages[] = {4, 8, 64};
    for (size_t f = 0; f < KOLO_COUNT(formulas); f++) {
        for (size_t k = 0; k < KOLO_COUNT(stages); k++) {
            const int p = stages[k], m = 2 * p;
            kolo_program *program = make(formulas[f].name, p, m);
            const bool waits = strcmp(formulas[f].name, "zbv") == 0;
            const double right = waits ? (p - 1.0) / (6.0 * m + p - 1)
                                       : formulas[f].bubble(p, m, formulas[f].chunks);
            const double bubble = until_all_end(program);
            if (fabs(bubble - right) > 1e-9) {
                fail_msg("%s, %d stages: bubble %.6f, not %.6f", formulas[f].name, p, bubble,
                         right);
            }
            kolo_program_destroy(program);
        }
    }
}

/* A step of fewer micro-batches runs in the slots of a full one. */
static void assert_slots_suffice(const kolo_program *full, const kolo_program *p) {
    for (int s = 0; s < p->stages; s++) {
        for (int c = 0; c < p->chunks; c++) {
            assert_true(p->stage[s].slots[c] <= full->stage[s].slots[c]);
        }
    }
}

/* Few micro-batches, or one stage, are legal too. */
static void small_programs_pass(void **state) {
    for (size_t f = 0; f < KOLO_COUNT(formulas); f++) {
        for (int stages = 1; stages <= 5; stages++) {
            kolo_program *most = make(formulas[f].name, stages, 2 * stages + 1);
            for (int m = 1; m <= 2 * stages + 1; m++) {
                kolo_program *p = make(formulas[f].name, stages, m);
                assert_slots_suffice(most, p);
                kolo_program_destroy(p);
            }
            kolo_program_destroy(most);
        }
    }
}

/* ---- broken programs ---- */

static kolo_status check(const kolo_program *p) {
    const kolo_program_times equal = {1, 1, 1};
    kolo_program_run run;
    return kolo_program_check(p, &equal, &run, NULL);
}

static void move(kolo_program_row *rows, int from, int to) {
    const kolo_program_row row = rows[from];
    if (from < to) memmove(rows + from, rows + from + 1, (size_t)(to - from) * sizeof row);
    if (from > to) memmove(rows + to + 1, rows + to, (size_t)(from - to) * sizeof row);
    rows[to] = row;
}

/* Whether a row may come last: nothing of its stage depends on it or is ordered behind it. */
static bool may_be_last(const kolo_stage_program *s, int row) {
    for (int i = row + 1; i < s->n_rows; i++) {
        const kolo_program_row *a = &s->rows[row], *b = &s->rows[i];
        if (a->chunk != b->chunk) continue;
        bool same = a->op == b->op && a->gradient == b->gradient;
        bool follows = a->micro_batch == b->micro_batch && a->op != KOLO_PROGRAM_SEND;
        bool weights = a->op == KOLO_PROGRAM_WEIGHTS && b->op != KOLO_PROGRAM_WEIGHTS;
        if (same || (follows && !weights)) return false;
    }
    return true;
}

/* In every schedule, every row moved to the end of its stage, and every pass and send moved to the
 * beginning. */
static void a_moved_row_is_found(void **state) {
    static const char *const names[] = {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zbv"};
    for (size_t k = 0; k < KOLO_COUNT(names); k++) {
        kolo_program *p = make(names[k], 3, 6);
        int found = 0;
        for (int s = 0; s < p->stages; s++) {
            kolo_stage_program *stage = &p->stage[s];
            const int last = stage->n_rows - 1;
            for (int i = 0; i < last; i++) {
                if (may_be_last(stage, i)) continue;
                move(stage->rows, i, last);
                if (check(p) == KOLO_OK)
                    fail_msg("%s: stage %d, row %d moved last", names[k], s, i);
                move(stage->rows, last, i);
                found++;
            }
            for (int i = 1; i <= last; i++) {
                bool posts = stage->rows[i].op == KOLO_PROGRAM_RECEIVE;
                bool first = stage->rows[i].op == KOLO_PROGRAM_FORWARD &&
                             stage->rows[i].micro_batch == 0 && s == 0;
                if (posts || first) continue;
                move(stage->rows, i, 0);
                if (check(p) == KOLO_OK)
                    fail_msg("%s: stage %d, row %d moved first", names[k], s, i);
                move(stage->rows, 0, i);
                found++;
            }
        }
        assert_true(found > 60);
        assert_int_equal(check(p), KOLO_OK); /* every row is back */
        kolo_program_destroy(p);
    }
}

static void expect(const char *text, const kolo_program *p) {
    assert_int_equal(check(p), KOLO_ERR_FORMAT);
    if (!strstr(kolo_last_error(), text)) {
        fail_msg("\"%s\" is not in \"%s\"", text, kolo_last_error());
    }
}

static int find(const kolo_program *p, int stage, kolo_program_op op, int micro_batch) {
    for (int i = 0; i < p->stage[stage].n_rows; i++) {
        const kolo_program_row *row = &p->stage[stage].rows[i];
        if (row->op == op && row->micro_batch == micro_batch) return i;
    }
    return -1;
}

static void errors_name_the_row(void **state) {
    kolo_program *p = make("1f1b", 2, 4);
    kolo_stage_program *first = &p->stage[0], *second = &p->stage[1];
    int send = find(p, 1, KOLO_PROGRAM_SEND, 0), b = find(p, 0, KOLO_PROGRAM_BACKWARD, 0);

    move(second->rows, send, find(p, 1, KOLO_PROGRAM_FORWARD, 0)); /* the gradient, too early */
    expect("stage 1, row 1, send of the gradient of micro-batch 0 in chunk 0: before it is", p);
    move(second->rows, find(p, 1, KOLO_PROGRAM_SEND, 0), send);

    move(first->rows, b, 1); /* it needs what the next stage sends later */
    expect("stage 0", p);
    move(first->rows, 1, b);

    first->rows[b].slot = 1; /* that of micro-batch 1 */
    expect("another one has its slot", p);
    first->rows[b].slot = 0;

    first->rows[b].micro_batch = 1;
    expect("not in the order of micro-batches", p);
    first->rows[b].micro_batch = 0;

    first->n_rows--;
    expect("3 backward passes of 4 micro-batches", p);
    first->n_rows++;
    assert_int_equal(check(p), KOLO_OK);

    /* Both stages are right by themselves and wait for each other: the first one wants the gradient
     * of micro-batch 0 before it sends micro-batch 1, the second one wants that first. */
    kolo_program *deadlock = make("gpipe", 2, 2);
    kolo_stage_program *s = &deadlock->stage[0];
    move(s->rows, find(deadlock, 0, KOLO_PROGRAM_BACKWARD, 0),
         find(deadlock, 0, KOLO_PROGRAM_FORWARD, 1));
    expect("waits for ever", deadlock);
    kolo_program_destroy(deadlock);
    kolo_program_destroy(p);
}

static void requests_are_checked(void **state) {
    const kolo_program_schedule *schedule;
    kolo_program *p;
    int chunks;
    assert_int_equal(kolo_program_find("2f2b", &schedule, &chunks), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "gpipe, 1f1b, interleaved:CHUNKS, zb-h1, zbv"));
    assert_int_equal(kolo_program_find("1f1b:2", &schedule, &chunks), KOLO_ERR_ARG);
    assert_int_equal(kolo_program_find("interleaved:0", &schedule, &chunks), KOLO_ERR_ARG);
    assert_int_equal(kolo_program_find("interleaved:x", &schedule, &chunks), KOLO_ERR_ARG);
    assert_int_equal(kolo_program_find("interleaved:3", &schedule, &chunks), KOLO_OK);
    assert_int_equal(chunks, 3);
    assert_int_equal(kolo_program_create(schedule, 0, 3, 6, &p), KOLO_ERR_ARG);
}

static void the_diagram_is_readable(void **state) {
    kolo_text text = {0};
    kolo_program *p = make("1f1b", 2, 3);
    assert_int_equal(kolo_program_print(p, &text), KOLO_OK);
    assert_string_equal(
        text.text,
        "schedule 1f1b: 2 stages, 1 chunk each, 3 micro-batches, bubble 25.00 % where F, B and W "
        "take equal times\n"
        "stage 0   F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2 \n"
        "stage 1   .  F0 B0 B0 F1 B1 B1 F2 B2 B2 \n"
        "stage 0: slots 2; rows F0 F0> <B0 F1 F1> <B1 B0 F2 F2> <B2 B1 B2\n"
        "stage 1: slots 1; rows <F0 F0 B0 B0> <F1 F1 B1 B1> <F2 F2 B2 B2>\n");
    kolo_text_fini(&text);
    kolo_program_destroy(p);
}

TEST_MAIN(test_program) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_are_those_of_the_papers),
        cmocka_unit_test(clipping_adds_a_bubble_to_zbv_alone),
        cmocka_unit_test(small_programs_pass),
        cmocka_unit_test(a_moved_row_is_found),
        cmocka_unit_test(errors_name_the_row),
        cmocka_unit_test(requests_are_checked),
        cmocka_unit_test(the_diagram_is_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
