/* Config files of the command: their errors, the options of a run, paths, and runs that are
 * repeated or resumed from them. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/text.h"
#include "kolo/train.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void config_files_must_be_text(void **state) {
    ASSERT_OK(kolo_file_write("job.yaml", "model: ml\0p\n", 12));
    test_run_fails("train --config job.yaml --data synthetic", 2,
                   "kolo: job.yaml contains a NUL byte: is it the right file?\n");
    assert_int_equal(system("mkfifo fifo.yaml"), 0);
    test_run_fails("train --config fifo.yaml --data synthetic", 1,
                   "kolo: cannot read fifo.yaml: it is a pipe or a device: give a file\n");
    assert_int_equal(system("mkdir pipes && mkfifo pipes/latest"), 0);
    test_run_fails("train --model mlp --data synthetic --resume pipes", 1,
                   "kolo: cannot read pipes/latest: it is a pipe or a device: give a file\n");
    const char *yaml = "data: &set synthetic\nmodel: mlp\nout: *set\nsteps: 1\neval: false\n";
    ASSERT_OK(kolo_file_write("job.yaml", yaml, strlen(yaml)));
    assert_int_equal(test_run("train --config job.yaml --progress none"), 0);
    assert_int_equal(access("synthetic/config.yaml", F_OK), 0); /* aliases are resolved */
}

/* One file for several commands: options of other commands are skipped, unknown ones rejected. */
static void other_commands_accept_the_config_of_a_run(void **state) {
    assert_int_equal(
        test_run("train --model mlp:hidden=8 --data synthetic:N=40,test=20 --batch 10 "
                 "--optimizer adam --epochs 2 --threads 1 --no-lanes --out served --progress none"),
        0);
    assert_int_equal(test_run("eval --config served/config.yaml --checkpoint "
                              "served/checkpoint-final.safetensors"),
                     0);
    char *out = test_contents("out");
    assert_non_null(strstr(out, "data              synthetic:N=40,test=20\n"));
    kolo_free(out);
    assert_int_equal(test_run("bench train --config served/config.yaml --steps 2"), 0);
    assert_int_equal(test_run("profile --config served/config.yaml --steps 2"), 0);
    assert_true(test_contains("served/config.yaml", "lanes: "));
    assert_int_equal(test_run("dump --config served/config.yaml"), 0);
    const char *yaml = "checkpoint-evry: 3\n";
    ASSERT_OK(kolo_file_write("job.yaml", yaml, strlen(yaml)));
    assert_int_equal(test_run("eval --config job.yaml --checkpoint x --data synthetic"), 2);
}

static void config_errors_have_line_and_column(void **state) {
    static const struct {
        const char *yaml, *text;
    } cases[] = {
        {"model: mlp\nbatch: 0\n", "job.yaml:2:1: batch 0: must be an integer from 1 to 1048576"},
        {"# a job\nmodel: mlp\n\nbacth: 8\n",
         "job.yaml:4:1: unknown key bacth: did you mean batch?"},
        {"{model: mlp, sede: 3}", "job.yaml:1:14: unknown key sede: did you mean seed?"},
        {"model:\n", "job.yaml:1:1: model has no value"},
        {"model: [a, b]\n", "job.yaml:1:1: model must have a scalar value"},
        {"- model\n", "job.yaml: must consist of lines 'option: value'"},
        {"model: mlp\nmodel: mlp\n", "job.yaml:2:1: duplicate key"},
        {"model: \"mlp\n", "job.yaml:1:9: double-quoted scalar without closing quote"},
        {"model: *nothing\n", "job.yaml:1:1: model is an undefined alias"},
        {"model: mlp\n---\nseed: 1\n", "job.yaml: holds more than one YAML document"},
        {"config: job.yaml\n", "job.yaml:1:1: config is allowed on the command line only"},
        {"\x01\x02\x03\xff\n", "job.yaml:1:1: plain scalar is malformed UTF8"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char text[256];
        ASSERT_OK(kolo_file_write("job.yaml", cases[i].yaml, strlen(cases[i].yaml)));
        snprintf(text, sizeof text, "kolo: %s\n", cases[i].text);
        test_run_fails("train --config job.yaml --data synthetic", 2, text);
    }
}

/* A file gives values, a flag wins over it; what was resolved is written down, and repeats the run
 * bitwise. */
static void a_config_reproduces_its_run(void **state) {
    const char *yaml = "model: mlp\ndata: synthetic\nbatch: 8\nsteps: 3\nseed: 7\nprogress: none\n";
    ASSERT_OK(kolo_file_write("job.yaml", yaml, strlen(yaml)));
    assert_int_equal(
        test_run("train --config job.yaml --steps 4 --threads 1 --out first --json a.json"), 0);
    json_t *a = test_json("a.json");
    assert_int_equal(test_json_int(a, "steps"), 4);
    assert_int_equal(test_json_int(a, "batch"), 8);
    assert_int_equal(test_json_int(a, "workers"), 1);
    assert_int_equal(test_json_int(a, "threads"), 1);
    assert_string_equal(json_string_value(json_object_get(a, "model")), "mlp");
    assert_true(test_json_int(a, "parameters") > 0 && test_json_int(a, "peak_rss_bytes") > 0);
    static const char *const numbers[] = {"final_loss", "test_accuracy", "train_seconds",
                                          "samples_per_second", "step_ms_median"};
    for (size_t i = 0; i < KOLO_COUNT(numbers); i++) {
        assert_true(json_is_number(json_object_get(a, numbers[i])));
    }
    assert_true(json_is_number(json_object_get(json_object_get(a, "ms_per_step"), "forward")));
    const json_t *steps = json_object_get(a, "step_ms_quantiles");
    assert_int_equal(json_array_size(steps), KOLO_STEP_QUANTILES);
    assert_true(json_number_value(json_array_get(steps, KOLO_STEP_QUANTILES / 2)) ==
                json_number_value(json_object_get(a, "step_ms_median")));
    assert_int_equal(test_run("train --config first/config.yaml --out second --json -"), 0);
    json_t *b = test_json("out"); /* standard output has nothing else */
    assert_string_equal(json_string_value(json_object_get(a, "parameter_hash")),
                        json_string_value(json_object_get(b, "parameter_hash")));
    json_decref(a);
    json_decref(b);
    char *first = test_contents("first/config.yaml");
    assert_non_null(strstr(first, "\nsteps: 4\n"));
    assert_non_null(strstr(first, "\nseed: 7\n"));
    assert_non_null(strstr(first, "\nmodel: \"mlp\"\n"));
    assert_null(strstr(first, "\njson: ")); /* the next run would overwrite it */
    kolo_free(first);
}

/* What is typed replaces what it excludes in the file of the run. */
static void a_run_resumes_on_another_layout(void **state) {
    static const char run[] = "train --model gpt2_tiny:layers=1,width=8,heads=2,context=4,vocab=10 "
                              "--data synthetic-tokens:N=16,test=1 --no-recipe --no-eval -q "
                              "--threads 1 --steps 1 --checkpoint-every 1";
    static const struct {
        const char *run, *resume, *has, *lacks;
    } cases[] = {
        {"--zero 3 --workers 2 --batch 4", "--zero 0", "zero: 0\n", "mesh"},
        {"--zero 1 --workers 2 --batch 4", "--mesh tp=2 --batch 8", "workers: 2\n", "zero"},
        {"--zero 2 --workers 2 --batch 4", "--sync ps", "sync: \"ps\"\n", "zero"},
        {"--mesh tp=2 --placement megatron --batch 8", "--workers 1", "workers: 1\n", "mesh"},
        {"--mesh tp=2 --placement megatron --batch 8", "--mesh pp=2", "mesh: \"pp=2\"\n",
         "placement"},
        {"--mesh tp=2 --placement megatron --batch 8", "--mesh sp=2", "mesh: \"sp=2\"\n",
         "placement"},
        {"--mesh sp=2 --placement ring --batch 8", "--mesh tp=2", "mesh: \"tp=2\"\n", "placement"},
        {"--mesh sp=2 --placement ring --batch 8", "--mesh sp=4", "placement: \"ring\"\n", "tp="},
        {"--mesh sp=2 --placement rules --batch 8", "--mesh sp=4", "/rules\"\n", "tp="},
        {"--mesh sp=2 --placement rules --batch 8", "--mesh pp=1", "mesh: \"pp=1\"\n", "placement"},
        {"--mesh tp=2 --reproducible 2 --tp-blocks 2 --placement blocks --global-batch 8",
         "--workers 1", "/blocks\"\n", "mesh"},
        {"--reproducible 2 --tp-blocks 2 --placement blocks --global-batch 8", "--mesh tp=2",
         "/blocks\"\n", "zero"},
        {"--mesh tp=2 --batch 8", "--zero 1 --batch 4", "zero: 1\n", "mesh"},
        {"--mesh dp=2,tp=2 --zero 1 --batch 8", "--mesh dp=2,pp=2", "zero: 1\n", "tp="},
        {"--batch 8", "--mesh tp=2", "workers: 2\n", "zero"},
        {"--sync ps --servers 1 --batch 8", "--mesh tp=2", "sync: \"allreduce\"\n", "servers: 1"},
        {"--sync ps --servers 1 --batch 8", "--sync allreduce", "workers: 1\n", "servers: 1"},
    };
    const char *rules = "attention ring\n", *blocks = "*.mlp.c_fc.weight 0\n*.mlp.c_fc.bias 0\n"
                                                      "*.mlp.c_proj.weight 1\n";
    ASSERT_OK(kolo_file_write("rules", rules, strlen(rules)));
    ASSERT_OK(kolo_file_write("blocks", blocks, strlen(blocks)));
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char text[512];
        assert_int_equal(system("rm -rf one two"), 0);
        snprintf(text, sizeof text, "%s %s --out one", run, cases[i].run);
        assert_int_equal(test_run(text), 0);
        snprintf(text, sizeof text, "train --resume one %s --steps 2 --out two", cases[i].resume);
        if (test_run(text) != 0) fail_msg("%s: %s", text, test_contents("err"));
        char *config = test_contents("two/config.yaml");
        if (!strstr(config, cases[i].has) || strstr(config, cases[i].lacks)) {
            fail_msg("%s:\n%s", text, config);
        }
        kolo_free(config);
    }
    const char *yaml = "mesh: tp=2\n"; /* whose size is the number of workers */
    ASSERT_OK(kolo_file_write("mesh.yaml", yaml, strlen(yaml)));
    char text[512];
    snprintf(text, sizeof text,
             "%s --config mesh.yaml --zero 1 --batch 4 --out zero --json zero.json", run);
    assert_int_equal(test_run(text), 0);
    json_t *result = test_json("zero.json");
    assert_int_equal(test_json_int(result, "workers"), 2);
    json_decref(result);
    test_run_fails("train --resume two --zero 2 --mesh tp=2 --workers 2", 2,
                   "kolo: --zero above 1 cannot be combined with the mesh dp=1,tp=2: omit one of "
                   "the two\n");
}

/* Relative paths refer to the folder of the file: the config of a run repeats it from any working
 * folder, and a file may be written beside its data. */
static void paths_in_a_config_refer_to_its_folder(void **state) {
    assert_int_equal(system("mkdir -p deep/er && printf '%2000s' x >deep/words.txt"), 0);
    const char *yaml = "model: lstm_lm:layers=1,hidden=4,context=4\ndata: text:words.txt\n"
                       "batch: 10\nsteps: 2\nthreads: 1\nout: found\nprogress: none\n";
    ASSERT_OK(kolo_file_write("deep/job.yaml", yaml, strlen(yaml)));
    assert_int_equal(test_run("train --config deep/job.yaml --json a.json"), 0);
    assert_int_equal(access("deep/found/checkpoint-final.safetensors", F_OK), 0);
    assert_true(test_contains("deep/found/config.yaml", "/deep/words.txt\"\n"));
    assert_true(test_contains("deep/found/config.yaml", "tuning: \"tuning.txt\"\n"));
    assert_true(test_contains("deep/found/config.yaml", "out: \".\"\n"));
    assert_int_equal(chdir("deep/er"), 0);
    assert_int_equal(test_run("train --config ../found/config.yaml --out again --json b.json"), 0);
    assert_int_equal(chdir("../.."), 0);
    json_t *a = test_json("a.json"), *b = test_json("deep/er/b.json");
    assert_string_equal(json_string_value(json_object_get(a, "parameter_hash")),
                        json_string_value(json_object_get(b, "parameter_hash")));
    yaml = "model: mlp:hidden=2\ndata: table.csv,classes=2,test=er/test.csv\nbatch: 2\nsteps: 1\n"
           "threads: 1\nout: table\ncheckpoint-every: 1\nprogress: none\n";
    ASSERT_OK(kolo_file_write("deep/table.yaml", yaml, strlen(yaml)));
    ASSERT_OK(kolo_file_write("deep/table.csv", "1,2,0\n3,4,1\n", 12));
    ASSERT_OK(kolo_file_write("deep/er/test.csv", "1,2,1\n", 6));
    assert_int_equal(test_run("train --config deep/table.yaml"), 0);
    assert_true(test_contains("deep/table/config.yaml", "/deep/table.csv,classes=2,test=/"));
    assert_true(test_contains("deep/table/config.yaml", "/deep/er/test.csv\"\n"));
    assert_int_equal(chdir("deep/er"), 0);
    assert_int_equal(test_run("train --resume ../table --steps 2"), 0); /* the same data */
    assert_int_equal(chdir("../.."), 0);
    ASSERT_OK(kolo_file_write("deep/rules.txt", "fc1.weight 0\n", 13));
    yaml = "model: mlp\nmesh: tp=2\nplacement: rules.txt\n";
    ASSERT_OK(kolo_file_write("deep/mesh.yaml", yaml, strlen(yaml)));
    assert_int_equal(test_run("dump --config deep/mesh.yaml --what plan"), 0);
    yaml = "model: mlp\nmesh: tp=2\nplacement: megatron\n"; /* no path */
    ASSERT_OK(kolo_file_write("deep/mesh.yaml", yaml, strlen(yaml)));
    assert_int_equal(test_run("dump --config deep/mesh.yaml --what plan"), 0);
    json_decref(a);
    json_decref(b);
    test_run_fails("train --config deep/found/config.yaml", 2,
                   "kolo: deep/found/checkpoint-final.safetensors is of a finished run: choose "
                   "another folder with --out, or remove deep/found; --init with that file starts "
                   "from its weights\n");
}

/* A small file of nested aliases would expand to any size. */
static void nested_aliases_are_not_expanded(void **state) {
    kolo_text yaml = {0};
    kolo_text_add(&yaml, "model: &a0 [x, x]\n");
    static const char *const keys[] = {"data", "init", "tuning", "out", "augment", "trace"};
    for (int i = 0; i < 6; i++) {
        kolo_text_add(&yaml, "%s: &a%d [*a%d", keys[i], i + 1, i);
        for (int k = 0; k < 999; k++) kolo_text_add(&yaml, ", *a%d", i);
        kolo_text_add(&yaml, "]\n");
    }
    ASSERT_OK(kolo_file_write("job.yaml", yaml.text, yaml.length));
    kolo_text_fini(&yaml);
    test_run_fails("train --config job.yaml", 2,
                   "kolo: job.yaml:1:1: model must have a scalar value\n");
    const char *loop = "model: &a *b\ndata: &b *a\n";
    ASSERT_OK(kolo_file_write("job.yaml", loop, strlen(loop)));
    assert_int_equal(test_run("train --config job.yaml"), 2);
}

/* A folder's config.yaml begins the run again elsewhere, and goes on with it here; of epochs and
 * steps what is typed counts alone. */
static void the_command_line_sets_the_length_of_a_run(void **state) {
    static const struct {
        const char *arguments;
        int64_t steps;
    } cases[] = {
        {"--model mlp:hidden=4 --data synthetic:N=40,test=4 --batch 10 --threads 1 --steps 3 "
         "--checkpoint-every 1 --out long",
         3},
        {"--resume long --epochs 2", 8},
        {"--resume long --steps 9", 9},
        {"--resume long --steps 11 --epochs 5", 11},
        {"--config long/config.yaml --epochs 1 --out anew", 4},
        {"--config long/config.yaml --out twice", 11},
        {"--resume twice", 11},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char line[512];
        snprintf(line, sizeof line, "train %s --progress none --json a.json", cases[i].arguments);
        if (test_run(line) != 0) fail_msg("%s: %s", line, test_contents("err"));
        json_t *result = test_json("a.json");
        assert_int_equal(test_json_int(result, "steps"), cases[i].steps);
        json_decref(result);
    }
    test_run_fails("train --config long/config.yaml --progress none", 2,
                   "kolo: long holds checkpoint-11.safetensors of an earlier run: resume it with "
                   "--resume long, or choose another folder with --out\n");
}

/* One that a run has written is replaced by that of the next run. */
static void a_config_of_the_user_is_kept(void **state) {
    static const char own[] =
        "recipe: false\nmodel: mlp:hidden=4\ndata: synthetic:N=40,test=4\nsteps: 2\n";
    const char *const commands[] = {
        "train --config job/config.yaml --out job",
        "train --config job/config.yaml --out job --workers 2",
        "train --config job/config.yaml --out job --resume latest --quiet"};
    ASSERT_OK(kolo_folder_make("job"));
    ASSERT_OK(kolo_file_write("job/config.yaml", own, strlen(own)));
    for (size_t i = 0; i < KOLO_COUNT(commands); i++) {
        test_run_fails(commands[i], 2,
                       "kolo: job/config.yaml is not of a run, and the options of this run would "
                       "replace it: choose another folder with --out\n");
        char *now = test_contents("job/config.yaml");
        assert_string_equal(now, own);
        kolo_free(now);
    }
    assert_int_equal(system("test \"$(ls job)\" = config.yaml"), 0);
    assert_int_equal(test_run("train --config job/config.yaml --out job2"), 0);
    assert_int_equal(system("rm job2/checkpoint*"), 0);
    assert_int_equal(test_run("train --config job2/config.yaml --out job2"), 0);
}

/* Files of a run's folder that no run has written. */
static void files_of_the_user_are_kept(void **state) {
    static const struct {
        const char *folder, *file, *text, *what;
    } cases[] = {
        {"notes", "notes/metrics.jsonl", "{\"loss\": 0.5, \"step\": 7}\n", "metrics"},
        {"plots", "plots/loss.svg", "<?xml version=\"1.0\"?>\n<svg/>\n", "losses"},
    };
    static const char *const runs[] = {"", " --workers 2", " --resume latest --quiet"};
    for (size_t i = 0; i < KOLO_COUNT(cases) * KOLO_COUNT(runs); i++) {
        const char *file = cases[i / KOLO_COUNT(runs)].file, *run = runs[i % KOLO_COUNT(runs)];
        const char *folder = cases[i / KOLO_COUNT(runs)].folder;
        const char *text = cases[i / KOLO_COUNT(runs)].text;
        if (i % KOLO_COUNT(runs) == 0) {
            ASSERT_OK(kolo_folder_make(folder));
            ASSERT_OK(kolo_file_write(file, text, strlen(text)));
        }
        char *command = kolo_format("train --model mlp:hidden=4 --data synthetic:N=40,test=4 "
                                    "--steps 2 --out %s%s",
                                    folder, run);
        char *error = kolo_format("kolo: %s is not of a run, and the %s of this run would replace "
                                  "it: choose another folder with --out\n",
                                  file, cases[i / KOLO_COUNT(runs)].what);
        char *only = kolo_format("test $(ls %s | wc -l) = 1", folder);
        test_run_fails(command, 2, error);
        char *now = test_contents(file);
        assert_string_equal(now, text);
        assert_int_equal(system(only), 0);
        kolo_free(now);
        kolo_free(only);
        kolo_free(error);
        kolo_free(command);
    }
}

TEST_MAIN(test_command_config) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_the_user_are_kept),
        cmocka_unit_test(config_files_must_be_text),
        cmocka_unit_test(other_commands_accept_the_config_of_a_run),
        cmocka_unit_test(config_errors_have_line_and_column),
        cmocka_unit_test(a_config_reproduces_its_run),
        cmocka_unit_test(a_run_resumes_on_another_layout),
        cmocka_unit_test(paths_in_a_config_refer_to_its_folder),
        cmocka_unit_test(nested_aliases_are_not_expanded),
        cmocka_unit_test(the_command_line_sets_the_length_of_a_run),
        cmocka_unit_test(a_config_of_the_user_is_kept),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
