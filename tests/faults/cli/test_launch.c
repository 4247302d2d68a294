/* The local launcher, on real processes: what ranks are given, how their lines come out, and how a
 * job ends when a rank fails, when it is interrupted, and when the launcher itself is killed. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "support/folder.h"
#include "support/support.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 4 };

static int enter_folder(void **state) {
    unsetenv("OMP_NUM_THREADS");
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    return test_folder_enter(state);
}

/* A `kolo run` under way; its output goes to the files "out" and "err". It dies with this
 * test. */
static kolo_process start_job(int n, const char *script) {
    char ranks[8];
    snprintf(ranks, sizeof ranks, "%d", n);
    return test_job_start((char *[]){"sh", "-c", "exec \"$0\" run -n $1 -- sh -c \"$2\" >out 2>err",
                                     KOLO_COMMAND, ranks, (char *)(uintptr_t)script, NULL});
}

static kolo_exit run_job(int n, const char *script) {
    kolo_process job = start_job(n, script);
    return test_job_end(&job);
}

static void assert_contains(const char *path, const char *part) {
    char *text = test_contents(path);
    if (!strstr(text, part)) fail_msg("%s lacks '%s':\n%s", path, part, text);
    kolo_free(text);
}

/* Waits for a file that contains a number and returns it. */
static long number_in(const char *path) {
    for (int64_t hangs = test_hangs_ns(); kolo_now_ns() < hangs; poll(NULL, 0, 1)) {
        FILE *file = fopen(path, "r");
        char line[32] = "";
        if (file) {
            bool whole = fgets(line, sizeof line, file) && strchr(line, '\n');
            fclose(file);
            if (whole) return strtol(line, NULL, 10);
        }
    }
    fail_msg("no digits in %s", path);
    return 0;
}

/* The state letter of a process; 'X' after its end. */
static char state_of(long pid) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 'X';
    char *got = fgets(line, sizeof line, file);
    fclose(file);
    char *after = got ? strrchr(line, ')') : NULL;
    return after ? after[2] : 'X';
}

static void await_state(long pid, const char *states) {
    for (int64_t hangs = test_hangs_ns(); kolo_now_ns() < hangs; poll(NULL, 0, 1)) {
        if (strchr(states, state_of(pid))) return;
    }
    fail_msg("process %ld is in state %c, not one of %s", pid, state_of(pid), states);
}

static void assert_all_gone(const long *pids, int n) {
    for (int r = 0; r < n; r++) await_state(pids[r], "XZ");
}

/* Sleeping ranks that leave their process ids in pid.RANK. */
static const char *const sleepers = "echo $$ >pid.$RANK; exec sleep 1000";

static kolo_process start_sleepers(int n, const char *script, long pids[MAX_RANKS]) {
    char path[16];
    for (int r = 0; r < n; r++) {
        snprintf(path, sizeof path, "pid.%d", r);
        unlink(path);
    }
    kolo_process job = start_job(n, script);
    for (int r = 0; r < n; r++) {
        snprintf(path, sizeof path, "pid.%d", r);
        pids[r] = number_in(path);
    }
    return job;
}

/* ---- rank environment ---- */

static void ranks_get_the_rank_environment(void **state) {
    kolo_exit how =
        run_job(3, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT "
                   "${KOLO_LISTEN_FD:+listens} $OMP_WAIT_POLICY >env.$RANK");
    assert_int_equal(how.code, 0);
    long port = 0;
    for (int r = 0; r < 3; r++) {
        char path[16], expected[128];
        snprintf(path, sizeof path, "env.%d", r);
        char *text = test_contents(path);
        long got = 0;
        assert_int_equal(sscanf(text, "%*d %*d %*d %*d 127.0.0.1 %ld", &got), 1);
        if (r == 0) port = got;
        snprintf(expected, sizeof expected, "%d 3 %d 3 127.0.0.1 %ld %spassive\n", r, r, port,
                 r == 0 ? "listens " : "");
        assert_string_equal(text, expected);
        kolo_free(text);
    }
    assert_true(port > 0 && port < 65536);
}

/* /proc/net/tcp lists listening sockets (state 0A) by inode, which is the name of the descriptor.
 */
static void rank_0_inherits_the_listening_socket(void **state) {
    kolo_exit how =
        run_job(2, "[ $RANK = 0 ] || exit 0; name=$(readlink /proc/self/fd/$KOLO_LISTEN_FD); "
                   "inode=${name#socket:?}; inode=${inode%?}; "
                   "hex=$(printf '0100007F:%04X' $KOLO_MASTER_PORT); "
                   "grep \" $hex 00000000:0000 0A .* $inode \" /proc/net/tcp >socket");
    assert_int_equal(how.code, 0);
    assert_contains("socket", "0100007F");
}

/* Two listeners: Kolo's, and the program's on MASTER_PORT. */
static void the_master_port_is_free_for_the_program(void **state) {
    kolo_exit how =
        run_job(2, "[ $RANK = 0 ] || exit 0; [ $MASTER_PORT != $KOLO_MASTER_PORT ] && "
                   "! grep -i \"0100007F:$(printf %04X $MASTER_PORT) \" /proc/net/tcp >taken");
    assert_int_equal(how.code, 0);
}

static void sigusr1_is_forwarded_to_the_ranks(void **state) {
    kolo_exit how = run_job(
        2, "trap 'echo asked >asked.$RANK; exit 0' USR1; echo >ready.$RANK; "
           "[ $RANK = 1 ] || { until [ -e ready.1 ]; do sleep 0.05; done; kill -USR1 $PPID; }; "
           "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3; done; exit 3");
    assert_int_equal(how.code, 0);
    assert_contains("asked.0", "asked");
    assert_contains("asked.1", "asked");
}

static void the_secret_is_shared_hidden_and_sealed(void **state) {
    const char *script =
        "cat $KOLO_SECRET_FILE >secret.$RANK; tr '\\0' '\\n' </proc/$$/environ >environ.$RANK; "
        "tr '\\0' '\\n' </proc/$PPID/cmdline >>environ.$RANK; "
        "if (echo changed >$KOLO_SECRET_FILE) 2>/dev/null; then exit 9; fi; "
        "cat $KOLO_SECRET_FILE >again.$RANK";
    char *first = NULL;
    for (int job = 0; job < 2; job++) {
        assert_int_equal(run_job(2, script).code, 0);
        char *a = test_contents("secret.0"), *b = test_contents("secret.1"),
             *again = test_contents("again.1");
        assert_int_equal(strlen(a), 64);
        assert_int_equal(strspn(a, "0123456789abcdef"), 64);
        assert_string_equal(a, b);
        assert_string_equal(a, again);
        for (int r = 0; r < 2; r++) {
            char *environment = test_contents(r ? "environ.1" : "environ.0");
            assert_non_null(strstr(environment, "KOLO_SECRET_FILE=/proc/self/fd/"));
            assert_null(strstr(environment, a));
            kolo_free(environment);
        }
        if (first) assert_string_not_equal(a, first);
        kolo_free(first);
        first = a;
        kolo_free(b);
        kolo_free(again);
    }
    kolo_free(first);
}

static void threads_default_to_an_equal_share(void **state) {
    char expected[16];
    assert_int_equal(run_job(1, "echo $OMP_NUM_THREADS >threads").code, 0);
    snprintf(expected, sizeof expected, "%d\n", kolo_processors());
    assert_contains("threads", expected);
    setenv("OMP_NUM_THREADS", "7", 1);
    assert_int_equal(run_job(1, "echo $OMP_NUM_THREADS $GOMP_SPINCOUNT >threads").code, 0);
    unsetenv("OMP_NUM_THREADS");
    assert_contains("threads", kolo_processors() < 7 ? "7 0\n" : "7 10000\n");
}

static void rank_0_reads_standard_input(void **state) {
    char line[256];
    snprintf(line, sizeof line, "printf 'a\\nb\\n' | '%s' run -n 2 -- cat >out 2>err",
             KOLO_COMMAND);
    assert_int_equal(system(line), 0);
    char *text = test_contents("out");
    assert_string_equal(text, "[0] a\n[0] b\n");
    kolo_free(text);
}

/* ---- lines ---- */

/* Each rank writes its lines in two pieces; they must be complete, in order, on the same stream. */
static void lines_are_complete_and_prefixed(void **state) {
    enum { LINES = 300 };
    kolo_exit how = run_job(3, "i=0; while [ $i -lt 300 ]; do printf 'line '; echo $i; "
                               "echo error $i >&2; i=$((i+1)); done");
    assert_int_equal(how.code, 0);
    for (int stream = 0; stream < 2; stream++) {
        char *text = test_contents(stream ? "err" : "out");
        int next[3] = {0}, total = 0;
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), total++) {
            char expected[32];
            int r = line[1] - '0';
            assert_true(r >= 0 && r < 3);
            snprintf(expected, sizeof expected, "[%d] %s %d", r, stream ? "error" : "line",
                     next[r]++);
            assert_string_equal(line, expected);
        }
        assert_int_equal(total, 3 * LINES);
        kolo_free(text);
    }
}

/* A line without end is forwarded without loss, whole up to 16 MiB, else in pieces. */
static void only_the_longest_lines_are_split(void **state) {
    kolo_exit how = run_job(1, "head -c 100000 /dev/zero | tr '\\0' x; printf 'end'");
    assert_int_equal(how.code, 0);
    assert_int_equal(system("test $(wc -l <out) = 1 && test $(wc -c <out) = 100008"), 0);
    assert_contains("out", "end\n");
    how = run_job(1, "head -c 40000000 /dev/zero | tr '\\0' x; printf 'end'");
    assert_int_equal(how.code, 0);
    assert_int_equal(system("test $(wc -l <out) -gt 2 && test $(wc -l <out) -lt 10 && "
                            "test $(tr -cd x <out | wc -c) = 40000000 && "
                            "test \"$(cut -c 1-4 out | sort -u)\" = '[0] '"),
                     0);
    assert_int_equal(unlink("out"), 0);
}

static void a_closed_output_ends_the_job(void **state) {
    char line[512];
    unlink("pid.0");
    unlink("pid.1");
    snprintf(
        line, sizeof line,
        "'%s' run -n 2 -- sh -c 'echo $$ >pid.$RANK; [ $RANK = 1 ] && exec sleep 1000; "
        "while [ ! -s pid.1 ]; do :; done; while echo more; do :; done' 2>err | head -n 1 >out",
        KOLO_COMMAND);
    assert_int_equal(system(line), 0);
    long pids[2] = {number_in("pid.0"), number_in("pid.1")};
    assert_all_gone(pids, 2);
    assert_contains("out", "[0] more\n");
}

/* ---- ends ---- */

static void a_killed_rank_is_named_and_ends_the_job(void **state) {
    long pids[MAX_RANKS];
    kolo_process job = start_sleepers(3, sleepers, pids);
    kill((pid_t)pids[1], SIGKILL);
    kolo_exit how = test_job_end(&job);
    assert_int_equal(how.code, 1);
    char expected[128];
    snprintf(expected, sizeof expected,
             "kolo: rank 1 (pid %ld) was killed by signal 9 (Killed); the job ends\n", pids[1]);
    char *text = test_contents("err");
    assert_string_equal(text, expected);
    kolo_free(text);
    assert_all_gone(pids, 3);
}

static void an_exit_status_is_named_and_ends_the_job(void **state) {
    long pids[MAX_RANKS];
    kolo_process job = start_sleepers(
        3, "echo $$ >pid.$RANK; [ $RANK = 2 ] && { echo last words; exit 3; }; exec sleep 1000",
        pids);
    assert_int_equal(test_job_end(&job).code, 3);
    char expected[128];
    snprintf(expected, sizeof expected,
             "kolo: rank 2 (pid %ld) exited with status 3; the job ends\n", pids[2]);
    char *text = test_contents("err");
    assert_string_equal(text, expected);
    kolo_free(text);
    assert_contains("out", "[2] last words\n");
    assert_all_gone(pids, 3);
}

/* The others may notice by themselves and end first: the one that was killed is still the one that
 * is named. Rank 0 fails when it sees rank 1 gone. */
static void the_first_cause_is_named(void **state) {
    long pids[MAX_RANKS];
    kolo_process job =
        start_sleepers(2,
                       "echo $$ >pid.$RANK; [ $RANK = 1 ] && exec sleep 1000; "
                       "while [ ! -s pid.1 ]; do :; done; read other <pid.1; "
                       "while kill -0 $other 2>/dev/null; do sleep 0.01; done; exit 5",
                       pids);
    kill((pid_t)pids[1], SIGTERM);
    assert_int_equal(test_job_end(&job).code, 1);
    assert_contains("err", "kolo: rank 1 ");
    assert_contains("err", "was killed by signal 15 (Terminated)");
}

static void ranks_that_ignore_sigterm_are_killed(void **state) {
    long pids[MAX_RANKS];
    kolo_process job = start_sleepers(
        2,
        "trap '' TERM INT; echo $$ >pid.$RANK; [ $RANK = 1 ] && { sleep 0.1; exit 1; }; "
        "while :; do sleep 0.1; done",
        pids);
    assert_int_equal(test_job_end(&job).code, 1);
    assert_contains("err", "exited with status 1; the job ends");
    assert_all_gone(pids, 2);
}

static void descendants_of_a_rank_end_with_it(void **state) {
    unlink("child");
    kolo_exit how = run_job(1, "sh -c 'echo $$ >child; exec sleep 1000' & "
                               "while [ ! -s child ]; do sleep 0.01; done");
    assert_int_equal(how.code, 0);
    long child = number_in("child");
    assert_all_gone(&child, 1);
}

static void signals_to_the_launcher_end_the_job(void **state) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < KOLO_COUNT(signals); i++) {
        long pids[MAX_RANKS];
        kolo_process job = start_sleepers(2, sleepers, pids);
        kolo_process_signal(&job, signals[i], false);
        kolo_exit how = test_job_end(&job);
        assert_int_equal(how.signal, 0);
        assert_int_equal(how.code, 128 + signals[i]);
        assert_contains("err", "kolo: stopped by signal");
        assert_all_gone(pids, 2);
    }
}

/* As with nohup. */
static void an_ignored_hangup_stays_ignored(void **state) {
    unlink("begun");
    kolo_process job = test_job_start((char *[]){"sh", "-c",
                                                 "trap '' HUP; exec \"$0\" run -n 2 -- "
                                                 "sh -c 'echo $$ >begun; sleep 0.2' >out 2>err",
                                                 KOLO_COMMAND, NULL});
    (void)number_in("begun");
    kolo_process_signal(&job, SIGHUP, false);
    assert_int_equal(test_job_end(&job).code, 0);
}

static void a_stopped_job_continues(void **state) {
    long pids[MAX_RANKS];
    kolo_process job = start_sleepers(2, sleepers, pids);
    kolo_process_signal(&job, SIGTSTP, false);
    await_state(job.pid, "T");
    await_state(pids[0], "T");
    await_state(pids[1], "T");
    kolo_process_signal(&job, SIGCONT, false);
    await_state(pids[0], "SR");
    await_state(pids[1], "SR");
    kolo_process_signal(&job, SIGINT, false);
    assert_int_equal(test_job_end(&job).code, 128 + SIGINT);
    assert_all_gone(pids, 2);
}

static void a_killed_launcher_leaves_no_ranks(void **state) {
    long pids[MAX_RANKS];
    kolo_process job = start_sleepers(4, sleepers, pids);
    kolo_process_signal(&job, SIGKILL, false);
    assert_int_equal(test_job_end(&job).signal, SIGKILL);
    assert_all_gone(pids, 4);
}

/* Each rank is a shell with a sleeping child. */
static void a_killed_launcher_leaves_no_descendants(void **state) {
    long pids[MAX_RANKS];
    kolo_process job = start_sleepers(2, "sleep 1000 & echo $! >pid.$RANK; wait", pids);
    kolo_process_signal(&job, SIGKILL, false);
    assert_int_equal(test_job_end(&job).signal, SIGKILL);
    assert_all_gone(pids, 2);
}

/* One that ends well without having joined is no failure of its own, but the others need not wait
 * for it until the deadline. */
static void the_end_of_a_rank_before_joining_is_detected(void **state) {
    kolo_process job =
        start_job(2, "[ $RANK = 1 ] && exit 0; exec '" KOLO_COMMAND "' bench allreduce --sizes 8");
    assert_int_equal(test_job_end(&job).code, 1);
    assert_contains("err", "rank 1 exited (status 0) without joining the group");
    job =
        start_job(2, "[ $RANK = 0 ] && exit 0; exec '" KOLO_COMMAND "' bench allreduce --sizes 8");
    assert_int_equal(test_job_end(&job).code, 1);
    assert_contains("err", "rank 0 ended without forming the group");
}

/* The same of one that is killed in a job that goes on without killed ranks. */
static void a_spared_rank_that_is_killed_before_joining_is_detected(void **state) {
    static const char *const errors[] = {"rank 0 ended without forming the group",
                                         "rank 1 was killed by signal 9 before it joined"};
    for (int victim = 0; victim < 2; victim++) {
        char script[128];
        snprintf(script, sizeof script,
                 "[ $RANK = %d ] && kill -9 $$; exec '" KOLO_COMMAND "' bench allreduce --sizes 8",
                 victim);
        kolo_process job = test_job_start(
            (char *[]){"sh", "-c", "exec \"$0\" run --survive -n 2 -- sh -c \"$1\" >out 2>err",
                       KOLO_COMMAND, script, NULL});
        assert_int_equal(test_job_end(&job).code, 1);
        assert_contains("err", errors[victim]);
    }
}

/* ---- usage errors ---- */

static void usage_errors_are_one_line(void **state) {
    static const struct {
        const char *arguments, *text;
        int code;
    } cases[] = {
        {"run -n 0 -- true", "kolo: --ranks 0: must be an integer from 1 to 1024\n", 2},
        {"run -n 2", "kolo: 'kolo run' needs a program: kolo run -n 2 -- program args\n", 2},
        {"run -- no-such-program", "kolo: cannot start no-such-program: not found in PATH\n", 127},
        {"run -- ./absent",
         "kolo: cannot start ./absent: No such file or directory: check the path\n", 127},
        {"run -n 2 -- /tmp", "kolo: cannot start /tmp: Is a directory: check the path\n", 126},
        {"runn", "kolo: unknown command 'runn': did you mean 'run'?\n", 2},
        {"run --rnaks 2 -- true", "kolo: unknown option --rnaks: did you mean --ranks?\n", 2},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char line[256];
        snprintf(line, sizeof line, "'%s' %s >out 2>err", KOLO_COMMAND, cases[i].arguments);
        int status = system(line);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), cases[i].code);
        char *text = test_contents("err");
        assert_string_equal(text, cases[i].text);
        kolo_free(text);
    }
}

/* The launcher has 3 descriptors of each rank; `ulimit` limits them. */
static void open_files_are_allowed_or_asked_for(void **state) {
    static const struct {
        const char *limit, *text;
        int code;
    } cases[] = {
        {"ulimit -Sn 32", "", 0},
        {"ulimit -n 32",
         "kolo: the launcher of 12 ranks needs 100 open files, the limit is 32: raise it (ulimit "
         "-Hn)\n",
         1},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char line[256];
        snprintf(line, sizeof line, "%s; '%s' run -n 12 -- true >out 2>err", cases[i].limit,
                 KOLO_COMMAND);
        int status = system(line);
        char *text = test_contents("err");
        bool same = strcmp(text, cases[i].text) == 0;
        if (!same) print_error("%s", text);
        kolo_free(text);
        assert_true(same && WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), cases[i].code);
    }
}

TEST_MAIN(test_launch) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_get_the_rank_environment),
        cmocka_unit_test(rank_0_inherits_the_listening_socket),
        cmocka_unit_test(the_master_port_is_free_for_the_program),
        cmocka_unit_test(sigusr1_is_forwarded_to_the_ranks),
        cmocka_unit_test(the_secret_is_shared_hidden_and_sealed),
        cmocka_unit_test(threads_default_to_an_equal_share),
        cmocka_unit_test(rank_0_reads_standard_input),
        cmocka_unit_test(lines_are_complete_and_prefixed),
        cmocka_unit_test(only_the_longest_lines_are_split),
        cmocka_unit_test(a_closed_output_ends_the_job),
        cmocka_unit_test(a_killed_rank_is_named_and_ends_the_job),
        cmocka_unit_test(an_exit_status_is_named_and_ends_the_job),
        cmocka_unit_test(the_first_cause_is_named),
        cmocka_unit_test(ranks_that_ignore_sigterm_are_killed),
        cmocka_unit_test(descendants_of_a_rank_end_with_it),
        cmocka_unit_test(signals_to_the_launcher_end_the_job),
        cmocka_unit_test(an_ignored_hangup_stays_ignored),
        cmocka_unit_test(a_stopped_job_continues),
        cmocka_unit_test(a_killed_launcher_leaves_no_ranks),
        cmocka_unit_test(a_killed_launcher_leaves_no_descendants),
        cmocka_unit_test(the_end_of_a_rank_before_joining_is_detected),
        cmocka_unit_test(a_spared_rank_that_is_killed_before_joining_is_detected),
        cmocka_unit_test(usage_errors_are_one_line),
        cmocka_unit_test(open_files_are_allowed_or_asked_for),
    };
    return cmocka_run_group_tests(tests, enter_folder, test_folder_leave);
}
