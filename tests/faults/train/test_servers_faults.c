/* A worker or a server that dies during training with parameter servers: the job ends on all other
 * ranks, each of which states a rank that is gone, and within the limits of data parallelism. */
#include "base/clock.h"
#include "base/compiler.h"
#include "kolo/train.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4 };

typedef struct setting {
    char policy[8];
    int servers, victim;
    rank_transport transport;
    int64_t us; /* of training before it is killed */
} setting;

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const kolo_train_opts opts = {
        .model = "mlp",
        .data = "synthetic:N=400,test=40,shape=1x8x8,seed=2",
        .sync = KOLO_SYNC_PS,
        .servers = s->servers,
        .consistency = s->policy,
        .batch = 4,
        .lr = 0.01,
        .epochs = 100000,
        .eval_every = 3,
    };
    kolo_train_result unused;
    if (kolo_comm_rank(comm) == s->victim) ranks_die_after(s->us);
    return kolo_train(comm, &opts, NULL, NULL, &unused);
}

static void survivors_end_and_name_it(void **state) {
    static const setting settings[] = {
        {"bsp", 0, 1, RANKS_SHM, 300000}, {"bsp", 1, 0, RANKS_TCP, 350000},
        {"bsp", 2, 3, RANKS_SHM, 330000}, {"ssp:2", 1, 2, RANKS_SHM, 320000},
        {"asp", 2, 2, RANKS_TCP, 310000}, {"asp", 0, 3, RANKS_SHM, 340000},
    };
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
        const setting *s = &settings[i];
        rank_outcome outcomes[RANKS];
        rank_job job = {
            .n = RANKS,
            .transport = s->transport,
            .body = body,
            .arg = s,
            .arg_bytes = sizeof *s,
            .outcomes = outcomes,
            .timeout_ms = 30000,
        };
        char name[32], worker[32];
        int named = 0;
        snprintf(name, sizeof name, "rank %d", s->victim);
        snprintf(worker, sizeof worker, "worker %d", s->victim);
        assert_int_not_equal(run_rank_job(&job), KOLO_OK);
        assert_int_equal(outcomes[s->victim].signal, SIGALRM);
        for (int r = 0; r < RANKS; r++) {
            const rank_outcome *o = &outcomes[r];
            if (r == s->victim) continue;
            const bool names = strstr(o->error, "rank ") || strstr(o->error, "worker ");
            if (o->status != KOLO_ERR_PEER || !names) {
                fail_msg("%s, %d servers, victim %d, rank %d: status %d, signal %d: %s", s->policy,
                         s->servers, s->victim, r, (int)o->status, o->signal, o->error);
            }
            named += strstr(o->error, name) || strstr(o->error, worker);
        }
        assert_true(named > 0);
    }
}

TEST_MAIN(test_servers_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_end_and_name_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
