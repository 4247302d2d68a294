/* Numbers as text in a locale with a decimal comma: a host program of the library may set one. */
#include "base/number.h"
#include "base/option.h"
#include "base/text.h"
#include "kolo/comm.h"
#include "kolo/train.h"
#include "support/folder.h"
#include "support/support.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The categories of a locale whose numbers are 0,5; all else is as in the locale C. */
static const char definition[] = "comment_char %\n"
                                 "escape_char /\n"
                                 "LC_IDENTIFICATION\n"
                                 "title \"comma\"\n"
                                 "END LC_IDENTIFICATION\n"
                                 "LC_NUMERIC\n"
                                 "decimal_point \",\"\n"
                                 "thousands_sep \"\"\n"
                                 "grouping -1\n"
                                 "END LC_NUMERIC\n"
                                 "LC_CTYPE\n"
                                 "END LC_CTYPE\n";

/* Builds that locale once, which takes seconds; false if this machine lacks the tools. */
static bool build_comma(void) {
    static enum { UNKNOWN, BUILT, MISSING } state;
    if (state != UNKNOWN) return state == BUILT;
    FILE *file = fopen("comma", "w");
    assert_non_null(file);
    assert_true(fputs(definition, file) >= 0 && fclose(file) == 0);
    const int status =
        system("localedef -c --no-archive -i comma -f UTF-8 ./xx_XX >/dev/null 2>&1");
    state = status > 256 ? MISSING : BUILT;
    return state == BUILT;
}

static bool set_comma(void) {
    if (!build_comma()) return false;
    assert_int_equal(setenv("LOCPATH", ".", 1), 0);
    if (!setlocale(LC_ALL, "xx_XX")) return false;
    char text[8];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    return true;
}

static void numbers_have_a_point(void **state) {
    char text[32], *end;
    bool comma = set_comma();
    assert_true(kolo_parse_double("0.25x", &end) == 0.25 && *end == 'x');
    kolo_double_text(-1.5e-300, text);
    assert_string_equal(text, "-1.5e-300");
    kolo_double_text(INFINITY, text);
    assert_string_equal(text, "inf");
    kolo_snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0.5");
    assert_string_equal(kolo_bytes_text(1536, text), "1.5 KiB");
    assert_string_equal(kolo_bytes_text(0x1p45, text), "32.0 TiB");
    assert_string_equal(kolo_bytes_text(20 << 20, text), "20.0 MiB");
    kolo_text t = {0};
    kolo_text_add(&t, "%.2f", 0.25);
    assert_string_equal(t.text, "0.25");
    kolo_text_fini(&t);
    (void)kolo_error_set(KOLO_ERR_ARG, "%.1f s", 2.5);
    assert_string_equal(kolo_last_error(), "2.5 s");
    if (!comma) skip();
}

/* A run, its checkpoint and its metrics are the same as in the locale C. */
static void runs_are_the_same_in_every_locale(void **state) {
    kolo_train_opts opts = {.model = "mlp",
                            .model_options = "hidden=4",
                            .data = "synthetic:N=40,test=8",
                            .batch = 10,
                            .steps = 2,
                            .lr = 0.05,
                            .optimizer.momentum = 0.5,
                            .out_dir = "point",
                            .checkpoint_steps = 2};
    kolo_train_result point, comma;
    assert_non_null(setlocale(LC_ALL, "C"));
    ASSERT_OK(kolo_train(NULL, &opts, NULL, NULL, &point));
    if (!set_comma()) skip();
    opts.out_dir = "comma_run";
    ASSERT_OK(kolo_train(NULL, &opts, NULL, NULL, &comma));
    assert_true(point.parameter_hash == comma.parameter_hash);
    assert_int_equal(system("cmp point/checkpoint-final.safetensors "
                            "comma_run/checkpoint-final.safetensors"),
                     0);
    opts.resume = "point"; /* written in the other locale */
    opts.out_dir = "point";
    opts.steps = 3;
    ASSERT_OK(kolo_train(NULL, &opts, NULL, NULL, &comma));
    char *metrics = test_contents("point/metrics.jsonl");
    assert_non_null(strstr(metrics, "\"lr\": 0.05, "));
    kolo_free(metrics);
}

static int leave(void **state) {
    (void)setlocale(LC_ALL, "C");
    return test_folder_leave(state);
}

TEST_MAIN(test_number) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_a_point),
        cmocka_unit_test(runs_are_the_same_in_every_locale),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, leave);
}
