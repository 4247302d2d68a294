#pragma once
/* TEST_FEWER(few, all): how many rows of a table a test uses. `few` under sanitizers, which slow
 * code down by ten, provided that the few rows cover the same paths; `all` in other builds,
 * including `make soak`. */

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
