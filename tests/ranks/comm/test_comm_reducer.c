/* The reducer: the mean of gradients whatever the order in which they become ready, where they lie
 * and how they are reduced; its buckets follow rank 0; wrong use. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "kolo/reducer.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { BUFFERS = 23, STEPS = 3, ROUNDS = 100 };

static size_t count_of(int i) { return (size_t)(i * i) * 13 % 5000; }

typedef struct reducer_case {
    kolo_reducer_opts opts;
    bool registered[2]; /* on even and odd ranks */
    double error;       /* relative L2, of one step */
} reducer_case;

static void fill(float *data, size_t n, int buffer, int step, int rank) {
    kolo_rng rng = kolo_rng_make((uint64_t)rank, KOLO_RNG_TEST, (uint64_t)(step * 1000 + buffer));
    for (size_t i = 0; i < n; i++) data[i] = kolo_rng_normal(&rng, i);
}

static kolo_status take_buffers(kolo_comm *comm, bool registered, kolo_part *buffers, float *own) {
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = (kolo_part){.count = count_of(i), .data = own};
        if (registered) {
            KOLO_TRY(kolo_comm_alloc(comm, count_of(i) * sizeof *own, &buffers[i].data));
        }
        own += count_of(i);
    }
    return KOLO_OK;
}

/* Buffers of a step become ready in an order of the rank's own. */
static kolo_status run_step(kolo_comm *comm, kolo_reducer *reducer, const kolo_part *buffers,
                            int step) {
    int rank = kolo_comm_rank(comm);
    for (int n = 0; n < BUFFERS; n++) {
        int i = (n * 5 + rank * 3 + (step > 1)) % BUFFERS;
        fill(buffers[i].data, buffers[i].count, i, step, rank);
        KOLO_TRY(kolo_reducer_ready(reducer, i));
    }
    return kolo_reducer_wait(reducer);
}

/* Relative distance from the exact result, over all buffers of a step. */
static double distance(kolo_comm *comm, const kolo_part *buffers, bool sum, int step, float *work) {
    int size = kolo_comm_size(comm);
    double off = 0, norm = 0;
    for (int i = 0; i < BUFFERS; i++) {
        for (size_t k = 0; k < buffers[i].count; k++) {
            double want = 0;
            for (int r = 0; r < size; r++) {
                if (k == 0) fill(work + (size_t)r * 5000, buffers[i].count, i, step, r);
                want += (double)work[(size_t)r * 5000 + k];
            }
            if (!sum) want /= size;
            double got = (double)((const float *)buffers[i].data)[k];
            off += (got - want) * (got - want);
            norm += want * want;
        }
    }
    return sqrt(off / norm);
}

typedef struct reducer_result {
    double worst;
    uint64_t hash; /* of the last step's results */
} reducer_result;

static kolo_status reducer_body(kolo_comm *comm, const void *arg, void *out) {
    const reducer_case *c = arg;
    reducer_result *result = out;
    kolo_part buffers[BUFFERS];
    float *own = kolo_zalloc(BUFFERS * 5000 * sizeof *own);
    float *work = kolo_alloc((size_t)kolo_comm_size(comm) * 5000 * sizeof *work);
    if (!own || !work) return KOLO_NOMEM(BUFFERS * 5000 * sizeof *own);
    kolo_reducer *reducer = NULL;
    kolo_status status = take_buffers(comm, c->registered[kolo_comm_rank(comm) % 2], buffers, own);
    if (status == KOLO_OK) {
        status = kolo_reducer_create(comm, buffers, BUFFERS, KOLO_DTYPE_F32, &c->opts, &reducer);
    }
    for (int step = 0; step < STEPS && status == KOLO_OK; step++) {
        status = run_step(comm, reducer, buffers, step);
        result->worst = fmax(result->worst, distance(comm, buffers, c->opts.sum, step, work));
    }
    for (int i = 0; i < BUFFERS; i++) {
        result->hash =
            result->hash * 31 + kolo_hash_bytes(buffers[i].data, buffers[i].count * sizeof(float));
    }
    kolo_reducer_destroy(reducer);
    kolo_free(own);
    kolo_free(work);
    return status;
}

static void gradients_are_averaged(void **state) {
    static const reducer_case cases[] = {
        {.registered = {true, true}, .error = 1e-6},
        {.registered = {true, false}, .error = 1e-6},
        {.opts = {.bucket_bytes = 1}, .error = 1e-6},
        {.opts = {.bucket_bytes = 10000, .sum = true}, .registered = {true, true}, .error = 1e-6},
        {.opts = {.bucket_bytes = 30000, .codec = {.kind = KOLO_CODEC_F16}}, .error = 2e-3},
        {.opts = {.codec = {.kind = KOLO_CODEC_BF16}, .sum = true}, .error = 2e-2},
        {.opts = {.bucket_bytes = 30000, .codec = {.kind = KOLO_CODEC_INT8}}, .error = 3e-2},
        {.opts = {.codec = {.kind = KOLO_CODEC_TOPK, .ratio = 1}}, .error = 1e-6},
        {.opts = {.codec = {.kind = KOLO_CODEC_ONEBIT}}, .error = 2},
    };
    static const int sizes[] = {1, 2, 3};
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        for (size_t s = 0; s < KOLO_COUNT(sizes); s++) {
            if (TEST_FEWER(c > 0 && sizes[s] != 3, false)) continue;
            for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
                if (!ranks_have((rank_transport)t)) continue;
                if (TEST_FEWER(t > RANKS_THREAD && sizes[s] == 1, false)) continue;
                reducer_result results[4];
                rank_job job = {.n = sizes[s],
                                .transport = (rank_transport)t,
                                .body = reducer_body,
                                .arg = &cases[c],
                                .arg_bytes = sizeof cases[c],
                                .results = results,
                                .result_bytes = sizeof results[0]};
                ASSERT_OK(run_rank_job(&job));
                for (int r = 0; r < sizes[s]; r++) {
                    assert_true(results[r].hash == results[0].hash);
                    if (!(results[r].worst <= cases[c].error)) {
                        fail_msg("case %zu, %d ranks: error %g", c, sizes[s], results[r].worst);
                    }
                }
            }
        }
    }
}

/* The mean over many steps of one gradient, with a code that keeps a hundredth of it. */
static kolo_status feedback_body(kolo_comm *comm, const void *arg, void *result) {
    enum { N = 3000 };
    float gradient[N];
    double sum[N] = {0}, off = 0, norm = 0;
    kolo_part part = {.data = gradient, .count = N};
    kolo_reducer_opts opts = {.codec = {.kind = KOLO_CODEC_TOPK, .ratio = 0.05}};
    kolo_reducer *reducer;
    KOLO_TRY(kolo_reducer_create(comm, &part, 1, KOLO_DTYPE_F32, &opts, &reducer));
    for (int step = 0; step < ROUNDS; step++) {
        for (int i = 0; i < N; i++) gradient[i] = (float)(1 + i % 7 + kolo_comm_rank(comm));
        KOLO_TRY(kolo_reducer_ready(reducer, 0));
        KOLO_TRY(kolo_reducer_wait(reducer));
        for (int i = 0; i < N; i++) sum[i] += (double)gradient[i];
    }
    for (int i = 0; i < N; i++) {
        double want = ROUNDS * (1 + i % 7 + (kolo_comm_size(comm) - 1) / 2.0);
        off += (sum[i] - want) * (sum[i] - want);
        norm += want * want;
    }
    *(double *)result = sqrt(off / norm);
    kolo_reducer_destroy(reducer);
    return KOLO_OK;
}

static void what_a_code_leaves_out_comes_later(void **state) {
    double errors[2];
    rank_job job = {
        .n = 2, .body = feedback_body, .results = errors, .result_bytes = sizeof errors[0]};
    ASSERT_OK(run_rank_job(&job));
    assert_true(errors[0] < 0.2 && errors[0] == errors[1]);
}

static kolo_status wrong_use_body(kolo_comm *comm, const void *arg, void *result) {
    int *right = result;
    float x[2][8] = {{0}};
    kolo_part parts[2] = {{.data = x[0], .count = 8}, {.data = x[1], .count = 8}};
    kolo_reducer *r;
    kolo_reducer_opts half = {.codec = {.kind = KOLO_CODEC_F16}};
    right[0] = kolo_reducer_create(comm, parts, 2, KOLO_DTYPE_F64, &half, &r) == KOLO_ERR_ARG;
    right[1] = kolo_reducer_create(comm, parts, 0, KOLO_DTYPE_F32, NULL, &r) == KOLO_ERR_ARG;
    kolo_part longest[2] = {parts[0], {.data = x[1], .count = SIZE_MAX / 4}};
    right[5] = kolo_reducer_create(comm, longest, 2, KOLO_DTYPE_F32, NULL, &r) == KOLO_ERR_ARG;
    KOLO_TRY(kolo_reducer_create(comm, parts, 2, KOLO_DTYPE_F32, NULL, &r));
    right[2] = kolo_reducer_ready(r, 2) == KOLO_ERR_ARG;
    KOLO_TRY(kolo_reducer_ready(r, 1));
    right[3] = kolo_reducer_ready(r, 1) == KOLO_ERR_ARG;
    right[4] = kolo_reducer_wait(r) == KOLO_ERR_ARG &&
               strstr(kolo_last_error(), "buffer 0 of 2 is not ready") != NULL;
    KOLO_TRY(kolo_reducer_ready(r, 0));
    KOLO_TRY(kolo_reducer_wait(r));
    kolo_reducer_destroy(r);
    return KOLO_OK;
}

static void wrong_use_is_refused_and_harmless(void **state) {
    int right[2][6];
    rank_job job = {
        .n = 2, .body = wrong_use_body, .results = right, .result_bytes = sizeof right[0]};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 6; i++) {
            if (!right[r][i]) fail_msg("rank %d, case %d", r, i);
        }
    }
}

/* ---- ranks that disagree ---- */

typedef struct disagreement {
    int buffers; /* of the last rank; the others have 3 buffers of 8 elements of f32 */
    size_t count;
    kolo_dtype dtype;
    kolo_reducer_opts opts;
    const char text[96];
} disagreement;

static const disagreement disagreements[] = {
    {2, 8, KOLO_DTYPE_F32, {0}, "rank 0 has 3 buffers, rank 2 has 2 buffers"},
    {3, 8, KOLO_DTYPE_I32, {0}, "rank 0 has type f32, rank 2 has type i32"},
    {3, 8, KOLO_DTYPE_F32, {.sum = true}, "rank 0 has operation mean, rank 2 has operation sum"},
    {3, 8, KOLO_DTYPE_F32, {.bucket_bytes = 7}, "bucket_bytes 1048576, rank 2 has bucket_bytes 7"},
    {3, 8, KOLO_DTYPE_F32, {.codec.kind = KOLO_CODEC_INT8}, "codec none, rank 2 has codec int8"},
    {3, 8, KOLO_DTYPE_F32, {.join = true}, "rank 0 has join false, rank 2 has join true"},
    {3, 9, KOLO_DTYPE_F32, {0}, "has 8 elements in buffer 1, rank 2 has 9 elements in buffer 1"},
    /* Arguments that are invalid by themselves. */
    {0, 8, KOLO_DTYPE_F32, {0}, "rank 0 has 3 buffers, rank 2 has 0 buffers"},
    {3, 8, KOLO_DTYPE_COUNT, {0}, "rank 0 has type f32, rank 2 has type unknown"},
    {3, 8, KOLO_DTYPE_F64, {.codec.kind = KOLO_CODEC_INT8}, "type f32, rank 2 has type f64"},
    {3, SIZE_MAX / 4, KOLO_DTYPE_F32, {0}, "buffer 1 of a reducer, of 4611686018427387903 el"},
};

static kolo_status disagreement_body(kolo_comm *comm, const void *arg, void *result) {
    char(*texts)[200] = result;
    bool last = kolo_comm_rank(comm) == kolo_comm_size(comm) - 1;
    for (size_t i = 0; i < KOLO_COUNT(disagreements); i++) {
        const disagreement *d = &disagreements[i];
        float x[3][9] = {{0}};
        kolo_part parts[3] = {{0, x[0], 8}, {0, x[1], last ? d->count : 8}, {0, x[2], 8}};
        kolo_reducer *r;
        kolo_status status =
            kolo_reducer_create(comm, parts, last ? d->buffers : 3,
                                last ? d->dtype : KOLO_DTYPE_F32, last ? &d->opts : NULL, &r);
        if (status != KOLO_ERR_ARG) return KOLO_FAIL(KOLO_ERR_FORMAT, "case %zu is accepted", i);
        strncpy(texts[i], kolo_last_error(), sizeof texts[i] - 1);
    }
    return kolo_barrier(comm); /* the communicator remains usable */
}

static void ranks_that_disagree_get_an_error(void **state) {
    static char texts[3][KOLO_COUNT(disagreements)][200];
    rank_job job = {
        .n = 3, .body = disagreement_body, .results = texts, .result_bytes = sizeof texts[0]};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < 3; r++) {
        for (size_t i = 0; i < KOLO_COUNT(disagreements); i++) {
            if (!strstr(texts[r][i], disagreements[i].text)) {
                fail_msg("rank %d, case %zu: %s", r, i, texts[r][i]);
            }
        }
    }
}

/* ---- ranks that run out of data ---- */

enum { JOIN_BUFFERS = 5, JOIN_COUNT = 70, EPOCHS = 3 };

/* Batches of the ranks in each epoch, and the rank that comes last. */
static const int batches_of[EPOCHS][3] = {{2, 5, 3}, {4, 4, 0}, {0, 0, 0}};
static const int last_of[EPOCHS] = {1, 1, 2};

static float gradient_of(int rank, int step, int k) { return (float)((rank + 1) * (k + 1) + step); }

/* One epoch of this rank; then the others' steps. The parameter counts the sums of the gradients.
 */
static kolo_status epoch_of_batches(kolo_reducer *r, kolo_comm *comm, float (*x)[JOIN_COUNT],
                                    int epoch, double *parameter) {
    int rank = kolo_comm_rank(comm), size = kolo_comm_size(comm), last = -1, steps = 0;
    for (int p = 0; p < size; p++) {
        if (batches_of[epoch][p] > steps) steps = batches_of[epoch][p];
    }
    for (int step = 0; step < batches_of[epoch][rank]; step++) {
        for (int k = 0; k < JOIN_BUFFERS * JOIN_COUNT; k++) {
            x[k / JOIN_COUNT][k % JOIN_COUNT] = gradient_of(rank, step, k);
        }
        for (int i = 0; i < JOIN_BUFFERS; i++) {
            KOLO_TRY(kolo_reducer_ready(r, (i * 2 + rank) % JOIN_BUFFERS));
            bool first = i == 0;
            if (first && kolo_reducer_join(r, &last) != KOLO_ERR_ARG) {
                return KOLO_FAIL(KOLO_ERR_FORMAT, "a join within a step");
            }
        }
        KOLO_TRY(kolo_reducer_wait(r));
        for (int k = 0; k < JOIN_BUFFERS * JOIN_COUNT; k++) {
            double want = 0, got = (double)x[k / JOIN_COUNT][k % JOIN_COUNT];
            for (int p = 0; p < size; p++) {
                if (step < batches_of[epoch][p]) want += (double)gradient_of(p, step, k) / size;
            }
            if (fabs(got - want) > 1e-6 * want) {
                return KOLO_FAIL(KOLO_ERR_FORMAT, "epoch %d, step %d: %g, not %g", epoch, step, got,
                                 want);
            }
        }
        *parameter += (double)x[0][0];
    }
    KOLO_TRY(kolo_reducer_join(r, &last));
    if (last != last_of[epoch]) return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d came last", last);
    kolo_part part = {.data = parameter, .count = 1};
    return kolo_reducer_broadcast(r, &part, 1, KOLO_DTYPE_F64, last);
}

static kolo_status join_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_reducer_opts *opts = arg;
    float x[JOIN_BUFFERS][JOIN_COUNT] = {{0}};
    kolo_part parts[JOIN_BUFFERS];
    kolo_reducer *r;
    int last;
    for (int i = 0; i < JOIN_BUFFERS; i++)
        parts[i] = (kolo_part){.data = x[i], .count = JOIN_COUNT};
    KOLO_TRY(kolo_reducer_create(comm, parts, JOIN_BUFFERS, KOLO_DTYPE_F32, NULL, &r));
    bool refused = kolo_reducer_join(r, &last) == KOLO_ERR_ARG;
    kolo_reducer_destroy(r);
    if (!refused) return KOLO_FAIL(KOLO_ERR_FORMAT, "a join without the option");
    KOLO_TRY(kolo_reducer_create(comm, parts, JOIN_BUFFERS, KOLO_DTYPE_F32, opts, &r));
    kolo_status status = KOLO_OK;
    for (int epoch = 0; epoch < EPOCHS && status == KOLO_OK; epoch++) {
        status = epoch_of_batches(r, comm, x, epoch, result);
    }
    kolo_reducer_destroy(r);
    return status;
}

static void ranks_run_out_of_data_at_different_times(void **state) {
    static const rank_transport all[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    static const kolo_reducer_opts opts[] = {
        {.join = true, .bucket_bytes = 500},
        {.join = true, .codec = {.kind = KOLO_CODEC_TOPK, .ratio = 1}}};
    for (size_t i = 0; i < KOLO_COUNT(all) + 1; i++) {
        double parameters[3 * 8]; /* results lie at multiples of 64 bytes */
        rank_job job = {.n = 3,
                        .transport = all[i % KOLO_COUNT(all)],
                        .body = join_body,
                        .arg = &opts[i / KOLO_COUNT(all)],
                        .arg_bytes = sizeof opts[0],
                        .results = parameters,
                        .result_bytes = 64};
        ASSERT_OK(run_rank_job(&job));
        assert_true(parameters[0] > 0);
        for (int r = 1; r < 3; r++) assert_true(parameters[(size_t)r * 8] == parameters[0]);
    }
}

/* Rank 0 makes the calls of a step by hand, up to an order of buffers that is none. */
static kolo_status bad_order_body(kolo_comm *comm, const void *arg, void *result) {
    static const int32_t orders[][2] = {{5, 0}, {-1, 0}, {1, 1}};
    kolo_status *status = result;
    for (size_t c = 0; c < KOLO_COUNT(orders); c++) {
        float x[2][8] = {{0}};
        kolo_part parts[2] = {{.data = x[0], .count = 8}, {.data = x[1], .count = 8}};
        kolo_reducer *r;
        KOLO_TRY(kolo_reducer_create(comm, parts, 2, KOLO_DTYPE_F32, NULL, &r));
        for (int i = 0; i < 2; i++) KOLO_TRY(kolo_reducer_ready(r, i));
        if (kolo_comm_rank(comm) == 0) {
            int32_t order[2] = {orders[c][0], orders[c][1]};
            while (comm->n_flight > 0) KOLO_TRY(kolo_comm_progress(comm));
            KOLO_TRY(kolo_broadcast(comm, order, 2, KOLO_DTYPE_I32, 0));
        } else {
            status[c] = kolo_reducer_wait(r);
        }
        kolo_reducer_destroy(r);
    }
    return KOLO_OK;
}

static void an_order_that_is_none_is_refused(void **state) {
    kolo_status statuses[2][3];
    rank_job job = {
        .n = 2, .body = bad_order_body, .results = statuses, .result_bytes = sizeof statuses[0]};
    ASSERT_OK(run_rank_job(&job));
    for (int i = 0; i < 3; i++) assert_int_equal(statuses[1][i], KOLO_ERR_FORMAT);
}

/* All of rank 1's parameters on all ranks; ranges of buffers become ready at once. */
static kolo_status range_body(kolo_comm *comm, const void *arg, void *result) {
    float x[4][300];
    double parameters[2][5], state = 0;
    int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    kolo_part parts[4], values[3] = {{0, parameters[0], 5}, {0, parameters[1], 5}, {0, &state, 1}};
    for (int i = 0; i < 4; i++) parts[i] = (kolo_part){.data = x[i], .count = 300};
    for (int i = 0; i < 10; i++) parameters[i / 5][i % 5] = rank * 100 + i;
    state = rank;
    kolo_reducer *r;
    KOLO_TRY(kolo_reducer_create(comm, parts, 4, KOLO_DTYPE_F32,
                                 &(kolo_reducer_opts){.bucket_bytes = 2000}, &r));
    kolo_status status = kolo_reducer_broadcast(r, values, 3, KOLO_DTYPE_F64, 1);
    bool right = status == KOLO_OK && state == 1;
    for (int i = 0; i < 10; i++) right = right && parameters[i / 5][i % 5] == 100 + i;
    for (int step = 0; step < 3 && right; step++) {
        for (int k = 0; k < 1200; k++) x[k / 300][k % 300] = (float)(k * (rank + 1) + step);
        right = kolo_reducer_ready_range(r, 1, 3) == KOLO_OK &&
                kolo_reducer_ready_range(r, 0, 2) == KOLO_ERR_ARG && /* buffer 1 is ready */
                kolo_reducer_ready_range(r, 3, 2) == KOLO_ERR_ARG &&
                kolo_reducer_ready_range(r, -1, 2) == KOLO_ERR_ARG &&
                kolo_reducer_ready_range(r, 0, 0) == KOLO_OK &&
                kolo_reducer_broadcast(r, values, 3, KOLO_DTYPE_F64, 0) == KOLO_ERR_ARG &&
                kolo_reducer_ready(r, 0) == KOLO_OK && kolo_reducer_wait(r) == KOLO_OK;
        for (int k = 0; k < 1200; k++) {
            double want = k * (size + 1) / 2.0 + step;
            right = right && fabs(x[k / 300][k % 300] - want) <= 1e-6 * want;
        }
    }
    kolo_reducer_destroy(r);
    return right ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "wrong: %s", kolo_last_error());
}

static void parameters_are_broadcast_and_ranges_become_ready(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_THREAD, range_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_SHM, range_body, NULL, 0));
}

TEST_MAIN(test_comm_reducer) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_averaged),
        cmocka_unit_test(what_a_code_leaves_out_comes_later),
        cmocka_unit_test(wrong_use_is_refused_and_harmless),
        cmocka_unit_test(ranks_that_disagree_get_an_error),
        cmocka_unit_test(an_order_that_is_none_is_refused),
        cmocka_unit_test(ranks_run_out_of_data_at_different_times),
        cmocka_unit_test(parameters_are_broadcast_and_ranges_become_ready),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
