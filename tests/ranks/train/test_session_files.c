/* Files of a session: saving, loading, loading what fits, and memory that one rank lacks. */
#include "base/compiler.h"
#include "base/memory.h"
#include "kolo/checkpoint.h"
#include "plan/plan.h"
#include "support/ranks.h"
#include "support/sum_model.h"
#include "support/support.h"
#include "train/session/session.h"

#include <string.h>
#include <unistd.h>

static const char file[] = "session.safetensors";

static kolo_status step_from(kolo_session *s, int k) {
    int64_t first, count;
    KOLO_TRY(kolo_session_share(s, 6, &first, &count));
    const kolo_batch batch = sum_batch(k % 2 * 6 + first, count);
    return kolo_session_step(s, &batch, NULL);
}

/* Four steps, and two, a save, a load into another session and two more: the same bits. */
static kolo_status files_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {.global_batch = 6,
                                    .lr = 0.1,
                                    .zero = *(const int *)arg,
                                    .optimizer = {.kind = KOLO_OPTIMIZER_ADAM},
                                    .schedule = KOLO_LR_COSINE,
                                    .steps = 9};
    const kolo_session_opts other = {.batch = 3, .evaluate_only = true};
    const kolo_batch batch = sum_batch(0, SUM_SAMPLES);
    uint64_t *hashes = result;
    double *loss = (double *)result + 2;
    kolo_session *a = NULL, *b = NULL, *c = NULL;
    kolo_metrics m[2];
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, sum_build, NULL, &a), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, sum_build, NULL, &b), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &other, sum_build, NULL, &c), done);
    for (int k = 0; k < 2; k++) KOLO_TRY_GOTO(step_from(a, k), done);
    KOLO_TRY_GOTO(kolo_session_save(a, file), done);
    KOLO_TRY_GOTO(kolo_session_load(b, file), done);
    KOLO_TRY_GOTO(kolo_session_load(c, file), done);
    KOLO_TRY_GOTO(kolo_session_evaluate(a, &batch, &m[0]), done);
    KOLO_TRY_GOTO(kolo_session_evaluate(c, &batch, &m[1]), done);
    loss[0] = kolo_metrics_get(&m[0], "loss");
    loss[1] = kolo_metrics_get(&m[1], "loss");
    for (int k = 2; k < 4; k++) KOLO_TRY_GOTO(step_from(a, k), done);
    for (int k = 2; k < 4; k++) KOLO_TRY_GOTO(step_from(b, k), done);
    KOLO_TRY_GOTO(kolo_store_hash_shards(kolo_session_store(a), &hashes[0]), done);
    KOLO_TRY_GOTO(kolo_store_hash_shards(kolo_session_store(b), &hashes[1]), done);
    if (kolo_session_steps(b) != 4) status = kolo_error_set(KOLO_ERR_FORMAT, "steps");
done:
    kolo_session_destroy(a);
    kolo_session_destroy(b);
    kolo_session_destroy(c);
    return status;
}

static void loaded_sessions_go_on_with_the_same_bits(void **state) {
    static const struct { int ranks, zero; } cases[] = {{1, 0}, {3, 0}, {2, 1}, {3, 2}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int ranks = cases[i].ranks;
        struct {
            uint64_t hash[2];
            double loss[2];
        } r[3];
        rank_job run = {.n = ranks,
                        .transport = RANKS_THREAD,
                        .body = files_body,
                        .arg = &cases[i].zero,
                        .arg_bytes = sizeof cases[i].zero,
                        .results = r,
                        .result_bytes = sizeof *r};
        ASSERT_OK(run_rank_job(&run));
        for (int rank = 0; rank < ranks; rank++) {
            assert_true(r[rank].hash[0] == r[rank].hash[1] && r[rank].hash[0] == r[0].hash[0]);
            assert_true(r[rank].loss[0] > 0 && r[rank].loss[0] == r[rank].loss[1]);
        }
    }
    char *text;
    ASSERT_OK(kolo_checkpoint_verify(file, &text));
    assert_non_null(strstr(text, "names no model"));
    kolo_checkpoint_text_free(text);
}

/* Another "b", and a parameter that the file lacks. */
static kolo_status build_other(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, SUM_A));
    kolo_value a = kolo_param(g, "a", kolo_shape_2(1, SUM_A), kolo_init_fan_in(SUM_A));
    kolo_value b = kolo_param(g, "b", kolo_shape_2(4, SUM_A), kolo_init_fan_in(SUM_A));
    kolo_value c = kolo_param(g, "c", kolo_shape_1(1), kolo_init_fan_in(SUM_A));
    kolo_value y = kolo_bias(g, kolo_linear(g, x, a), c);
    kolo_output(g, "loss", kolo_add(g, kolo_sum(g, y), kolo_sum(g, kolo_linear(g, x, b))));
    return KOLO_OK;
}

static kolo_status partial_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_session *a = NULL, *b = NULL;
    float *got = result;
    char *rest = NULL;
    const float three[SUM_A] = {3, 3, 3};
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, NULL, sum_build, NULL, &a), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, NULL, build_other, NULL, &b), done);
    KOLO_TRY_GOTO(kolo_session_set(a, "a", three, sizeof three), done);
    KOLO_TRY_GOTO(kolo_session_save(a, "part.safetensors"), done);
    KOLO_TRY_GOTO(kolo_session_load_partial(b, "part.safetensors", &rest), done);
    KOLO_TRY_GOTO(kolo_session_get(b, "a", got, 3 * sizeof *got), done);
    if (strcmp(rest, "missing: c\nof another type or shape: b f32 [1,2], not [4,3]\n") != 0) {
        status = kolo_error_set(KOLO_ERR_FORMAT, "%s", rest);
    }
done:
    kolo_checkpoint_text_free(rest);
    kolo_session_destroy(a);
    kolo_session_destroy(b);
    return status;
}

static void what_fits_is_loaded_and_the_rest_listed(void **state) {
    float got[2][SUM_A];
    rank_job run = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = partial_body,
                    .results = got,
                    .result_bytes = sizeof *got};
    ASSERT_OK(run_rank_job(&run));
    for (int i = 0; i < 2 * SUM_A; i++) assert_true(got[i / SUM_A][i % SUM_A] == 3);
}

static void files_that_cannot_be_are_refused(void **state) {
    kolo_session *s;
    ASSERT_OK(kolo_session_create(NULL, NULL, sum_build, NULL, &s));
    ASSERT_REFUSED(kolo_session_save(s, NULL), "no path");
    ASSERT_REFUSED(kolo_session_load(s, ""), "no path");
    ASSERT_REFUSED(kolo_session_load(NULL, file), "no session");
    ASSERT_REFUSED(kolo_session_load_partial(s, NULL, NULL), "no path");
    assert_int_equal(kolo_session_load(s, "/nowhere/file"), KOLO_ERR_IO);
    assert_int_equal(kolo_session_save(s, "/nowhere/file"), KOLO_ERR_IO);
    kolo_session_destroy(s);
}

/* ---- memory that one rank lacks ---- */

/* A parameter whose ranges are not in row-major order. */
static kolo_status build_image(kolo_graph *g, int64_t n, void *arg) {
    const kolo_conv2d_opts opts = {.pad_h = 1, .pad_w = 1};
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, 16, 16, 16));
    kolo_value w = kolo_param(g, "w", kolo_shape_4(16, 16, 3, 3), kolo_init_fan_in(144));
    kolo_output(g, "loss", kolo_sum(g, kolo_conv2d(g, x, w, &opts)));
    return KOLO_OK;
}

/* `arg`: the allocation that fails on rank 1. */
static kolo_status memory_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {.batch = 2, .zero = 3};
    long nth = 0;
    uint64_t hash;
    kolo_session *s = NULL;
    KOLO_TRY(kolo_session_create(comm, &opts, build_image, NULL, &s));
    if (kolo_comm_rank(comm) == 1) memcpy(&nth, arg, sizeof nth);
    kolo_alloc_fail_nth(nth);
    kolo_status status = kolo_store_hash_shards(kolo_session_store(s), &hash);
    if (status == KOLO_OK) status = kolo_session_save(s, "memory.safetensors");
    kolo_alloc_fail_nth(0);
    kolo_session_destroy(s);
    return status;
}

/* Every early allocation fails in turn, then every third one. */
static void memory_that_one_rank_lacks_fails_all(void **state) {
    bool failed = true;
    for (long n = 1; failed; n += n < 17 ? 1 : 3) {
        rank_outcome outcomes[2];
        rank_job run = {.n = 2,
                        .transport = RANKS_THREAD,
                        .body = memory_body,
                        .arg = &n,
                        .arg_bytes = sizeof n,
                        .outcomes = outcomes};
        failed = run_rank_job(&run) != KOLO_OK;
        assert_true(n < 1000 && (failed || n > 10));
        for (int r = 0; failed && r < 2; r++) {
            if (!strstr(outcomes[r].error, "memory")) {
                fail_msg("allocation %ld, rank %d: %s", n, r, outcomes[r].error);
            }
        }
    }
    assert_int_equal(unlink("memory.safetensors"), 0);
}

TEST_MAIN(test_session_files) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_sessions_go_on_with_the_same_bits),
        cmocka_unit_test(what_fits_is_loaded_and_the_rest_listed),
        cmocka_unit_test(files_that_cannot_be_are_refused),
        cmocka_unit_test(memory_that_one_rank_lacks_fails_all),
    };
    return cmocka_run_group_tests(tests, sum_fill, NULL);
}
