/* Recipes of models: every option of each is one of kolo train; they fill what is not given, flags
 * and files win, and runs of versions without them keep their values. */
#include "base/file.h"
#include "kolo/models.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA "--data synthetic:N=60,test=10 --threads 1 --progress none "

static void every_recipe_is_accepted(void **state) {
    for (const kolo_model *const *m = kolo_models(); *m; m++) {
        char arguments[256];
        if (!(*m)->recipe || !(*m)->recipe_source) fail_msg("%s has no recipe", (*m)->name);
        snprintf(arguments, sizeof arguments, "train --model %s --data mnist:/none", (*m)->name);
        assert_int_equal(test_run(arguments), 1);
        if (!test_contains("err", "/none")) {
            char *text = test_contents("err");
            fail_msg("%s: %s", (*m)->name, text);
        }
    }
}

static void check_config(const char *const *lines) {
    for (; *lines; lines++) {
        char line[96];
        snprintf(line, sizeof line, "\n%s\n", *lines);
        if (!test_contains("run/config.yaml", line)) fail_msg("config.yaml lacks %s", *lines);
    }
}

static void missing_options_are_filled(void **state) {
    static const struct {
        const char *arguments, *lines[8];
    } cases[] = {
        {"--epochs 4",
         {"lr: 0.05", "scale-lr: 64", "momentum: 0.9", "weight-decay: 0.0005",
          "schedule: \"cosine\"", "warmup-epochs: 0.25", "recipe: true", NULL}},
        {"--epochs 4 --no-recipe",
         {"lr: 0.01", "scale-lr: 0", "momentum: 0", "schedule: \"constant\"", "recipe: false",
          NULL}},
        {"--steps 4 --lr 0.02",
         {"lr: 0.02", "scale-lr: 0", "momentum: 0.9", "warmup-epochs: 0", NULL}},
        {"--optimizer adam",
         {"lr: 0.01", "scale-lr: 0", "momentum: 0", "weight-decay: 0", "schedule: \"cosine\"",
          NULL}},
        {"--schedule step --momentum 0.5",
         {"schedule: \"step\"", "momentum: 0.5", "lr: 0.05", NULL}},
        {"--model mlp --optimizer adam", {"lr: 0.001", "momentum: 0", NULL}},
        {"--model mlp --momentum 0.5", /* which Adam, of the recipe, has not */
         {"optimizer: \"sgd\"", "lr: 0.01", "momentum: 0.5", NULL}},
        {"--config some.yaml", {"lr: 0.2", "schedule: \"poly\"", "momentum: 0.9", NULL}},
    };
    ASSERT_OK(kolo_file_write("some.yaml", "lr: 0.2\nschedule: poly\n", 23));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[256];
        assert_int_equal(system("rm -rf run"), 0);
        snprintf(arguments, sizeof arguments, "train %s --out run " DATA "%s",
                 strstr(cases[i].arguments, "--model") ? "" : "--model lenet", cases[i].arguments);
        assert_int_equal(test_run(arguments), 0);
        check_config(cases[i].lines);
    }
    assert_int_equal(test_run("train --model lenet --data synthetic:N=60,test=10 --epochs 1"), 0);
    assert_true(test_contains("err", "recipe of lenet ("));
    assert_true(test_contains("err", "--lr 0.05 --scale-lr 64 --momentum 0.9"));
    assert_int_equal(
        test_run("train --model alexnet:width=4,units=8 --steps 1 --epochs 1 --batch 1 "
                 "--data synthetic:N=2,test=1,shape=3x64x64 --no-eval"),
        0);
    assert_true(test_contains("err", "--lr-step-epochs 1 --augment flip"));
}

static char hash[2][64];

static void read_hash(int k) {
    json_t *result = test_json("result.json");
    const char *text = json_string_value(json_object_get(result, "parameter_hash"));
    assert_non_null(text);
    snprintf(hash[k], sizeof hash[k], "%s", text);
    json_decref(result);
}

/* Makes the config of a run one of a version without recipes. */
static void forget_recipes(void) {
    assert_int_equal(system("sed -i '/^recipe:/d' run/config.yaml"), 0);
}

/* resnet20 augments by its recipe, which a config file states only if it is so. */
#define MODEL \
    "--model resnet20:width=2 --data synthetic:N=40,test=8,shape=3x8x8 --threads 1 --batch 8 "

static void files_of_runs_repeat_them(void **state) {
    for (int with = 0; with < 2; with++) {
        assert_int_equal(system("rm -rf run again"), 0);
        assert_int_equal(test_run(with ? "train --out run --json result.json " MODEL
                                       : "train --out run --json result.json --no-recipe " MODEL),
                         0);
        read_hash(0);
        if (!with) forget_recipes();
        assert_int_equal(test_run("train --config run/config.yaml --out again --json result.json"),
                         0);
        read_hash(1);
        assert_string_equal(hash[0], hash[1]);
    }
}

static void earlier_runs_keep_their_values(void **state) {
#define RUN "train --out run --checkpoint-every 2 --resume latest --json result.json " MODEL
    assert_int_equal(system("rm -rf run"), 0);
    assert_int_equal(test_run("train --json result.json --steps 5 --no-recipe " MODEL), 0);
    read_hash(0);
    assert_int_equal(test_run(RUN "--no-recipe --steps 4"), 0);
    forget_recipes();
    assert_int_equal(test_run(RUN "--steps 5"), 0);
    read_hash(1);
    assert_string_equal(hash[0], hash[1]);
    assert_int_equal(system("rm -rf run"), 0);
    assert_int_equal(test_run("train --out run --checkpoint-every 2 --no-recipe --steps 4 " MODEL),
                     0);
    forget_recipes();
    assert_int_equal(test_run("train --resume run --steps 5 --json result.json"), 0);
    read_hash(1);
    assert_string_equal(hash[0], hash[1]);
}

TEST_MAIN(test_command_recipe) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recipe_is_accepted),
        cmocka_unit_test(missing_options_are_filled),
        cmocka_unit_test(files_of_runs_repeat_them),
        cmocka_unit_test(earlier_runs_keep_their_values),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
