/* The commands that measure, from outside: benchmarks, predictions, times of kernels that are kept.
 */
#define _GNU_SOURCE
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/process.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A benchmark verifies its first steps against training, and reports their number. */
static void a_benchmark_checks_its_losses(void **state) {
    static const struct {
        const char *arguments;
        int64_t checked;
    } cases[] = {
        {"--model mlp --batch 4 --steps 1", 1},
        {"--model resnet20 --batch 4 --steps 4 --momentum 0.9 --workers 2", 2},
        {"--model gpt2_tiny:layers=1,width=32,context=12,dropout=10 --batch 3 --accumulate 2 "
         "--optimizer adam --steps 3 --workers 2",
         2},
        {"--model lstm_lm:vocab=20,hidden=8,context=8 --batch 4 --steps 3 --sparse-embedding "
         "--workers 2",
         2},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char line[256], row[64];
        snprintf(line, sizeof line, "bench train --threads 1 --json - %s", cases[i].arguments);
        if (test_run(line) != 0) fail_msg("%s: %s", line, test_contents("err"));
        json_t *result = test_json("out");
        char *table = test_contents("err");
        assert_int_equal(test_json_int(result, "losses_checked"), cases[i].checked);
        snprintf(row, sizeof row, "\nlosses checked    first %d steps, bitwise equal ",
                 (int)cases[i].checked);
        assert_non_null(strstr(table, row));
        kolo_free(table);
        json_decref(result);
    }
}

/* In each step another worker may be the slowest, so that the one named waits, too. */
static void the_wait_for_the_slowest_worker_is_that_of_the_others(void **state) {
    static const char row[] = "\nslowest worker    rank ";
    int rank = -1;
    double wait = -1, idle = 0;
    assert_int_equal(test_run("bench train --model mlp --batch 4 --steps 12 --threads 1 "
                              "--workers 3 --json -"),
                     0);
    json_t *result = test_json("out"), *rows = json_object_get(result, "ms_per_step_by_rank");
    char *table = test_contents("err"), *at = strstr(table, row);
    assert_non_null(at);
    assert_int_equal(
        sscanf(at + sizeof row - 1, "%d: the others wait %lf ms per step for it", &rank, &wait), 2);
    assert_int_equal(rank, test_json_int(result, "slowest_rank"));
    assert_int_equal(json_array_size(rows), 3);
    for (int r = 0; r < 3; r++) {
        const json_t *ms = json_object_get(json_array_get(rows, (size_t)r), "idle");
        if (r != rank) idle += json_number_value(ms) / 2;
    }
    if (fabs(wait - idle) > 0.001) fail_msg("%g ms, and the others idle for %g", wait, idle);
    kolo_free(table);
    json_decref(result);
}

/* How often a waiting thread looks before it sleeps, as OpenMP prints it when it is loaded, at
 * last; -1 in builds without. */
static long spins_of_command(void) {
    static const char key[] = "GOMP_SPINCOUNT = '";
    long spins = -1;
    assert_int_equal(test_run("bench train --model mlp --batch 4 --steps 1 --threads 2"), 0);
    char *err = test_contents("err");
    for (const char *at = err; (at = strstr(at, key)); at++) spins = atol(at + strlen(key));
    kolo_free(err);
    return spins;
}

/* A single process also sets a sleeping wait policy for OpenMP, unless the user sets one. */
/* Stages that a data set has, and no others. */
static void stages_of_loaders_are_measured(void **state) {
    assert_int_equal(test_run("bench loader --data synthetic:N=40,test=4,shape=3x8x8 --batch 16 "
                              "--augment flip --seconds 0.02 --loader-threads 2 --rate 5000 "
                              "--json out.json"),
                     0);
    json_t *all = test_json("out.json");
    const json_t *stages = json_object_get(all, "stages");
    static const char *const names[] = {"read", "augment", "convert", "all"};
    assert_int_equal(json_array_size(stages), KOLO_COUNT(names));
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        const json_t *row = json_array_get(stages, i);
        assert_string_equal(json_string_value(json_object_get(row, "stage")), names[i]);
        assert_true(test_json_number(row, "samples_per_second_per_core") > 0);
    }
    assert_int_equal(test_json_int(all, "loader_threads"), 2);
    assert_true(test_json_number(all, "loader_samples_per_second") > 0);
    const double us = test_json_number(all, "loader_us_per_sample");
    assert_true(us > 0); /* cores: those that the threads of a loader take, not the stages alone */
    assert_float_equal(test_json_number(all, "cores") / (5000 * 1e-6 * us), 1, 1e-4);
    json_decref(all);
    test_run_fails("bench loader --data synthetic --augment resized-crop", 2,
                   "kolo: augment: resized-crop is for images of their own sizes, such as "
                   "folder:DIR, and those of synthetic have one\n");
}

static void waiting_threads_sleep(void **state) {
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    setenv("OMP_DISPLAY_ENV", "VERBOSE", 1);
    long spins = spins_of_command();
    setenv("GOMP_SPINCOUNT", "77", 1);
    long given = spins_of_command();
    unsetenv("GOMP_SPINCOUNT");
    unsetenv("OMP_DISPLAY_ENV");
    if (given < 0) {
        printf("skip: a build without OpenMP\n");
    } else {
        assert_true(spins == 0 || (spins == 10000 && kolo_processors() >= 2));
        assert_int_equal(given, 77);
    }
}

static int lines_of(const char *path) {
    char *text = test_contents(path);
    int n = 0;
    for (const char *at = text; *at; at++) n += *at == '\n';
    kolo_free(text);
    return n;
}

/* The stages of a pipeline need unequal memory: the result has that of each worker, and the plan of
 * each, which `kolo dump` prints beforehand, takes as much. */
static void assert_stated_memory(const char *options) {
    char words[256];
    snprintf(words, sizeof words, "bench train %s --steps 2 --autotune off --json -", options);
    assert_int_equal(test_run(words), 0);
    json_t *result = test_json("out");
    const json_t *rows = json_object_get(result, "memory_by_rank");
    assert_int_equal(json_array_size(rows), 2);
    assert_int_equal(test_json_int(json_array_get(rows, 0), "store_bytes"),
                     test_json_int(result, "store_bytes"));
    assert_int_not_equal(test_json_int(json_array_get(rows, 1), "store_bytes"),
                         test_json_int(result, "store_bytes"));
    for (int r = 0; r < 2; r++) {
        char line[96];
        snprintf(words, sizeof words, "dump %s --what plan --rank %d", options, r);
        assert_int_equal(test_run(words), 0);
        snprintf(line, sizeof line, ", store 2 x %lld bytes\n",
                 (long long)test_json_int(json_array_get(rows, (size_t)r), "store_bytes") / 2);
        assert_true(test_contains("out", line));
    }
    json_decref(result);
}

static void memory_is_stated_by_worker(void **state) {
    static const char *const options = "--model mlp:layers=3,hidden=40 --batch 4 --mesh pp=2 "
                                       "--accumulate 2 --optimizer adam --threads 1";
    char words[256];
    assert_stated_memory(options);
    snprintf(words, sizeof words, "%s --pipeline zbv", options); /* two parts on each */
    assert_stated_memory(words);
    snprintf(words, sizeof words, "bench train %s --steps 2 --autotune off", options);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out", "of all workers") && test_contains("out", " of rank 0, "));
}

static json_t *hash_of(const char *path) {
    json_t *result = test_json(path), *hash = json_object_get(result, "parameter_hash");
    json_incref(hash);
    json_decref(result);
    return hash;
}

/* What one run measures the next finds; the run's folder repeats it; a broken file is no failure.
 */
static void measured_times_are_stored(void **state) {
    const char *train = "train --model lenet --data synthetic:N=64,test=8 --batch 16 --workers 2 "
                        "--threads 1 --steps 2 --tuning times/tuning.txt";
    char command[512];
    snprintf(command, sizeof command, "%s --autotune on --out tuned --json a.json", train);
    assert_int_equal(test_run(command), 0);
    char *output = test_contents("err");
    assert_non_null(strstr(output, "kernels timed"));
    assert_non_null(strstr(output, "kept in times/tuning.txt\n"));
    kolo_free(output);
    int known = lines_of("times/tuning.txt");
    assert_true(known > 5 && lines_of("tuned/tuning.txt") <= known);

    snprintf(command, sizeof command, "%s --autotune on --json b.json", train);
    assert_int_equal(test_run(command), 0);
    output = test_contents("err");
    assert_null(strstr(output, "autotune"));
    kolo_free(output);
    assert_int_equal(lines_of("times/tuning.txt"), known);
    assert_int_equal(
        test_run("train --config tuned/config.yaml --tuning tuned/tuning.txt --autotune cached "
                 "--out again --json c.json"),
        0);
    json_t *a = hash_of("a.json"), *b = hash_of("b.json"), *c = hash_of("c.json");
    assert_true(json_equal(a, b) && json_equal(a, c));
    json_decref(a);
    json_decref(b);
    json_decref(c);

    /* Evaluation and dumps use them too. */
    assert_int_equal(
        test_run("eval --checkpoint tuned/checkpoint-final.safetensors --batch 16 --data "
                 "synthetic:N=64,test=32 --threads 1 --tuning eval/tuning.txt --autotune on"),
        0);
    assert_true(lines_of("eval/tuning.txt") > 5);
    const char *dump = "dump --model lenet --what plan --batch 16 --threads 1 --tuning";
    snprintf(command, sizeof command, "%s times/tuning.txt", dump);
    assert_int_equal(test_run(command), 0);

    ASSERT_OK(kolo_file_write("times/tuning.txt", "nonsense\n", 9));
    assert_int_equal(test_run(command), 0);
    output = test_contents("err");
    assert_non_null(strstr(output, "ignored: times/tuning.txt does not begin with"));
    kolo_free(output);
    snprintf(command, sizeof command, "%s times/tuning.txt --autotune off", dump);
    assert_int_equal(test_run(command), 0);
    output = test_contents("err");
    assert_string_equal(output, "");
    kolo_free(output);
    assert_int_equal(test_run("bench train --model mlp --batch 8 --threads 1 --steps 2 "
                              "--tuning times/tuning.txt"),
                     0);
    output = test_contents("err");
    assert_non_null(strstr(output, "ignored: times/tuning.txt does not begin with"));
    kolo_free(output);
}

/* A file of the user's choice, unlike the one in the cache folder. */
static void files_that_hold_no_times_are_kept(void **state) {
    static const char *const files[][2] = {
        {"1,2,0\n", "d.csv does not begin with \"kolo tuning 1\""},
        {"kolo tuning 2\n", "d.csv does not begin with \"kolo tuning 1\""},
        {"kolo tuning 1\n0.5 a\nb\n", "d.csv, line 3: expected \"seconds key\""},
    };
    static const char *const commands[] = {
        "bench train --model mlp --batch 8 --threads 1 --steps 2",
        "bench train --model mlp --batch 8 --threads 1 --steps 2 --workers 2",
        "train --model lenet --no-recipe --data synthetic:N=64,test=8 --batch 16 --threads 1 "
        "--steps 2",
        "profile --model lenet --batch 8 --threads 1",
    };
    for (size_t i = 0; i < KOLO_COUNT(files) * KOLO_COUNT(commands); i++) {
        const char *const *file = files[i % KOLO_COUNT(files)];
        char command[256], error[256];
        snprintf(command, sizeof command, "%s --autotune on --tuning d.csv",
                 commands[i / KOLO_COUNT(files)]);
        snprintf(error, sizeof error,
                 "kolo: %s; --autotune on would replace this file: choose another with --tuning, "
                 "or remove it\n",
                 file[1]);
        ASSERT_OK(kolo_file_write("d.csv", file[0], strlen(file[0])));
        test_run_fails(command, 2, error);
        char *now = test_contents("d.csv");
        assert_string_equal(now, file[0]);
        kolo_free(now);
    }
    /* An empty one has nothing to lose. */
    char command[256];
    snprintf(command, sizeof command, "%s --autotune on --tuning d.csv", commands[2]);
    ASSERT_OK(kolo_file_write("d.csv", "", 0));
    assert_int_equal(test_run(command), 0);
    assert_true(lines_of("d.csv") > 5);
}

static void a_cache_of_another_version_is_replaced(void **state) {
    char *folder = kolo_file_absolute("cache"), *before = getenv("XDG_CACHE_HOME");
    char *kept = before ? kolo_strdup(before) : NULL;
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    ASSERT_OK(kolo_folder_make("cache/kolo"));
    ASSERT_OK(kolo_file_write("cache/kolo/tuning.txt", "kolo tuning 0\n", 14));
    assert_int_equal(
        test_run("train --model lenet --data synthetic:N=64,test=8 --batch 16 --threads 1 "
                 "--steps 2 --autotune on"),
        0);
    assert_true(test_contains("err", "ignored: "));
    assert_true(lines_of("cache/kolo/tuning.txt") > 5);
    if (kept) assert_int_equal(setenv("XDG_CACHE_HOME", kept, 1), 0);
    if (!kept) unsetenv("XDG_CACHE_HOME");
    kolo_free(folder);
    kolo_free(kept);
}

static void allreduces_are_measured(void **state) {
    assert_int_equal(test_run("bench allreduce -n 2 --sizes 8,1K --seconds 0.02 --work --json -"),
                     0);
    json_t *result = test_json("out"), *rows = json_object_get(result, "rows");
    assert_int_equal(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_int_equal(test_json_int(row, "bytes"), i ? 1024 : 8);
        assert_int_equal(test_json_int(row, "ranks"), 2);
        /* The algorithm that ran, not the requested one. */
        assert_string_not_equal(json_string_value(json_object_get(row, "algorithm")), "auto");
        double us = json_number_value(json_object_get(row, "us_median"));
        double bandwidth = json_number_value(json_object_get(row, "algbw_gigabytes_per_s"));
        assert_true(us > 0 && bandwidth > 0);
        /* In shared memory the callers do all the work. */
        assert_true(us == json_number_value(json_object_get(row, "us_work")));
        assert_true(bandwidth == json_number_value(json_object_get(row, "busbw_gigabytes_per_s")));
    }
    json_decref(result);
    assert_int_equal(test_run("bench allreduce -n 2 --dtype u8 --sizes 7 --seconds 0.02"), 0);
    assert_int_equal(test_run("bench allreduce -n 2 --transport tcp --algorithm direct"), 2);
    assert_true(test_contains("err",
                              "algorithm direct needs access to the memory of all ranks, which "
                              "transport tcp does not give: use another algorithm or auto"));
    assert_int_equal(test_run("bench allreduce -n 2 --sizes 8 --pretend-hosts 3"), 2);
    assert_true(
        test_contains("err", "2 ranks on 3 hosts: at most one host per rank (--pretend-hosts)"));
}

static void servers_are_measured(void **state) {
    static const char *const runs[] = {
        "bench ps -n 3 --servers 1 --sizes 28,64K --seconds 0.01 --json -",
        "bench ps -n 2 --sizes 28,64K --seconds 0.01 --json - --transport tcp --private"};
    for (size_t k = 0; k < KOLO_COUNT(runs); k++) {
        assert_int_equal(test_run(runs[k]), 0);
        json_t *result = test_json("out"), *rows = json_object_get(result, "rows");
        assert_int_equal(test_json_int(result, "workers"), 2);
        assert_int_equal(test_json_int(result, "servers"), k ? 2 : 1);
        assert_int_equal(json_array_size(rows), 2);
        for (size_t i = 0; i < 2; i++) {
            const json_t *row = json_array_get(rows, i);
            assert_int_equal(test_json_int(row, "bytes"), i ? 65536 : 28);
            assert_true(test_json_int(row, "iterations") >= 5);
            assert_true(json_number_value(json_object_get(row, "us_median")) > 0);
            assert_true(json_number_value(json_object_get(row, "gigabytes_per_s")) > 0);
            assert_true(json_number_value(json_object_get(row, "copy_gigabytes_per_s")) > 0);
        }
        json_decref(result);
    }
    assert_int_equal(
        test_run("bench ps -n 3 --servers 1 --width 16 --table-rows 1000 --sizes 64,4K "
                 "--seconds 0.01 --json -"),
        0);
    json_t *result = test_json("out"), *rows = json_object_get(result, "rows");
    assert_int_equal(test_json_int(result, "workers"), 2);
    assert_int_equal(test_json_int(result, "width"), 16);
    assert_int_equal(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        static const char *const speeds[] = {"pulled_millions_per_s", "pushed_millions_per_s",
                                             "both_millions_per_s", "copied_millions_per_s"};
        const json_t *row = json_array_get(rows, i);
        assert_int_equal(test_json_int(row, "batch"), i ? 64 : 1);
        for (size_t k = 0; k < KOLO_COUNT(speeds); k++) {
            assert_true(json_number_value(json_object_get(row, speeds[k])) > 0);
        }
    }
    json_decref(result);
    assert_int_equal(test_run("bench ps -n 3 --servers 1 --bsp --step-buckets 3 --sizes 4,64K "
                              "--seconds 0.01 --json - --transport tcp"),
                     0);
    result = test_json("out"), rows = json_object_get(result, "rows");
    assert_int_equal(test_json_int(result, "workers"), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_int_equal(test_json_int(row, "bytes"), i ? 65536 : 4);
        assert_true(json_number_value(json_object_get(row, "received")) >= (i ? 65536 : 4));
        assert_true(json_number_value(json_object_get(row, "us_median")) > 0);
    }
    json_decref(result);
    static const char *const ways[] = {"", "--bsp", "--width 16"};
    for (size_t i = 0; i < KOLO_COUNT(ways); i++) {
        char arguments[64];
        snprintf(arguments, sizeof arguments, "bench ps -n 2 --sizes 8,66 %s", ways[i]);
        assert_int_equal(test_run(arguments), 2);
        assert_true(test_contains("err", "--sizes 8,66: '66' must be"));
        assert_true(test_contains("err", "a multiple of the f32 size, 4"));
    }
    assert_int_equal(test_run("bench ps -n 2 --width 16 --sizes 60"), 2);
    assert_true(test_contains("err", "it must have a row (--sizes, --width)"));
    assert_int_equal(test_run("bench ps -n 2 --servers 2 --sizes 8"), 2);
    assert_true(test_contains("err", "2 servers of 2 ranks: there must be a worker"));
}

static void codecs_are_measured(void **state) {
    assert_int_equal(
        test_run("bench compress --bytes 4K --codecs int8,topk:0.5 --seconds 0.01 --json -"), 0);
    json_t *result = test_json("out"), *rows = json_object_get(result, "rows");
    assert_int_equal(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_string_value(json_object_get(row, "codec")),
                            i ? "topk:0.5" : "int8");
        assert_int_equal(test_json_int(row, "bytes"), 4096);
        assert_int_equal(test_json_int(row, "code_bytes"), i ? 4096 : 1040);
        double error = json_number_value(json_object_get(row, "error"));
        assert_true(json_number_value(json_object_get(row, "encode_gigabytes_per_s")) > 0);
        assert_true(json_number_value(json_object_get(row, "decode_gigabytes_per_s")) > 0);
        assert_true(error > 0 && error < 1);
        assert_true(json_number_value(json_object_get(row, "error_feedback")) < error);
    }
    json_decref(result);
    test_run_fails("bench compress --bytes 6", 2,
                   "kolo: --bytes 6: it must be a multiple of the f32 size, 4\n");
    test_run_fails("bench compress --codecs f16,int9", 2,
                   "kolo: unknown codec 'int9': did you mean 'int8'?\n");
}

static void allreduces_are_predicted(void **state) {
    assert_int_equal(
        test_run("bench sim -n 12 --sizes 48K --algorithm ring --jitter 1 --seed 4 --json -"), 0);
    json_t *first = test_json("out");
    assert_int_equal(
        test_run("bench sim -n 12 --sizes 48K --algorithm ring --jitter 1 --seed 4 --json -"), 0);
    json_t *second = test_json("out");
    const json_t *row = json_array_get(json_object_get(first, "rows"), 0);
    assert_true(json_equal(first, second));
    assert_int_equal(test_json_int(row, "messages"), 2 * 11 * 12);
    assert_true(json_number_value(json_object_get(row, "us")) > 2 * 11 * 5);
    json_decref(first);
    json_decref(second);
    assert_int_equal(test_run("bench sim -n 3000 --sizes 1M --json -"), 0); /* in a moment */
    json_t *large = test_json("out");
    const json_t *rows = json_object_get(large, "rows");
    size_t left_out = 0, predicted = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *each = json_array_get(rows, i);
        bool out = json_is_true(json_object_get(each, "left_out"));
        left_out += out;
        predicted += !out && json_number_value(json_object_get(each, "us")) > 0;
        if (out) assert_true(test_json_int(each, "messages") > 4000000);
    }
    assert_true(left_out >= 2 && predicted >= 3 && left_out + predicted == json_array_size(rows));
    assert_true(test_contains("err", "left out: 18 million messages; --algorithm ring simulates"));
    json_decref(large);
    assert_int_equal(test_run("bench sim -n 1 --sizes 1M --algorithm ring --json -"), 0);
    json_t *alone = test_json("out");
    row = json_array_get(json_object_get(alone, "rows"), 0);
    assert_true(test_json_number(row, "us") == 0);
    assert_true(test_json_number(row, "busbw_gigabytes_per_s") == 0);
    assert_true(test_contains("err", " 0.000 "));
    json_decref(alone);
    assert_int_equal(test_run("bench sim -n 4 --algorithm direct"), 2);
    assert_true(test_contains("err",
                              "kolo: --algorithm direct accesses the peers' memory, a modelled "
                              "network supports messages only: choose auto, ring, tree, "));
}

static void training_steps_are_measured(void **state) {
    assert_int_equal(test_run("bench train --model mlp --batch 8 --threads 1 --steps 3 --json -"),
                     0);
    json_t *result = test_json("out");
    assert_int_equal(test_json_int(result, "steps"), 3);
    assert_int_equal(test_json_int(result, "samples"), 24);
    assert_true(json_number_value(json_object_get(result, "samples_per_second")) > 0);
    json_decref(result);
}

/* The term of the step that is the most wrong is named, in the table only if the step is off. */
static void predictions_name_the_term_that_is_off(void **state) {
    static const char *const terms[] = {"input", "forward", "backward", "exposed_communication",
                                        "update"};
    assert_int_equal(test_run("profile --predict --model mlp --batch 4 --threads 1 --workers 2 "
                              "--steps 2 --json -"),
                     0);
    json_t *r = test_json("out");
    const json_t *predicted = json_object_get(r, "predicted_ms");
    const json_t *measured = json_object_get(r, "measured_ms");
    const char *named = json_string_value(json_object_get(r, "most_wrong"));
    double most = 0, of_named = -1, sum = 0;
    for (size_t i = 0; i < KOLO_COUNT(terms); i++) {
        const double ms = test_json_number(predicted, terms[i]);
        const double error = fabs(ms - test_json_number(measured, terms[i]));
        sum += ms;
        most = fmax(most, error);
        if (strcmp(named, terms[i]) == 0) of_named = error;
    }
    const double step = test_json_number(predicted, "step");
    const double off = fabs(step / test_json_number(r, "measured_step_ms_median") - 1);
    assert_true(fabs(sum - step) < 1e-3 * step);
    assert_true(fabs(of_named - most) <= 1e-6 * most);
    assert_true(off > 0.09999 || !test_contains("err", "off by more than 10 %"));
    assert_true(off < 0.10001 || test_contains("err", "off by more than 10 %"));
    json_decref(r);
}

TEST_MAIN(test_command_bench) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_stated_by_worker),
        cmocka_unit_test(a_benchmark_checks_its_losses),
        cmocka_unit_test(the_wait_for_the_slowest_worker_is_that_of_the_others),
        cmocka_unit_test(stages_of_loaders_are_measured),
        cmocka_unit_test(waiting_threads_sleep),
        cmocka_unit_test(measured_times_are_stored),
        cmocka_unit_test(files_that_hold_no_times_are_kept),
        cmocka_unit_test(a_cache_of_another_version_is_replaced),
        cmocka_unit_test(allreduces_are_measured),
        cmocka_unit_test(servers_are_measured),
        cmocka_unit_test(codecs_are_measured),
        cmocka_unit_test(allreduces_are_predicted),
        cmocka_unit_test(training_steps_are_measured),
        cmocka_unit_test(predictions_name_the_term_that_is_off),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
