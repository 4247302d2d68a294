/* base/process: children, their descriptors and exit; environments; signals as events. */
#define _GNU_SOURCE
#include "base/process.h"
#include "support/rank_starter.h"
#include "support/support.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Runs a shell command; its standard output goes to `out`. */
static kolo_exit run_shell(const char *line, kolo_process_opts opts, char *out, size_t bytes) {
    int fds[2];
    ASSERT_OK(kolo_pipe(fds));
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)line, NULL};
    opts.argv = argv;
    opts.out = fds[1];
    kolo_process child;
    ASSERT_OK(kolo_process_start(&opts, &child));
    close(fds[1]);
    size_t n = 0;
    for (ssize_t got; n < bytes - 1 && (got = read(fds[0], out + n, bytes - 1 - n)) > 0;) {
        n += (size_t)got;
    }
    out[n] = '\0';
    close(fds[0]);
    kolo_exit how;
    ASSERT_OK(kolo_process_wait(&child, 20000, &how));
    kolo_process_fini(&child);
    return how;
}

static void exit_and_signal_are_distinguished(void **state) {
    static const struct {
        const char *line, *text;
        kolo_exit how;
    } cases[] = {
        {"exit 0", "exited with status 0", {0, 0}},
        {"exit 3", "exited with status 3", {3, 0}},
        {"kill -9 $$", "was killed by signal 9 (Killed)", {0, 9}},
        {"kill -TERM $$", "was killed by signal 15 (Terminated)", {0, 15}},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char out[8], text[64];
        kolo_exit how = run_shell(cases[i].line, (kolo_process_opts){0}, out, sizeof out);
        assert_int_equal(how.code, cases[i].how.code);
        assert_int_equal(how.signal, cases[i].how.signal);
        kolo_exit_describe(how, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void a_missing_program_is_named(void **state) {
    char *argv[] = {"/no/such/program", NULL};
    kolo_process child;
    assert_int_equal(kolo_process_start(&(kolo_process_opts){.argv = argv}, &child), KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(),
                        "cannot start /no/such/program: No such file or directory: check the path");
}

static void children_inherit_given_descriptors_only(void **state) {
    int kept[2], hidden[2];
    ASSERT_OK(kolo_pipe(kept));
    ASSERT_OK(kolo_pipe(hidden));
    char line[128], out[64];
    snprintf(line, sizeof line,
             "for f in %d %d; do [ -e /proc/$$/fd/$f ] && echo yes || echo no; done", kept[1],
             hidden[1]);
    kolo_process_opts opts = {.in = KOLO_FD_NULL, .keep = &kept[1], .n_keep = 1};
    run_shell(line, opts, out, sizeof out);
    assert_string_equal(out, "yes\nno\n");
    run_shell("readlink /proc/$$/fd/0", opts, out, sizeof out);
    assert_string_equal(out, "/dev/null\n");
    assert_true(fcntl(kept[1], F_GETFD) & FD_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        close(kept[i]);
        close(hidden[i]);
    }
}

static void environments_are_copied_changed_and_passed(void **state) {
    setenv("KOLO_TEST_A", "one", 1);
    setenv("KOLO_TEST_B", "two", 1);
    kolo_env env = {0};
    ASSERT_OK(kolo_env_copy(&env));
    ASSERT_OK(kolo_env_set(&env, "KOLO_TEST_A", "%d", 11));
    ASSERT_OK(kolo_env_set(&env, "KOLO_TEST_C", "new"));
    kolo_env_unset(&env, "KOLO_TEST_B");
    kolo_env_unset(&env, "KOLO_TEST_B");
    assert_string_equal(kolo_env_get(&env, "KOLO_TEST_A"), "11");
    assert_null(kolo_env_get(&env, "KOLO_TEST_B"));
    assert_null(kolo_env_get(&env, "KOLO_TEST_"));
    assert_string_equal(getenv("KOLO_TEST_A"), "one");
    char out[64];
    run_shell("echo $KOLO_TEST_A,$KOLO_TEST_B,$KOLO_TEST_C", (kolo_process_opts){.env = env.vars},
              out, sizeof out);
    assert_string_equal(out, "11,,new\n");
    kolo_env_fini(&env);
}

static void waiting_has_a_deadline(void **state) {
    char *argv[] = {"sleep", "100", NULL};
    kolo_process child;
    ASSERT_OK(kolo_process_start(&(kolo_process_opts){.argv = argv, .own_group = true}, &child));
    assert_int_equal(getpgid(child.pid), child.pid);
    kolo_exit how;
    assert_false(kolo_process_ended(&child));
    assert_int_equal(kolo_process_wait(&child, 0, &how), KOLO_ERR_TIMEOUT);
    assert_int_equal(kolo_process_wait(&child, 20, &how), KOLO_ERR_TIMEOUT);
    kolo_process_signal(&child, SIGTERM, true);
    ASSERT_OK(kolo_process_wait(&child, 20000, &how));
    assert_int_equal(how.signal, SIGTERM);
    assert_int_equal(kolo_process_wait(&child, 0, &how), KOLO_ERR_IO);
    kolo_process_fini(&child);
}

/* The path taken on kernels without pidfds. */
static void waiting_works_without_a_pidfd(void **state) {
    char *argv[] = {"sleep", "0.05", NULL};
    kolo_process child;
    ASSERT_OK(kolo_process_start(&(kolo_process_opts){.argv = argv}, &child));
    kolo_process_fini(&child);
    assert_int_equal(child.pidfd, -1);
    kolo_exit how;
    assert_int_equal(kolo_process_wait(&child, 1, &how), KOLO_ERR_TIMEOUT);
    ASSERT_OK(kolo_process_wait(&child, 20000, &how));
    assert_int_equal(how.code, 0);
}

static void signals_arrive_as_events_and_children_have_none_blocked(void **state) {
    const int wanted[] = {SIGUSR1, SIGTERM};
    kolo_signals events = {.fd = -1};
    kolo_signals_close(&events);
    ASSERT_OK(kolo_signals_open(wanted, 2, &events));
    assert_int_equal(kolo_signals_next(&events), 0);
    raise(SIGUSR1);
    struct pollfd ready = {.fd = events.fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 10000), 1);
    assert_int_equal(kolo_signals_next(&events), SIGUSR1);
    char out[64];
    run_shell("grep SigBlk /proc/self/status", (kolo_process_opts){0}, out, sizeof out);
    assert_string_equal(out, "SigBlk:\t0000000000000000\n");
    raise(SIGTERM); /* left pending: closing must discard it */
    kolo_signals_close(&events);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    assert_false(sigismember(&mask, SIGTERM));
}

static void at_least_one_processor(void **state) {
    assert_true(kolo_processors() >= 1);
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(kolo_processors(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* A descriptor that a launcher left open reaches the test, but no process that starts ranks: it
 * would keep the launcher's pipe open. */
static void a_starter_of_ranks_keeps_no_inherited_descriptor(void **state) {
    int inherited[2], gate[2];
    kolo_process child;
    kolo_exit how;
    assert_int_equal(pipe(inherited), 0); /* without close-on-exec */
    ASSERT_OK(kolo_pipe(gate));
    const kolo_process_opts opts = {.env = environ};
    rank_starter_start(0, &opts, gate[0], &child);
    close(inherited[1]);
    struct pollfd ended = {.fd = inherited[0], .events = POLLIN};
    assert_int_equal(poll(&ended, 1, 2000), 1);
    assert_true(ended.revents & POLLHUP);
    kolo_process_signal(&child, SIGKILL, false);
    ASSERT_OK(rank_starter_wait(0, &child, 20000, &how));
    kolo_process_fini(&child);
    close(gate[0]);
    close(gate[1]);
    close(inherited[0]);
}

TEST_MAIN(test_process) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_and_signal_are_distinguished),
        cmocka_unit_test(a_missing_program_is_named),
        cmocka_unit_test(children_inherit_given_descriptors_only),
        cmocka_unit_test(environments_are_copied_changed_and_passed),
        cmocka_unit_test(waiting_has_a_deadline),
        cmocka_unit_test(waiting_works_without_a_pidfd),
        cmocka_unit_test(signals_arrive_as_events_and_children_have_none_blocked),
        cmocka_unit_test(at_least_one_processor),
        cmocka_unit_test(a_starter_of_ranks_keeps_no_inherited_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
