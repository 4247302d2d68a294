/* Devices that fail while ranks train: all ranks end with the cause, which names rank, device
 * and op; nothing hangs, no file is taken for a good one, and all memory is freed. */
#include "base/memory.h"
#include "device/device.h"
#include "kolo/custom_op.h"
#include "kolo/session.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, WIDTH = 3, TEXT = 640 };

/* ---- a kernel ---- */

static kolo_status like_input(const kolo_custom_shapes *s) {
    s->out[0] = s->in[0];
    return KOLO_OK;
}

/* Fails where its input is above 1000. */
static void run_limited(const kolo_custom_call *c) {
    const float *x = c->in_data[0];
    const int64_t n = kolo_shape_count(&c->in[0].shape);
    memcpy(c->out_data[0], x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > 1000) (void)kolo_error_set(KOLO_ERR_ARG, "%g is above 1000", (double)x[i]);
    }
}

static void grad_limited(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    kolo_custom(g, "limited_gradient", d_out, 1, NULL, d_in);
}

static const kolo_custom_op limited = {.version = KOLO_CUSTOM_OP_VERSION,
                                       .name = "limited_value",
                                       .n_in = 1,
                                       .n_out = 1,
                                       .index = "*->*",
                                       .shape = like_input,
                                       .run = run_limited,
                                       .grad = grad_limited};
static const kolo_custom_op limited_gradient = {.version = KOLO_CUSTOM_OP_VERSION,
                                                .name = "limited_gradient",
                                                .n_in = 1,
                                                .n_out = 1,
                                                .index = "*->*",
                                                .shape = like_input,
                                                .run = run_limited};

static kolo_status build(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, WIDTH)), y;
    kolo_value t = kolo_input(g, "target", KOLO_DTYPE_F32, kolo_shape_2(n, WIDTH));
    const kolo_init one = {KOLO_INIT_ONE, 0};
    KOLO_TRY(kolo_custom_op_register(&limited));
    KOLO_TRY(kolo_custom_op_register(&limited_gradient));
    kolo_value h = kolo_linear(g, x, kolo_param(g, "a", kolo_shape_2(WIDTH, WIDTH), one));
    kolo_custom(g, "limited_value", &h, 1, NULL, &y);
    y = kolo_linear(g, y, kolo_param(g, "b", kolo_shape_2(WIDTH, WIDTH), one));
    kolo_output(g, "loss", kolo_mse_loss(g, y, t));
    return KOLO_OK;
}

static const kolo_field fields[] = {{"target", KOLO_DTYPE_F32, {1, {WIDTH}}, .mean = {0}},
                                    {"u", KOLO_DTYPE_F32, {1, {WIDTH}}, .mean = {0}}};

/* The step fails with the text of the op; the parameters are lost with the device, and no stale
 * ones are given in their place. */
static void a_failure_on_a_device_ends_the_session(void **state) {
    const kolo_session_opts opts = {.batch = 1, .device = "fake", .lr = 1e-3};
    float x[WIDTH] = {1, 2, 3}, target[WIDTH] = {0}, weights[WIDTH * WIDTH];
    const kolo_batch batch = {.count = 1, .n_fields = 2, .fields = fields, .data = {target, x}};
    kolo_session *session;
    ASSERT_OK(kolo_session_create(NULL, &opts, build, NULL, &session));
    ASSERT_OK(kolo_session_step(session, &batch, NULL));
    ASSERT_OK(kolo_session_get(session, "a", weights, sizeof weights));
    x[0] = 10000;
    assert_int_equal(kolo_session_step(session, &batch, NULL), KOLO_ERR_ARG);
    if (!strstr(kolo_last_error(), "op limited_value: ")) fail_msg("%s", kolo_last_error());
    assert_int_equal(kolo_session_get(session, "a", weights, sizeof weights), KOLO_ERR_ARG);
    assert_int_equal(kolo_session_save(session, "lost.safetensors"), KOLO_ERR_ARG);
    assert_int_equal(access("lost.safetensors", F_OK), -1);
    kolo_session_destroy(session);
}

/* The step that fails, and a call after it. */
typedef struct failure {
    kolo_status status, after;
    char text[TEXT];
} failure;

/* Rank 1 fails in its second step, in the op that `arg` names: by an input, or by a target that
 * makes the gradient large. */
static kolo_status fail_in_kernel(kolo_comm *comm, const void *arg, void *out) {
    const bool backward = *(const bool *)arg;
    const kolo_session_opts opts = {.batch = 1, .device = "fake", .lr = 1e-3};
    failure *f = out;
    float x[WIDTH] = {1, 2, 3}, target[WIDTH] = {0};
    const kolo_batch batch = {.count = 1, .n_fields = 2, .fields = fields, .data = {target, x}};
    kolo_session *session;
    KOLO_TRY(kolo_session_create(comm, &opts, build, NULL, &session));
    kolo_status status = kolo_session_step(session, &batch, NULL);
    if (status == KOLO_OK) {
        if (kolo_comm_rank(comm) == 1) (backward ? target : x)[0] = backward ? -10000 : 10000;
        f->status = kolo_session_step(session, &batch, NULL);
        (void)snprintf(f->text, sizeof f->text, "%s", kolo_last_error());
        f->after = kolo_session_step(session, &batch, NULL);
    }
    kolo_session_destroy(session);
    return status;
}

static void a_kernel_that_fails_ends_all_ranks(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    for (int i = 0; i < 2 * (int)KOLO_COUNT(transports); i++) {
        const bool backward = i % 2;
        const char *const op = backward ? "op limited_gradient: " : "op limited_value: ";
        failure failures[RANKS];
        const rank_job job = {.n = RANKS,
                              .transport = transports[i / 2],
                              .body = fail_in_kernel,
                              .arg = &backward,
                              .arg_bytes = sizeof backward,
                              .results = failures,
                              .result_bytes = sizeof *failures};
        ASSERT_OK(run_rank_job(&job));
        assert_int_equal(failures[1].status, KOLO_ERR_ARG);
        assert_int_equal(failures[0].status, KOLO_ERR_PEER);
        for (int r = 0; r < RANKS; r++) {
            const char *const parts[] = {"rank 1", "device fake:1", op, "is above 1000"};
            for (size_t k = 0; k < KOLO_COUNT(parts); k++) {
                if (!strstr(failures[r].text, parts[k])) fail_msg("%d: %s", r, failures[r].text);
            }
            assert_int_not_equal(failures[r].after, KOLO_OK);
            assert_int_not_equal(failures[r].after, KOLO_ERR_TIMEOUT);
        }
    }
}

/* ---- any operation ---- */

typedef struct fault {
    uint64_t nth; /* the operation of the stream of rank 1 that fails */
    kolo_sync sync;
} fault;

/* A run of two steps and its files. */
static kolo_status fail_in_any(kolo_comm *comm, const void *arg, void *out) {
    const fault *f = arg;
    const kolo_train_opts opts = {.model = "mlp",
                                  .model_options = "hidden=8",
                                  .data = "synthetic:N=8,test=4,shape=1x4x4",
                                  .optimizer.momentum = 0.9,
                                  .zero = f->sync == KOLO_SYNC_ALLREDUCE,
                                  .sync = f->sync,
                                  .no_share = true,
                                  .out_dir = "run",
                                  .checkpoint_steps = 1,
                                  .lr = 0.01,
                                  .batch = 2,
                                  .steps = 2,
                                  .epochs = 2,
                                  .device = "fake"};
    if (kolo_comm_rank(comm) == 1) kolo_device_fake_fail(f->nth);
    const kolo_status status = train_body(comm, &opts, out);
    kolo_device_fake_fail(0);
    return status;
}

static void assert_ended(const fault *f, const train_outcome *o) {
    for (int r = 0; r < RANKS; r++) {
        bool names = strstr(o[r].error, "device fake:1");
        if (r == 0) names = names && strstr(o[r].error, "rank 1"); /* another rank's text */
        if (r == 0 && f->sync == KOLO_SYNC_MESH) { /* whose services only state who is lost */
            names = strstr(o[r].error, "rank 1") || strstr(o[r].error, "worker 1");
        }
        if (o[r].status == KOLO_OK || o[r].status == KOLO_ERR_TIMEOUT || !names) {
            fail_msg("operation %d: rank %d: status %d, %s", (int)f->nth, r, (int)o[r].status,
                     o[r].error);
        }
    }
    if (access("run/checkpoint-final.safetensors", F_OK) == 0) {
        fail_msg("operation %d: there are final weights", (int)f->nth);
    }
}

/* Until there is no such operation. */
static void fail_each(kolo_sync sync) {
    train_outcome outcomes[RANKS];
    fault f = {1, sync};
    const rank_job job = {.n = RANKS,
                          .body = fail_in_any,
                          .arg = &f,
                          .arg_bytes = sizeof f,
                          .results = outcomes,
                          .result_bytes = sizeof *outcomes};
    for (;; f.nth += 1 + f.nth / 8) {
        memset(outcomes, 0, sizeof outcomes);
        ASSERT_OK(run_rank_job(&job));
        if (outcomes[1].status == KOLO_OK) break;
        assert_ended(&f, outcomes);
        assert_int_equal(system("rm -rf run"), 0);
    }
    assert_int_equal(outcomes[0].status, KOLO_OK);
    assert_int_equal(access("run/checkpoint-final.safetensors", F_OK), 0);
    assert_int_equal(system("rm -rf run"), 0);
    assert_true(f.nth > 50);
}

static void an_operation_that_fails_ends_all_ranks(void **state) { fail_each(KOLO_SYNC_ALLREDUCE); }

static void an_operation_that_fails_ends_owners(void **state) { fail_each(KOLO_SYNC_MESH); }

TEST_MAIN(test_device_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_on_a_device_ends_the_session),
        cmocka_unit_test(a_kernel_that_fails_ends_all_ranks),
        cmocka_unit_test(an_operation_that_fails_ends_all_ranks),
        cmocka_unit_test(an_operation_that_fails_ends_owners),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
