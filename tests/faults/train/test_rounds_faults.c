/* A rank that dies while a fragment is exchanged: the other ranks end with its number in the step
 * that notices, whether it has started the exchange or not, and no anchor changes. */
#include "base/rng.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 3, VICTIM = 1, SIDE = 8, CLASSES = 4, TIMEOUT_MS = 30000 };

/* The first fragment is cut after step 4 and updated after step 7, the second one after 2 and 5. */
static const char policy[] = "diloco:4,fragments=2,overlap=3";

typedef struct outcome {
    int64_t steps;          /* completed */
    uint64_t before, after; /* of the anchors: before the step that failed, behind it */
} outcome;

static uint64_t hash_anchors(const kolo_store *store) {
    static const char prefix[] = "optimizer.anchor.";
    uint64_t hash = 0;
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (strncmp(entry->name, prefix, sizeof prefix - 1) != 0) continue;
        const uint64_t both[] = {
            hash, kolo_hash_bytes(kolo_store_data(store, entry), kolo_store_entry_bytes(entry))};
        hash = kolo_hash_bytes(both, sizeof both);
    }
    return hash;
}

/* `last`: the steps that the victim completes. */
static kolo_status train(kolo_comm *comm, int64_t last, kolo_session *session, outcome *result) {
    static const kolo_field fields[] = {
        {"x", KOLO_DTYPE_U8, {3, {1, SIDE, SIDE}}, .std = {0.5F}},
        {"y", KOLO_DTYPE_I32, {0}, .mean = {0}},
    };
    const int rank = kolo_comm_rank(comm);
    KOLO_TRY(kolo_session_init(session, 5));
    KOLO_TRY(kolo_barrier(comm));
    for (;;) {
        uint8_t sample[SIDE * SIDE] = {(uint8_t)result->steps, (uint8_t)rank};
        const int32_t label = rank;
        const kolo_batch batch = {.count = 1,
                                  .first = rank,
                                  .global_count = RANKS,
                                  .n_fields = 2,
                                  .fields = fields,
                                  .data = {sample, &label}};
        kolo_sums sums;
        if (rank == VICTIM && result->steps == last) raise(SIGKILL);
        result->before = hash_anchors(kolo_session_store(session));
        const kolo_status status = kolo_session_step_batch(session, &batch, 0.05, &sums);
        result->after = hash_anchors(kolo_session_store(session));
        if (status != KOLO_OK) return status;
        result->steps++;
    }
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const int64_t *last = arg;
    kolo_session_config opts = {.model = "mlp",
                                .model_options = "hidden=16",
                                .sample = kolo_shape_3(1, SIDE, SIDE),
                                .classes = CLASSES,
                                .batch = 1};
    kolo_session *session;
    KOLO_TRY(kolo_consistency_parse(policy, RANKS, &opts.consistency));
    KOLO_TRY(kolo_session_create_for(&opts, comm, &session));
    const kolo_status status = train(comm, *last, session, result);
    kolo_session_destroy(session);
    return status;
}

/* After 4 steps the victim has not started the exchange of the first fragment, after 5 and 6 it
 * has; in the seventh step the others need its sums. */
static void survivors_name_it_and_keep_the_anchors(void **state) {
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (int i = 0; i < 2; i++) {
        for (int64_t last = 4; last <= 6; last++) {
            outcome results[RANKS];
            rank_outcome outcomes[RANKS];
            rank_job job = {
                .n = RANKS,
                .transport = transports[i],
                .body = body,
                .arg = &last,
                .arg_bytes = sizeof last,
                .outcomes = outcomes,
                .results = results,
                .result_bytes = sizeof *results,
                .timeout_ms = TIMEOUT_MS,
            };
            assert_int_not_equal(run_rank_job(&job), KOLO_OK);
            assert_int_equal(outcomes[VICTIM].signal, SIGKILL);
            for (int r = 0; r < RANKS; r++) {
                const rank_outcome *o = &outcomes[r];
                if (r == VICTIM) continue;
                if (o->status != KOLO_ERR_PEER || !strstr(o->error, "rank 1 is gone (")) {
                    fail_msg("rank %d: status %d: %s", r, (int)o->status, o->error);
                }
                /* A rank may still be in the step that the victim has finished. */
                assert_in_range(results[r].steps, last - 1, last);
                assert_true(results[r].before != 0 && results[r].after == results[r].before);
            }
        }
    }
}

TEST_MAIN(test_rounds_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_name_it_and_keep_the_anchors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
