/* Jobs killed by SIGKILL while they write a checkpoint in the background: existing files stay
 * intact, and the same command continues, bitwise equal to an uninterrupted run. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "support/folder.h"
#include "support/support.h"

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

#define JOB                                                                                  \
    "train --model mlp:hidden=256 --data synthetic:N=640 --batch 16 --threads 1 --steps 90 " \
    "--momentum 0.9 --augment crop=2 --no-eval --progress none"

static kolo_process start(int workers, const char *more) {
    char line[512];
    snprintf(line, sizeof line, "exec '%s' " JOB " --workers %d %s >out 2>err", KOLO_COMMAND,
             workers, more);
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
    char *latest = test_contents("run/latest"), line[256];
    latest[strcspn(latest, "\n")] = '\0';
    snprintf(line, sizeof line, "'%s' checkpoint verify run/%s >out 2>err", KOLO_COMMAND, latest);
    if (system(line) != 0) fail_msg("%s: %s", latest, test_contents("err"));
    kolo_free(latest);
}

/* Starts or resumes the job and kills it as soon as it writes a file; returns whether that
 * interrupted the writing. */
static bool kill_writer(int workers) {
    kolo_process job = start(workers, "--out run --checkpoint-every 1 --resume latest");
    int64_t hangs = test_hangs_ns();
    bool begun = false; /* else the files are those of the last job */
    for (int n = 0; !begun || n == 0; n = temporary()) {
        begun |= kolo_folder_exists("run") && temporary() == 0;
        assert_true(kolo_now_ns() < hangs);
    }
    kolo_process_signal(&job, SIGKILL, false);
    assert_int_equal(test_job_end(&job).signal, SIGKILL);
    await_the_end_of_ranks();
    assert_latest_is_whole();
    return temporary() > 0;
}

static void run_to_the_end(int workers, const char *more, const char *json) {
    char options[128];
    snprintf(options, sizeof options, "%s --json %s", more, json);
    kolo_process job = start(workers, options);
    int code = test_job_end(&job).code;
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
static void kill_after(int workers, int ms) {
    kolo_process job = start(workers, "--out run --checkpoint-every 1 --resume latest");
    poll(NULL, 0, ms);
    kolo_process_signal(&job, SIGKILL, false);
    (void)test_job_end(&job); /* it may have ended */
    if (!kolo_folder_exists("run")) return;
    await_the_end_of_ranks();
    assert_latest_is_whole();
}

static void kill_and_resume(int workers) {
    int middle = 0, kills = 0;
    for (; middle < IN_THE_MIDDLE && kills < MOST_KILLS; kills++) {
        middle += kill_writer(workers);
        if (getenv("KOLO_SOAK")) kill_after(workers, rand() % 100);
    }
    printf("%d workers: %d of %d kills in the middle of writing\n", workers, middle, kills);
    assert_int_equal(middle, IN_THE_MIDDLE);
    run_to_the_end(workers, "--out run --checkpoint-every 50 --resume latest", "killed.json");
    assert_same_result("straight.json", "killed.json");
    assert_int_equal(temporary(), 0);
    assert_int_equal(system("rm -r run"), 0);
}

static void a_killed_writer_costs_no_bit(void **state) {
    const int rounds = getenv("KOLO_SOAK") ? 25 : 1; /* 300 kills, half of them in the middle */
    for (int workers = 1; workers <= 2; workers++) {
        run_to_the_end(workers, "", "straight.json");
        for (int round = 0; round < rounds; round++) kill_and_resume(workers);
    }
}

TEST_MAIN(test_killed_writer) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_writer_costs_no_bit),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
