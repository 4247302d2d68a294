/* A rank of a mesh that dies during training: all others, those of other groups too, end with an
 * error that names it, within the limits of data parallelism. */
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
    const char mesh[16];
    int victim;
    int64_t us; /* of training before it is killed */
} setting;

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const kolo_train_opts opts = {
        .model = "gpt2_tiny",
        .model_options = "layers=2,width=32,heads=4,context=16,vocab=50",
        .data = "synthetic-tokens:N=4000,test=1",
        .mesh = s->mesh,
        .batch = 4,
        .accumulate = 2,
        .lr = 0.01,
        .epochs = 100000,
        .no_eval = true,
    };
    kolo_train_result unused;
    if (kolo_comm_rank(comm) == s->victim) ranks_die_after(s->us);
    return kolo_train(comm, &opts, NULL, NULL, &unused);
}

static void survivors_name_the_rank(void **state) {
    static const setting settings[] = {
        {"dp=2,tp=2", 0, 400000}, {"dp=2,tp=2", 3, 430000}, {"tp=2,pp=2", 1, 450000},
        {"tp=4", 2, 410000},      {"dp=2,pp=2", 2, 440000}, {"pp=4", 3, 420000},
    };
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (size_t i = 0; i < KOLO_COUNT(settings) * KOLO_COUNT(transports); i++) {
        const setting *s = &settings[i / KOLO_COUNT(transports)];
        const rank_transport transport = transports[i % KOLO_COUNT(transports)];
        rank_outcome outcomes[RANKS];
        char name[32], plain[32];
        rank_job job = {
            .n = RANKS,
            .transport = transport,
            .body = body,
            .arg = s,
            .arg_bytes = sizeof *s,
            .outcomes = outcomes,
            .timeout_ms = 30000,
        };
        snprintf(name, sizeof name, "rank %d (", s->victim); /* its number in the sub-group */
        snprintf(plain, sizeof plain, "rank %d is", s->victim);
        assert_int_not_equal(run_rank_job(&job), KOLO_OK);
        assert_int_equal(outcomes[s->victim].signal, SIGALRM);
        for (int r = 0; r < RANKS; r++) {
            const rank_outcome *o = &outcomes[r];
            if (r == s->victim) continue;
            if (o->status == KOLO_ERR_PEER && strstr(o->error, "is gone") &&
                (strstr(o->error, name) || strstr(o->error, plain)))
                continue;
            fail_msg("%s, rank %d of transport %d: status %d, signal %d: %s", s->mesh, r,
                     (int)transport, (int)o->status, o->signal, o->error);
        }
    }
}

TEST_MAIN(test_mesh_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_name_the_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
