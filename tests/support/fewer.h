#pragma once
/* TEST_FEWER(few, all): how many rows of a table a test uses. `few` under sanitizers, which slow
 * code down by ten, provided that the few rows cover the same paths; `all` in other builds,
 * including `make soak`. */

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#endif

#ifdef TEST_SANITIZED
#define TEST_FEWER(few, all) (few)
#else
#define TEST_FEWER(few, all) (all)
#endif

/* Whether a test leaves out row `i` of its table for an instruction set, of which `best` is the one
 * that programs use: each of the others takes every other row, in turn, and under sanitizers that
 * one, too. With KOLO_SOAK none is left out. */
static inline bool test_takes_turns(size_t i, int isa, int best) {
    return TEST_FEWER(true, isa < best) && !getenv("KOLO_SOAK") && (i + (size_t)isa) % 2;
}
