/* Transport mpi: several collectives in flight, started and awaited in any order; parts; bitwise
 * equal results; unsupported calls are refused; a missing rank is named; training gives the same
 * results as with Kolo's own transports. All with Open MPI and with MPICH, if installed. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"
#include "support/values.h"

#include <stdio.h>
#include <string.h>

enum { N_FLIGHT = 6, COUNT = 5003 };

static const rank_transport mpis[] = {RANKS_OPENMPI, RANKS_MPICH};

static void run_by_each(int n, rank_body body) {
    int ran = 0;
    for (size_t i = 0; i < KOLO_COUNT(mpis); i++) {
        if (!ranks_have(mpis[i])) continue;
        ASSERT_OK(run_ranks(n, mpis[i], body, NULL, 0));
        ran++;
    }
    if (ran == (int)KOLO_COUNT(mpis)) return;
    print_message("skip: %d of 2 MPIs have a module and an mpiexec\n", ran);
    if (ran == 0) skip();
}

/* ---- in flight ---- */

static kolo_status check_value(const float *data, size_t n, float want, const char *what) {
    for (size_t i = 0; i < n; i++) {
        if (data[i] != want) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: element %zu is %g, not %g", what, i, data[i],
                             want);
        }
    }
    return KOLO_OK;
}

/* Collectives of all priorities at once, tested in a different order on each rank; the results of
 * completed ones must be correct. */
static kolo_status flight_body(kolo_comm *comm, const void *arg, void *result) {
    static float data[N_FLIGHT][COUNT];
    kolo_request *requests[N_FLIGHT];
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    if (strcmp(kolo_comm_transport(comm), "mpi") != 0) return KOLO_FAIL(KOLO_ERR_FORMAT, "not mpi");
    for (int i = 0; i < N_FLIGHT; i++) {
        bool broadcast = i % 3 == 2;
        kolo_request_opts o = {
            .kind = broadcast ? KOLO_COLLECTIVE_BROADCAST : KOLO_COLLECTIVE_ALLREDUCE,
            .output = data[i],
            .count = COUNT,
            .root = n - 1,
            .priority = (i * 7 + rank) % 5,
        };
        KOLO_TRY(kolo_request_create(comm, &o, &requests[i]));
    }
    for (int repeat = 0; repeat < 3; repeat++) {
        for (int i = 0; i < N_FLIGHT; i++) {
            for (size_t k = 0; k < COUNT; k++) data[i][k] = (float)(i + rank + repeat);
            KOLO_TRY(kolo_request_start(requests[i]));
        }
        for (int k = 0; k < N_FLIGHT; k++) {
            int i = (k + rank * 2) % N_FLIGHT;
            bool complete = false;
            for (int looks = 0; looks < 1000 && !complete; looks++) {
                KOLO_TRY(kolo_request_test(requests[i], &complete));
            }
            if (!complete) KOLO_TRY(kolo_request_wait(requests[i], 0));
            float sum = (float)(n * (i + repeat)) + (float)(n * (n - 1)) / 2;
            float want = i % 3 == 2 ? (float)(i + n - 1 + repeat) : sum;
            KOLO_TRY(check_value(data[i], COUNT, want, "in flight"));
        }
    }
    for (int i = 0; i < N_FLIGHT; i++) kolo_request_destroy(requests[i]);
    return KOLO_OK;
}

static void several_are_in_flight_in_any_order(void **state) { run_by_each(3, flight_body); }

/* ---- parts, bits, calls that are not offloaded ---- */

static kolo_status parts_body(kolo_comm *comm, const void *arg, void *result) {
    float a[7], b[1000], c[1];
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    kolo_part parts[] = {{.data = a, .count = 7},
                         {.tree_node = 1},
                         {.tree_node = 2, .data = b, .count = 1000},
                         {.tree_node = 3, .data = c, .count = 1}};
    kolo_request *request;
    KOLO_TRY(kolo_allreduce_create(comm, parts, 4, KOLO_DTYPE_F32, KOLO_MEAN, KOLO_ALGORITHM_AUTO,
                                   "parts", &request));
    for (int repeat = 0; repeat < 2; repeat++) {
        for (int i = 0; i < 4; i++) {
            for (size_t k = 0; k < parts[i].count; k++) ((float *)parts[i].data)[k] = (float)rank;
        }
        KOLO_TRY(kolo_request_start(request));
        KOLO_TRY(kolo_request_wait(request, 0));
        for (int i = 0; i < 4; i++) {
            KOLO_TRY(check_value(parts[i].data, parts[i].count, (float)(n - 1) / 2, "parts"));
        }
    }
    kolo_request_destroy(request);
    return KOLO_OK;
}

/* Sums whose rounding depends on the order are bitwise equal on all ranks. */
static kolo_status bits_body(kolo_comm *comm, const void *arg, void *result) {
    static float sums[COUNT], others[COUNT];
    int rank = kolo_comm_rank(comm);
    for (size_t i = 0; i < COUNT; i++) sums[i] = 1.0f / (float)(1 + i + 7 * (size_t)rank);
    KOLO_TRY(kolo_allreduce(comm, sums, COUNT, KOLO_DTYPE_F32, KOLO_SUM));
    memcpy(others, sums, sizeof sums);
    KOLO_TRY(kolo_broadcast(comm, others, COUNT, KOLO_DTYPE_F32, 0));
    bool same = memcmp(sums, others, sizeof sums) == 0;
    return same ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "ranks end with different bits");
}

/* Messages, sub-groups and reproducible sums are not offloaded. */
static kolo_status own_body(kolo_comm *comm, const void *arg, void *result) {
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm), next = (rank + 1) % n;
    int32_t own = rank, got = -1, sum = rank;
    float node = 1, total = 0;
    if (rank == 0) KOLO_TRY(kolo_send(comm, &own, 1, KOLO_DTYPE_I32, next, 5));
    KOLO_TRY(kolo_recv(comm, &got, 1, KOLO_DTYPE_I32, (rank + n - 1) % n, 5));
    if (rank != 0) KOLO_TRY(kolo_send(comm, &own, 1, KOLO_DTYPE_I32, next, 5));
    kolo_comm *sub;
    KOLO_TRY(kolo_comm_split(comm, rank == 0, 0, &sub));
    KOLO_TRY(kolo_allreduce(sub, &sum, 1, KOLO_DTYPE_I32, KOLO_SUM));
    kolo_comm_destroy(sub);
    uint32_t name;
    if (kolo_tree_nodes(n, n, rank, &name) != 1) return KOLO_FAIL(KOLO_ERR_FORMAT, "nodes");
    kolo_part part = {.tree_node = name, .data = &node, .count = 1};
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                           .parts = &part,
                           .n_parts = 1,
                           .count = 1,
                           .output = &total,
                           .shards = n};
    KOLO_TRY(kolo_request_run(comm, &o, 0));
    bool right =
        got == (rank + n - 1) % n && sum == (rank == 0 ? 0 : n * (n - 1) / 2) && total == (float)n;
    return right ? KOLO_OK
                 : KOLO_FAIL(KOLO_ERR_FORMAT, "got %d, sum %d, total %g", got, sum, total);
}

/* Sums of each type that MPI has, and what distinguishes it from others of its width: extremes with
 * the highest bit, and a product of imaginary numbers. */
static kolo_status types_body(kolo_comm *comm, const void *arg, void *result) {
    static char data[16 * COUNT];
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    for (int t = 0; t < KOLO_DTYPE_COUNT; t++) {
        kolo_dtype type = (kolo_dtype)t;
        if (type == KOLO_DTYPE_F16 || type == KOLO_DTYPE_BF16) continue;
        for (size_t i = 0; i < COUNT; i++) value_put(data, i, type, value_input(rank, i));
        KOLO_TRY(kolo_allreduce(comm, data, COUNT, type, KOLO_SUM));
        for (size_t i = 0; i < COUNT; i++) {
            if (value_get(data, i, type) == value_reference(n, i, KOLO_SUM)) continue;
            return KOLO_FAIL(KOLO_ERR_FORMAT, "sum of %s", kolo_dtype_name(type));
        }
        char first = kolo_dtype_name(type)[0];
        if (first != 'i' && first != 'u') continue;
        uint64_t all = UINT64_MAX >> (64 - 8 * kolo_dtype_bytes(type)); /* little endian */
        uint64_t most = rank == 0 ? all : 1;
        KOLO_TRY(kolo_allreduce(comm, &most, 1, type, KOLO_MAX));
        if (most == (first == 'i' ? 1 : all)) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "max of %s: %llx", kolo_dtype_name(type),
                         (unsigned long long)most);
    }
    float f[2] = {0, 1}; /* the cube of i */
    double d[2] = {0, 1};
    KOLO_TRY(kolo_allreduce(comm, f, 1, KOLO_DTYPE_C64, KOLO_PROD));
    KOLO_TRY(kolo_allreduce(comm, d, 1, KOLO_DTYPE_C128, KOLO_PROD));
    bool right = f[0] == 0 && f[1] == -1 && d[0] == 0 && d[1] == -1;
    return right ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "product: %g + %gi", d[0], d[1]);
}

static kolo_status all_body(kolo_comm *comm, const void *arg, void *result) {
    KOLO_TRY(parts_body(comm, arg, result));
    KOLO_TRY(bits_body(comm, arg, result));
    KOLO_TRY(types_body(comm, arg, result));
    return own_body(comm, arg, result);
}

static void parts_are_packed_and_bits_are_equal(void **state) { run_by_each(3, all_body); }

/* ---- errors ---- */

static kolo_status refused_body(kolo_comm *comm, const void *arg, void *result) {
    float data[4] = {0};
    kolo_request *q;
    const struct {
        kolo_request_opts opts;
        kolo_status status;
        const char *text;
    } cases[] = {
        {{.output = data, .count = 4, .dtype = KOLO_DTYPE_BF16},
         KOLO_ERR_UNSUPPORTED,
         "MPI does not reduce bf16"},
        {{.output = data, .count = 4, .algorithm = KOLO_ALGORITHM_RING},
         KOLO_ERR_ARG,
         "algorithm ring: transport mpi selects the algorithm itself"},
        {{.kind = KOLO_COLLECTIVE_ALLGATHER, .output = data, .count = 1u << 30},
         KOLO_ERR_UNSUPPORTED,
         "MPI supports at most 2147483647"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_status status = kolo_request_create(comm, &cases[i].opts, &q);
        if (status != cases[i].status || !strstr(kolo_last_error(), cases[i].text)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "case %zu: %d, %s", i, (int)status,
                             kolo_last_error());
        }
    }
    return kolo_barrier(comm); /* the communicator is still usable */
}

static void unsupported_by_mpi_is_refused(void **state) { run_by_each(2, refused_body); }

/* Rank 1 is away for longer than the timeout of rank 0. */
static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    float data = 1;
    if (kolo_comm_rank(comm) == 1) kolo_sleep_ns(500000000);
    kolo_request_opts o = {.output = &data, .count = 1, .site = "late"};
    kolo_status status = kolo_request_run(comm, &o, kolo_comm_rank(comm) == 0 ? 100 : 20000);
    const char *want = "allreduce 'late' (1 x f32, sum, auto), sequence 0: not started by rank 1";
    bool right = status == KOLO_ERR_TIMEOUT && strstr(kolo_last_error(), want);
    return right ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %s", (int)status, kolo_last_error());
}

/* The launcher ends the job when rank 0 exits without MPI_Finalize, so rank 1 reports nothing. */
static void a_timeout_names_the_late_rank(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(mpis); i++) {
        rank_outcome outcomes[2];
        rank_job job = {.n = 2, .transport = mpis[i], .body = late_body, .outcomes = outcomes};
        if (!ranks_have(mpis[i])) continue;
        (void)run_rank_job(&job);
        if (outcomes[0].status != KOLO_OK) fail_msg("%s", outcomes[0].error);
    }
}

/* ---- training ---- */

/* The hash of the parameters after a few steps. */
static void train(const char *launcher, const char *how, char hash[64]) {
    char line[1024];
    snprintf(line, sizeof line,
             "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
             "export OMPI_MCA_rmaps_base_oversubscribe=1; "
             "exec %s '%s' train %s --model lenet --data fashion-mnist --steps 3 --no-eval "
             "--json result.json >out 2>err",
             launcher, KOLO_COMMAND, how);
    kolo_process job = test_job_start((char *[]){"sh", "-c", line, NULL});
    kolo_exit ended = test_job_end(&job);
    if (ended.code != 0) fail_msg("%s: %s", launcher, test_contents("err"));
    char *text = test_contents("result.json"), *at = strstr(text, "parameter_hash");
    assert_non_null(at);
    snprintf(hash, 64, "%.*s", (int)strcspn(at, "\n"), at);
    kolo_free(text);
}

/* A sum of two numbers has one result, whatever the algorithm. */
static void training_gives_the_same_parameters(void **state) {
    char own[64], mpi[64], launcher[256];
    train("", "--workers 2", own);
    for (size_t i = 0; i < KOLO_COUNT(mpis); i++) {
        if (!ranks_have(mpis[i])) continue;
        snprintf(launcher, sizeof launcher, "%s -n 2", ranks_mpiexec(mpis[i]));
        train(launcher, "--transport mpi", mpi);
        assert_string_equal(mpi, own);
    }
}

TEST_MAIN(test_comm_mpi) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_are_in_flight_in_any_order),
        cmocka_unit_test(parts_are_packed_and_bits_are_equal),
        cmocka_unit_test(unsupported_by_mpi_is_refused),
        cmocka_unit_test(a_timeout_names_the_late_rank),
        cmocka_unit_test(training_gives_the_same_parameters),
    };
    return cmocka_run_group_tests_name("comm_mpi", tests, test_folder_enter, test_folder_leave);
}
