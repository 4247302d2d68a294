/* Jobs killed by SIGKILL while they write a checkpoint in the background: existing files stay
 * intact, and the same command continues, bitwise equal to an uninterrupted run, also of a worker
 * that makes steps on its own, and with the rows of tables; and with other workers, which use each
 * sample once. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { IN_THE_MIDDLE = 3, MOST_KILLS = 40 };

static const char images[] =
    "train --model mlp:hidden=256 --data synthetic:N=640 --threads 1 --steps 90 "
    "--momentum 0.9 --augment crop=2 --no-eval --progress none";
static const char rows[] =
    "train --model fasttext:rows=20000,width=16,features=12 --data synthetic-labelled:N=640 "
    "--threads 1 --steps 90 --optimizer adam --no-eval --progress none";
static const char uneven[] =
    "train --model mlp:hidden=64 --data synthetic:N=647 --threads 1 --steps 90 --momentum 0.9 "
    "--augment crop=2 --no-eval --progress none --global-batch 18 --reproducible 9 --no-bind";
static const char *job = images;
#define SAVES "--out run --checkpoint-every 1 --resume latest "

static kolo_process start(const char *options) {
    char line[640];
    snprintf(line, sizeof line, "exec '%s' %s %s >out 2>err", KOLO_COMMAND, job, options);
    return test_job_start((char *[]){"sh", "-c", line, NULL});
}

static kolo_status count_temporary(void *arg, const char *name) {
    *(int *)arg += strncmp(name, ".checkpoint-", 12) == 0;
    return KOLO_OK;
}

/* A temporary file of a checkpoint. */
static int temporary(void) {
    int n = 0;
    if (kolo_folder_exists("run")) ASSERT_OK(kolo_folder_each("run", count_temporary, &n));
    return n;
}

/* Ranks may live a little longer than their launcher. */
static void await_the_end_of_ranks(void) {
    int fd = open("run/metrics.jsonl", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    int64_t hangs = test_hangs_ns();
    for (; flock(fd, LOCK_EX | LOCK_NB) != 0; poll(NULL, 0, 1)) assert_true(kolo_now_ns() < hangs);
    close(fd);
}

static void assert_latest_is_whole(void) {
    if (!kolo_file_exists("run/latest")) return;
    char *latest = test_contents("run/latest"), path[256];
    latest[strcspn(latest, "\n")] = '\0';
    snprintf(path, sizeof path, "run/%s", latest);
    assert_intact("latest", path);
    kolo_free(latest);
}

/* Starts or resumes the job and kills it as soon as it writes a file; returns whether that
 * interrupted the writing. */
static bool kill_writer(const char *options) {
    kolo_process killed = start(options);
    int64_t hangs = test_hangs_ns();
    bool begun = false; /* else the files are those of the last job */
    for (int n = 0; !begun || n == 0; n = temporary()) {
        begun |= kolo_folder_exists("run") && temporary() == 0;
        assert_true(kolo_now_ns() < hangs);
    }
    kolo_process_signal(&killed, SIGKILL, false);
    assert_int_equal(test_job_end(&killed).signal, SIGKILL);
    await_the_end_of_ranks();
    assert_latest_is_whole();
    return temporary() > 0;
}

static void run_to_the_end(const char *options, const char *json) {
    char all[256];
    snprintf(all, sizeof all, "%s --json %s", options, json);
    kolo_process whole = start(all);
    int code = test_job_end(&whole).code;
    if (code != 0) fail_msg("exit %d: %s", code, test_contents("err"));
}

static void assert_same_result(const char *a, const char *b) {
    static const char *const keys[] = {"parameter_hash", "steps", "samples", "first_loss",
                                       "final_loss"};
    json_t *one = json_load_file(a, 0, NULL), *other = json_load_file(b, 0, NULL);
    for (size_t i = 0; i < KOLO_COUNT(keys); i++) {
        assert_true(json_equal(json_object_get(one, keys[i]), json_object_get(other, keys[i])));
    }
    json_decref(one);
    json_decref(other);
}

/* Starts or resumes the job and kills it after some time. */
static void kill_after(const char *options, int ms) {
    kolo_process killed = start(options);
    poll(NULL, 0, ms);
    kolo_process_signal(&killed, SIGKILL, false);
    (void)test_job_end(&killed); /* it may have ended */
    if (!kolo_folder_exists("run")) return;
    await_the_end_of_ranks();
    assert_latest_is_whole();
}

/* Kills the job until enough kills were in the middle of writing. Each start has the options that
 * follow those of the one before. */
static void kill_often(const char *const *options, size_t n) {
    int middle = 0, kills = 0;
    for (; middle < IN_THE_MIDDLE && kills < MOST_KILLS; kills++) {
        const char *own = options[(size_t)kills % n];
        middle += kill_writer(own);
        if (getenv("KOLO_SOAK")) kill_after(own, rand() % 100);
    }
    printf("%s: %d of %d kills in the middle of writing\n", options[0], middle, kills);
    assert_int_equal(middle, IN_THE_MIDDLE);
}

static void kill_and_compare(const char *all) {
    const int rounds = getenv("KOLO_SOAK") ? 25 : 1; /* 300 kills of two jobs, half in the middle */
    char saves[256], last[256];
    snprintf(saves, sizeof saves, "%s" SAVES, all);
    snprintf(last, sizeof last, "%s--out run --checkpoint-every 50 --resume latest", all);
    run_to_the_end(all, "straight.json");
    for (int round = 0; round < rounds; round++) {
        kill_often((const char *[]){saves}, 1);
        run_to_the_end(last, "killed.json");
        assert_same_result("straight.json", "killed.json");
        assert_int_equal(temporary(), 0);
        assert_int_equal(system("rm -r run"), 0);
    }
}

static void a_killed_writer_costs_no_bit(void **state) {
    kill_and_compare("--batch 16 --workers 1 ");
    kill_and_compare("--batch 16 --workers 2 ");
}

#define SERVED "--batch 16 --sync ps --servers 1 --no-bind "

/* With one worker the order of updates is the same. */
static void a_killed_writer_of_a_served_run_costs_no_bit(void **state) {
    kill_and_compare(SERVED "--workers 1 --consistency asp ");
    job = rows;
    kill_and_compare(SERVED "--workers 2 --table emb.weight ");
    kill_and_compare(SERVED "--workers 1 --table emb.weight --consistency asp ");
    job = images;
}

/* With logical shards the bits are those of any number of workers, and of state that is sharded,
 * where all workers write. */
static void other_workers_go_on_with_each_sample_once(void **state) {
#define SHARDS "--global-batch 16 --reproducible 4 "
    static const char *const starts[] = {
        SHARDS SAVES "--ledger used --workers 2 --zero 3",
        SHARDS SAVES "--ledger used --workers 1",
        SHARDS SAVES "--ledger used --workers 3 --zero 1",
        SHARDS SAVES "--ledger used --workers 2",
    };
    const int rounds = getenv("KOLO_SOAK") ? 50 : 1; /* as many kills */
    run_to_the_end(SHARDS, "straight.json");
    for (int round = 0; round < rounds; round++) {
        kill_often(starts, KOLO_COUNT(starts));
        run_to_the_end(SHARDS "--out run --checkpoint-every 50 --resume latest --ledger used",
                       "killed.json");
        assert_same_result("straight.json", "killed.json");
        assert_int_equal(test_run("data ledger used"), 0);
        assert_true(test_contains("out", "epoch 2: 640 samples, each once\n"));
        assert_int_equal(system("rm -r run used.*"), 0);
    }
}

/* The options of a start with 1 to 8 workers of unequal weights. */
static void draw_workers(char *options, size_t size) {
    static const char *const weights[] = {"0.5", "1", "2"};
    const int workers = 1 + rand() % 8;
    int length = snprintf(options, size, SAVES "--ledger used --workers %d", workers);
    for (int w = 0; workers > 1 && w < workers; w++) {
        length += snprintf(options + length, size - (size_t)length, "%s%s",
                           w == 0 ? " --worker-weights " : ",", weights[rand() % 3]);
    }
}

/* 18 samples of a step, 17 of the last one of an epoch, in 9 shards. */
static void any_workers_go_on_with_each_sample_once(void **state) {
    enum { KILLS = 4 };
    const int rounds = getenv("KOLO_SOAK") ? 25 : 1;
    job = uneven;
    run_to_the_end("", "straight.json");
    for (int round = 0; round < rounds; round++) {
        for (int kill = 0; kill < KILLS; kill++) {
            char options[256];
            draw_workers(options, sizeof options);
            printf("%s\n", options);
            if (kill % 2 == 0) {
                (void)kill_writer(options);
            } else {
                kill_after(options, 300 + rand() % 700);
            }
        }
        run_to_the_end("--out run --checkpoint-every 50 --resume latest --ledger used",
                       "killed.json");
        assert_same_result("straight.json", "killed.json");
        assert_int_equal(test_run("data ledger used"), 0);
        assert_true(test_contains("out", "epoch 1: 647 samples, each once\n"));
        assert_true(test_contains("out", "epoch 2: 647 samples, each once\n"));
        assert_int_equal(system("rm -r run used.*"), 0);
    }
    job = images;
}

TEST_MAIN(test_killed_writer) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_writer_costs_no_bit),
        cmocka_unit_test(a_killed_writer_of_a_served_run_costs_no_bit),
        cmocka_unit_test(other_workers_go_on_with_each_sample_once),
        cmocka_unit_test(any_workers_go_on_with_each_sample_once),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
