/* Runs whose files cannot be written: a full disk, a read-only folder, a write that fails in the
 * middle. The run names path and cause in one line, keeps the last good checkpoint, and ends or
 * goes on as asked; no file is left half written. Calls fail in a preloaded library
 * (tests/preload/fail_writes.c), or on a small file system. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "support/command.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOB                                                                                        \
    "train --model mlp:hidden=64 --data synthetic:N=480,test=16 --batch 16 --threads 1 --steps 6 " \
    "--no-recipe --momentum 0.9 --progress none "
#define RUN JOB "--out run --checkpoint-every 2 --keep 0 --log-every 1 "

static void forget_run(void) { assert_int_equal(system("rm -rf run"), 0); }

/* Makes a call of the commands that follow fail; see the library. `rank` NULL: of any rank. */
static void set_fault(const char *fault, const char *rank) {
    char sanitizer[512];
    const char *options = getenv("ASAN_OPTIONS");
    setenv("LD_PRELOAD", KOLO_FAIL_WRITES, 1);
    setenv("KOLO_FAIL", fault, 1);
    if (rank) setenv("KOLO_FAIL_RANK", rank, 1);
    if (!options || strstr(options, "link_order")) return;
    snprintf(sanitizer, sizeof sanitizer, "%s:verify_asan_link_order=0", options);
    setenv("ASAN_OPTIONS", sanitizer, 1);
}

static void clear_fault(void) {
    unsetenv("LD_PRELOAD");
    unsetenv("KOLO_FAIL");
    unsetenv("KOLO_FAIL_RANK");
}

/* Runs the command with a fault; returns its exit status. */
static int run_with(const char *fault, const char *rank, const char *arguments) {
    set_fault(fault, rank);
    const int code = test_run(arguments);
    clear_fault();
    return code;
}

static kolo_status count_temporary(void *arg, const char *name) {
    const size_t length = strlen(name);
    *(int *)arg += length > 4 && strcmp(name + length - 4, ".tmp") == 0;
    return KOLO_OK;
}

/* All checkpoints are whole, `step` has one or not, and nothing temporary is left. */
static void assert_folder(const char *what, int step, bool written) {
    char path[64];
    int temporary = 0;
    ASSERT_OK(kolo_folder_each("run", count_temporary, &temporary));
    if (temporary > 0) fail_msg("%s: a temporary file is left", what);
    for (int k = 2; k <= 6; k += 2) {
        snprintf(path, sizeof path, "run/checkpoint-%d.safetensors", k);
        if (kolo_file_exists(path)) assert_intact(what, path);
    }
    snprintf(path, sizeof path, "run/checkpoint-%d.safetensors", step);
    if (kolo_file_exists(path) != written) fail_msg("%s: %s", what, path);
}

static void assert_reports(const char *what, const char *text) {
    char *err = test_contents("err");
    const char *at = strstr(err, text);
    if (!at || strstr(at + 1, text)) fail_msg("%s: not once \"%s\" in %s", what, text, err);
    kolo_free(err);
}

/* Each line of metrics.jsonl is JSON; returns their number. `running`: the last one may be half
 * written. */
static int count_lines(bool running) {
    char *text = test_contents("run/metrics.jsonl"), *line = text;
    int n = 0;
    for (char *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        *end = '\0';
        json_t *json = json_loads(line, 0, NULL);
        if (!json) fail_msg("no JSON: %s", line);
        json_decref(json);
    }
    assert_true(running || *line == '\0');
    kolo_free(text);
    return n;
}

static char *hash_of(const char *path) {
    json_t *json = test_json(path);
    char *hash = kolo_strdup(json_string_value(json_object_get(json, "parameter_hash")));
    json_decref(json);
    return hash;
}

/* A row: what fails, of which rank, while the checkpoint of step 4 is written. */
typedef struct fault_case {
    const char *workers, *fault, *rank, *error; /* workers and rank: NULL: one; any */
    bool whole;                                 /* the checkpoint itself is complete */
    bool waits;                                 /* steps wait for it */
    bool varies;                                /* no two runs have the same bits */
} fault_case;

/* One worker that makes steps on its own, and several. */
#define SERVED "--sync ps --servers 1 --consistency asp --no-bind --workers "

static const fault_case cases[] = {
    {.fault = "pwrite .checkpoint-4. 3 28", .error = "-4.safetensors: No space left on device"},
    {.fault = "open .checkpoint-4. 1 30", .error = "-4.safetensors: Read-only file system"},
    {.fault = "fsync .checkpoint-4. 2 5", .error = "-4.safetensors: Input/output error"},
    {.fault = "rename .checkpoint-4. 1 122", .error = "-4.safetensors: Disk quota exceeded"},
    {.fault = "open .latest. 2 28", .error = "run/latest: No space left on device", .whole = true},
    {.fault = "pwrite .checkpoint-4. 2 28",
     .error = "-4.safetensors: No space left on device",
     .waits = true},
    {.workers = "--workers 2 --zero 1",
     .fault = "pwrite .checkpoint-4. 1 28",
     .rank = "1",
     .error = "tmp: No space left on device"},
    {.workers = "--workers 2 --zero 3",
     .fault = "fsync .checkpoint-4. 2 5",
     .rank = "0",
     .error = "-4.safetensors: Input/output error"},
    {.workers = "--workers 2 --zero 2",
     .fault = "pwrite .checkpoint-4. 1 28",
     .rank = "1",
     .error = "tmp: No space left on device",
     .waits = true},
    {.workers = "--workers 2 --mesh tp=2",
     .fault = "pwrite .checkpoint-4. 1 28",
     .rank = "1",
     .error = "tmp: No space left on device"},
    {.workers = "--workers 2 --mesh tp=2",
     .fault = "rename .checkpoint-4. 1 122",
     .rank = "0",
     .error = "-4.safetensors: Disk quota exceeded",
     .waits = true},
    {.workers = "--workers 2 --mesh pp=2",
     .fault = "fsync .checkpoint-4. 1 5",
     .rank = "1",
     .error = "tmp: Input/output error"},
    {.workers = "--workers 2 --mesh pp=2 --accumulate 2",
     .fault = "pwrite .checkpoint-4. 2 28",
     .rank = "0",
     .error = "-4.safetensors: No space left on device"},
    {.workers = "--workers 4 --mesh dp=2,tp=2 --zero 1 --no-bind",
     .fault = "open .checkpoint-4. 1 30",
     .rank = "3",
     .error = "tmp: Read-only file system"},
    {.workers = SERVED "1",
     .fault = "pwrite .checkpoint-4. 3 28",
     .rank = "0",
     .error = "-4.safetensors: No space left on device"},
    {.workers = SERVED "2",
     .fault = "fsync .checkpoint-4. 1 5",
     .rank = "0",
     .error = "-4.safetensors: Input/output error",
     .varies = true},
};

static const char *workers_of(const fault_case *c) { return c->workers ? c->workers : ""; }

/* A failed save changes no bit of a run that goes on, and no earlier checkpoint. */
static void a_run_goes_on_after_a_failed_save(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const fault_case *c = &cases[i];
        char line[512];
        forget_run();
        if (TEST_FEWER(i % 2 == 1, false)) continue;
        if (i == 0 || c->workers) {
            snprintf(line, sizeof line, JOB "--json straight.json %s", workers_of(c));
            assert_int_equal(test_run(line), 0);
        }
        snprintf(line, sizeof line, RUN "--on-save-error continue --json run.json %s %s",
                 workers_of(c), c->waits ? "--wait-for-saves" : "");
        if (run_with(c->fault, c->rank, line) != 0)
            fail_msg("%s: %s", c->fault, test_contents("err"));
        assert_true(test_contains("err", c->error));
        const char *kept = "the checkpoint of step 2 is kept; the run goes on after step ";
        assert_true(test_contains("err", kept));
        if (!c->whole) assert_reports(c->fault, kept); /* else "latest" fails again */
        assert_folder(c->fault, 4, c->whole);
        assert_folder(c->fault, 6, true);
        char *straight = hash_of("straight.json"), *hash = hash_of("run.json");
        if (!c->varies) assert_string_equal(hash, straight);
        kolo_free(straight);
        kolo_free(hash);
    }
}

/* An error of all ranks comes while several of them write a checkpoint: it is completed. */
static void a_diverging_run_completes_its_checkpoint(void **state) {
    forget_run();
    assert_int_equal(
        test_run(JOB "--out run --workers 2 --zero 1 --checkpoint-every 1 --lr 1000000"), 1);
    assert_reports("diverged", "at step 2 (epoch 1): training diverged");
    assert_reports("diverged", "; the checkpoint of step 1 is kept");
    assert_intact("diverged", "run/checkpoint-1.safetensors");
}

/* The best weights have a record of their own. */
static void a_failed_save_of_the_best_weights_names_those_kept(void **state) {
    forget_run();
    assert_int_equal(run_with("open .checkpoint-best. 2 28", NULL,
                              JOB "--out run --eval-every-steps 1 --keep-best loss --lr 0.01"),
                     1);
    assert_reports("best", "run/checkpoint-best.safetensors: No space left on device");
    assert_reports("best", "; the checkpoint-best.safetensors of step 1 is kept");
}

static void a_ledger_that_is_not_durable_ends_the_run(void **state) {
    forget_run();
    assert_int_equal(
        run_with("fsync used.0 1 5", NULL, RUN "--on-save-error continue --ledger used"), 1);
    assert_reports("ledger", "used.0: Input/output error");
}

/* The run ends, and resumes once the disk has space. */
static void a_run_stops_at_a_failed_save(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const fault_case *c = &cases[i];
        char line[512];
        if (i > 0 && !c->workers) continue;                   /* of one worker they end alike */
        if (TEST_FEWER(i > 0 && i % 2 == 0, false)) continue; /* those go on, above */
        forget_run();
        snprintf(line, sizeof line, RUN "%s", workers_of(c));
        assert_int_equal(run_with(c->fault, c->rank, line), 1);
        assert_reports(c->fault, c->error);
        assert_reports(c->fault, "the checkpoint of step 2 is kept");
        assert_folder(c->fault, 2, true);
        assert_folder(c->fault, 4, c->whole);
        snprintf(line, sizeof line, RUN "--resume latest %s", workers_of(c));
        if (test_run(line) != 0) fail_msg("%s: %s", c->fault, test_contents("err"));
        assert_int_equal(count_lines(false), 7); /* the end of the epoch has its own */
    }
}

/* The first checkpoint, which "latest" does not name, is one to resume from. */
static void a_checkpoint_without_latest_is_named(void **state) {
    static const char fault[] = "open .latest. 1 28";
    for (int waits = 0; waits < 2; waits++) {
        forget_run();
        assert_int_equal(run_with(fault, NULL, waits ? RUN "--wait-for-saves" : RUN), 1);
        assert_reports(fault, "run/latest: No space left on device");
        assert_reports(
            fault, "; run/checkpoint-2.safetensors is complete: --resume run goes on from it; ");
        assert_folder(fault, 2, true);
        assert_int_equal(test_run(RUN "--resume run"), 0);
        assert_int_equal(count_lines(false), 7);
    }
}

static void lines_are_whole_or_missing(void **state) {
    static const char fault[] = "pwrite metrics.jsonl 3 28";
    for (int workers = 1; workers <= 2; workers++) {
        char line[512];
        forget_run();
        snprintf(line, sizeof line, RUN "--workers %d --on-save-error continue", workers);
        assert_int_equal(run_with(fault, NULL, line), 0);
        assert_reports(fault, "run/metrics.jsonl: No space left on device");
        assert_int_equal(count_lines(false), 2);
        forget_run();
        snprintf(line, sizeof line, RUN "--workers %d", workers);
        assert_int_equal(run_with(fault, NULL, line), 1);
        assert_reports(fault, "run/metrics.jsonl: No space left on device");
        assert_int_equal(count_lines(false), 2);
    }
}

static void files_of_the_start_and_the_end_are_needed(void **state) {
    forget_run();
    assert_int_equal(run_with("open .config.yaml 1 28", NULL, RUN "--on-save-error continue"), 1);
    assert_reports("config", "run/config.yaml: No space left on device");
    assert_folder("config", 2, false);
    forget_run();
    const char *final = "fsync .checkpoint-final 1 5";
    assert_int_equal(run_with(final, NULL, RUN "--on-save-error continue"), 1);
    assert_reports(final, "checkpoint-final.safetensors: Input/output error");
    assert_reports(final, "the checkpoint of step 6 is kept");
    assert_folder(final, 6, true);
    forget_run();
    assert_int_equal(run_with("open .loss.svg 1 28", NULL, RUN "--on-save-error continue"), 0);
    assert_reports("loss.svg", "run/loss.svg: No space left on device");
}

/* The first checkpoint and the final weights fit, a second checkpoint does not. */
static void a_full_file_system_keeps_what_it_has(void **state) {
    if (system("unshare --mount true 2>/dev/null") != 0) {
        print_message("skip: mounting needs privileges\n");
        skip();
    }
    forget_run();
    assert_int_equal(system("mkdir small"), 0);
    assert_int_equal(
        system("unshare --mount sh -c 'mount -t tmpfs -o size=800k none small && "
               "\"" KOLO_COMMAND "\" " JOB
               "--out small/run --checkpoint-every 2 --keep 0 --log-every 1 "
               "--wait-for-saves --on-save-error continue >out 2>err && cp -r small/run run && "
               "mount -o remount,ro small && \"" KOLO_COMMAND "\" " JOB
               "--out small/run --resume latest >out 2>err2; test $? = 1'"),
        0);
    assert_int_equal(system("rmdir small"), 0);
    assert_reports("full", "small/run/checkpoint-4.safetensors: No space left on device");
    assert_reports("full", "the checkpoint of step 2 is kept; the run goes on after step 6");
    assert_folder("full", 2, true);
    assert_folder("full", 6, false);
    assert_true(kolo_file_exists("run/checkpoint-final.safetensors"));
    assert_true(test_contains("err2", "small/run/metrics.jsonl: Read-only file system"));
}

#define TABLE_JOB                                                                                  \
    "train --model fasttext:rows=300,width=8,features=12 --data synthetic-labelled:N=480,test=16 " \
    "--batch 16 --threads 1 --steps 6 --no-recipe --optimizer adam --progress none --no-eval "     \
    "--sync ps --servers 1 --table emb.weight "
#define TABLE_RUN TABLE_JOB "--out run --checkpoint-every 2 --keep 0 --log-every 1 "

static void assert_rows(const char *what, int step, bool written) {
    char path[64];
    assert_folder(what, step, written);
    snprintf(path, sizeof path, "run/checkpoint-%d.tables.safetensors", step);
    if (kolo_file_exists(path) != written) fail_msg("%s: %s", what, path);
}

/* No checkpoint lacks its rows, which the thread writes before it. */
static void a_checkpoint_has_its_rows_or_is_none(void **state) {
    static const struct {
        const char *fault, *error, *more;
    } rows[] = {
        {"pwrite .checkpoint-4.t 1 28", "-4.tables.safetensors: No space left on device", ""},
        {"fsync .checkpoint-4.t 1 5", "-4.tables.safetensors: Input/output error", ""},
        {"rename .checkpoint-4.t 1 5", "-4.tables.safetensors: Input/output error",
         "--consistency asp"},
        {"fsync .checkpoint-4.t 1 5", "-4.tables.safetensors: Input/output error",
         "--wait-for-saves"},
    };
    char line[640];
    forget_run();
    assert_int_equal(test_run(TABLE_JOB "--json straight.json"), 0);
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        forget_run();
        snprintf(line, sizeof line, TABLE_RUN "--on-save-error continue --json run.json %s",
                 rows[i].more);
        if (run_with(rows[i].fault, "0", line) != 0) {
            fail_msg("%s: %s", rows[i].fault, test_contents("err"));
        }
        assert_reports(rows[i].fault, rows[i].error);
        assert_rows(rows[i].fault, 2, true);
        assert_rows(rows[i].fault, 4, false);
        assert_rows(rows[i].fault, 6, true);
        char *straight = hash_of("straight.json"), *hash = hash_of("run.json");
        assert_string_equal(hash, straight);
        kolo_free(straight);
        kolo_free(hash);
    }
}

/* Pushes that have no room for the rows of a checkpoint go on once that has failed. */
static void workers_do_not_wait_for_rows_that_are_not_saved(void **state) {
    static const char *const policies[] = {"", "--consistency asp"};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        char line[640];
        const int64_t hangs = test_hangs_ns();
        forget_run();
        (void)unlink("go");
        set_fault("wait-pwrite .checkpoint-2.t 1 28", "0");
        snprintf(line, sizeof line,
                 "exec '%s' " TABLE_RUN
                 "--table-bytes 12K --timeout 20 --on-save-error continue %s >out 2>err",
                 KOLO_COMMAND, policies[i]);
        kolo_process job = test_job_start((char *[]){"sh", "-c", line, NULL});
        clear_fault();
        for (int lines = 0; lines < 2; poll(NULL, 0, 1)) {
            assert_true(kolo_now_ns() < hangs);
            lines = kolo_file_exists("run/metrics.jsonl") ? count_lines(true) : 0;
        }
        poll(NULL, 0, 500); /* until a push waits for room */
        assert_true(count_lines(true) < 6);
        ASSERT_OK(kolo_file_write("go", "", 0));
        if (test_job_end(&job).code != 0) fail_msg("%s", test_contents("err"));
        assert_reports(policies[i], "-2.tables.safetensors: No space left on device");
        assert_rows(policies[i], 2, false);
        assert_rows(policies[i], 6, true);
    }
}

/* Packing does not go on without its file, and leaves nothing of it; one that was there stays. */
static void a_pack_is_whole_or_is_not(void **state) {
    static const struct {
        const char *fault, *error;
    } rows[] = {
        {"open .set.pack 1 30", "set.pack: Read-only file system"},
        {"pwrite .set.pack 2 28", "set.pack: No space left on device"},
        {"fsync .set.pack 1 5", "set.pack: Input/output error"},
    };
    static const char pack[] = "data pack synthetic:N=4000,test=20,shape=3x20x20,classes=3,seed=";
    char line[256];
    forget_run();
    ASSERT_OK(kolo_folder_make("run"));
    for (int there = 0; there < 2; there++) {
        for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
            snprintf(line, sizeof line, "%s2 --out run/set.pack --replace", pack);
            assert_int_equal(run_with(rows[i].fault, NULL, line), 1);
            assert_reports(rows[i].fault, rows[i].error);
            assert_folder(rows[i].fault, 2, false); /* no temporary file */
            assert_int_equal(kolo_file_exists("run/set.pack"), there);
            if (there) assert_int_equal(test_run("data verify pack:run/set.pack"), 0);
        }
        snprintf(line, sizeof line, "%s1 --out run/set.pack --replace", pack);
        assert_int_equal(test_run(line), 0);
    }
}

/* The first signal ends packing, without a file. */
static void packing_ends_upon_a_signal(void **state) {
    int temporary = 0;
    const int64_t hangs = test_hangs_ns();
    forget_run();
    ASSERT_OK(kolo_folder_make("run"));
    kolo_process job =
        test_job_start((char *[]){"sh", "-c",
                                  "exec '" KOLO_COMMAND "' data pack synthetic:N=200000,test=1 "
                                  "--out run/set.pack >out 2>err",
                                  NULL});
    for (; temporary == 0; poll(NULL, 0, 1)) {
        assert_true(kolo_now_ns() < hangs);
        ASSERT_OK(kolo_folder_each("run", count_temporary, &temporary));
    }
    kolo_process_signal(&job, SIGINT, false);
    assert_int_equal(test_job_end(&job).code, 128 + SIGINT);
    assert_reports("stopped", "packing was stopped: nothing is written");
    assert_folder("stopped", 2, false);
    assert_false(kolo_file_exists("run/set.pack"));
}

/* What cannot fit is refused before the first step, with the figures; what may not fit is a
 * warning. */
static void space_is_checked_before_a_run(void **state) {
    static const struct {
        const char *fault, *arguments;
        int code;
        const char *text; /* NULL: there is no warning */
    } rows[] = {
        {"space run 1 250", RUN, 1, "run: a checkpoint takes 430.1 KiB, and 250.0 KiB are free"},
        {"space run 1 100", RUN "--on-save-error continue", 1, "a checkpoint takes 215.0 KiB"},
        {"space run 1 250", RUN "--on-save-error continue", 0,
         "run: up to 1.5 MiB more are written"},
        {"space run 1 1000", RUN, 0, "with 3 checkpoints of 430.1 KiB at a time, and 1000.0 KiB"},
        {"space run 1 1100", JOB "--out run --checkpoint-every 2 --keep 1", 0, NULL},
        {"space run 1 100", "data pack synthetic:N=4000,test=20,shape=3x20x20 --out run/set.pack",
         1, "run/set.pack: the pack takes 4.6 MiB, and 100.0 KiB are free"},
    };
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        forget_run();
        ASSERT_OK(kolo_folder_make("run"));
        assert_int_equal(run_with(rows[i].fault, NULL, rows[i].arguments), rows[i].code);
        if (rows[i].text) assert_reports(rows[i].fault, rows[i].text);
        if (!rows[i].text) assert_false(test_contains("err", "are free"));
        assert_folder(rows[i].fault, 6, rows[i].code == 0);
        assert_false(kolo_file_exists("run/set.pack"));
    }
    /* Those that are there make room for others. */
    forget_run();
    assert_int_equal(test_run(RUN), 0);
    assert_int_equal(system("rm run/checkpoint-6.safetensors"), 0);
    assert_int_equal(run_with("space run 1 500", NULL,
                              JOB "--out run --checkpoint-every 2 --keep 1 --resume latest"),
                     0);
    assert_reports("resumed", "run: up to 645.1 KiB more are written, with 2 checkpoints");
    /* What a killed run has left is removed before the first checkpoint. */
    forget_run();
    ASSERT_OK(kolo_folder_make("run"));
    assert_int_equal(system("head -c 307200 /dev/urandom >run/.checkpoint-4.safetensors.123.tmp"),
                     0);
    assert_int_equal(run_with("space run 1 250", NULL, RUN), 0);
    assert_reports("killed", "with 3 checkpoints of 430.1 KiB at a time, and 5");
    assert_folder("killed", 6, true);
}

/* Steps go on while a checkpoint is written: its writing lasts until the file "go" is there. The
 * rows of tables that it has are those of its step. */
static void steps_do_not_wait_for_the_disk(void **state) {
    static const struct {
        const char *job, *file;
        bool same; /* two runs have the same rows */
    } jobs[] = {
        {RUN, ".s", false},
        {RUN "--workers 2 --zero 1", ".s", false},
        {RUN SERVED "2", ".s", false},
        {RUN "--workers 2 --sync mesh --consistency ssp:2", ".s", false},
        {TABLE_RUN "--workers 2", ".t", true},
        {TABLE_RUN "--workers 2 --consistency asp", ".t", false},
    };
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        char line[640];
        const int64_t hangs = test_hangs_ns();
        if (TEST_FEWER(i % 2 == 1, false)) continue;
        forget_run();
        if (jobs[i].same) {
            snprintf(line, sizeof line, "%s --wait-for-saves", jobs[i].job);
            assert_int_equal(test_run(line), 0);
            assert_int_equal(system("rm -rf waited && mv run waited"), 0);
        }
        (void)unlink("go");
        snprintf(line, sizeof line, "wait-pwrite .checkpoint-2%s 2 0", jobs[i].file);
        set_fault(line, NULL);
        snprintf(line, sizeof line, "exec '%s' %s >out 2>err", KOLO_COMMAND, jobs[i].job);
        kolo_process job = test_job_start((char *[]){"sh", "-c", line, NULL});
        clear_fault();
        for (int lines = 0; lines < 3; poll(NULL, 0, 1)) {
            assert_true(kolo_now_ns() < hangs);
            if (kolo_file_exists("run/metrics.jsonl")) lines = count_lines(true);
        }
        assert_false(kolo_file_exists("run/checkpoint-2.safetensors"));
        ASSERT_OK(kolo_file_write("go", "", 0));
        assert_int_equal(test_job_end(&job).code, 0);
        for (int step = 2; step <= 6; step += 2) assert_folder(jobs[i].job, step, true);
        if (!jobs[i].same) continue;
        assert_int_equal(system("cmp run/checkpoint-2.tables.safetensors "
                                "waited/checkpoint-2.tables.safetensors"),
                         0);
    }
}

TEST_MAIN(test_save_errors) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_goes_on_after_a_failed_save),
        cmocka_unit_test(a_run_stops_at_a_failed_save),
        cmocka_unit_test(a_diverging_run_completes_its_checkpoint),
        cmocka_unit_test(a_failed_save_of_the_best_weights_names_those_kept),
        cmocka_unit_test(a_ledger_that_is_not_durable_ends_the_run),
        cmocka_unit_test(a_checkpoint_without_latest_is_named),
        cmocka_unit_test(lines_are_whole_or_missing),
        cmocka_unit_test(files_of_the_start_and_the_end_are_needed),
        cmocka_unit_test(a_checkpoint_has_its_rows_or_is_none),
        cmocka_unit_test(workers_do_not_wait_for_rows_that_are_not_saved),
        cmocka_unit_test(a_pack_is_whole_or_is_not),
        cmocka_unit_test(packing_ends_upon_a_signal),
        cmocka_unit_test(space_is_checked_before_a_run),
        cmocka_unit_test(steps_do_not_wait_for_the_disk),
        cmocka_unit_test(a_full_file_system_keeps_what_it_has),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
