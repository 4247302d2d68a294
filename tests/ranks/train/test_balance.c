/* Shards follow the measured speeds of the ranks; dealing them anew between steps changes no bit.
 */
#include "data/prefetch.h"
#include "data/sampler.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/balance.h"
#include "train/session/session.h"

#include <string.h>

/* ---- decisions ---- */

enum { RANKS = 3, SHARDS = 18, DELAY = 4 };

typedef struct speeds {
    double ns_per_shard[2][RANKS]; /* until step `turn` and from it on */
    int64_t turn, steps;
} speeds;

typedef struct dealt {
    int counts[RANKS];
    int changes;
    int64_t first_from;
} dealt;

static kolo_status balance_body(kolo_comm *comm, const void *arg, void *result) {
    const speeds *s = arg;
    dealt *d = result;
    int rank = kolo_comm_rank(comm), counts[RANKS] = {6, 6, 6}, now = counts[rank];
    int64_t due = INT64_MAX, from;
    kolo_balance *balance;
    KOLO_TRY(kolo_balance_create(comm, SHARDS, counts, DELAY, &balance));
    kolo_status status = KOLO_OK;
    for (int64_t k = 10; k < 10 + s->steps && status == KOLO_OK; k++) {
        if (k == due) now = kolo_balance_counts(balance)[rank];
        double ns = s->ns_per_shard[k >= s->turn][rank] * now;
        status = kolo_balance_add(balance, k, (int64_t)ns, &from);
        if (from == 0) continue;
        if (d->changes++ == 0) d->first_from = from;
        due = from;
    }
    memcpy(d->counts, kolo_balance_counts(balance), sizeof d->counts);
    kolo_balance_destroy(balance);
    return status;
}

static void shards_follow_the_measured_speeds(void **state) {
    static const struct {
        speeds speeds;
        dealt want;
    } runs[] = {
        {{{{1e6, 1e6, 1e6}, {0}}, 1000, 60}, {{6, 6, 6}, 0, 0}},
        {{{{1e6, 1.02e6, 0.99e6}, {0}}, 1000, 60}, {{6, 6, 6}, 0, 0}}, /* not worth a change */
        {{{{1e6, 1e6, 4e6}, {0}}, 1000, 60}, {{8, 8, 2}, 1, 18}},
        {{{{1e6, 1e6, 4e6}, {1e6, 1e6, 1e6}}, 30, 80}, {{6, 6, 6}, 2, 18}}, /* it recovers */
        {{{{1e6, 1e6, 900e6}, {0}}, 1000, 80}, {{9, 9, 0}, 1, 18}},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        dealt outcomes[RANKS];
        ASSERT_OK(run_rank_job(&(rank_job){.n = RANKS,
                                           .transport = RANKS_THREAD,
                                           .body = balance_body,
                                           .arg = &runs[i].speeds,
                                           .arg_bytes = sizeof runs[i].speeds,
                                           .results = outcomes,
                                           .result_bytes = sizeof *outcomes}));
        for (int r = 0; r < RANKS; r++) {
            assert_memory_equal(&outcomes[r], &outcomes[0], sizeof *outcomes);
            if (memcmp(outcomes[r].counts, runs[i].want.counts, sizeof runs[i].want.counts) != 0) {
                fail_msg("run %zu: %d %d %d", i, outcomes[r].counts[0], outcomes[r].counts[1],
                         outcomes[r].counts[2]);
            }
            assert_int_equal(outcomes[r].changes, runs[i].want.changes);
            assert_int_equal(outcomes[r].first_from, runs[i].want.first_from);
        }
    }
}

/* ---- steps ---- */

enum { STEPS = 9, BATCH = 16, L = 8 };

/* The shards of each rank in the steps of a deal, which lasts three steps. */
typedef struct deals {
    int ranks, counts[3][RANKS];
} deals;

static kolo_status take_steps(kolo_session *session, const kolo_dataset *data, const deals *d,
                              int rank) {
    KOLO_TRY(kolo_session_init(session, 3));
    for (int k = 0; k < STEPS; k++) {
        int first, end;
        if (k % 3 == 0) KOLO_TRY(kolo_session_deal(session, d->counts[k / 3]));
        kolo_session_shards(session, rank, &first, &end);
        if (end - first != d->counts[k / 3][rank]) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "shards %d to %d", first, end);
        }
        kolo_loader_opts opts = {.dataset = data,
                                 .global_batch = BATCH,
                                 .shards = L,
                                 .first_shard = first,
                                 .end_shard = end,
                                 .first = k,
                                 .end = k + 1};
        kolo_loader *loader;
        kolo_batch batch;
        kolo_sums sums;
        KOLO_TRY(kolo_loader_create(&opts, &loader));
        kolo_status status = kolo_loader_next(loader, &batch);
        if (status == KOLO_OK) status = kolo_session_step_batch(session, &batch, 0.05, &sums);
        kolo_loader_destroy(loader);
        KOLO_TRY(status);
    }
    return KOLO_OK;
}

static kolo_status steps_body(kolo_comm *comm, const void *arg, void *result) {
    const deals *d = arg;
    kolo_dataset *data;
    kolo_session *session = NULL;
    KOLO_TRY(kolo_dataset_open("synthetic:N=45,test=1,shape=1x14x14", KOLO_SPLIT_TRAIN, &data));
    kolo_session_config opts = {.model = "mlp",
                                .model_options = "hidden=16",
                                .sample = kolo_dataset_describe(data)->fields[KOLO_FIELD_X].shape,
                                .classes = kolo_dataset_describe(data)->classes,
                                .batch = BATCH / L,
                                .global_batch = BATCH,
                                .shards = L,
                                .short_shard = 45 % BATCH % (BATCH / L),
                                .plan = {.optimizer.momentum = 0.9, .bucket_bytes = 4 << 10}};
    kolo_status status = kolo_session_create_for(&opts, comm, &session);
    if (status == KOLO_OK) status = take_steps(session, data, d, kolo_comm_rank(comm));
    if (status == KOLO_OK) *(uint64_t *)result = kolo_store_hash(kolo_session_store(session));
    kolo_session_destroy(session);
    kolo_dataset_close(data);
    return status;
}

static void a_new_deal_changes_no_bit(void **state) {
    static const deals runs[] = {
        {1, {{8}, {8}, {8}}},
        {2, {{4, 4}, {1, 7}, {8, 0}}},
        {3, {{3, 3, 2}, {0, 5, 3}, {1, 0, 7}}},
    };
    uint64_t alone = 0;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        uint64_t hashes[RANKS] = {0};
        ASSERT_OK(run_rank_job(&(rank_job){.n = runs[i].ranks,
                                           .transport = RANKS_THREAD,
                                           .body = steps_body,
                                           .arg = &runs[i],
                                           .arg_bytes = sizeof runs[i],
                                           .results = hashes,
                                           .result_bytes = sizeof *hashes}));
        if (i == 0) alone = hashes[0];
        for (int r = 0; r < runs[i].ranks; r++) assert_int_equal(hashes[r], alone);
    }
}

TEST_MAIN(test_balance) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_follow_the_measured_speeds),
        cmocka_unit_test(a_new_deal_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
