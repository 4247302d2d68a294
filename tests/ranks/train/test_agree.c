/* Agreement: the failure of one rank fails all, differing options are named with both values, also
 * if one rank is out of memory. */
#include "base/memory.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/agree.h"

#include <string.h>

static kolo_status failing_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    KOLO_TRY(kolo_agree(comm, KOLO_OK));
    kolo_status status = rank == 0 ? KOLO_OK : KOLO_FAIL(KOLO_ERR_IO, "disk %d is full", rank);
    return kolo_agree(comm, status);
}

static void the_lowest_failure_reaches_all(void **state) {
    rank_outcome outcomes[3];
    rank_job job = {.n = 3, .body = failing_body, .outcomes = outcomes};
    assert_int_equal(run_rank_job(&job), KOLO_ERR_IO);
    static const char *const texts[] = {"rank 1: disk 1 is full", "disk 1 is full",
                                        "rank 1: disk 1 is full"};
    for (int r = 0; r < 3; r++) {
        assert_int_equal(outcomes[r].status, KOLO_ERR_IO);
        assert_string_equal(outcomes[r].error, texts[r]);
    }
}

/* `arg`: the allocation that fails on rank 1, 0 for none. */
static kolo_status texts_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    long nth;
    memcpy(&nth, arg, sizeof nth);
    if (rank == 1) kolo_alloc_fail_nth(nth);
    kolo_status status = kolo_agree_text(comm, rank == 0 ? "a: 1\nb: 2\n" : "a: 1\nb: 3\n");
    kolo_alloc_fail_nth(0);
    return status;
}

static kolo_status run_texts(long nth, rank_outcome outcomes[2]) {
    return run_rank_job(&(rank_job){
        .n = 2, .body = texts_body, .arg = &nth, .arg_bytes = sizeof nth, .outcomes = outcomes});
}

static void both_sides_of_a_difference_are_shown(void **state) {
    rank_outcome outcomes[2];
    assert_int_equal(run_texts(0, outcomes), KOLO_ERR_ARG);
    for (int r = 0; r < 2; r++) {
        assert_non_null(strstr(outcomes[r].error, "rank 1 has \"b: 3\", rank 0 has \"b: 2\""));
    }
}

/* Each allocation of rank 1 fails in turn; no leaks on either side (under ASan). */
static void lack_of_memory_is_a_failure_of_all(void **state) {
    rank_outcome outcomes[2] = {{KOLO_OK}};
    for (long nth = 1; outcomes[0].status != KOLO_ERR_ARG; nth++) {
        (void)run_texts(nth, outcomes);
        for (int r = 0; r < 2; r++) assert_int_not_equal(outcomes[r].status, KOLO_OK);
        kolo_status own =
            outcomes[1].status; /* it may have detected already that the texts differ */
        assert_true(own == KOLO_ERR_NOMEM || own == KOLO_ERR_ARG);
    }
}

TEST_MAIN(test_agree) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_failure_reaches_all),
        cmocka_unit_test(both_sides_of_a_difference_are_shown),
        cmocka_unit_test(lack_of_memory_is_a_failure_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
