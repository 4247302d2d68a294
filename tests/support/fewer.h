#pragma once
/* TEST_FEWER(few, all): how much of a table a test goes through. It is `few` under sanitizers,
 * which make code ten times slower, where so many take every path that all take; `all` in other
 * builds, and so in `make soak`. */

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
