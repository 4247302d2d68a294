/* Ledgers: what is written, and what their check finds. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/ledger.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

#define HEAD "kolo ledger 1\n"
#define RUN(number, first, rank, ranks) AFTER(0, number, first, rank, ranks)
#define AFTER(after, number, first, rank, ranks)                                           \
    "run " #number " from step " #first " after run " #after ", rank " #rank " of " #ranks \
    ", 5 samples, 2 steps, lag 0\n"

static void put(const char *path, const char *text) {
    ASSERT_OK(kolo_file_write(path, text, strlen(text)));
}

static void the_check_counts_each_sample(void **state) {
    static const struct {
        const char *zero, *one; /* the ledgers of two workers; one may be missing */
        const char *text;
    } cases[] = {
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 2\nepoch 0 step 1 of 2: 1 3\n", NULL,
         "epoch 1: 5 samples, each once\n1 run, 2 steps, at most 1 workers\n"},
        {HEAD RUN(1, 0, 0, 2) "epoch 0 step 0 of 3: 4 0\nepoch 0 step 1 of 2: 1\n",
         HEAD RUN(1, 0, 1, 2) "epoch 0 step 0 of 3: 2\nepoch 0 step 1 of 2: 3\n",
         "epoch 1: 5 samples, each once\n1 run, 2 steps, at most 2 workers\n"},
        /* Missing ones, also those of a worker that died; doubled ones. */
        {HEAD RUN(1, 0, 0, 2) "epoch 0 step 0 of 3: 4 4\nepoch 0 step 1 of 2: 1\n",
         HEAD RUN(1, 0, 1, 2),
         "epoch 1: 5 samples; 3 missing (0, 2, 3); 1 used more than once (4)\n"
         "1 run, 2 steps, at most 2 workers\n"},
        /* The last step of a worker that died was made by another. */
        {HEAD RUN(1, 0, 0, 2) "epoch 0 step 0 of 3: 4 0\nepoch 0 step 1 of 2: 1\n"
                              "epoch 0 step 1 of 2: 3\nlost 1 after 1 steps\n",
         HEAD RUN(1, 0, 1, 2) "epoch 0 step 0 of 3: 2\nepoch 0 step 1 of 2: 3\n",
         "epoch 1: 5 samples, each once\n1 run, 2 steps, at most 2 workers\n"},
        /* An epoch that has not ended, and a line that was not completed. */
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 2\nepoch 0 step 1 of 2: 1 ", NULL,
         "epoch 1: 3 of 5 samples so far, none twice\n1 run, 1 steps, at most 1 workers\n"},
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 4\n", NULL,
         "epoch 1: 3 of 5 samples so far; 1 used more than once (4)\n"
         "1 run, 1 steps, at most 1 workers\n"},
        /* Resumed at step 1, by one worker more; what was recorded of later steps is not used. */
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 2\nepoch 0 step 1 of 2: 1 3\n" AFTER(
             1, 2, 1, 0, 2) "epoch 0 step 1 of 2: 1\n",
         HEAD AFTER(1, 2, 1, 1, 2) "epoch 0 step 1 of 2: 3\n",
         "epoch 1: 5 samples, each once\n2 runs, 2 steps, at most 2 workers\n"},
        /* Resumed twice from the first run: at step 3, then at 1. */
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 2\nepoch 0 step 1 of 2: 1 1\n" AFTER(
             1, 2, 3, 0, 1) "epoch 1 step 1 of 2: 0 1\n" AFTER(1, 3, 1, 0, 1) "epoch 0 step 1 of "
                                                                              "2: 1 3\n",
         NULL, "epoch 1: 5 samples, each once\n2 runs, 2 steps, at most 1 workers\n"},
        /* The same, and then a run after the second one: the third is of no use to it. */
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 2\n" AFTER(
             1, 2, 1, 0,
             1) "epoch 0 step 1 of 2: 1 3\n" AFTER(1, 3, 1, 0,
                                                   1) "epoch 0 step 1 of "
                                                      "2: 1 1\n" AFTER(
                                                          2, 4, 2, 0,
                                                          1) "epoch 1 step 0 of 3: 1 2 3\n",
         NULL,
         "epoch 1: 5 samples, each once\nepoch 2: 3 of 5 samples so far, none twice\n"
         "3 runs, 3 steps, at most 1 workers\n"},
        /* Another run was refused by worker 0. */
        {HEAD RUN(1, 0, 0, 2) "epoch 0 step 0 of 3: 4 0\nepoch 0 step 1 of 2: 1\n",
         HEAD RUN(2, 0, 1, 3) RUN(1, 0, 1, 2) "epoch 0 step 0 of 3: 2\nepoch 0 step 1 of 2: 3\n",
         "epoch 1: 5 samples, each once\n1 run, 2 steps, at most 2 workers\n"},
        /* A run that begins anew, and one that ends before its first step. */
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 4 4 2\n" RUN(
             2, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 2\n" AFTER(1, 3, 1, 0, 1),
         NULL, "epoch 1: 3 of 5 samples so far, none twice\n1 run, 1 steps, at most 1 workers\n"},
        /* The first run was killed before its second worker had begun a file, or its first line. */
        {HEAD RUN(1, 0, 0, 2) RUN(2, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 2\n", NULL,
         "epoch 1: 3 of 5 samples so far, none twice\n1 run, 1 steps, at most 2 workers\n"},
        {HEAD RUN(1, 0, 0, 2) RUN(2, 0, 0, 1) "epoch 0 step 0 of 3: 4 0 2\n", "kolo led",
         "epoch 1: 3 of 5 samples so far, none twice\n1 run, 1 steps, at most 2 workers\n"},
        /* The first run has no ledger, and then epochs without a line. */
        {HEAD RUN(1, 1, 0, 1) "epoch 0 step 1 of 2: 1 3\nepoch 3 step 1 of 2: 0 1\n", NULL,
         "epoch 1: 2 of 5 samples so far, none twice\nepochs 2 to 3: no samples\n"
         "epoch 4: 5 samples; 3 missing (2, 3, 4)\n1 run, 8 steps, at most 1 workers; steps before "
         "1 are not in this "
         "ledger\n"},
        /* Nor that of the first run, which is in another one. */
        {HEAD AFTER(7, 2, 1, 0, 1) "epoch 0 step 1 of 2: 1 3\n", NULL,
         "epoch 1: 2 of 5 samples so far, none twice\n"
         "1 run, 2 steps, at most 1 workers; steps before 1 are not in this ledger\n"},
        /* The last gradients are dropped. */
        {HEAD "run 1 from step 0 after run 0, rank 0 of 1, 5 samples, 2 steps, lag 1\n"
              "epoch 0 step 0 of 3: 4 0 2\nepoch 0 step 1 of 2: 1 3\n",
         NULL,
         "epoch 1: 3 of 5 samples so far, none twice\n"
         "1 run, 1 steps, at most 1 workers; lag:1 drops the last gradients\n"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        bool exact;
        char *text;
        put("a.0", cases[i].zero);
        ASSERT_OK(kolo_file_remove("a.1"));
        if (cases[i].one) put("a.1", cases[i].one);
        ASSERT_OK(kolo_ledger_check("a", &exact, &text));
        assert_string_equal(text, cases[i].text);
        const bool wrong =
            strstr(text, "missing") || strstr(text, "more than") || strstr(text, "no samples");
        assert_int_equal(exact, !wrong);
        kolo_ledger_text_free(text);
    }
}

static void damaged_ledgers_are_refused(void **state) {
    static const struct {
        const char *zero, *one, *why;
    } cases[] = {
        {"", NULL, "b.0: line 1"},
        {"kolo ledger 2\n", NULL, "b.0: line 1"},
        {HEAD, NULL, "no run"},
        {HEAD "epoch 0 step 0 of 1: 1\n", NULL, "b.0: line 2"},
        {HEAD RUN(1, 0, 1, 2), NULL, "b.0: line 2"},
        {HEAD RUN(99999999999999999999, 0, 0, 1), NULL, "b.0: line 2"},
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 5\n", NULL, "b.0: line 3"},
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 2 of 3: 1\n", NULL, "b.0: line 3"},
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 6: 1\n", NULL, "b.0: line 3"},
        {HEAD RUN(1, 0, 0, 1) "epoch 9223372036854775807 step 0 of 1: 1\n", NULL, "b.0: line 3"},
        {HEAD RUN(1, 0, 0, 1) "epoch 0 step 0 of 3: 1,2\n", NULL, "b.0: line 3"},
        {HEAD RUN(1, 0, 0, 1) "Epoch 0\n", NULL, "b.0: line 3"},
        {HEAD RUN(1, 0, 0,
                  1) "run 2 from step 0 after run 0, rank 0 of 1, 6 samples, 2 steps, lag 0\n",
         NULL, "other data"},
        {HEAD "lost 1 after 1 steps\n", NULL, "b.0: line 2"},
        {HEAD RUN(1, 0, 0, 1) "lost 1 after steps\n", NULL, "b.0: line 3"},
        {HEAD RUN(1, 0, 0, 2) "epoch 0 step 0 of 3: 4 0\n", NULL, "b.1"},
        {HEAD RUN(1, 0, 0, 2) "epoch 0 step 0 of 3: 4 0\n", "kolo", "b.1: line 1"},
        {HEAD RUN(1, 0, 0, 2), HEAD "epoch 0 step 0 of 1: 1\n", "b.1: line 2"},
        {HEAD RUN(1, 0, 0, 2), HEAD RUN(3, 0, 1, 2) "epoch 0 step 0 of 1: 1\n",
         "b.1: line 3 is of a run that is not in the ledger of rank 0"},
        {HEAD RUN(1, 0, 0, 2), HEAD RUN(1, 0, 1, 3), "with other workers"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        bool exact;
        char *text;
        put("b.0", cases[i].zero);
        if (cases[i].one) put("b.1", cases[i].one);
        assert_int_not_equal(kolo_ledger_check("b", &exact, &text), KOLO_OK);
        if (!strstr(kolo_last_error(), cases[i].why)) fail_msg("%zu: %s", i, kolo_last_error());
    }
}

/* A resumed run goes on after the last complete line; a new one replaces nothing. */
static void ledgers_are_continued(void **state) {
    static const int64_t indices[] = {3, 1};
    const kolo_batch batch = {
        .count = 2, .global_count = 4, .epoch = 1, .step = 1, .indices = indices};
    kolo_ledger_run run = {.number = 7, .rank = 2, .ranks = 3, .samples = 9, .steps = 3};
    kolo_ledger *ledger, *other;
    ASSERT_OK(kolo_ledger_open("c", &run, false, &ledger));
    ASSERT_OK(kolo_ledger_add(ledger, &batch));
    assert_int_equal(kolo_ledger_open("c", &run, true, &other), KOLO_ERR_IO); /* it is open */
    ASSERT_OK(kolo_ledger_sync(ledger));
    kolo_ledger_close(ledger);
    assert_int_equal(system("printf 'epoch 1 step 2 of 4: 5' >>c.2"), 0);
    assert_int_equal(kolo_ledger_open("c", &run, false, &other), KOLO_ERR_ARG);
    run = (kolo_ledger_run){
        .number = 8, .after = 7, .first = 5, .rank = 2, .ranks = 4, .samples = 9, .steps = 3};
    ASSERT_OK(kolo_ledger_open("c", &run, true, &ledger));
    kolo_ledger_close(ledger);
    char *text = test_contents("c.2");
    assert_string_equal(text, HEAD
                        "run 7 from step 0 after run 0, rank 2 of 3, 9 samples, 3 steps, lag 0\n"
                        "epoch 1 step 1 of 4: 3 1\n"
                        "run 8 from step 5 after run 7, rank 2 of 4, 9 samples, 3 steps, lag 0\n");
    kolo_free(text);
    static const char *const others[] = {"data of a user\n", "data without a newline", "k"};
    for (size_t i = 0; i < KOLO_COUNT(others); i++) {
        for (int resumes = 0; resumes < 2; resumes++) {
            put("d.2", others[i]);
            kolo_status status = kolo_ledger_open("d", &run, resumes, &other);
            if (i == 2) { /* a ledger of which little was written */
                ASSERT_OK(status);
                kolo_ledger_close(other);
                continue;
            }
            assert_int_equal(status, KOLO_ERR_FORMAT);
            char *kept = test_contents("d.2");
            assert_string_equal(kept, others[i]);
            kolo_free(kept);
        }
    }
}

TEST_MAIN(test_ledger) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_check_counts_each_sample),
        cmocka_unit_test(damaged_ledgers_are_refused),
        cmocka_unit_test(ledgers_are_continued),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
