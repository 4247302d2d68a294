/* The choice of an algorithm: the cost model, its file, constants that all ranks share, and
 * measuring them. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/status.h"
#include "comm/bench/work.h"
#include "comm/schedule/costs.h"
#include "kolo/bench.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static void the_model_picks_the_cheapest(void **state) {
    kolo_comm_costs memory = kolo_comm_costs_builtin(true),
                    network = kolo_comm_costs_builtin(false);
    for (int n = 2; n <= 64; n++) {
        for (size_t bytes = 4; bytes <= (size_t)1 << 30; bytes *= 16) {
            assert_int_equal(kolo_comm_costs_choose(&memory, true, n, 1, bytes),
                             KOLO_ALGORITHM_DIRECT);
            kolo_algorithm a = kolo_comm_costs_choose(&network, false, n, 1, bytes);
            assert_true(a != KOLO_ALGORITHM_DIRECT && a != KOLO_ALGORITHM_HIERARCHICAL);
        }
        /* Few bytes: few steps; many bytes: each as seldom as possible. */
        kolo_algorithm small = kolo_comm_costs_choose(&network, false, n, 1, 64);
        kolo_algorithm large = kolo_comm_costs_choose(&network, false, n, 1, (size_t)4 << 30);
        assert_true(kolo_algorithm_info_of(small)->steps(n, 1) <=
                    kolo_algorithm_info_of(large)->steps(n, 1));
        assert_true(kolo_algorithm_info_of(large)->volume(n, 1) < 2);
        for (int a = KOLO_ALGORITHM_RING; a < KOLO_ALGORITHM_COUNT; a++) {
            double least = kolo_comm_cost_us(&network, small, n, 1, 64);
            if (kolo_algorithm_usable((kolo_algorithm)a, false, 1))
                assert_true(least <= kolo_comm_cost_us(&network, (kolo_algorithm)a, n, 1, 64));
        }
    }
    assert_int_equal(kolo_comm_costs_choose(&network, false, 16, 2, 64 << 20),
                     KOLO_ALGORITHM_HIERARCHICAL);
}

static void constants_survive_their_file(void **state) {
    const char *path = "costs";
    kolo_comm_costs a = kolo_comm_costs_builtin(true), b = kolo_comm_costs_builtin(false), read = a;
    a.of[KOLO_ALGORITHM_RING] = (kolo_comm_cost){1.25, 77};
    ASSERT_OK(kolo_comm_costs_write(path, "shm", &a));
    ASSERT_OK(kolo_comm_costs_write(path, "tcp", &b)); /* beside the other */
    a.of[KOLO_ALGORITHM_MESH] = (kolo_comm_cost){3, 4};
    ASSERT_OK(kolo_comm_costs_write(path, "shm", &a)); /* in place of the first */
    ASSERT_OK(kolo_comm_costs_read(path, "shm", &read));
    assert_true(read.of[KOLO_ALGORITHM_RING].mib_us == 77);
    assert_true(read.of[KOLO_ALGORITHM_MESH].step_us == 3);
    ASSERT_OK(kolo_comm_costs_read(path, "tcp", &read));
    assert_true(read.of[KOLO_ALGORITHM_RING].step_us == b.of[KOLO_ALGORITHM_RING].step_us);
    static const char *const bad[] = {"shm ring 1\n",       "shm rign 1 2\n",  "shm auto 1 2\n",
                                      "shm ring 1 2 3\n",   "shm ring -1 2\n", "\n",
                                      "shm ring 1 1e300\n", "shm ring nan 1\n"};
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        ASSERT_OK(kolo_file_write(path, bad[i], strlen(bad[i])));
        assert_int_equal(kolo_comm_costs_read(path, "shm", &read), KOLO_ERR_FORMAT);
        assert_non_null(strstr(kolo_last_error(), "costs:1:"));
    }
    ASSERT_OK(kolo_file_remove(path));
    assert_int_equal(kolo_comm_costs_read(path, "shm", &read), KOLO_ERR_IO);
}

/* Rank 0's file decides for all; then AUTO is what the file makes cheapest. */
static kolo_status load_body(kolo_comm *comm, const void *arg, void *result) {
    const char *path = arg;
    float data[40] = {0};
    kolo_part part = {.data = data, .count = 40};
    kolo_request *q;
    KOLO_TRY(kolo_comm_load_costs(comm, kolo_comm_rank(comm) == 0 ? path : "/nowhere"));
    KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, KOLO_ALGORITHM_AUTO,
                                   "chosen", &q));
    if (kolo_request_algorithm(q) != KOLO_ALGORITHM_TREE) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "auto is %s",
                         kolo_algorithm_name(kolo_request_algorithm(q)));
    }
    KOLO_TRY(kolo_request_start(q));
    KOLO_TRY(kolo_request_wait(q, 0));
    kolo_status status = kolo_comm_load_costs(comm, "/nowhere/costs");
    return status == KOLO_ERR_IO
               ? kolo_barrier(comm)
               : KOLO_FAIL(KOLO_ERR_FORMAT, "a missing file gave %d", (int)status);
}

static void all_ranks_choose_by_rank_0(void **state) {
    char path[512] = "";
    assert_non_null(getcwd(path, sizeof path - 8));
    strcat(path, "/costs");
    kolo_comm_costs costs = kolo_comm_costs_builtin(true);
    for (int a = KOLO_ALGORITHM_RING; a < KOLO_ALGORITHM_COUNT; a++) costs.of[a].step_us = 1000;
    costs.of[KOLO_ALGORITHM_TREE].step_us = 0.001;
    ASSERT_OK(kolo_comm_costs_write(path, "thread", &costs));
    ASSERT_OK(kolo_comm_costs_write(path, "shm", &costs));
    ASSERT_OK(run_ranks(3, RANKS_THREAD, load_body, path, sizeof path));
    ASSERT_OK(run_ranks(2, RANKS_SHM, load_body, path, sizeof path));
    ASSERT_OK(kolo_file_remove(path));
}

/* Complex numbers have no order: their maximum is refused. */
static kolo_reduce_op op_of(int type) {
    const bool complex = type == KOLO_DTYPE_C64 || type == KOLO_DTYPE_C128;
    return complex ? KOLO_SUM : (kolo_reduce_op)(type % (KOLO_MEAN + 1));
}

/* Measures and reports what ran, in every type and operation. */
static kolo_status bench_body(kolo_comm *comm, const void *arg, void *result) {
    static const size_t sizes[] = {16, 4096};
    KOLO_TRY(kolo_bench_calibrate(comm, NULL, 1));
    for (int t = 0; t < KOLO_DTYPE_COUNT; t++) {
        kolo_bench_row rows[2];
        int n = 2;
        kolo_bench_allreduce_opts o = {.sizes = sizes,
                                       .n_sizes = 2,
                                       .dtype = (kolo_dtype)t,
                                       .op = op_of(t),
                                       .hosts = 1 + t % 2,
                                       .work = t % 2 == 1,
                                       .budget_ms = 1};
        KOLO_TRY(kolo_bench_allreduce(comm, &o, rows, &n));
        for (int i = 0; i < 2; i++) {
            bool sane = rows[i].algorithm != KOLO_ALGORITHM_AUTO && rows[i].us_min > 0 &&
                        rows[i].us_min <= rows[i].us_median &&
                        rows[i].us_median <= rows[i].us_max && rows[i].us_min <= rows[i].us_mean &&
                        rows[i].us_mean <= rows[i].us_max;
            /* In memory the caller does all the work. */
            sane &= o.work ? rows[i].us_work == rows[i].us_median : isnan(rows[i].us_work);
            if (!sane) return KOLO_FAIL(KOLO_ERR_FORMAT, "type %d: a row makes no sense", t);
        }
    }
    return KOLO_OK;
}

static void measurements_name_what_ran(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, bench_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_SHM, bench_body, NULL, 0));
}

/* ---- work beside kernels ---- */

typedef struct worked {
    double us, slow;
    int rewrites;
} worked;

static void count_rewrites(void *arg) { ++*(int *)arg; }

/* A budget of 100 ms has room for 9 calls of 1 ms with both loops of 5 ms; 3 of those
 * of 1 s would take 210 times the budget, and none is made. */
static kolo_status work_body(kolo_comm *comm, const void *arg, void *result) {
    worked *w = result;
    float data[256] = {0};
    kolo_request *request;
    KOLO_TRY(kolo_request_create(
        comm, &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE, .output = data, .count = 256},
        &request));
    kolo_status status = kolo_bench_work(comm, request, 1e6, 100, NULL, NULL, &w->slow);
    if (status == KOLO_OK) {
        status = kolo_bench_work(comm, request, 1e3, 100, count_rewrites, &w->rewrites, &w->us);
    }
    kolo_request_destroy(request);
    return status;
}

static void work_is_the_same_on_all_ranks(void **state) {
    worked w[2] = {0};
    rank_job job = {.n = 2,
                    .transport = RANKS_TCP,
                    .body = work_body,
                    .results = w,
                    .result_bytes = sizeof w[0]};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(w[r].rewrites, 9);
        assert_true(isfinite(w[r].us) && w[r].us == w[0].us);
        assert_true(isnan(w[r].slow));
    }
}

static kolo_status ps_body(kolo_comm *comm, const void *arg, void *result) {
    static const size_t sizes[] = {1000, 300000};
    const kolo_bench_ps_opts opts = {
        .sizes = sizes, .n_sizes = 2, .servers = *(const int *)arg, .budget_ms = 10};
    kolo_bench_ps_row rows[2];
    int n = 2;
    KOLO_TRY(kolo_bench_ps(comm, &opts, rows, &n));
    if (n == 2 && rows[0].us_median > 0 && rows[1].us_median > 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%d rows", n);
}

/* Some ranks share memory with all servers, others do not. */
static void pushes_are_measured_between_hosts(void **state) {
    for (int servers = 0; servers < 3; servers++) {
        for (int n = 3; n < 5; n++) {
            ASSERT_OK(run_ranks(n, RANKS_HOSTS, ps_body, &servers, sizeof servers));
        }
    }
}

TEST_MAIN(test_comm_costs) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_picks_the_cheapest),
        cmocka_unit_test(constants_survive_their_file),
        cmocka_unit_test(all_ranks_choose_by_rank_0),
        cmocka_unit_test(measurements_name_what_ran),
        cmocka_unit_test(work_is_the_same_on_all_ranks),
        cmocka_unit_test(pushes_are_measured_between_hosts),
    };
    return cmocka_run_group_tests_name("comm_costs", tests, test_folder_enter, test_folder_leave);
}
