/* Workers that are threads of one process: the bits of processes, the errors, and what is refused.
 */
#include "base/memory.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

#define JOB                                                                                        \
    "train --model mlp:hidden=16 --data synthetic:N=90,test=10,shape=1x8x8 --batch 4 --workers 3 " \
    "--threads 1 --steps 12 --no-recipe --lr 0.05 --autotune off "

static void threads_compute_the_bits_of_processes(void **state) {
    static const char *const more[] = {"", "--optimizer adam --lr 0.001 --clip 1 --zero 2 "};
    for (int i = 0; i < 2; i++) {
        char command[512], hash[2][64];
        for (int threads = 0; threads < 2; threads++) {
            snprintf(command, sizeof command, JOB "%s %s --json result.json", more[i],
                     threads ? "--workers-as threads" : "");
            assert_int_equal(test_run(command), 0);
            json_t *result = test_json("result.json");
            json_t *text = json_object_get(result, "parameter_hash");
            snprintf(hash[threads], sizeof hash[threads], "%s", json_string_value(text));
            assert_int_equal(test_json_int(result, "workers"), 3);
            json_decref(result);
        }
        assert_string_equal(hash[0], hash[1]);
    }
}

static void a_run_of_processes_resumes_with_threads(void **state) {
    assert_int_equal(test_run(JOB "--out a"), 0);
    assert_int_equal(test_run(JOB "--steps 5 --out b --checkpoint-every 5"), 0);
    assert_int_equal(test_run("train --resume b --steps 12 --workers-as threads"), 0);
    assert_int_equal(test_run("checkpoint diff a/checkpoint-final.safetensors "
                              "b/checkpoint-final.safetensors"),
                     0);
}

/* By one line. */
static void an_error_of_all_workers_is_reported_once(void **state) {
    assert_int_equal(test_run(JOB "--workers-as threads --lr 1e6"), 1);
    char *text = test_contents("err");
    const char *line = strstr(text, "training diverged");
    assert_non_null(line);
    assert_null(strstr(line + 1, "training diverged"));
    kolo_free(text);
}

static void what_threads_cannot_do_is_refused(void **state) {
    test_run_fails("train --model mlp --data synthetic --workers-as threads", 2,
                   "kolo: --workers-as threads has no effect with one worker: give --workers N\n");
    test_run_fails(JOB "--workers-as threads --transport tcp", 2,
                   "kolo: --workers-as threads cannot be combined with --transport: threads of one "
                   "process have no connections\n");
}

TEST_MAIN(test_worker_threads) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_compute_the_bits_of_processes),
        cmocka_unit_test(a_run_of_processes_resumes_with_threads),
        cmocka_unit_test(an_error_of_all_workers_is_reported_once),
        cmocka_unit_test(what_threads_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
