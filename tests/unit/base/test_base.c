/* base: errors, memory, arenas, text, suggestions, random numbers. */
#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static kolo_status fails(int n) { return KOLO_FAIL(KOLO_ERR_ARG, "n is %d", n); }

static kolo_status passes_on(int n) {
    KOLO_TRY(fails(n));
    return KOLO_OK;
}

static void failures_set_text_and_location(void **state) {
    assert_int_equal(passes_on(3), KOLO_ERR_ARG);
    assert_string_equal(kolo_last_error(), "n is 3");
    assert_non_null(strstr(kolo_last_error_place(), "test_base.c:"));
    assert_int_equal(kolo_fail_in(KOLO_ERR_ARG, "file %s", "x"), KOLO_ERR_ARG);
    assert_string_equal(kolo_last_error(), "file x: n is 3");
    assert_string_equal(kolo_status_text(KOLO_ERR_PEER), "lost a peer");
    assert_string_equal(kolo_status_text((kolo_status)99), "unknown status");
    assert_int_equal(kolo_error_set(KOLO_ERR_IO, "own line %d (%s)", 7, kolo_last_error()),
                     KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(), "own line 7 (file x: n is 3)");
    assert_string_equal(kolo_last_error_place(), "");
}

static void memory_is_aligned_grows_and_can_fail(void **state) {
    char *a = kolo_alloc(10);
    assert_int_equal((uintptr_t)a % 64, 0);
    memset(a, 7, 10);
    a = kolo_realloc(a, 1000);
    assert_int_equal(a[9], 7);
    kolo_alloc_fail_nth(2);
    char *b = kolo_alloc(1);
    assert_non_null(b);
    assert_null(kolo_alloc(1));
    char *c = kolo_alloc(1);
    assert_non_null(c);
    kolo_free(a);
    kolo_free(b);
    kolo_free(c);
    assert_null(kolo_alloc(SIZE_MAX - 10));
    assert_null(kolo_pages_map(SIZE_MAX - 10));
    int *items = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 100; i++) {
        assert_true(KOLO_GROW(items, i, capacity));
        items[i] = i;
    }
    assert_int_equal(items[99], 99);
    kolo_free(items);
    char *pages = kolo_pages_map(3 << 20);
    pages[(3 << 20) - 1] = 1;
    kolo_pages_unmap(pages, 3 << 20);
}

static void arena_allocations_stay_valid(void **state) {
    kolo_arena arena = {0};
    char *texts[200];
    for (int i = 0; i < 200; i++) {
        char word[32];
        snprintf(word, sizeof word, "word %d", i);
        texts[i] = kolo_arena_strdup(&arena, word);
    }
    char *big = kolo_arena_alloc(&arena, 100000);
    assert_int_equal(big[99999], 0);
    assert_string_equal(texts[0], "word 0");
    assert_string_equal(texts[199], "word 199");
    kolo_arena_fini(&arena);
}

static void text_grows_and_reports_failure(void **state) {
    kolo_text t = {0};
    for (int i = 0; i < 1000; i++) kolo_text_add(&t, "%d,", i);
    assert_int_equal(t.length, 10 * 2 + 90 * 3 + 900 * 4);
    assert_false(t.failed);
    kolo_text_fini(&t);
    kolo_alloc_fail_nth(1);
    kolo_text_add(&t, "x");
    kolo_text_add(&t, "y");
    assert_true(t.failed);
    kolo_text_fini(&t);
}

static void closest_word_is_suggested_only_when_close(void **state) {
    const char *const names[] = {"train", "eval", "bench", "mlp", NULL};
    assert_string_equal(kolo_closest("tarin", names), "train");
    assert_string_equal(kolo_closest("benhc", names), "bench");
    assert_string_equal(kolo_closest("mpl", names), "mlp");
    assert_null(kolo_closest("zzzzzzz", names));
}

/* Known answer of Philox4x32-10 from the paper's code: zero counter, zero key. */
static void philox_known_answer(void **state) {
    uint32_t draw[4];
    kolo_rng zero = {0, 0};
    kolo_rng_draw(&zero, 0, draw);
    const uint32_t known[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(draw, known, sizeof known);
}

static void draws_have_the_right_moments_and_bounds(void **state) {
    kolo_rng rng = kolo_rng_make(1, KOLO_RNG_TEST, 0), other = kolo_rng_make(1, KOLO_RNG_TEST, 1);
    enum { N = 100000 };
    double sum = 0, squares = 0, normal = 0, normal_squares = 0, cross = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = kolo_rng_uniform(&rng, i), z = kolo_rng_normal(&rng, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
        normal += z;
        normal_squares += z * z;
        cross += (u - 0.5) * ((double)kolo_rng_uniform(&other, i) - 0.5);
        assert_true(kolo_rng_below(&rng, i, 10) < 10);
    }
    assert_true(fabs(sum / N - 0.5) < 0.005 && fabs(squares / N - 1.0 / 3) < 0.005);
    assert_true(fabs(normal / N) < 0.02 && fabs(normal_squares / N - 1) < 0.02);
    assert_true(fabs(cross / N) < 0.002);
}

TEST_MAIN(test_base) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_set_text_and_location),
        cmocka_unit_test(memory_is_aligned_grows_and_can_fail),
        cmocka_unit_test(arena_allocations_stay_valid),
        cmocka_unit_test(text_grows_and_reports_failure),
        cmocka_unit_test(closest_word_is_suggested_only_when_close),
        cmocka_unit_test(philox_known_answer),
        cmocka_unit_test(draws_have_the_right_moments_and_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
