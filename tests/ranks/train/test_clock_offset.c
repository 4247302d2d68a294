/* Offsets of clocks. The hosts of the test are one machine: the true offset is 0. */
#include "base/compiler.h"
#include "base/status.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/record/clock_offset.h"

#include <stdlib.h>

typedef struct outcome {
    int64_t ns, error_ns;
    int host;
} outcome;

static kolo_status measure(kolo_comm *comm, const void *arg, void *result) {
    outcome *o = result;
    o->host = kolo_comm_host(comm, kolo_comm_rank(comm));
    return kolo_clock_offset(comm, &o->ns, &o->error_ns);
}

static void offsets_are_within_their_error(void **state) {
    enum { RANKS = 5 };
    outcome o[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_HOSTS,
                    .body = measure,
                    .results = o,
                    .result_bytes = sizeof *o};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(o[r].host, r / 2);
        assert_true((o[r].error_ns > 0) == (o[r].host > 0));
        assert_true(llabs(o[r].ns) <= o[r].error_ns);
    }
    assert_true(o[2].ns == o[3].ns && o[2].error_ns == o[3].error_ns); /* of one host */
}

static void one_host_has_one_clock(void **state) {
    outcome o[2];
    rank_job job = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = measure,
                    .results = o,
                    .result_bytes = sizeof *o};
    ASSERT_OK(run_rank_job(&job));
    int64_t ns = 1, error_ns = 1;
    ASSERT_OK(kolo_clock_offset(NULL, &ns, &error_ns));
    assert_true(ns == 0 && error_ns == 0 && o[1].ns == 0 && o[1].error_ns == 0);
}

TEST_MAIN(test_clock_offset) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_are_within_their_error),
        cmocka_unit_test(one_host_has_one_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
