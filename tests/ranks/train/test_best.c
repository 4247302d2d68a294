/* --keep-best and --patience, against the evaluations that metrics.jsonl lists. */
#include "base/file.h"
#include "base/memory.h"
#include "support/command.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"
#include "train/checkpoint/checkpoint.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 12, PATIENCE = 2 };

/* Too high a learning rate: evaluations improve and worsen. */
#define JOB                                                                              \
    "train --model mlp:hidden=16 --data synthetic:N=480,test=40 --batch 16 --threads 1 " \
    "--no-recipe --lr 1 --progress none --out run --eval-every-steps 1 --json result.json "

typedef struct best_case {
    const char *workers, *metric; /* metric NULL: without --keep-best */
    bool more;                    /* is better */
} best_case;

static const best_case cases[] = {
    {"", "loss", false},
    {"", "accuracy", true},
    {"--workers 2 --batch 8", "loss", false},
    {"--workers 2 --batch 8 --zero 2", "accuracy", true},
    {"--workers 2 --batch 8", NULL, false},
};

static void train(const best_case *c, int steps, const char *more) {
    char line[512], best[48] = "";
    if (c->metric) snprintf(best, sizeof best, "--keep-best %s", c->metric);
    snprintf(line, sizeof line, JOB "%s %s --steps %d %s", c->workers, best, steps, more);
    if (test_run(line) != 0) fail_msg("%s: %s", line, test_contents("err"));
}

/* The values of the evaluations, by step from 1; the lines of epochs repeat some. */
static void read_evaluations(const char *metric, double values[STEPS + 1]) {
    char key[48], *text = test_contents("run/metrics.jsonl");
    snprintf(key, sizeof key, "test_%s", metric);
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        json_t *json = json_loads(line, 0, NULL);
        json_t *value = json_object_get(json, key);
        if (value) values[test_json_int(json, "step")] = json_number_value(value);
        json_decref(json);
    }
    kolo_free(text);
}

/* The best step, where all evaluations up to `steps` count. */
static int find_best(const double *values, bool more, int steps) {
    int best = 1;
    for (int k = 2; k <= steps; k++) {
        if (more ? values[k] > values[best] : values[k] < values[best]) best = k;
    }
    return best;
}

static void assert_best(const best_case *c, const double *values, int steps) {
    const char *metric = c->metric ? c->metric : "loss";
    const int best = find_best(values, c->more, steps);
    json_t *json = test_json("result.json");
    assert_int_equal(test_json_int(json, "best_step"), best);
    assert_true(test_json_number(json, "best_value") == values[best]);
    assert_string_equal(json_string_value(json_object_get(json, "best_metric")), metric);
    json_decref(json);
    if (kolo_file_exists("run/checkpoint-best.safetensors") != (c->metric != NULL)) {
        fail_msg("%s %s: weights", c->workers, metric);
    }
    if (!c->metric) return;
    assert_int_equal(test_run("eval --checkpoint run/checkpoint-best.safetensors --data "
                              "synthetic:N=480,test=40 --threads 1 --json eval.json"),
                     0);
    char key[48];
    snprintf(key, sizeof key, "test_%s", metric);
    json = test_json("eval.json");
    const double error = test_json_number(json, key) - values[best];
    if (error > 1e-5 || error < -1e-5) fail_msg("%s: off by %g", key, error);
    assert_int_equal(test_json_int(json, "steps"), best);
    json_decref(json);
}

static void forget_run(void) { assert_int_equal(system("rm -rf run"), 0); }

static void the_best_is_that_of_the_evaluations(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const best_case *c = &cases[i];
        const char *metric = c->metric ? c->metric : "loss";
        double values[STEPS + 1] = {0};
        if (TEST_FEWER(i % 2 == 0, false)) continue;
        forget_run();
        /* In two parts: a resumed run goes on with the record. */
        train(c, STEPS / 2, "--checkpoint-every 3 --patience 100");
        train(c, STEPS, "--checkpoint-every 3 --patience 100 --resume latest");
        read_evaluations(metric, values);
        assert_best(c, values, STEPS);
        /* How long patience lasts. */
        int stop = 1, best = 1;
        while (stop < STEPS && stop - best < PATIENCE) best = find_best(values, c->more, ++stop);
        assert_true(stop < STEPS);
        forget_run();
        train(c, STEPS, "--checkpoint-every 100 --patience 2");
        assert_best(c, values, stop);
        json_t *json = test_json("result.json");
        assert_int_equal(test_json_int(json, "steps"), stop);
        assert_true(json_is_true(json_object_get(json, "stopped_early")));
        json_decref(json);
        /* It has ended: the same command goes no further. */
        train(c, STEPS, "--checkpoint-every 100 --patience 2 --resume latest");
        json = test_json("result.json");
        assert_int_equal(test_json_int(json, "steps"), stop);
        json_decref(json);
    }
}

static int best_step(void) {
    json_t *json = test_json("result.json");
    const int step = (int)test_json_int(json, "best_step");
    json_decref(json);
    return step;
}

static void assert_weights_of(int step) {
    kolo_checkpoint c;
    ASSERT_OK(kolo_checkpoint_open("run/checkpoint-best.safetensors", &c));
    assert_int_equal(c.info.steps, step);
    kolo_checkpoint_close(&c);
    assert_int_equal(best_step(), step);
}

/* A run that is killed before its first checkpoint, started again, and killed earlier. */
static void better_weights_of_an_earlier_start_are_kept(void **state) {
    const best_case *c = &cases[0];
    forget_run();
    train(c, STEPS, "");
    const int best = best_step();
    assert_true(best > 1);
    assert_int_equal(unlink("run/checkpoint-final.safetensors"), 0);
    char *lines = test_contents("run/metrics.jsonl");
    assert_int_equal(test_run(JOB "--keep-best loss --steps 1 --resume latest --seed 9"), 2);
    assert_true(test_contains("err", "run/checkpoint-best.safetensors is of a run with another "));
    char *kept = test_contents("run/metrics.jsonl");
    assert_string_equal(kept, lines);
    kolo_free(kept);
    kolo_free(lines);
    train(c, 1, "--checkpoint-every 100 --resume latest");
    assert_weights_of(best);
}

/* The same with a path that is not UTF-8, which checkpoints hold in another form. */
static void any_path_of_data_is_recognized(void **state) {
    static const char job[] =
        "train --model mlp:hidden=4 --data csv:t\xff.csv,split=0.25 --no-recipe --threads 1 "
        "--batch 8 "
        "--steps 4 --eval-every-steps 1 --keep-best loss --out run --progress none";
    forget_run();
    FILE *f = fopen("t\xff.csv", "w");
    assert_non_null(f);
    (void)fprintf(f, "a,b,class\n");
    for (int i = 0; i < 40; i++) (void)fprintf(f, "%d,%d,%d\n", i % 7, i % 5, i % 2);
    assert_int_equal(fclose(f), 0);
    char line[512];
    snprintf(line, sizeof line, "%s --resume latest", job);
    for (int i = 0; i < 2; i++) {
        if (test_run(line) != 0) fail_msg("%s", test_contents("err"));
        assert_int_equal(unlink("run/checkpoint-final.safetensors"), 0);
    }
    assert_int_equal(unlink("t\xff.csv"), 0);
}

/* A run was resumed with --keep-best, which it had not before: the first weights are written. */
static void a_record_without_weights_does_not_count(void **state) {
    const best_case without = {"", NULL, false};
    forget_run();
    train(&without, STEPS - 1, "--checkpoint-every 100 --patience 100");
    train(&cases[0], STEPS, "--checkpoint-every 100 --resume latest");
    assert_weights_of(STEPS);
}

/* Evaluations that never improve, as the steps are too small to change a parameter: the run ends
 * after the same step with any policy. */
static void workers_that_step_alone_end_together(void **state) {
    static const char *const policies[] = {"asp", "ssp:1", "bsp:drop=1", "asp,lease=1", "auto"};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        char line[512];
        if (TEST_FEWER(i % 2 == 1, false)) continue;
        forget_run();
        snprintf(line, sizeof line,
                 "train --model mlp:hidden=16 --data synthetic:N=480,test=40 --batch 8 --threads 1 "
                 "--no-recipe --lr 1e-12 --progress none --out run --eval-every-steps 2 "
                 "--json result.json --sync ps --servers 1 --workers 2 --no-bind --steps 200 "
                 "--checkpoint-every 100 --patience 3 --consistency %s",
                 policies[i]);
        if (test_run(line) != 0) fail_msg("%s: %s", line, test_contents("err"));
        json_t *json = test_json("result.json");
        assert_int_equal(test_json_int(json, "best_step"), 2);
        assert_int_equal(test_json_int(json, "steps"), 8);
        assert_true(json_is_true(json_object_get(json, "stopped_early")));
        json_decref(json);
        assert_true(kolo_file_exists("run/checkpoint-final.safetensors"));
    }
}

static void options_without_effect_are_refused(void **state) {
    static const char *const options[][2] = {
        {"--keep-best f1 --out run --eval-every 1", "choose one of loss, accuracy, "},
        {"--keep-best perplexity --out run --eval-every 1", "have no perplexity"},
        {"--keep-best mean_iou --out run --eval-every 1", "have no mean_iou"},
        {"--keep-best loss --eval-every 1", "--keep-best needs --out DIR"},
        {"--keep-best loss --out run", "the run has one at its end"},
        {"--patience 3 --out run", "the run has one at its end"},
        {"--patience 3 --no-eval", "the run has none"},
        {"--checkpoint-every 10m --sync ps --servers 1 --workers 2 --consistency asp,lease=1 --out "
         "run",
         "give --checkpoint-every in steps"},
        {"--wait-for-saves --out run", "--wait-for-saves requires --checkpoint-every"},
        {"--checkpoint-every 10m", "--checkpoint-every needs --out DIR"},
        {"--checkpoint-every 10d --out run", "or a time, such as 10m"},
    };
    for (size_t i = 0; i < KOLO_COUNT(options); i++) {
        char line[256];
        forget_run();
        snprintf(line, sizeof line, "train --model mlp --data synthetic:N=64,test=8 %s",
                 options[i][0]);
        if (test_run(line) == 0 || !test_contains("err", options[i][1])) {
            fail_msg("%s: %s", line, test_contents("err"));
        }
    }
    forget_run();
    train(&cases[0], 1, "");
    assert_int_equal(unlink("run/checkpoint-final.safetensors"), 0);
    assert_int_equal(test_run(JOB "--steps 1"), 2);
    assert_true(test_contains("err", "run/checkpoint-best.safetensors is of an earlier run"));
}

TEST_MAIN(test_best) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_is_that_of_the_evaluations),
        cmocka_unit_test(better_weights_of_an_earlier_start_are_kept),
        cmocka_unit_test(any_path_of_data_is_recognized),
        cmocka_unit_test(a_record_without_weights_does_not_count),
        cmocka_unit_test(workers_that_step_alone_end_together),
        cmocka_unit_test(options_without_effect_are_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
