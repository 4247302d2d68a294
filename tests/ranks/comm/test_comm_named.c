/* Named tensors: any order, fusing, the cost of agreeing once names are known, differences and
 * tensors that never come. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/engine/watch.h"
#include "comm/sync/named_names.h"
#include "kolo/named.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 40, STEPS = 6, COUNT_MOST = 3000, TIMEOUT_MS = 1500 };

/* Tensor i of a step, the same on all ranks. */
static size_t count_of(int i) { return (size_t)i * 71 % COUNT_MOST; }
static kolo_dtype dtype_of(int i) { return i % 5 == 0 ? KOLO_DTYPE_F64 : KOLO_DTYPE_F32; }
static kolo_reduce_op op_of(int i) { return i % 7 == 0 ? KOLO_MAX : KOLO_SUM; }
static double value_of(int i, int step, int rank, size_t k) {
    return (double)(i + step * 3 + rank * 5) + (double)(k % 11);
}

static double want_of(int i, int step, int size, size_t k) {
    double sum = 0, most = 0;
    for (int r = 0; r < size; r++) {
        double v = value_of(i, step, r, k);
        sum += v;
        most = v > most ? v : most;
    }
    return op_of(i) == KOLO_MAX ? most : sum;
}

static double get(const void *data, kolo_dtype dtype, size_t k) {
    return dtype == KOLO_DTYPE_F64 ? ((const double *)data)[k] : (double)((const float *)data)[k];
}

static void set(void *data, kolo_dtype dtype, size_t k, double v) {
    if (dtype == KOLO_DTYPE_F64) {
        ((double *)data)[k] = v;
    } else {
        ((float *)data)[k] = (float)v;
    }
}

/* A permutation of its own for each rank and step. */
static void shuffle(int order[TENSORS], int rank, int step) {
    kolo_rng rng = kolo_rng_make(3, KOLO_RNG_TEST, (uint64_t)(rank * 100 + step));
    for (int i = 0; i < TENSORS; i++) order[i] = i;
    for (int i = TENSORS - 1; i > 0; i--) {
        int k = (int)kolo_rng_below(&rng, (uint64_t)i, (uint64_t)i + 1), other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
}

typedef struct named_case {
    kolo_named_opts opts;
    bool one_by_one; /* waits for each tensor before the next, in one order */
} named_case;

static kolo_status check_step(kolo_comm *comm, double (*data)[COUNT_MOST], int step) {
    for (int i = 0; i < TENSORS; i++) {
        for (size_t k = 0; k < count_of(i); k++) {
            double want = want_of(i, step, kolo_comm_size(comm), k);
            if (get(data[i], dtype_of(i), k) == want) continue;
            return KOLO_FAIL(KOLO_ERR_FORMAT, "step %d, tensor %d, element %zu: %g, not %g", step,
                             i, k, get(data[i], dtype_of(i), k), want);
        }
    }
    return KOLO_OK;
}

static kolo_status run_step(kolo_comm *comm, kolo_named *named, const named_case *c,
                            double (*data)[COUNT_MOST], int step) {
    int order[TENSORS], handle;
    int rank = kolo_comm_rank(comm);
    shuffle(order, c->one_by_one ? 0 : rank, step);
    for (int n = 0; n < TENSORS; n++) {
        int i = order[n];
        char name[24];
        snprintf(name, sizeof name, "tensor %d", i);
        for (size_t k = 0; k < count_of(i); k++) {
            set(data[i], dtype_of(i), k, value_of(i, step, rank, k));
        }
        KOLO_TRY(
            kolo_named_post(named, name, data[i], count_of(i), dtype_of(i), op_of(i), &handle));
        if (c->one_by_one) KOLO_TRY(kolo_named_wait(named, handle, 0));
    }
    return kolo_named_wait_all(named, 0);
}

static kolo_status any_order_body(kolo_comm *comm, const void *arg, void *result) {
    const named_case *c = arg;
    double(*data)[COUNT_MOST] = kolo_alloc(TENSORS * sizeof *data);
    kolo_named *named = NULL;
    kolo_status status = data ? KOLO_OK : KOLO_NOMEM(TENSORS * sizeof *data);
    if (status == KOLO_OK) status = kolo_named_create(comm, &c->opts, &named);
    for (int step = 0; step < STEPS && status == KOLO_OK; step++) {
        status = run_step(comm, named, c, data, step);
        if (status == KOLO_OK) status = check_step(comm, data, step);
        if (status == KOLO_OK) status = kolo_barrier(comm); /* between steps others may come */
    }
    if (status == KOLO_OK) *(kolo_named_counts *)result = kolo_named_count(named);
    kolo_named_destroy(named);
    kolo_free(data);
    return status;
}

static void tensors_are_reduced_in_any_order(void **state) {
    static const named_case cases[] = {
        {.opts = {0}},
        {.opts = {.fusion_bytes = 1}},
        {.opts = {.fusion_bytes = 20000, .cycle_us = 1}},
        {.opts = {0}, .one_by_one = true},
    };
    static const int sizes[] = {1, 2, 3, 5};
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        for (size_t s = 0; s < KOLO_COUNT(sizes); s++) {
            if (c > 0 && sizes[s] != 3 && !getenv("KOLO_SOAK")) continue;
            for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
                if (!ranks_have((rank_transport)t)) continue;
                const bool usual = TEST_FEWER(sizes[s] == 2 || sizes[s] == 3, true);
                if (t > RANKS_THREAD && !usual) continue; /* processes */
                kolo_named_counts counts[8];
                rank_job job = {.n = sizes[s],
                                .transport = (rank_transport)t,
                                .body = any_order_body,
                                .arg = &cases[c],
                                .arg_bytes = sizeof cases[c],
                                .results = counts,
                                .result_bytes = sizeof counts[0]};
                ASSERT_OK(run_rank_job(&job));
                for (int r = 0; r < sizes[s]; r++) {
                    assert_int_equal(counts[r].tensors, TENSORS * STEPS);
                    assert_int_equal(counts[r].names, TENSORS);
                    assert_int_equal(counts[r].reductions, counts[0].reductions);
                    assert_int_equal(counts[r].agreements, counts[0].agreements);
                }
                bool alone = cases[c].opts.fusion_bytes == 1 || cases[c].one_by_one;
                if (alone) assert_int_equal(counts[0].reductions, TENSORS * STEPS);
                if (!alone && sizes[s] > 1) assert_true(counts[0].reductions < TENSORS * STEPS);
            }
        }
    }
}

/* ---- what goes wrong ---- */

static kolo_status differ_body(kolo_comm *comm, const void *arg, void *result) {
    bool late = *(const bool *)arg;
    float x[100] = {0};
    kolo_named *named;
    int rank = kolo_comm_rank(comm), handle;
    KOLO_TRY(kolo_named_create(comm, NULL, &named));
    kolo_status status = KOLO_OK;
    if (late) { /* the name is known already, as something else */
        status = kolo_named_post(named, "w", x, 100, KOLO_DTYPE_F32, KOLO_SUM, &handle);
        if (status == KOLO_OK) status = kolo_named_wait(named, handle, 0);
    }
    size_t count = rank == 1 ? 90 : 100;
    if (status == KOLO_OK) {
        status = kolo_named_post(named, "w", x, count, KOLO_DTYPE_F32, KOLO_SUM, &handle);
    }
    if (status == KOLO_OK) status = kolo_named_wait(named, handle, 0);
    kolo_named_destroy(named);
    return status;
}

static void a_difference_is_an_error_on_all_ranks_that_shows_both_sides(void **state) {
    for (int late = 0; late < 2; late++) {
        for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
            if (!ranks_have((rank_transport)t)) continue;
            rank_outcome outcomes[3];
            bool arg = late;
            rank_job job = {.n = 3,
                            .transport = (rank_transport)t,
                            .body = differ_body,
                            .arg = &arg,
                            .arg_bytes = sizeof arg,
                            .outcomes = outcomes};
            assert_int_equal(run_rank_job(&job), KOLO_ERR_ARG);
            for (int r = 0; r < 3; r++) {
                assert_int_equal(outcomes[r].status, KOLO_ERR_ARG);
                if (!strstr(outcomes[r].error, "tensor 'w': rank 0 posted (100 x f32, sum), rank 1 "
                                               "posts (90 x f32, sum)")) {
                    fail_msg("rank %d: %s", r, outcomes[r].error);
                }
            }
        }
    }
}

typedef struct stall_note {
    int times;
    char text[300];
} stall_note;

static void note_stall(void *arg, const char *text) {
    stall_note *note = arg;
    note->times++;
    snprintf(note->text, sizeof note->text, "%s", text);
}

/* Rank 1 posts something else than the others, or nothing and sleeps. */
static kolo_status stall_body(kolo_comm *comm, const void *arg, void *result) {
    bool silent = *(const bool *)arg;
    float x[4] = {0}, y[4] = {0};
    kolo_named *named;
    int rank = kolo_comm_rank(comm), handle;
    kolo_named_opts opts = {.stall_ms = TIMEOUT_MS / 2, .on_stall = note_stall, .arg = result};
    KOLO_TRY(kolo_named_create(comm, &opts, &named));
    kolo_status status = kolo_named_post(named, "both", x, 4, KOLO_DTYPE_F32, KOLO_SUM, &handle);
    if (status == KOLO_OK) status = kolo_named_wait(named, handle, 0);
    ((stall_note *)result)->times = 0; /* on a busy machine the first wait may stall too */
    while (rank == 1 && silent && status == KOLO_OK) { /* until the others give up */
        status = kolo_comm_watch(comm);
        kolo_sleep_ns(5000000);
    }
    if (status == KOLO_OK) {
        status = kolo_named_post(named, rank == 1 ? "right" : "left", y, 4, KOLO_DTYPE_F32,
                                 KOLO_SUM, &handle);
    }
    if (status == KOLO_OK) status = kolo_named_wait(named, handle, 0);
    kolo_named_destroy(named);
    return status;
}

static void a_stall_names_who_has_not_posted_what(void **state) {
    for (int silent = 0; silent < 2; silent++) {
        for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
            if (!ranks_have((rank_transport)t)) continue;
            if (silent != t % 2 && !getenv("KOLO_SOAK")) continue; /* the two in turn */
            rank_outcome outcomes[3];
            stall_note notes[3];
            bool arg = silent;
            rank_job job = {.n = 3,
                            .transport = (rank_transport)t,
                            .body = stall_body,
                            .arg = &arg,
                            .arg_bytes = sizeof arg,
                            .outcomes = outcomes,
                            .results = notes,
                            .result_bytes = sizeof notes[0],
                            .timeout_ms = TIMEOUT_MS};
            const char *why = silent ? "tensor 'left' (4 x f32, sum): not posted by rank 1, which "
                                       "has posted no other tensor either"
                                     : "tensor 'left' (4 x f32, sum): not posted by rank 1 (but "
                                       "'right')";
            assert_int_equal(run_rank_job(&job), KOLO_ERR_TIMEOUT);
            for (int r = 0; r < 3; r++) {
                assert_int_equal(outcomes[r].status, KOLO_ERR_TIMEOUT);
                if (r == 1) continue;
                assert_int_equal(notes[r].times, 1);
                assert_string_equal(notes[r].text, why);
            }
            /* The rank that timed out first: its text is that of all. */
            const char *other = "tensor 'right' (4 x f32, sum): not posted by rank 0 (but 'left'), "
                                "2 (but 'left')";
            bool reported = strstr(outcomes[0].error, why) || strstr(outcomes[0].error, other);
            if (!reported) fail_msg("%s", outcomes[0].error);
        }
    }
}

static kolo_status wrong_use_body(kolo_comm *comm, const void *arg, void *result) {
    float x[4] = {0};
    kolo_named *named;
    int handle, *right = result;
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    kolo_named_opts wrong = {.cycle_us = -1};
    right[0] = kolo_named_create(comm, &wrong, &named) == KOLO_ERR_ARG;
    KOLO_TRY(kolo_named_create(comm, NULL, &named));
    right[1] =
        kolo_named_post(named, long_name, x, 4, KOLO_DTYPE_F32, KOLO_SUM, &handle) == KOLO_ERR_ARG;
    right[2] = kolo_named_post(named, "", x, 4, KOLO_DTYPE_F32, KOLO_SUM, &handle) == KOLO_ERR_ARG;
    right[3] = kolo_named_wait(named, 7, 0) == KOLO_ERR_ARG;
    bool complete;
    right[4] = kolo_named_test(named, -1, &complete) == KOLO_ERR_ARG;
    if (kolo_comm_rank(comm) == 0) { /* twice before it is complete; rank 1 comes later */
        KOLO_TRY(kolo_named_post(named, "x", x, 4, KOLO_DTYPE_F32, KOLO_SUM, &handle));
        right[5] =
            kolo_named_post(named, "x", x, 4, KOLO_DTYPE_F32, KOLO_SUM, &handle) == KOLO_ERR_ARG;
        KOLO_TRY(kolo_named_wait(named, handle, 0));
    } else {
        kolo_sleep_ns(50000000);
        KOLO_TRY(kolo_named_post(named, "x", x, 4, KOLO_DTYPE_F32, KOLO_SUM, &handle));
        KOLO_TRY(kolo_named_wait(named, handle, 0));
        right[5] = 1;
    }
    KOLO_TRY(kolo_named_test(named, handle, &complete));
    right[6] = complete;
    kolo_named_destroy(named);
    return KOLO_OK;
}

static void wrong_use_is_refused_and_harmless(void **state) {
    int right[2][8];
    rank_job job = {
        .n = 2, .body = wrong_use_body, .results = right, .result_bytes = sizeof right[0]};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 7; i++) {
            if (!right[r][i]) fail_msg("rank %d, case %d", r, i);
        }
    }
}

TEST_MAIN(test_comm_named) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_reduced_in_any_order),
        cmocka_unit_test(a_difference_is_an_error_on_all_ranks_that_shows_both_sides),
        cmocka_unit_test(a_stall_names_who_has_not_posted_what),
        cmocka_unit_test(wrong_use_is_refused_and_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
