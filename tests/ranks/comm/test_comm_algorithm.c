/* kolo_request_algorithm: the algorithm that really runs, also where the peers' memory decides it.
 */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/request.h"
#include "kolo/bench.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

enum { COUNT = 64 << 10 }; /* f32: 256 KiB, where private memory may be sent as messages */

typedef enum memory { ALL_REGISTERED, ALL_PRIVATE, PRIVATE_ON_RANK_1 } memory;

typedef struct request_case {
    kolo_algorithm asked;
    memory memory;
} request_case;

/* The row that the engine has run is one of the reported algorithm. */
static kolo_status check_ran(const kolo_request *q) {
    kolo_algorithm reported = kolo_request_algorithm(q);
    const char *ran = kolo_request_schedule_name(q);
    for (size_t i = 0; kolo_algorithm_row_at(i); i++) {
        const kolo_algorithm_row *row = kolo_algorithm_row_at(i);
        if (strcmp(row->name, ran) == 0 && row->algorithm == reported) return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT, "reports %s, but has run %s", kolo_algorithm_name(reported),
                     ran);
}

/* What replaces direct where some rank's memory cannot be reached. */
static kolo_algorithm expected(const kolo_comm *comm, const request_case *c) {
    bool replaced = c->asked == KOLO_ALGORITHM_DIRECT && c->memory != ALL_REGISTERED &&
                    !comm->transport->reaches_all && comm->transport->reads_private;
    return replaced ? KOLO_ALGORITHM_MESH : c->asked;
}

static kolo_status run_case(kolo_comm *comm, const request_case *c, float *own, float *registered) {
    bool private =
        c->memory == ALL_PRIVATE || (c->memory == PRIVATE_ON_RANK_1 && kolo_comm_rank(comm) == 1);
    kolo_part part = {.data = private ? own : registered, .count = COUNT};
    kolo_request *q;
    KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, c->asked, "case", &q));
    kolo_algorithm want = expected(comm, c), planned = kolo_request_algorithm(q);
    if (planned != (private ? want : c->asked)) { /* by its own memory */
        return KOLO_FAIL(KOLO_ERR_FORMAT, "created as %s, not %s", kolo_algorithm_name(planned),
                         kolo_algorithm_name(want));
    }
    for (int repeat = 0; repeat < 2; repeat++) {
        KOLO_TRY(kolo_request_start(q));
        KOLO_TRY(kolo_request_wait(q, 0));
        KOLO_TRY(check_ran(q));
        if (kolo_request_algorithm(q) != want) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "reports %s, not %s",
                             kolo_algorithm_name(kolo_request_algorithm(q)),
                             kolo_algorithm_name(want));
        }
    }
    kolo_request_destroy(q);
    return KOLO_OK;
}

/* `arg`: whether reading the peers' private memory pays, instead of what was measured. */
static kolo_status allreduce_body(kolo_comm *comm, const void *arg, void *result) {
    comm->transport->reads_private = *(const bool *)arg;
    static const request_case cases[] = {
        {KOLO_ALGORITHM_DIRECT, ALL_REGISTERED},    {KOLO_ALGORITHM_DIRECT, ALL_PRIVATE},
        {KOLO_ALGORITHM_DIRECT, PRIVATE_ON_RANK_1}, {KOLO_ALGORITHM_RING, ALL_PRIVATE},
        {KOLO_ALGORITHM_TREE, ALL_REGISTERED},      {KOLO_ALGORITHM_HIERARCHICAL, ALL_PRIVATE},
    };
    void *registered;
    KOLO_TRY(kolo_comm_alloc(comm, COUNT * sizeof(float), &registered));
    float *own = kolo_zalloc(COUNT * sizeof *own);
    if (!own) return KOLO_NOMEM(COUNT * sizeof *own);
    kolo_status status = KOLO_OK;
    for (size_t i = 0; i < KOLO_COUNT(cases) && status == KOLO_OK; i++) {
        status = run_case(comm, &cases[i], own, registered);
        if (status != KOLO_OK) status = kolo_fail_in(status, "case %zu", i);
    }
    kolo_free(own);
    return status;
}

static void an_allreduce_reports_what_runs(void **state) {
    for (int i = 0; i < 2; i++) {
        bool reads_private = i == 1;
        ASSERT_OK(run_ranks(3, RANKS_THREAD, allreduce_body, &reads_private, sizeof reads_private));
        ASSERT_OK(run_ranks(3, RANKS_SHM, allreduce_body, &reads_private, sizeof reads_private));
    }
}

static kolo_status bench_body(kolo_comm *comm, const void *arg, void *result) {
    static const size_t sizes[] = {COUNT * sizeof(float)};
    comm->transport->reads_private = true;
    kolo_bench_allreduce_opts o = {.sizes = sizes,
                                   .n_sizes = 1,
                                   .algorithm = KOLO_ALGORITHM_DIRECT,
                                   .private_buffers = true,
                                   .budget_ms = 1};
    kolo_bench_row row;
    int n = 1;
    KOLO_TRY(kolo_bench_allreduce(comm, &o, &row, &n));
    kolo_algorithm want =
        expected(comm, &(request_case){.asked = KOLO_ALGORITHM_DIRECT, .memory = ALL_PRIVATE});
    if (row.algorithm == want) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "a row of %s, not %s", kolo_algorithm_name(row.algorithm),
                     kolo_algorithm_name(want));
}

static void a_measurement_reports_what_ran(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_SHM, bench_body, NULL, 0));
}

/* Only an allreduce has a choice, and a reproducible one has none. */
static kolo_status no_choice_body(kolo_comm *comm, const void *arg, void *result) {
    float data[4] = {0};
    kolo_request_opts opts[] = {
        {.kind = KOLO_COLLECTIVE_BROADCAST, .output = data, .count = 4},
        {.kind = KOLO_COLLECTIVE_ALLGATHER, .output = data, .count = 2},
        {.kind = KOLO_COLLECTIVE_BARRIER},
    };
    for (size_t i = 0; i < KOLO_COUNT(opts); i++) {
        kolo_request *q;
        KOLO_TRY(kolo_request_create(comm, &opts[i], &q));
        kolo_algorithm reported = kolo_request_algorithm(q);
        kolo_request_destroy(q);
        if (reported != KOLO_ALGORITHM_AUTO) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "request %zu reports %s", i,
                             kolo_algorithm_name(reported));
        }
    }
    return kolo_barrier(comm);
}

static void other_collectives_report_none(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, no_choice_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, no_choice_body, NULL, 0));
}

TEST_MAIN(test_comm_algorithm) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allreduce_reports_what_runs),
        cmocka_unit_test(a_measurement_reports_what_ran),
        cmocka_unit_test(other_collectives_report_none),
    };
    return cmocka_run_group_tests_name("comm_algorithm", tests, NULL, NULL);
}
