/* Tasks in threads of their own. */
#include "base/clock.h"
#include "base/status.h"
#include "base/task.h"
#include "support/folder.h"
#include "support/support.h"

#include <poll.h>

static kolo_status set(void *arg) {
    *(int *)arg = 7;
    return KOLO_OK;
}

static kolo_status refuse(void *arg) {
    return KOLO_FAIL(KOLO_ERR_IO, "cannot write %s", (const char *)arg);
}

static void a_task_ends_with_its_status(void **state) {
    kolo_task *task;
    int value = 0;
    ASSERT_OK(kolo_task_start(set, &value, "sets a number", &task));
    const int64_t hangs = test_hangs_ns();
    for (; !kolo_task_has_ended(task); poll(NULL, 0, 1)) assert_true(kolo_now_ns() < hangs);
    ASSERT_OK(kolo_task_join(task));
    assert_int_equal(value, 7);
    ASSERT_OK(kolo_task_start(refuse, "x", "writes a file", &task));
    assert_int_equal(kolo_task_join(task), KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(), "cannot write x");
    ASSERT_OK(kolo_task_join(NULL));
    ASSERT_OK(kolo_task_start(refuse, "y", "writes a file", &task));
    kolo_task_destroy(task);
    assert_string_equal(kolo_last_error(), "cannot write x"); /* of the caller */
    kolo_task_destroy(NULL);
}

TEST_MAIN(test_task) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_ends_with_its_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
