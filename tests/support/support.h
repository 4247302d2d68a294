#pragma once
/* Shared by all tests. */

#include "kolo/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* The entry point of a test file, which tests/runner.c calls by the file's name. `argv` starts with
 * the test's name. Returns what a main would: the number of failures, or 77 to skip the file. */
#define TEST_MAIN(name)                     \
    int name##_main(int argc, char **argv); \
    int name##_main(int argc, char **argv)

/* Fails the test with kolo_last_error() when `call` does not return KOLO_OK. */
#define ASSERT_OK(call)                                                                          \
    do {                                                                                         \
        kolo_status assert_status_ = (call);                                                     \
        if (assert_status_ != KOLO_OK) {                                                         \
            fail_msg("%s: %s (%s)", #call, kolo_last_error(), kolo_status_text(assert_status_)); \
        }                                                                                        \
    } while (0)

/* Fails the test unless `call` returns KOLO_ERR_ARG with a text that contains `part`. Includers
 * need string.h. */
#define ASSERT_REFUSED(call, part)                                               \
    do {                                                                         \
        assert_int_equal(call, KOLO_ERR_ARG);                                    \
        if (!strstr(kolo_last_error(), part)) fail_msg("%s", kolo_last_error()); \
    } while (0)

/* ||a - b|| / max(||b||, tiny), the relative L2 distance of two vectors. */
double test_relative_l2_f32(const float *a, const float *b, size_t n);
double test_relative_l2_f64(const double *a, const double *b, size_t n);
