/* Processes that join a run, by the command: they take leases like another worker, and may be
 * killed. Each sample of an epoch is used once. */
#include "kolo/data.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

/* Starts a run of two workers and servers, waits until it can be joined, does `then` in a shell,
 * and waits for the run. True if both succeed. */
static bool run_for(const char *policy, const char *servers, const char *length, const char *then) {
    char script[2048];
    const int n = snprintf(
        script, sizeof script,
        "(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' >secret)\n"
        "export KOLO_SECRET_FILE=$PWD/secret\n"
        "kolo='%s train --progress none --threads 1'\n"
        "$kolo --workers 2 --sync ps --servers %s --consistency %s --joins 2 --model mlp --out run "
        "--data synthetic:N=1601,test=10,shape=1x8x8,seed=2 --batch 2 %s --lr 0.001 "
        "--ledger ledger --no-recipe >out 2>&1 & job=$!\n"
        "for i in $(seq 600); do [ -e run/join ] && break; sleep 0.02; done\n"
        "join=\"$kolo --config run/config.yaml --join run\"\n"
        "%s\n"
        "then=$?\n"
        "wait $job && [ $then = 0 ]",
        KOLO_COMMAND, servers, policy, length, then);
    assert_true(n > 0 && (size_t)n < sizeof script);
    const bool good = system(script) == 0;
    if (!good) (void)system("tail -n 5 out joined 2>&1");
    return good;
}

/* Long enough for those who join, also where all are slow. */
#if TEST_FEWER(1, 0)
#define EPOCHS "5"
#else
#define EPOCHS "10"
#endif

static const char all_epochs[] = "--epochs " EPOCHS " --eval-every 1 --checkpoint-every 900";

static bool run(const char *policy, const char *then) {
    return run_for(policy, "1", all_epochs, then);
}

static void assert_exact(void) {
    bool exact;
    char *text;
    ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
    if (!exact || !strstr(text, "epoch " EPOCHS ": 1601 samples, each once")) fail_msg("%s", text);
    kolo_ledger_text_free(text);
    assert_int_equal(system("[ ! -e run/join ] && rm -r run ledger.* secret out joined"), 0);
}

static void a_process_joins(void **state) {
    static const char *const policies[] = {"asp,lease=1", "ssp:2,lease=1"};
    for (size_t i = 0; i < 2; i++) {
        assert_true(run(policies[i], "$join --json joined >/dev/null 2>&1 && "
                                     "grep -q '\"samples\": [1-9]' joined"));
        assert_int_equal(system("[ $(wc -l <ledger.2) -gt 20 ] && [ $(wc -l <ledger.3) = 2 ]"), 0);
        assert_exact();
    }
}

/* One is killed, after which another one joins; a third has no place. */
static void those_who_join_may_be_killed(void **state) {
    assert_true(run("asp,lease=1",
                    "$join >joined 2>&1 & p=$!\n"
                    "for i in $(seq 200); do [ $(wc -l <ledger.2) -gt 9 ] && break; "
                    "sleep 0.01; done\n"
                    "kill -9 $p; wait $p\n"
                    "$join >joined 2>&1 & p=$!\n"
                    "for i in $(seq 200); do [ $(wc -l <ledger.3) -gt 9 ] && break; "
                    "sleep 0.01; done\n"
                    "$join 2>&1 | grep -q 'as many processes have joined as may (joins); "
                    "those that have ended count, too' && wait $p"));
    assert_int_equal(system("grep -q 'worker 2 died after' out"), 0);
    assert_exact();
}

/* Kills the first of the servers, which is rank 2. */
#define KILL_SERVER                                       \
    "for c in $(cat /proc/$job/task/$job/children); do\n" \
    "tr '\\0' '\\n' </proc/$c/environ | grep -qx RANK=2 && kill -9 $c; done\n"

/* Those who have joined go on without a server that is killed, as the workers do. */
static void a_server_may_be_killed(void **state) {
    assert_true(run_for("asp,lease=1", "2 --replicas 1", all_epochs,
                        "$join >joined 2>&1 & p=$!\n"
                        "for i in $(seq 200); do [ $(wc -l <ledger.2) -gt 9 ] && break; "
                        "sleep 0.01; done\n" KILL_SERVER "wait $p"));
    assert_int_equal(system("[ $(wc -l <ledger.2) -gt 9 ]"), 0);
    assert_exact();
}

/* A process joins after the server is dead, once rank 0 has found that. */
static void a_process_joins_after_the_loss_of_a_server(void **state) {
    assert_true(run_for("asp,lease=1", "2 --replicas 1", all_epochs,
                        KILL_SERVER "for i in $(seq 600); do grep -q ' 0 - -' run/join && break; "
                                    "sleep 0.01; done\n"
                                    "$join >joined 2>&1"));
    assert_int_equal(system("[ $(wc -l <ledger.2) -gt 9 ]"), 0);
    assert_exact();
}

/* The file cannot be written once a server is dead: an error as of a checkpoint. */
static void an_invitation_may_stay_as_it_is(void **state) {
    static const char *const on_error[] = {"continue", "stop"};
    for (size_t i = 0; i < 2; i++) {
        char length[64];
        snprintf(length, sizeof length, "--epochs 5 --no-eval --on-save-error %s", on_error[i]);
        const bool good = run_for("asp,lease=1", "2 --replicas 1", length,
                                  "ranks=$(cat /proc/$job/task/$job/children)\n"
                                  "kill -STOP $ranks; rm run/join; mkdir run/join\n" KILL_SERVER
                                  "kill -CONT $ranks 2>/dev/null; touch joined");
        assert_int_equal(good, i == 0);
        assert_int_equal(system("grep -q 'cannot write run/join: Is a directory' out"), 0);
        assert_int_equal(system("rm -r run ledger.* secret out joined"), 0);
    }
}

static void another_secret_is_refused(void **state) {
    assert_true(run("asp,lease=1", "echo 0123456789abcdef0123456789abcdef >other; chmod 600 other\n"
                                   "! KOLO_SECRET_FILE=other $join --timeout 5 >joined 2>&1 && "
                                   "grep -q 'rank 2: it closed the connection without an answer: "
                                   "the secrets (KOLO_SECRET_FILE) differ' joined && "
                                   "! KOLO_SECRET_FILE= $join >>joined 2>&1 && rm other"));
    assert_exact();
}

/* One that cannot join within --timeout ends: here since all processes of the run are stopped. */
static void joining_ends_with_the_timeout(void **state) {
    assert_true(run("asp,lease=1", "ranks=$(cat /proc/$job/task/$job/children)\n"
                                   "kill -STOP $ranks\n"
                                   "timeout 10 $join --timeout 0.3 >joined 2>&1; ended=$?\n"
                                   "kill -CONT $ranks; [ $ended = 1 ]"));
    assert_exact();
}

/* One with other options is refused: its leases would be other samples, or it would evaluate at
 * other steps. Then one joins, and takes part in the agreement on the end of the run, which would
 * take minutes, long before the workers wait for each other. */
static void a_run_that_was_joined_is_preempted(void **state) {
    assert_true(run_for("asp,lease=1", "1", "--epochs 200 --eval-every 200",
                        "bad=\n"
                        "for o in '--seed 5' '--batch 3' '--eval-every 2' '--joins 1'; do\n"
                        "  $join $o >joined 2>&1 && bad=yes\n"
                        "  grep -q 'give the --config of the run' joined || bad=yes\n"
                        "done\n"
                        "$join >joined 2>&1 & p=$!\n"
                        "for i in $(seq 600); do [ $(wc -l <ledger.2) -gt 9 ] && break; "
                        "sleep 0.01; done\n"
                        "kill -TERM $job; wait $p && [ -z \"$bad\" ]"));
    assert_int_equal(system("grep -q preempted out && grep -q preempted joined && "
                            "! grep -q null joined && [ -e run/latest ] && [ ! -e run/join ] && "
                            "rm -r run ledger.* secret out joined"),
                     0);
}

TEST_MAIN(test_join) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_joins),
        cmocka_unit_test(those_who_join_may_be_killed),
        cmocka_unit_test(a_server_may_be_killed),
        cmocka_unit_test(a_process_joins_after_the_loss_of_a_server),
        cmocka_unit_test(an_invitation_may_stay_as_it_is),
        cmocka_unit_test(another_secret_is_refused),
        cmocka_unit_test(joining_ends_with_the_timeout),
        cmocka_unit_test(a_run_that_was_joined_is_preempted),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
