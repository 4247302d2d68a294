/* A rank that dies during training with row-sparse gradients: the other ranks, at any point of the
 * step, fail with an error that names it and keep the parameters and optimizer state from before
 * the step, including tables that are updated in place. */
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 3, VICTIM = 1, WINDOWS = 60, BATCH = 4, TIMEOUT_MS = 30000 };

typedef struct setting {
    kolo_optimizer optimizer;
    int64_t us; /* from its third step, after which the victim is killed; 0: before its fifth */
} setting;

typedef struct outcome {
    int64_t steps;          /* completed */
    uint64_t before, after; /* hashes of the store: before the step that failed, behind it */
} outcome;

static kolo_status train(kolo_comm *comm, const setting *s, kolo_session *session,
                         const kolo_dataset *set, outcome *result) {
    static int32_t samples[BATCH * 4], labels[BATCH * 4];
    bool victim = kolo_comm_rank(comm) == VICTIM;
    kolo_store *store = kolo_session_store(session);
    KOLO_TRY(kolo_session_init(session, 5));
    KOLO_TRY(kolo_barrier(comm));
    for (;;) {
        int64_t indices[BATCH];
        for (int i = 0; i < BATCH; i++) {
            indices[i] =
                (result->steps * BATCH * RANKS + kolo_comm_rank(comm) * BATCH + i) % WINDOWS;
        }
        KOLO_TRY(kolo_dataset_gather(set, indices, BATCH, (void *[]){samples, labels}));
        kolo_batch batch = {
            .count = BATCH,
            .first = kolo_comm_rank(comm) * BATCH,
            .global_count = BATCH * RANKS,
            .n_fields = 2,
            .fields = kolo_dataset_describe(set)->fields,
            .data = {samples, labels},
        };
        kolo_sums sums;
        if (victim && s->us && result->steps == 2) ranks_die_after(s->us);
        if (victim && !s->us && result->steps == 4) raise(SIGKILL);
        result->before = kolo_store_hash(store);
        kolo_status status = kolo_session_step_batch(session, &batch, 0.05, &sums);
        result->after = kolo_store_hash(store);
        if (status != KOLO_OK) return status;
        result->steps++;
    }
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const kolo_dataset_opts windows = {.context = 4, .vocabulary = 200};
    char data[48];
    kolo_dataset *set = NULL;
    kolo_session *session = NULL;
    kolo_status status;
    snprintf(data, sizeof data, "synthetic-tokens:N=%d,test=1", WINDOWS);
    KOLO_TRY_GOTO(kolo_dataset_open_for(data, KOLO_SPLIT_TRAIN, &windows, &set), done);
    kolo_session_config opts = {
        .model = "lstm_lm",
        .model_options = "layers=1,hidden=8",
        .sample = kolo_dataset_describe(set)->fields[0].shape,
        .label = kolo_dataset_describe(set)->fields[1].shape,
        .classes = kolo_dataset_describe(set)->classes,
        .batch = BATCH,
        .plan = {.optimizer.kind = s->optimizer, .sparse_embedding = true, .bucket_bytes = 1 << 10},
    };
    KOLO_TRY_GOTO(kolo_session_create_for(&opts, comm, &session), done);
    status = train(comm, s, session, set, result);
done:
    kolo_session_destroy(session);
    kolo_dataset_close(set);
    return status;
}

static void check_survivor(int rank, const rank_outcome *o, const outcome *result) {
    if (o->status != KOLO_ERR_PEER || !strstr(o->error, "rank 1 is gone (") ||
        strchr(o->error, '\n')) {
        fail_msg("rank %d: status %d, signal %d: %s", rank, (int)o->status, o->signal, o->error);
    }
    assert_true(result->before != 0);
    assert_true(result->after == result->before);
}

static void assert_nothing_left(void) {
    DIR *shared = opendir("/dev/shm");
    if (!shared) return;
    for (struct dirent *entry; (entry = readdir(shared));) {
        assert_null(strstr(entry->d_name, "kolo"));
    }
    closedir(shared);
}

static void survivors_name_it_and_keep_the_last_whole_step(void **state) {
    static const setting settings[] = {
        {KOLO_OPTIMIZER_SGD, 0},     {KOLO_OPTIMIZER_ADAM, 0},     {KOLO_OPTIMIZER_SGD, 1500},
        {KOLO_OPTIMIZER_ADAM, 4000}, {KOLO_OPTIMIZER_ADAM, 11000},
    };
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
            const setting *s = &settings[i];
            outcome results[RANKS];
            rank_outcome outcomes[RANKS];
            rank_job job = {
                .n = RANKS,
                .transport = transports[t],
                .body = body,
                .arg = s,
                .arg_bytes = sizeof *s,
                .outcomes = outcomes,
                .results = results,
                .result_bytes = sizeof *results,
                .timeout_ms = TIMEOUT_MS,
            };
            assert_int_not_equal(run_rank_job(&job), KOLO_OK);
            assert_int_equal(outcomes[VICTIM].signal, s->us ? SIGALRM : SIGKILL);
            for (int r = 0; r < RANKS; r++) {
                if (r != VICTIM) check_survivor(r, &outcomes[r], &results[r]);
            }
            /* A rank may still be in the step that the victim has finished. */
            if (!s->us) assert_in_range(results[0].steps, 3, 4);
            if (results[0].steps == results[2].steps) {
                assert_true(results[0].after == results[2].after);
            }
        }
    }
    assert_nothing_left();
}

TEST_MAIN(test_sparse_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_name_it_and_keep_the_last_whole_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
