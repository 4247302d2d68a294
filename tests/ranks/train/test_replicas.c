/* Replicas that differ are found, and the rank and the tensor are named on all ranks alike. */
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/replicas.h"
#include "train/session/session.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 4 };

typedef struct damage {
    int ranks, rank, second; /* ranks with another bit; -1: none */
    const char *tensor;
    const char *error; /* NULL: none */
} damage;

typedef struct outcome {
    kolo_status status;
    char error[640];
} outcome;

static void flip(const kolo_store *store, const char *tensor, int byte) {
    char *data = kolo_store_data(store, kolo_store_find(store, tensor));
    data[byte] ^= 1;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const damage *d = arg;
    outcome *o = result;
    kolo_session *session;
    int rank = kolo_comm_rank(comm);
    kolo_session_config opts = {.model = "mlp",
                                .model_options = "hidden=4",
                                .sample = {3, {1, 4, 4}},
                                .classes = 3,
                                .batch = 2,
                                .plan = {.optimizer.momentum = 0.9}};
    KOLO_TRY(kolo_session_create_for(&opts, comm, &session));
    kolo_status status = kolo_session_init(session, 1);
    const kolo_store *store = kolo_session_store(session);
    if (status == KOLO_OK) {
        if (rank == d->rank) flip(store, d->tensor, 0);
        if (rank == d->second) flip(store, d->tensor, 5);
        o->status = kolo_compare_replicas(comm, store, false, "after step 40");
        if (o->status != KOLO_OK) snprintf(o->error, sizeof o->error, "%s", kolo_last_error());
    }
    kolo_session_destroy(session);
    return status;
}

static void a_rank_that_differs_is_named(void **state) {
    static const char weight[] = "fc1.weight", velocity[] = "optimizer.velocity.fc2.weight";
    static const damage all[] = {
        {1, 0, -1, weight, NULL},
        {2, -1, -1, weight, NULL},
        {4, -1, -1, weight, NULL},
        {3, 2, -1, weight,
         "after step 40 rank 2 has other parameters than most ranks, first in fc1"},
        {3, 0, -1, velocity, "rank 0 has other parameters than most ranks, first in optimizer.vel"},
        {4, 1, 3, weight, "rank 0 and rank 1 differ first in fc1.weight"},
        {2, 1, -1, weight, "rank 0 and rank 1 differ first in fc1.weight"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        outcome outcomes[MAX_RANKS] = {0};
        ASSERT_OK(run_rank_job(&(rank_job){.n = all[i].ranks,
                                           .transport = RANKS_THREAD,
                                           .body = body,
                                           .arg = &all[i],
                                           .arg_bytes = sizeof all[i],
                                           .results = outcomes,
                                           .result_bytes = sizeof *outcomes}));
        for (int r = 0; r < all[i].ranks; r++) {
            assert_int_equal(outcomes[r].status, all[i].error ? KOLO_ERR_PEER : KOLO_OK);
            bool named = !all[i].error || strstr(outcomes[r].error, all[i].error);
            if (!named) fail_msg("row %zu, rank %d: %s", i, r, outcomes[r].error);
            assert_string_equal(outcomes[r].error, outcomes[0].error);
        }
    }
}

TEST_MAIN(test_replicas) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_differs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
