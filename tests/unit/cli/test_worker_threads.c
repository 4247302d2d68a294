/* Workers that are threads of one process: the bits of processes, the errors, and what is refused.
 */
#include "base/file.h"
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

/* Six images of a pixel, of which one is damaged, for three workers. */
static void one_worker_that_fails_ends_the_others(void **state) {
    static const unsigned char png[] = {
        0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
        0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00,
        0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00, 0x00, 0x00, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78,
        0x9c, 0x63, 0x70, 0x00, 0x00, 0x00, 0x42, 0x00, 0x41, 0x29, 0x37, 0xf4, 0xef, 0x00,
        0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
    ASSERT_OK(kolo_folder_make("data/train/a"));
    ASSERT_OK(kolo_folder_make("data/val/a"));
    ASSERT_OK(kolo_file_write("data/val/a/0.png", (const char *)png, sizeof png));
    for (int i = 0; i < 6; i++) {
        char path[32];
        snprintf(path, sizeof path, "data/train/a/%d.png", i);
        ASSERT_OK(kolo_file_write(path, (const char *)png, i == 4 ? 20 : sizeof png));
    }
    assert_int_equal(test_run("train --model mlp:hidden=4 --data folder:data,size=1 --batch 1 "
                              "--workers 3 --workers-as threads --threads 1 --strict --quiet"),
                     1);
    assert_true(test_contains("err", "4.png: "));
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
        cmocka_unit_test(one_worker_that_fails_ends_the_others),
        cmocka_unit_test(what_threads_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
