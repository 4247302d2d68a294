/* The command from outside: help, manual, wrong use, config files, resolved options, what jobs
 * report. test_command_bench.c has those that measure. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "kolo/train.h"
#include "support/command.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void pages_match_the_manual(void **state) {
    static const struct {
        const char *arguments, *page;
    } pages[] = {
        {"help --markdown", "docs/options.md"},
        {"help models --markdown", "docs/models.md"},
    };
    for (size_t i = 0; i < KOLO_COUNT(pages); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", KOLO_SOURCE_DIR, pages[i].page);
        assert_int_equal(test_run(pages[i].arguments), 0);
        char *made = test_contents("out"), *kept = test_contents(path);
        if (strcmp(made, kept) != 0) {
            fail_msg("%s is old: kolo %s makes it", pages[i].page, pages[i].arguments);
        }
        kolo_free(made);
        kolo_free(kept);
    }
}

static void every_command_has_help(void **state) {
    static const char *const commands[] = {"train",
                                           "eval",
                                           "bench train",
                                           "bench allreduce",
                                           "bench ps",
                                           "run",
                                           "dump",
                                           "info",
                                           "help",
                                           "bench compress",
                                           "profile",
                                           "checkpoint info",
                                           "checkpoint verify",
                                           "checkpoint diff",
                                           "checkpoint export",
                                           "data info",
                                           "data verify",
                                           "data head",
                                           "data pack",
                                           "data ledger",
                                           "bench sim",
                                           "predict"};
    assert_int_equal(test_run("--help"), 0);
    char *list = test_contents("out");
    for (size_t i = 0; i < KOLO_COUNT(commands); i++) {
        char words[64], usage[64];
        assert_non_null(strstr(list, commands[i]));
        snprintf(words, sizeof words, "%s --help", commands[i]);
        snprintf(usage, sizeof usage, "usage: kolo %s", commands[i]);
        assert_int_equal(test_run(words), 0);
        char *page = test_contents("out");
        assert_memory_equal(page, usage, strlen(usage));
        /* No line is longer than 80 columns. */
        for (char *row = strtok(page, "\n"); row; row = strtok(NULL, "\n")) {
            if (strncmp(row, "usage:", 6) != 0) assert_true(strlen(row) <= 80);
        }
        kolo_free(page);
        snprintf(words, sizeof words, "help %s", commands[i]);
        assert_int_equal(test_run(words), 0);
    }
    kolo_free(list);
    assert_int_equal(test_run("--version"), 0);
    char *version = test_contents("out"), expected[64];
    snprintf(expected, sizeof expected, "kolo %s\n", kolo_version());
    assert_string_equal(version, expected);
    kolo_free(version);
    assert_int_equal(test_run("info"), 0);
    char *info = test_contents("out");
    assert_non_null(strstr(info, "usable processors"));
    assert_non_null(strstr(info, "\nkernels           "));
    kolo_free(info);
}

static void usage_errors_are_one_line_and_exit_2(void **state) {
    static const struct {
        const char *arguments, *text;
    } cases[] = {
        {"", "kolo: no command: 'kolo --help' lists the commands\n"},
        {"tarin", "kolo: unknown command 'tarin': did you mean 'train'?\n"},
        {"zzzzzzzz", "kolo: unknown command 'zzzzzzzz': 'kolo --help' lists the commands\n"},
        {"bench tarin", "kolo: unknown command 'bench tarin': did you mean 'bench train'?\n"},
        {"help tarin", "kolo: unknown command 'tarin': did you mean 'train'?\n"},
        {"train --modle lenet", "kolo: unknown option --modle: did you mean --model?\n"},
        {"train --model lenet --data x --batch 0",
         "kolo: --batch 0: must be an integer from 1 to 1048576\n"},
        {"train --model lenet --data x --workers -3",
         "kolo: --workers -3: must be an integer from 1 to 1024\n"},
        {"train --model lenet --data x --lr nan",
         "kolo: --lr nan: must be a number from 1e-12 to 1e+06\n"},
        {"train --model lenet --data x --lr 0",
         "kolo: --lr 0: must be a number from 1e-12 to 1e+06\n"},
        {"train --model lenet --data x --schedule cosin",
         "kolo: --schedule cosin: must be one of constant, step, cosine, poly; did you mean "
         "cosine?\n"},
        {"train --data fashion-mnist",
         "kolo: 'kolo train' needs --model NAME[:KEY=VALUE,...] (model, such as lenet, "
         "resnet18 or mlp:hidden=256; an ONNX file; or a shared object (./mine.so); 'kolo help "
         "models' lists all)\n"},
        {"train lenet",
         "kolo: unexpected argument 'lenet': options of 'kolo train' start with --\n"},
        {"train --checkpoint x",
         "kolo: --checkpoint is an option of 'kolo eval', not of 'kolo train'\n"},
        {"bench allreduce --sizes 8,7",
         "kolo: --sizes 8,7: '7' must be a number of bytes, such as 8 or 64K (K, M, G: powers of "
         "1024), and a multiple of the f32 size, 4\n"},
        {"bench sim --sizes 1T",
         "kolo: --sizes 1T: '1T' must be a number of bytes, such as 8 or 64K (K, M, G: powers of "
         "1024), and a multiple of the f32 size, 4\n"},
        {"bench allreduce --dtype f64 --sizes 12",
         "kolo: --sizes 12: '12' must be a number of bytes, such as 8 or 64K (K, M, G: powers of "
         "1024), and a multiple of the f64 size, 8\n"},
        {"bench allreduce -n 2 --shards 5 --algorithm ring",
         "kolo: algorithm ring with --shards: a reproducible allreduce has an algorithm of its "
         "own; "
         "leave --algorithm out\n"},
        {"train --model lnet --data synthetic",
         "kolo: unknown model \"lnet\": did you mean \"lenet\"?\n"},
        {"train --model mlp --data syntetic",
         "kolo: unknown data set \"syntetic\": did you mean synthetic?\n"},
        {"train --model mlp --data synthetic --checkpoint-every 5 --steps 1",
         "kolo: --checkpoint-every needs --out DIR, the folder of the checkpoints\n"},
        {"train --model mlp --data synthetic:N=900 --workers 1000 --steps 1", /* and no rank starts
                                                                               */
         "kolo: 1000 workers for 900 training samples in synthetic: use at most 900 "
         "workers\n"},
        {"train --model mlp --data synthetic --resume latest --steps 1",
         "kolo: --resume latest needs --out DIR, the folder of the checkpoints\n"},
        {"train --resume latest",
         "kolo: --resume latest requires all options of the run, such as --model, --data and "
         "--out: "
         "repeat the command that started it, or resume by its folder alone with --resume DIR\n"},
        {"train --model mlp --data synthetic --checkpoint-every 2x --out o",
         "kolo: --checkpoint-every 2x: must be a number of steps, such as 500, of epochs, such as "
         "1e, or a time, such as 10m\n"},
        {"train --model mlp --data synthetic --resume o/latest --init f.safetensors",
         "kolo: --resume loads the weights of the checkpoint: remove --init\n"},
        {"train --model mlp --data synthetic --no-eval=true", "kolo: --no-eval takes no value\n"},
        {"train --model mlp --data synthetic --beta1 0.8",
         "kolo: --beta1 has no effect without --optimizer adam, adamw or lamb: remove it, or give "
         "--optimizer adam, adamw or lamb\n"},
        {"train --model mlp --data synthetic --lr-min 0.1 --schedule step",
         "kolo: --lr-min has no effect without --schedule cosine or poly: remove it, or give "
         "--schedule cosine or poly\n"},
        {"train --model mlp --data synthetic --no-eval --eval-every 2",
         "kolo: --eval-every has no effect without --eval: remove it, or give --eval\n"},
        {"train --model mlp --data synthetic --pipeline gpipe",
         "kolo: --pipeline has no effect without --mesh pp=2: remove it, or give --mesh pp=2\n"},
        {"train --model mlp --data synthetic --mesh tp=2,pp=1 --pipeline zb-h1",
         "kolo: --pipeline has no effect without --mesh pp=2: remove it, or give --mesh pp=2\n"},
        {"dump --model mlp --what plan --placement megatron",
         "kolo: --placement has no effect without --mesh tp=2: remove it, or give --mesh tp=2\n"},
        {"dump --model gpt2_tiny --what plan --placement ring",
         "kolo: --placement has no effect without --mesh sp=2: remove it, or give --mesh sp=2\n"},
        {"dump --model gpt2_tiny --what plan --mesh sp=2 --placement megatron",
         "kolo: placement megatron is of the layers that an axis tp divides: give --mesh "
         "dp=*,tp=2, for example\n"},
        {"dump --model gpt2_tiny --what program --mesh tp=2,pp=2 --placement ring",
         "kolo: placement ring has the rule \"attention ring\", which is of positions that an axis "
         "sp divides: give --mesh dp=*,sp=2, for example\n"},
        {"dump --model mlp --what plan --mesh tp=2 -n 3",
         "kolo: --mesh tp=2 sets the number of ranks: remove --ranks\n"},
        {"dump --model mlp --what servers --mesh tp=2",
         "kolo: servers are for data parallelism: give their number with --ranks in the place of "
         "--mesh tp=2\n"},
        {"train --model mlp --data synthetic --compress-min-bytes 10",
         "kolo: --compress-min-bytes has no effect without --compress CODEC: remove it, or give "
         "--compress CODEC\n"},
        {"train --model mlp --data synthetic --keep 3 --out o",
         "kolo: --keep requires --checkpoint-every N\n"},
        {"train --resume .",
         "kolo: --resume .: no config.yaml found: give --model and the other options of the run\n"},
        {"train --model gpt2_tiny:dropout=1.5 --data synthetic-tokens",
         "kolo: model gpt2_tiny: \"dropout=1.5\": give dropout a whole number of percent, or a "
         "share as 0.5, from 0 to 99, as in dropout=0\n"},
        {"train --model bert_tiny:nsp=1 --data synthetic",
         "kolo: data set synthetic has no pairs of sentences: choose data such as text:FILE, "
         "tokens:FILE or synthetic-tokens, or a model without them (nsp=0)\n"},
        {"help bench tarin", "kolo: unknown command 'bench tarin': did you mean 'bench train'?\n"},
        {"bench", "kolo: 'bench' needs one of: train, allreduce, ps, compress, loader, sim\n"},
        {"train --follow ps",
         "kolo: unknown option --follow: 'kolo train --help' lists the options\n"},
        {"profile --model mlp --batch 2 --lanes",
         "kolo: --lanes is an option of 'kolo train', not of 'kolo profile'\n"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        test_run_fails(cases[i].arguments, 2, cases[i].text);
    }
}

/* A text that the model cannot use is a usage error. */
static void unsuitable_texts_are_usage_errors(void **state) {
    ASSERT_OK(kolo_file_write("ten", "pytorch!!!", 10));
    test_run_fails(
        "train --model lstm_lm:vocab=121,context=4 --data text:ten", 2,
        "kolo: ten: token 121 at index 1 exceeds the vocabulary of 121: give the model a "
        "larger vocabulary, or another file\n");
    test_run_fails(
        "train --model bert_tiny --data text:ten", 2,
        "kolo: ten: 10 tokens are too few for windows of 512: give a longer file, or the "
        "model a shorter context\n");
}

static void failures_are_one_line_and_exit_1(void **state) {
    static const struct {
        const char *arguments, *text;
    } cases[] = {
        {"train --model mlp --data synthetic --json no/where",
         "kolo: cannot write no/where: No such file or directory: check the path\n"},
        {"train --model mlp --data synthetic --json fifo",
         "kolo: cannot write fifo: it is a named pipe: give a file\n"},
        {"bench sim -n 2 --sizes 4 --json fifo",
         "kolo: cannot write fifo: it is a named pipe: give a file\n"},
        {"train --model mlp --data synthetic --config absent.yaml",
         "kolo: cannot open absent.yaml: No such file or directory: check the path\n"},
        {"train --resume absent",
         "kolo: cannot resume absent: No such file or directory: check the path\n"},
        {"eval --checkpoint absent --data synthetic",
         "kolo: cannot open absent: No such file or directory: check the path\n"},
    };
    assert_int_equal(system("mkfifo fifo"), 0);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        test_run_fails(cases[i].arguments, 1, cases[i].text);
    }
}

/* Limits as on clusters: virtual memory, and file size, which applies to shared memory. */
static void limits_leave_room_for_work(void **state) {
    static const char *const limits[] = {"-v 4000000", "-f 100000"};
    if (TEST_FEWER(true, false)) return; /* sanitizers need all of the address space */
    for (int i = 0; i < 4; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "ulimit %s; '%s' bench train --model mlp --batch 8 --steps 2 --threads 1 "
                 "--workers %d >out 2>err",
                 limits[i / 2], KOLO_COMMAND, i % 2 + 1);
        if (system(line) != 0) fail_msg("%s: %s", line, test_contents("err"));
    }
}

/* Every command fails on unwritable standard output, before the work. */
static void unwritable_output_is_a_failure(void **state) {
    static const struct {
        const char *arguments, *error;
    } cases[] = {
        {"--version >/dev/full", "No space left on device: free some space or choose another disk"},
        {"help >/dev/full", "No space left on device: free some space or choose another disk"},
        {"info >/dev/full", "No space left on device: free some space or choose another disk"},
        {"run -n 2 -- echo hello >/dev/full",
         "No space left on device: free some space or choose another disk"},
        {"train --model mlp --data synthetic:N=9,test=9 --progress none --no-eval >/dev/full",
         "No space left on device: free some space or choose another disk"},
        {"--version >&-", "Bad file descriptor"},
        {"help train >&-", "Bad file descriptor"},
        {"run -n 2 -- echo hello >&-", "Bad file descriptor"},
        {"train --model mlp --data synthetic --epochs 9999 --out never --progress none >&-",
         "Bad file descriptor"},
        {"bench train --model mlp --steps 1 --json x.json <&- >&-", "Bad file descriptor"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char line[512], expected[256];
        snprintf(line, sizeof line, "'%s' %s 2>err", KOLO_COMMAND, cases[i].arguments);
        snprintf(expected, sizeof expected, "kolo: cannot write standard output: %s\n",
                 cases[i].error);
        int status = system(line);
        char *err = test_contents("err");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || strcmp(err, expected) != 0) {
            fail_msg("kolo %s: %d\n%s", cases[i].arguments, status, err);
        }
        kolo_free(err);
    }
    assert_int_not_equal(access("never", F_OK), 0);
}

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
                 "--optimizer adam --epochs 2 --threads 1 --lanes --out served --progress none"),
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

static void families_and_man_pages(void **state) {
    static const char *const asks[] = {"help bench", "bench --help", "bench -h"};
    for (size_t i = 0; i < KOLO_COUNT(asks); i++) {
        assert_int_equal(test_run(asks[i]), 0);
        char *out = test_contents("out");
        assert_memory_equal(out, "usage: kolo bench COMMAND", 25);
        assert_non_null(strstr(out, "bench allreduce"));
        assert_null(strstr(out, "checkpoint"));
        kolo_free(out);
    }
    assert_int_equal(test_run("help --man"), 0);
    char *page = test_contents("out");
    assert_memory_equal(page, ".TH kolo 1", 10);
    assert_non_null(strstr(page, ".B \\-\\-resume DIR|FILE|latest\n"));
    kolo_free(page);
    if (system("command -v groff >/dev/null") == 0) { /* if installed, checks the page */
        assert_int_equal(system("groff -man -ww -Tutf8 out >page 2>err && test ! -s err"), 0);
    }
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
        {"--mesh tp=2 --batch 8", "--zero 1 --batch 4", "zero: 1\n", "mesh"},
        {"--mesh dp=2,tp=2 --zero 1 --batch 8", "--mesh dp=2,pp=2", "zero: 1\n", "tp="},
        {"--batch 8", "--mesh tp=2", "workers: 2\n", "zero"},
        {"--sync ps --servers 1 --batch 8", "--mesh tp=2", "sync: \"allreduce\"\n", "servers: 1"},
        {"--sync ps --servers 1 --batch 8", "--sync allreduce", "workers: 1\n", "servers: 1"},
    };
    const char *rules = "attention ring\n";
    ASSERT_OK(kolo_file_write("rules", rules, strlen(rules)));
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
    test_run_fails("train --resume two --zero 1 --mesh tp=2 --workers 2", 2,
                   "kolo: --zero divides the optimizer state over the axis dp, and the mesh is "
                   "dp=1,tp=2: give it a dp above 1, or omit --zero\n");
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

/* Token models report perplexity with every loss; models of sentence pairs report both parts. */
static void models_of_tokens_report_perplexity(void **state) {
    assert_int_equal(
        test_run("train --model bert_tiny:layers=1,width=32,context=12,vocab=50,nsp=1 --data "
                 "synthetic-tokens:N=32,test=8 --batch 8 --threads 1 --progress plain "
                 "--out tokens --json a.json"),
        0);
    assert_int_equal(system("tail -n 1 tokens/metrics.jsonl >epoch.json"), 0);
    json_t *result = test_json("a.json"), *epoch = test_json("epoch.json");
    double accuracy = test_json_number(result, "final_next_accuracy");
    assert_true(accuracy >= 0 && accuracy <= 1);
    assert_true(test_json_number(result, "test_perplexity") ==
                test_json_number(epoch, "test_perplexity"));
    double masked = exp(test_json_number(epoch, "epoch_masked_loss")), of_line = 0;
    assert_true(fabs(test_json_number(epoch, "epoch_perplexity") / masked - 1) < 1e-9);
    char *output = test_contents("err");
    const char *at = strstr(output, "  epoch perplexity ");
    assert_true(at && strstr(at, "  test perplexity ") &&
                sscanf(at, " epoch perplexity %lf", &of_line));
    assert_true(fabs(of_line / masked - 1) < 1e-3);
    kolo_free(output);
    json_decref(result);
    json_decref(epoch);
}

/* bf16 is rejected or works, in agreement with `kolo info`. */
static void bf16_matches_info(void **state) {
    const char *train = "train --model mlp --data synthetic:N=64,test=8 --batch 8 --steps 2 "
                        "--threads 1 --progress plain --precision bf16";
    assert_int_equal(test_run("info"), 0);
    bool none = test_contains("out", "bf16              no: ");
    bool memory_alone = test_contains("out", "computed in f32: saves memory\n");
    assert_int_equal(test_run(train), none ? 2 : 0);
    bool warned = test_contains("err", "precision bf16 saves memory only");
    assert_true(warned == memory_alone && none == test_contains("err", "precision bf16 takes"));
}

/* Figures are those of the run: the samples that a step has, the model of a checkpoint. */
/* What has no effect with servers, and too few processes for them. */
static void servers_refuse_what_they_ignore(void **state) {
    static const char *const options[] = {"--algorithm ring", "--no-share"};
    for (size_t i = 0; i < KOLO_COUNT(options); i++) {
        char arguments[256], text[256];
        snprintf(arguments, sizeof arguments,
                 "train --model mlp --data synthetic:N=16,test=8 --sync ps %s", options[i]);
        snprintf(text, sizeof text,
                 "kolo: --%s has no effect without --sync allreduce: remove it, or give --sync "
                 "allreduce\n",
                 i == 0 ? "algorithm" : "share");
        test_run_fails(arguments, 2, text);
    }
    assert_int_equal(test_run("run -n 1 -- '" KOLO_COMMAND "' train --model mlp --data "
                              "synthetic:N=16,test=8 --sync ps --servers 1"),
                     2);
    assert_true(test_contains("err", "1 servers of 1 processes: there must be a worker"));
    test_run_fails("train --model mlp --data synthetic:N=64,test=8 --batch 5 --workers 2 "
                   "--threads 1 --reproducible 2",
                   2,
                   "kolo: 2 logical shards need a global batch, not a batch per worker: give "
                   "--global-batch 10, for example\n");
}

static void results_show_what_ran(void **state) {
    assert_int_equal(
        test_run("train --model mlp:hidden=4 --data synthetic:N=640,test=8 --batch "
                 "100000 --epochs 2 --eval-every-steps 1 --log-every 2 --out huge --lr 0.125 "
                 "--scale-lr 320 --warmup-epochs 0 --schedule constant"),
        0);
    assert_true(test_contains("out", ", batch 640 each\n"));
    assert_true(test_contains("huge/metrics.jsonl", "\"lr\": 0.25,")); /* of 640 samples */
    assert_true(test_contains("err", "a step of 100000 samples exceeds the 640 of the training "
                                     "data: each step uses all of them\n"));
    assert_true(test_contains("err", "  epoch loss "));
    assert_true(test_contains("huge/metrics.jsonl", "{\"event\": \"train\", \"step\": 2, "));
    assert_true(test_contains("huge/loss.svg", "<polyline "));
    assert_true(test_contains("huge/loss.svg", "\"/>\n<text x=\"60\" y=\"18\""));
    assert_false(test_contains("huge/metrics.jsonl", "{\"event\": \"train\", \"step\": 1, "));
    assert_int_equal(test_run("eval --checkpoint huge/checkpoint-final.safetensors --data "
                              "synthetic:N=640,test=8"),
                     0);
    assert_true(test_contains("out", "model             mlp:hidden=4, "));
    assert_true(test_contains("out", ", batch 8 each\n"));
    assert_int_equal(test_run("eval --checkpoint huge/checkpoint-final.safetensors --data "
                              "synthetic:N=640,test=8 --quiet"),
                     0);
    assert_int_equal(test_run("train --model mlp:hidden=4 --data synthetic:N=16,test=8 --batch 4 "
                              "--threads 1 --mesh dp=1,tp=2"),
                     0);
    assert_true(test_contains("out", "2, threads 1 each, batch 4 for 2 workers together\n"));
    assert_int_equal(test_run("train --model mlp --data synthetic:N=64,test=8 -q --json q.json"),
                     0);
    assert_int_equal(system("test ! -s out && test ! -s err && test -s q.json"), 0);
}

/* The script completes commands, options and values in bash. */
static void commands_options_and_values_are_completed(void **state) {
    assert_int_equal(test_run("help --completion"), 0);
    assert_int_equal(system("mv out kolo.bash"), 0);
    static const struct {
        const char *words, *found;
    } cases[] = {
        {"kolo tra", "train"},
        {"kolo bench allr", "allreduce"},
        {"kolo train --momen", "--momentum"},
        {"kolo bench sim --jit", "--jitter"},
        {"kolo train --optimizer adamw", "adamw"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "bash -c '. ./kolo.bash; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
                 "_kolo; [ \"${COMPREPLY[*]}\" = \"%s\" ]'",
                 cases[i].words, cases[i].found);
        if (system(line) != 0) fail_msg("%s", cases[i].words);
    }
}

/* A long line stays whole. */
static void long_lines_of_ranks_stay_whole(void **state) {
    assert_int_equal(
        test_run("run -n 2 -- sh -c 'head -c 300000 /dev/zero | tr \"\\\\0\" x; echo'"), 0);
    assert_int_equal(system("test $(wc -l <out) = 2 && test $(wc -c <out) = 600010"), 0);
}

static void weights_go_in_and_out(void **state) {
    const char *train = "train --model mlp:hidden=4 --data synthetic:N=40,test=8 --batch 10";
    char line[512];
    snprintf(line, sizeof line, "%s --out old", train);
    assert_int_equal(test_run(line), 0);
    assert_true(test_contains("out", ", mean of the last 4 steps\n"));
    assert_int_equal(test_run("checkpoint verify old/checkpoint-final.safetensors"), 0);
    assert_int_equal(test_run("checkpoint info old/checkpoint-final.safetensors"), 0);
    assert_true(test_contains("out", "model_options  hidden=4\n"));
    assert_int_equal(system("cp old/checkpoint-final.safetensors damaged && "
                            "printf x | dd of=damaged bs=1 conv=notrunc status=none "
                            "seek=$(($(stat -c %s damaged) - 1))"),
                     0);
    assert_int_equal(test_run("checkpoint info damaged"), 1);
    assert_true(test_contains("out", "model_options  hidden=4\n"));
    assert_true(test_contains("err", "kolo: damaged: "));
    assert_int_equal(
        test_run("checkpoint export old/checkpoint-final.safetensors --out w --format native"), 0);
    assert_int_equal(test_run("checkpoint diff w old/checkpoint-final.safetensors"), 0);
    assert_true(test_contains("out", "6 tensors are the same, 0 differ\n"));
    snprintf(line, sizeof line, "%s --init w --workers 2 --steps 1 --out new", train);
    assert_int_equal(test_run(line), 0);
    assert_int_equal(test_run("checkpoint diff w new/checkpoint-final.safetensors"), 1);
    assert_true(test_contains("out", "0 tensors are the same, 6 differ\n"));

    test_run_fails("checkpoint diff w", 2, "kolo: 'kolo checkpoint diff' takes two files\n");
    test_run_fails(
        "checkpoint export w --format torchvision --out x", 2,
        "kolo: w is of model mlp, which torchvision does not have: export it as native\n");
    test_run_fails("checkpoint info nowhere", 1,
                   "kolo: cannot open nowhere: No such file or directory: check the path\n");
    assert_int_equal(test_run("train --model lenet --data synthetic --init w --workers 2"), 1);
    assert_true(test_contains(
        "err", "w does not match model lenet; of its tensors 4 missing (conv1.weight, "
               "conv1.bias, conv2.weight, conv2.bias), 5 of another type or shape ("));
}

/* Without data a model uses its default sample shape. */
static void models_have_default_samples(void **state) {
    static const struct {
        const char *command, *samples, *logits;
    } cases[] = {
        {"dump --model resnet20 --batch 3", "[3,3,32,32]", "[3,10]"},
        {"dump --model vgg16 --batch 2 --forward", "[2,3,224,224]", "[2,1000]"},
        {"dump --model mlp --batch 2 --what passes --mesh pp=2", "[2,1,28,28]", "shard, stages"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        assert_int_equal(test_run(cases[i].command), 0);
        char *graph = test_contents("out");
        assert_non_null(strstr(graph, cases[i].samples));
        assert_non_null(strstr(graph, cases[i].logits));
        kolo_free(graph);
    }
}

static void a_dump_has_the_runs_optimizer(void **state) {
    static const char *const whats[] = {"passes", "plan"};
    for (size_t i = 0; i < KOLO_COUNT(whats); i++) {
        char words[128];
        snprintf(words, sizeof words,
                 "dump --model mlp:hidden=8 --optimizer adam --beta1 0.5 --clip 2 --what %s",
                 whats[i]);
        assert_int_equal(test_run(words), 0);
        assert_true(test_contains("out", "beta1=0.5") && test_contains("out", " = clip_factor("));
    }
}

/* A dump of schedules has the plan's own requests: each bucket with its algorithm, variant and
 * chunk, and the schedules of its first ranks, of others the totals. Rows of sparse tables are
 * gathered, not reduced. */
static void a_dump_has_the_plans_collectives(void **state) {
    const char *model = "lstm_lm:layers=1,vocab=50,hidden=4,context=8 --batch 2 --ranks 2";
    char words[192];
    snprintf(words, sizeof words, "dump --what schedule --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out",
                              "bucket 0    allreduce          2688          672 f32    direct "
                              "           window          262144\n"));
    assert_true(
        test_contains("out", "\nbucket 0: 672 elements\nrank 0 of 2: schedule direct rounds"));
    assert_true(test_contains("out", "\nrank 1 of 2: schedule direct rounds"));
    snprintf(words, sizeof words,
             "dump --what schedule --algorithm ring --bucket-bytes 1 --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out", "f32    ring              messages        262144\nbucket 1 "));
    assert_true(test_contains("out", "\nrank 1 of 2: schedule ring rounds"));
    assert_int_equal(test_run("dump --what schedule --model mlp --ranks 6 --algorithm ring"), 0);
    assert_true(test_contains(
        "out", " copied 0\nround 0\n  send data[59184,78896) rank 4\n")); /* of rank 3 */
    assert_true(
        test_contains("out", " copied 0\nrank 5 of 6: schedule ring rounds")); /* after rank 4 */
    snprintf(words, sizeof words, "dump --what schedule --sparse-embedding --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out", "bucket 0    allreduce          1856          464 f32 "));
    assert_true(test_contains("out", "bucket 1    allgather           512          128 f32    - "));
    assert_true(test_contains("out", "\nrank 1 of 2: schedule allgather-direct rounds"));
    snprintf(words, sizeof words, "dump --what schedule --forward --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out", "no collectives: only a training step has them\n"));
    test_run_fails("dump --what schedule --sparse-embedding --model mlp", 2,
                   "kolo: the model has no embedding table for sparse gradients: omit "
                   "--sparse-embedding, or choose a language model\n");
    snprintf(words, sizeof words, "dump --sparse-embedding --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("err", "dump: --sparse-embedding takes effect in the passes: "));
}

/* Out-of-memory errors contain advice. */
static void out_of_memory_has_advice(void **state) {
    if (kolo_memory_limit() < INT64_C(200) << 30) { /* refused before it is filled */
        assert_int_equal(test_run("bench train --model lstm_lm:vocab=7000000,width=1024 --batch 1 "
                                  "--optimizer adam --steps 1 --threads 1 --autotune off"),
                         1);
        assert_true(test_contains("err", "kolo: 1 worker needs "));
        assert_true(test_contains("err", " GiB for them: take a smaller model or batch, "));
        assert_int_equal(test_run("train --model mlp:hidden=90000 --data synthetic:N=16,test=1 "
                                  "--no-recipe --optimizer adam --steps 1 --threads 1 --autotune "
                                  "off --out copied --checkpoint-every 1"),
                         1);
        assert_true(test_contains("err", "), copies for checkpoints "));
        assert_true(test_contains("err", " --recompute full, or --wait-for-saves\n"));
    }
    if (TEST_FEWER(true, false)) return; /* sanitizers need all of the address space */
    char line[256];
    snprintf(line, sizeof line,
             "ulimit -v 4000000; '%s' bench train --model lstm_lm:vocab=10000000,width=512 --batch "
             "1 --steps 1 --threads 1 >out 2>err",
             KOLO_COMMAND);
    int status = system(line);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_true(
        test_contains("err", " bytes: take a smaller model, batch or buffer, or raise the limit of "
                             "virtual memory (ulimit -v)\n"));
}

static void parts_of_servers_are_printed(void **state) {
    assert_int_equal(test_run("dump --model lenet --what servers --ranks 2"), 0);
    assert_true(test_contains("out", "server 1: pulled "));
    assert_int_equal(test_run("dump --model lenet --what servers --ranks 4 --servers 1"), 0);
    assert_true(test_contains("out", "worker 2: ") && test_contains("out", "server 0: "));
    static const char *const refused[] = {"dump --model lenet --what servers --ranks 2 --servers 1",
                                          "dump --model lenet --what plan --servers 1"};
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        test_run_fails(
            refused[i], 2,
            "kolo: --servers 1: it is for --what servers, of --ranks with two workers at "
            "least\n");
    }
}

TEST_MAIN(test_command) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_servers_are_printed),
        cmocka_unit_test(pages_match_the_manual),
        cmocka_unit_test(every_command_has_help),
        cmocka_unit_test(usage_errors_are_one_line_and_exit_2),
        cmocka_unit_test(unsuitable_texts_are_usage_errors),
        cmocka_unit_test(failures_are_one_line_and_exit_1),
        cmocka_unit_test(limits_leave_room_for_work),
        cmocka_unit_test(unwritable_output_is_a_failure),
        cmocka_unit_test(config_files_must_be_text),
        cmocka_unit_test(other_commands_accept_the_config_of_a_run),
        cmocka_unit_test(families_and_man_pages),
        cmocka_unit_test(config_errors_have_line_and_column),
        cmocka_unit_test(a_config_reproduces_its_run),
        cmocka_unit_test(a_run_resumes_on_another_layout),
        cmocka_unit_test(paths_in_a_config_refer_to_its_folder),
        cmocka_unit_test(nested_aliases_are_not_expanded),
        cmocka_unit_test(the_command_line_sets_the_length_of_a_run),
        cmocka_unit_test(models_of_tokens_report_perplexity),
        cmocka_unit_test(bf16_matches_info),
        cmocka_unit_test(results_show_what_ran),
        cmocka_unit_test(servers_refuse_what_they_ignore),
        cmocka_unit_test(commands_options_and_values_are_completed),
        cmocka_unit_test(long_lines_of_ranks_stay_whole),
        cmocka_unit_test(weights_go_in_and_out),
        cmocka_unit_test(models_have_default_samples),
        cmocka_unit_test(a_dump_has_the_runs_optimizer),
        cmocka_unit_test(a_dump_has_the_plans_collectives),
        cmocka_unit_test(out_of_memory_has_advice),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
