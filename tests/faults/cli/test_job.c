/* Training jobs of several processes: a rank that dies is named and the job ends; an interrupt ends
 * it; an error of all ranks is printed once. Nothing is left behind. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "support/command.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"

#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORKERS = 3 };

/* Few samples: each worker makes all of them before its first step. */
#define DATA "--data synthetic:N=2400,test=8"

/* A running job; its output goes to the files "out" and "err". It is killed with this test. */
static kolo_process start_job(const char *arguments) {
    char line[512];
    snprintf(line, sizeof line, "exec '%s' %s >out 2>err", KOLO_COMMAND, arguments);
    return test_job_start((char *[]){"sh", "-c", line, NULL});
}

/* The standard error of the job without the oversubscription warning. */
static char *errors(void) {
    static const char warning[] = "kolo: warning: ";
    char *text = test_contents("err");
    if (strncmp(text, warning, sizeof warning - 1) == 0) {
        const char *rest = strchr(text, '\n') + 1;
        memmove(text, rest, strlen(rest) + 1);
    }
    return text;
}

/* The value of a variable in a process's environment; -1 if unset. */
static int environment_of(long pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    char *text;
    size_t bytes, n = strlen(name);
    if (kolo_file_read(path, 1 << 20, &text, &bytes) != KOLO_OK) return -1;
    int value = -1;
    for (size_t at = 0; at < bytes; at += strlen(text + at) + 1) {
        if (!strncmp(text + at, name, n) && text[at + n] == '=') value = atoi(text + at + n + 1);
    }
    kolo_free(text);
    return value;
}

/* Waits until the launcher's children are the job's ranks and the first step is done. */
static void await_ranks(const kolo_process *job, int workers, long *pids) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)job->pid, (long)job->pid);
    for (int64_t hangs = test_hangs_ns(); kolo_now_ns() < hangs; poll(NULL, 0, 1)) {
        char *text, *metrics;
        size_t bytes;
        int n = 0;
        if (kolo_file_read("run/metrics.jsonl", 1 << 20, &metrics, &bytes) != KOLO_OK) continue;
        kolo_free(metrics);
        if (bytes == 0) continue;
        ASSERT_OK(kolo_file_read(path, 4096, &text, &bytes));
        for (char *at = text, *end; n < workers; at = end) {
            long pid = strtol(at, &end, 10);
            int r = end > at ? environment_of(pid, "RANK") : -1;
            if (end == at) break;
            if (r < 0 || r >= workers) continue; /* the guard */
            pids[r] = pid;
            n++;
        }
        kolo_free(text);
        if (n == workers) return;
    }
    fail_msg("the ranks have not started");
}

static void assert_gone(long pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld", pid);
    for (int64_t hangs = test_hangs_ns(); kolo_now_ns() < hangs; poll(NULL, 0, 1)) {
        if (access(path, F_OK) != 0) return;
    }
    fail_msg("process %ld is still there", pid);
}

static void assert_nothing_left(const long pids[WORKERS]) {
    for (int r = 0; r < WORKERS; r++) assert_gone(pids[r]);
    DIR *shared = opendir("/dev/shm");
    if (!shared) return;
    for (struct dirent *entry; (entry = readdir(shared));) {
        assert_null(strstr(entry->d_name, "kolo"));
    }
    closedir(shared);
}

/* A job that runs for hours. */
static kolo_process start_workers(int workers, const char *more, long *pids) {
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "train --model mlp " DATA " --workers %d --threads 1 --batch 8 "
             "--epochs 100000 --no-eval --out run --progress none %s",
             workers, more);
    kolo_process job = start_job(arguments);
    await_ranks(&job, workers, pids);
    return job;
}

static kolo_process start_training(long pids[WORKERS]) { return start_workers(WORKERS, "", pids); }

static void forget_run(void) { assert_int_equal(system("rm -rf run"), 0); }

/* The only error is of the launcher: which rank was killed, and then the report of another one. */
static void assert_named(int victim, long pid, const char *report) {
    char expected[128];
    const int n = snprintf(expected, sizeof expected,
                           "kolo: rank %d (pid %ld) was killed by signal 9 (Killed); the job ends",
                           victim, pid);
    char *err = errors();
    const char *more = strstr(err, report);
    const bool one_line = strchr(err, '\n') == err + strlen(err) - 1;
    if (strncmp(err, expected, (size_t)n) != 0 || !one_line || !more ||
        !strstr(more, " while waiting in ")) {
        fail_msg("\"%s\" and \"%s\", not \"%s\"", expected, report, err);
    }
    kolo_free(err);
}

static void a_killed_rank_is_named_and_the_job_ends(void **state) {
    for (int victim = 0; victim < WORKERS; victim++) {
        long pids[WORKERS];
        char report[64];
        kolo_process job = start_training(pids);
        kill((pid_t)pids[victim], SIGKILL);
        kolo_exit how = test_job_end(&job);
        assert_int_equal(how.code, 1);
        snprintf(report, sizeof report, " reports: rank %d is gone (", victim);
        assert_named(victim, pids[victim], report);
        char *out = test_contents("out");
        assert_string_equal(out, "");
        kolo_free(out);
        assert_nothing_left(pids);
        assert_int_not_equal(access("run/checkpoint-final.safetensors", F_OK), 0);
        forget_run();
    }
}

static void the_place_of_a_killed_rank_in_a_mesh_is_named(void **state) {
    long pids[4];
    kolo_process job = start_job(
        "train --model gpt2_tiny:layers=2,width=32,heads=4,context=16,vocab=50 --data "
        "synthetic-tokens:N=400,test=8 --workers 4 --mesh pp=2,tp=2 --accumulate 2 --batch 4 "
        "--threads 1 --epochs 100000 --no-eval --out run --log-every 1 --progress none");
    await_ranks(&job, 4, pids);
    kill((pid_t)pids[3], SIGKILL);
    assert_int_equal(test_job_end(&job).code, 1);
    assert_named(3, pids[3], "rank 3 (pp=1,tp=1");
    assert_nothing_left(pids);
    assert_gone(pids[3]);
    forget_run();
}

/* 0: there is no file. */
static int64_t size_of_metrics(void) {
    struct stat file;
    return stat("run/metrics.jsonl", &file) == 0 ? (int64_t)file.st_size : 0;
}

static bool is_in_errors(const char *part) {
    char *err = errors();
    const bool found = strstr(err, part) != NULL;
    kolo_free(err);
    return found;
}

/* With servers apart and without steps that wait for all workers. */
static void a_job_goes_on_without_a_killed_worker(void **state) {
    long pids[WORKERS];
    kolo_process job = start_job("train --model mlp " DATA " --workers 2 --sync ps "
                                 "--servers 1 --consistency asp --threads 1 --batch 8 --epochs "
                                 "100000 --no-eval --out run --progress none");
    await_ranks(&job, WORKERS, pids);
    kill((pid_t)pids[1], SIGKILL);
    char expected[128];
    snprintf(expected, sizeof expected, "kolo: rank 1 (pid %ld) was killed by signal 9 (Killed)\n",
             pids[1]);
    int64_t hangs = test_hangs_ns();
    while (!is_in_errors(expected) && kolo_now_ns() < hangs) poll(NULL, 0, 1);
    for (int64_t size = size_of_metrics(); size_of_metrics() == size; poll(NULL, 0, 1)) {
        assert_true(kolo_now_ns() < hangs);
    }
    kolo_process_signal(&job, SIGINT, false);
    assert_int_equal(test_job_end(&job).code, 130);
    assert_true(is_in_errors(expected) && !is_in_errors("rank 1 is gone"));
    assert_nothing_left(pids);
    forget_run();
}

/* A stopped rank is alive but does not respond: the others must time out. */
static void a_rank_that_hangs_ends_the_job_at_the_deadline(void **state) {
    long pids[WORKERS];
    kolo_process job = start_job("train --model mlp " DATA " --workers 3 --threads 1 --batch 8 "
                                 "--epochs 100000 --no-eval --out run --progress none --timeout 4");
    await_ranks(&job, WORKERS, pids);
    kill((pid_t)pids[1], SIGSTOP);
    assert_int_equal(test_job_end(&job).code, 1);
    char *err = errors();
    assert_memory_equal(err, "kolo: ", 6);
    assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
    assert_non_null(strstr(err, "rank 1"));
    kolo_free(err);
    assert_nothing_left(pids);
    forget_run();
}

static void an_interrupt_ends_the_job(void **state) {
    long pids[WORKERS];
    kolo_process job = start_training(pids);
    kolo_process_signal(&job, SIGINT, false);
    assert_int_equal(test_job_end(&job).code, 128 + SIGINT);
    char *err = errors();
    assert_string_equal(err, "kolo: stopped by signal 2 (Interrupt); the job ends\n");
    kolo_free(err);
    assert_nothing_left(pids);
    forget_run();
}

static void interrupt_a_single_process(void) {
    /* It ends in a signal handler, wherever it is then: the leak sanitizer cannot run there. */
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
    kolo_process job =
        start_job("train --model mlp " DATA " --steps 100000000 --out run --progress none");
    unsetenv("LSAN_OPTIONS");
    char *metrics;
    size_t bytes = 0;
    for (int64_t hangs = test_hangs_ns(); bytes == 0; poll(NULL, 0, 1)) {
        assert_true(kolo_now_ns() < hangs);
        if (kolo_file_read("run/metrics.jsonl", 1 << 20, &metrics, &bytes) != KOLO_OK) continue;
        kolo_free(metrics);
    }
    kolo_process_signal(&job, SIGINT, false);
    kolo_exit how = test_job_end(&job);
    char *err = test_contents("err");
    assert_string_equal(err, "kolo: stopped by signal 2 (Interrupt); the job ends\n");
    assert_int_equal(how.code, 128 + SIGINT);
    kolo_free(err);
    forget_run();
}

/* Wherever the process is, such as in a kernel that uses a buffer as its stack. */
static void an_interrupt_of_a_single_process_is_reported(void **state) {
    for (int i = getenv("KOLO_SOAK") ? 100 : 2; i > 0; i--) interrupt_a_single_process();
}

/* A job of small steps, 100 in an epoch, whose result goes to `json`. */
static kolo_process start_small(int workers, int64_t steps, const char *more, const char *json) {
    char arguments[384];
    snprintf(arguments, sizeof arguments,
             "train --model mlp:hidden=16 --data synthetic:N=%d,test=8 --workers %d --threads 1 "
             "--batch 4 --steps %" PRId64
             " --momentum 0.9 --eval-every-steps 1 --progress none --json %s %s",
             400 * workers, workers, steps, json, more);
    return start_job(arguments);
}

static void assert_same_result(const char *a, const char *b) {
    static const char *const keys[] = {"parameter_hash", "steps",      "samples",
                                       "first_loss",     "final_loss", "test_loss"};
    json_t *one = test_json(a), *other = test_json(b);
    for (size_t i = 0; i < KOLO_COUNT(keys); i++) {
        assert_true(json_equal(json_object_get(one, keys[i]), json_object_get(other, keys[i])));
    }
    json_decref(one);
    json_decref(other);
}

/* In metrics.jsonl. */
static int evaluations(const char *folder) {
    char path[64];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    char *text = test_contents(path);
    int n = 0;
    for (const char *at = text; (at = strstr(at, "\"test_loss\"")); at++) n++;
    kolo_free(text);
    return n;
}

typedef enum target { LAUNCHER, LAST_RANK, ALL } target;

/* Sends SIGTERM to processes of a job that would take hours, once a step is done; returns how many
 * were. */
static int64_t preempt(int workers, int servers, const char *more, target to) {
    long pids[WORKERS];
    char options[128];
    const int ranks = workers + servers;
    const int64_t before = size_of_metrics(), hangs = test_hangs_ns();
    snprintf(options, sizeof options, "--out run --resume latest --log-every 1 %s", more);
    kolo_process job = start_small(workers, 1000000000, options, "preempted.json");
    for (; size_of_metrics() <= before; poll(NULL, 0, 1)) assert_true(kolo_now_ns() < hangs);
    if (to != LAUNCHER) await_ranks(&job, ranks, pids);
    if (to == ALL) kill((pid_t)pids[0], SIGTERM);
    if (to != LAUNCHER) kill((pid_t)pids[ranks - 1], SIGTERM);
    if (to != LAST_RANK) kolo_process_signal(&job, SIGTERM, false);
    assert_int_equal(test_job_end(&job).code, 0);
    if (to != LAST_RANK) {
        assert_true(is_in_errors("signal 15 (Terminated): the run saves a checkpoint and ends"));
    }
    json_t *result = test_json("preempted.json");
    assert_true(json_is_true(json_object_get(result, "preempted")));
    const int64_t steps = test_json_int(result, "steps");
    json_decref(result);
    assert_false(kolo_file_exists("run/checkpoint-final.safetensors"));
    return steps;
}

/* A run that is preempted saves, and goes on with the bits of one that was not. */
static void a_preempted_job_can_be_resumed(void **state) {
    for (int workers = TEST_FEWER(2, 1); workers <= 2; workers++) {
        int64_t steps = preempt(workers, 0, "", LAUNCHER);
        if (workers == 2) steps = preempt(workers, 0, "", LAST_RANK);
        if (TEST_FEWER(false, workers == 2)) steps = preempt(workers, 0, "", ALL);
        kolo_process job = start_small(workers, steps + 50,
                                       "--out run --resume latest --log-every 1", "resumed.json");
        assert_int_equal(test_job_end(&job).code, 0);
        assert_true(kolo_file_exists("run/checkpoint-final.safetensors"));
        job = start_small(workers, steps + 50, "--out straight --log-every 1", "straight.json");
        assert_int_equal(test_job_end(&job).code, 0);
        assert_same_result("straight.json", "resumed.json");
        assert_int_equal(evaluations("run"), evaluations("straight"));
        assert_int_equal(system("rm -rf straight"), 0);
        forget_run();
    }
}

/* The signal may reach a server alone, and workers that are at different steps. */
static void a_preempted_job_with_a_server_can_be_resumed(void **state) {
    static const char more[] = "--sync ps --servers 1 --consistency asp";
    char options[128];
    (void)preempt(2, 1, more, LAST_RANK);
    const int64_t steps = preempt(2, 1, more, LAUNCHER);
    snprintf(options, sizeof options, "--out run --resume latest --log-every 1 %s", more);
    kolo_process job = start_small(2, steps + 50, options, "resumed.json");
    assert_int_equal(test_job_end(&job).code, 0);
    json_t *result = test_json("resumed.json");
    assert_int_equal(test_json_int(result, "steps"), steps + 50);
    assert_int_equal(test_json_int(result, "samples"), (steps + 50) * 8);
    json_decref(result);
    forget_run();
}

/* A worker that is killed while the others save does not end their job. */
static void a_worker_may_die_while_a_job_is_preempted(void **state) {
    long pids[WORKERS];
    const int64_t hangs = test_hangs_ns();
    kolo_process job = start_small(
        2, 1000000000, "--out run --log-every 1 --sync ps --servers 1 --consistency asp",
        "preempted.json");
    await_ranks(&job, WORKERS, pids);
    kill((pid_t)pids[1], SIGSTOP); /* no step is known that it has not passed */
    kolo_process_signal(&job, SIGTERM, false);
    for (; !is_in_errors("saves a checkpoint"); poll(NULL, 0, 1)) {
        assert_true(kolo_now_ns() < hangs);
    }
    kill((pid_t)pids[1], SIGKILL);
    assert_int_equal(test_job_end(&job).code, 0);
    json_t *result = test_json("preempted.json");
    assert_true(json_is_true(json_object_get(result, "preempted")));
    assert_non_null(strstr(json_string_value(json_object_get(result, "lost")), "rank 1 after "));
    json_decref(result);
    assert_true(kolo_file_exists("run/latest"));
    assert_nothing_left(pids);
    forget_run();
}

/* A server whose part has a replica is killed; the run goes on, and saves when it is asked to. */
static void a_killed_server_does_not_end_the_job(void **state) {
    long pids[4];
    kolo_process job =
        start_small(2, 1000000000,
                    "--out run --log-every 1 --sync ps --servers 2 --replicas 1 --consistency asp",
                    "replaced.json");
    await_ranks(&job, 4, pids);
    kill((pid_t)pids[2], SIGKILL);
    assert_gone(pids[2]);
    kolo_process_signal(&job, SIGTERM, false);
    assert_int_equal(test_job_end(&job).code, 0);
    json_t *result = test_json("replaced.json");
    assert_true(json_is_true(json_object_get(result, "preempted")));
    assert_string_equal(json_string_value(json_object_get(result, "lost")), "server rank 2");
    json_decref(result);
    assert_gone(pids[3]);
    forget_run();
}

/* With a rank that is stopped no step ends: by a second signal the job does, or by --grace. */
static void a_job_that_cannot_save_ends(void **state) {
    for (int again = 0; again < 2; again++) {
        long pids[WORKERS];
        kolo_process job = start_workers(WORKERS, again ? "" : "--grace 0.5", pids);
        kill((pid_t)pids[1], SIGSTOP);
        kolo_process_signal(&job, SIGTERM, false);
        const int64_t hangs = test_hangs_ns();
        while (again && !is_in_errors("saves a checkpoint")) {
            assert_true(kolo_now_ns() < hangs);
            poll(NULL, 0, 1);
        }
        if (again) poll(NULL, 0, 1100); /* at once it would be the same request */
        if (again) kolo_process_signal(&job, SIGTERM, false);
        assert_int_equal(test_job_end(&job).code, 128 + SIGTERM);
        assert_true(is_in_errors(again ? "stopped by signal 15"
                                       : "no checkpoint was saved within 0.5 s (--grace)"));
        assert_nothing_left(pids);
        forget_run();
    }
}

/* The processors of a thread, as the kernel lists them. */
static void processors_of(long pid, const char *thread, char list[64]) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%ld/task/%.20s/status", pid, thread);
    FILE *file = fopen(path, "r");
    list[0] = '\0';
    while (file && fgets(line, sizeof line, file))
        (void)sscanf(line, "Cpus_allowed_list: %63s", list);
    if (file) fclose(file);
}

/* The processors of a process, all of whose threads have the same; returns their number. One that
 * ends meanwhile has none. */
static int threads_have(long pid, char list[64]) {
    char path[64], first[24], other[64];
    int threads = 0;
    snprintf(first, sizeof first, "%ld", pid);
    snprintf(path, sizeof path, "/proc/%ld/task", pid);
    processors_of(pid, first, list);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (*entry->d_name == '.') continue;
        processors_of(pid, entry->d_name, other);
        if (*other) assert_string_equal(other, list);
        threads += *other != '\0';
    }
    closedir(folder);
    return threads;
}

/* Lets hwloc take processors 0 and 1 for the hardware threads of one core, if they are available.
 */
static bool make_siblings(void) {
    char own[24], list[64];
    snprintf(own, sizeof own, "%ld", (long)getpid());
    processors_of(getpid(), own, list);
    if (strncmp(list, "0-", 2) != 0) return false;
    setenv("HWLOC_SYNTHETIC", "core:1 pu:2", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    return true;
}

/* With two processors or more, two ranks share none unless --no-bind is given, nor do the threads
 * that make progress over TCP, which run before a rank is bound. */
static void ranks_are_bound_to_distinct_processors(void **state) {
    if (kolo_processors() < 2) {
        printf("skip: one processor for two ranks\n");
        skip();
    }
    for (int i = 0; i < 3 && (i < 2 || make_siblings()); i++) {
        long pids[2];
        const bool bind = i > 0;
        kolo_process job =
            start_workers(2, bind ? "--transport tcp" : "--no-bind --transport tcp", pids);
        char first[64], second[64];
        assert_true(threads_have(pids[0], first) > 1 && threads_have(pids[1], second) > 1);
        assert_int_equal(strcmp(first, second) != 0, bind);
        kolo_process_signal(&job, SIGINT, false);
        test_job_end(&job);
        forget_run();
    }
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
}

static void a_killed_launcher_leaves_no_processes(void **state) {
    long pids[WORKERS];
    kolo_process job = start_training(pids);
    kolo_process_signal(&job, SIGKILL, false);
    assert_int_equal(test_job_end(&job).signal, SIGKILL);
    for (int r = 0; r < WORKERS; r++) {
        /* Orphans are reaped by the process that adopts them, or stay zombies. */
        char path[64], state_line[256] = "";
        snprintf(path, sizeof path, "/proc/%ld/stat", pids[r]);
        for (int64_t hangs = test_hangs_ns();; poll(NULL, 0, 1)) {
            FILE *file = fopen(path, "r");
            if (!file) break;
            char *got = fgets(state_line, sizeof state_line, file);
            fclose(file);
            char *after = got ? strrchr(state_line, ')') : NULL;
            if (!after || after[2] == 'Z' || after[2] == 'X') break;
            assert_true(kolo_now_ns() < hangs);
        }
    }
    forget_run();
}

static void an_error_of_all_ranks_is_printed_once(void **state) {
    static const struct {
        const char *arguments, *text;
        int code;
    } cases[] = {
        {"train --model lnet " DATA " --workers 3",
         "kolo: unknown model \"lnet\": did you mean \"lenet\"?\n", 2},
        {"train --model mlp --data synthetic:N=2,test=2 --workers 3 --batch 1",
         "kolo: 3 workers for 2 training samples in synthetic: use at most 2 workers\n", 2},
        {"eval --checkpoint absent " DATA " --workers 3",
         "kolo: cannot open absent: No such file or directory: check the path\n", 1},
        {"train --model mlp " DATA " --workers 3 --steps 1 --out out/folder",
         "kolo: cannot create the folder out/folder: Not a directory: check the path\n", 1},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_process job = start_job(cases[i].arguments);
        assert_int_equal(test_job_end(&job).code, cases[i].code);
        char *err = errors();
        assert_string_equal(err, cases[i].text);
        kolo_free(err);
    }
}

static void workers_must_match_the_outer_launcher(void **state) {
    kolo_process job =
        start_job("run -n 2 -- '" KOLO_COMMAND "' train --model mlp " DATA " --steps 2 --batch 8 "
                  "--no-eval --workers 3 --progress none");
    assert_int_equal(test_job_end(&job).code, 2);
    char *err = errors();
    assert_non_null(strstr(err, "--workers 3, but the launcher started 2: remove --workers"));
    kolo_free(err);
    job = start_job("run -n 2 -- '" KOLO_COMMAND "' train --model mlp " DATA
                    " --steps 2 --batch 8 --no-eval "
                    "--progress none");
    assert_int_equal(test_job_end(&job).code, 0);
    char *out = test_contents("out");
    assert_non_null(strstr(out, "[0] workers           2, threads"));
    assert_null(strstr(out, "[1]"));
    kolo_free(out);
}

TEST_MAIN(test_job) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named_and_the_job_ends),
        cmocka_unit_test(the_place_of_a_killed_rank_in_a_mesh_is_named),
        cmocka_unit_test(a_job_goes_on_without_a_killed_worker),
        cmocka_unit_test(a_rank_that_hangs_ends_the_job_at_the_deadline),
        cmocka_unit_test(an_interrupt_ends_the_job),
        cmocka_unit_test(an_interrupt_of_a_single_process_is_reported),
        cmocka_unit_test(a_preempted_job_can_be_resumed),
        cmocka_unit_test(a_preempted_job_with_a_server_can_be_resumed),
        cmocka_unit_test(a_worker_may_die_while_a_job_is_preempted),
        cmocka_unit_test(a_killed_server_does_not_end_the_job),
        cmocka_unit_test(a_job_that_cannot_save_ends),
        cmocka_unit_test(ranks_are_bound_to_distinct_processors),
        cmocka_unit_test(a_killed_launcher_leaves_no_processes),
        cmocka_unit_test(an_error_of_all_ranks_is_printed_once),
        cmocka_unit_test(workers_must_match_the_outer_launcher),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
