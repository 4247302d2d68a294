/* Evaluations that count for --patience. */
#include "support/support.h"
#include "train/job/job.h"

/* The evaluation after a step has this loss. */
static void evaluate(kolo_job *j, int64_t steps, double loss) {
    j->state.steps = steps;
    j->evaluation.metrics.value[KOLO_METRIC_LOSS] = loss;
    ASSERT_OK(kolo_job_compare_best(j));
}

/* A worker that is lost while weights are saved makes the others repeat the evaluation, whose loss
 * may then differ by rounding. */
static void a_repeated_evaluation_counts_once(void **state) {
    kolo_job j = {.setup.opts.patience = 3};
    evaluate(&j, 10, 2);
    evaluate(&j, 20, 1);
    assert_int_equal(j.state.best_step, 20);
    evaluate(&j, 20, 1.0000001);
    assert_int_equal(j.state.stale, 0);
    evaluate(&j, 30, 1.5);
    evaluate(&j, 30, 1.4999999);
    assert_int_equal(j.state.stale, 1);
    evaluate(&j, 40, 1.5);
    assert_int_equal(j.state.stale, 2);
    assert_int_equal(j.state.best_step, 20);
    assert_true(j.state.best == 1);
}

/* The first evaluation of a resumed run may be that of the step that it resumes from. */
static void the_step_of_a_checkpoint_counts_no_more(void **state) {
    kolo_job j = {.setup.opts.patience = 3, .resume.state.steps = 10};
    evaluate(&j, 10, 2);
    assert_int_equal(j.state.best_step, 0);
    evaluate(&j, 20, 3);
    assert_int_equal(j.state.best_step, 20);
}

TEST_MAIN(test_patience) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_evaluation_counts_once),
        cmocka_unit_test(the_step_of_a_checkpoint_counts_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
