/* A POST on a device begins as soon as its copy has ended, also while the host waits for an earlier
 * sum: tested by the order of events.
 *
 * Three layers give three buckets of gradients. On rank 0 the gate of bucket 0 stays closed until
 * bucket 1 has started. The kernel between the two POSTs ends when the host has asked the gate so
 * often that it can only be in the WAIT of bucket 0; the kernel behind the POST of bucket 1 ends
 * when that bucket has started. A WAIT that keeps others from starting would end by the deadline,
 * which fails the test. Rank 1 has the CPU and no gates. */
#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/engine/request.h"
#include "kolo/custom_op.h"
#include "plan/internal.h"
#include "support/ranks.h"
#include "support/support.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>

enum { RANKS = 2, BATCH = 4, WIDTH = 8, BUCKETS = 3, IN_WAIT = 1000, DEADLINE_MS = 15000 };

/* Of rank 0, by its thread and that of its device. */
static atomic_int asked, started, order, ended_between, started_at, ended_behind;
static _Thread_local bool passes; /* no gates on this thread */

static bool hold(void *arg, const kolo_request *request) {
    const kolo_plan *plan = arg;
    if (*kolo_plan_request_at(plan, 0, 0, 0) == request) {
        atomic_fetch_add(&asked, 1);
        return atomic_load(&started) > 0;
    }
    if (*kolo_plan_request_at(plan, 0, 1, 0) == request && !atomic_exchange(&started, 1)) {
        atomic_store(&started_at, atomic_fetch_add(&order, 1) + 1);
    }
    return true;
}

static void wait_until(const atomic_int *number, int at_least) {
    const int64_t end = kolo_now_ns() + kolo_ms_to_ns(DEADLINE_MS);
    while (atomic_load(number) < at_least) {
        if (kolo_now_ns() > end) {
            (void)kolo_error_set(KOLO_ERR_ARG, "bucket 1 did not start behind its kernels");
            return;
        }
        poll(NULL, 0, 1);
    }
}

static kolo_status gate_shape(const kolo_custom_shapes *s) {
    s->out[0] = s->in[0];
    return KOLO_OK;
}

/* Attributes: 1, between the POSTs of buckets 0 and 1; 2, behind them; and whether it is the
 * gradient. */
static void gate_run(const kolo_custom_call *c) {
    const bool between = c->attr[0] == 1;
    memcpy(c->out_data[0], c->in_data[0],
           (size_t)kolo_shape_count(&c->in[0].shape) * sizeof(float));
    if (passes || c->attr[1] == 0) return;
    wait_until(between ? &asked : &started, between ? IN_WAIT : 1);
    atomic_store(between ? &ended_between : &ended_behind, atomic_fetch_add(&order, 1) + 1);
}

static void gate_grad(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                      const bool *wants, kolo_value *d_in) {
    kolo_custom(g, "gate", d_out, 1, (const double[]){n->attr[0], 1}, d_in);
}

static const kolo_custom_op gate = {.version = KOLO_CUSTOM_OP_VERSION,
                                    .name = "gate",
                                    .n_in = 1,
                                    .n_out = 1,
                                    .index = "*->*",
                                    .shape = gate_shape,
                                    .run = gate_run,
                                    .grad = gate_grad,
                                    .attrs = (const char *const[]){"gate", "gradient", NULL}};

static kolo_value add_layer(kolo_graph *g, const char *name, kolo_value x) {
    const kolo_init init = kolo_init_fan_in(WIDTH);
    return kolo_linear(g, x, kolo_param(g, name, kolo_shape_2(WIDTH, WIDTH), init));
}

static void build(kolo_graph *g) {
    kolo_value h = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(BATCH, WIDTH));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_2(BATCH, WIDTH));
    h = add_layer(g, "a", h);
    kolo_custom(g, "gate", &h, 1, (const double[]){2, 0}, &h);
    h = add_layer(g, "b", h);
    kolo_custom(g, "gate", &h, 1, (const double[]){1, 0}, &h);
    kolo_output(g, "loss", kolo_mse_loss(g, add_layer(g, "c", h), y));
}

typedef struct result {
    uint64_t hash;
    int buckets, ended_between, started, ended_behind; /* on a device: when */
} result;

/* One step. */
static kolo_status train(kolo_comm *comm, kolo_store *store, kolo_plan **plan) {
    const kolo_plan_opts opts = {
        .train = true, .optimizer.momentum = 0.9, .bucket_bytes = WIDTH * WIDTH * sizeof(float)};
    kolo_graph *g;
    KOLO_TRY(kolo_custom_op_register(&gate));
    KOLO_TRY(kolo_graph_create(NULL, &g));
    build(g);
    KOLO_TRY(kolo_plan_compile(g, &opts, store, comm, plan));
    KOLO_TRY(kolo_store_init(store, 7));
    float *x = kolo_plan_input(*plan, "x", NULL), *y = kolo_plan_input(*plan, "y", NULL);
    for (int i = 0; i < BATCH * WIDTH; i++) {
        x[i] = (float)((i + kolo_comm_rank(comm)) % 7) - 3;
        y[i] = (float)(i % 5);
    }
    kolo_plan_set_scalar(*plan, "lr", 0.01);
    kolo_plan_set_scalar(*plan, "grad_scale", 1.0 / (RANKS * BATCH));
    if (!passes) kolo_comm_set_gate(comm, hold, *plan);
    const kolo_status status = kolo_plan_run(*plan);
    kolo_comm_set_gate(comm, NULL, NULL);
    return status;
}

/* `arg`: whether rank 0 has a device. */
static kolo_status body(kolo_comm *comm, const void *arg, void *out) {
    result *r = out;
    kolo_device *device = NULL;
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    passes = kolo_comm_rank(comm) > 0 || !*(const bool *)arg;
    if (!passes) KOLO_TRY(kolo_device_open("fake", 0, &device));
    kolo_status status = kolo_store_create(device, &store);
    if (status == KOLO_OK) status = train(comm, store, &plan);
    if (status == KOLO_OK) {
        *r = (result){kolo_store_hash(store), plan->map.n_buckets, atomic_load(&ended_between),
                      atomic_load(&started_at), atomic_load(&ended_behind)};
    }
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_device_close(device);
    return status;
}

static void run(rank_transport transport, bool on_device, result *results) {
    const rank_job job = {.n = RANKS,
                          .transport = transport,
                          .body = body,
                          .arg = &on_device,
                          .arg_bytes = sizeof on_device,
                          .results = results,
                          .result_bytes = sizeof *results};
    asked = started = order = ended_between = started_at = ended_behind = 0;
    ASSERT_OK(run_rank_job(&job));
    assert_true(results[0].hash == results[1].hash);
    for (int rank = 0; rank < RANKS; rank++) assert_int_equal(results[rank].buckets, BUCKETS);
}

static void a_post_begins_while_the_host_waits_for_another(void **state) {
    const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    result expected[RANKS], results[RANKS];
    run(RANKS_THREAD, false, expected);
    assert_int_equal(expected[0].started, 0);
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        run(transports[t], true, results);
        assert_true(results[0].hash == expected[0].hash);
        assert_int_equal(results[0].ended_between, 1);
        assert_int_equal(results[0].started, 2);
        assert_int_equal(results[0].ended_behind, 3);
    }
}

TEST_MAIN(test_device_posts) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_post_begins_while_the_host_waits_for_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
