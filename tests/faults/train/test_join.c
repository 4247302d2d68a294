/* Processes that join a run, by the command: they take leases like another worker, and may be
 * killed. Each sample of an epoch is used once. */
#include "kolo/data.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

/* Starts a run of two workers and a server, waits until it can be joined, does `then` in a shell,
 * and waits for the run. True if both succeed. */
static bool run(const char *policy, const char *then) {
    char script[2048];
    const int n = snprintf(
        script, sizeof script,
        "(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' >secret)\n"
        "export KOLO_SECRET_FILE=$PWD/secret\n"
        "kolo='%s train --progress none --threads 1'\n"
        "$kolo --workers 2 --sync ps --servers 1 --consistency %s --joins 2 --model mlp --out run "
        "--data synthetic:N=1601,test=10,shape=1x8x8,seed=2 --batch 2 --epochs 10 --lr 0.001 "
        "--eval-every 1 --ledger ledger --checkpoint-every 900 --no-recipe >out 2>&1 & job=$!\n"
        "for i in $(seq 600); do [ -e run/join ] && break; sleep 0.02; done\n"
        "join=\"$kolo --config run/config.yaml --join run\"\n"
        "%s\n"
        "then=$?\n"
        "wait $job && [ $then = 0 ]",
        KOLO_COMMAND, policy, then);
    assert_true(n > 0 && (size_t)n < sizeof script);
    const bool good = system(script) == 0;
    if (!good) (void)system("tail -n 5 out joined 2>&1");
    return good;
}

static void assert_exact(void) {
    bool exact;
    char *text;
    ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
    if (!exact || !strstr(text, "epoch 10: 1601 samples, each once")) fail_msg("%s", text);
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
                    "$join 2>&1 | grep -q 'as many processes have joined' && wait $p"));
    assert_int_equal(system("grep -q 'worker 2 died after' out"), 0);
    assert_exact();
}

static void another_secret_is_refused(void **state) {
    assert_true(run("asp,lease=1", "echo 0123456789abcdef0123456789abcdef >other; chmod 600 other\n"
                                   "! KOLO_SECRET_FILE=other $join --timeout 5 >joined 2>&1 && "
                                   "! KOLO_SECRET_FILE= $join >>joined 2>&1 && rm other"));
    assert_exact();
}

TEST_MAIN(test_join) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_joins),
        cmocka_unit_test(those_who_join_may_be_killed),
        cmocka_unit_test(another_secret_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
