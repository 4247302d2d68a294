/* Fragments of a model: layers by their names, neighbours in equal parts, strided layers. */
#include "base/compiler.h"
#include "plan/fragments.h"
#include "support/support.h"

#include <string.h>

enum { MOST = 12 };

typedef struct division {
    int fragments;
    bool strided;
    int fragment[MOST];
} division;

static void check(const char *const *names, const size_t *bytes, int n, const division *want) {
    int have[MOST];
    ASSERT_OK(kolo_fragments_assign(names, bytes, n, want->fragments, want->strided, have));
    for (int i = 0; i < n; i++) {
        if (have[i] == want->fragment[i]) continue;
        fail_msg("%s of %d: in %d, not %d", names[i], want->fragments, have[i], want->fragment[i]);
    }
}

static void layers_stay_together(void **state) {
    static const char *const names[] = {
        "wte.weight",      "h.0.ln_1.weight", "h.0.mlp.c_fc.weight",
        "h.1.ln_1.weight", "h.1.ln_1.bias",   "h.10.ln.bias",
        "ln_f.weight",     "ln_f.bias",       "bare",
    };
    static const size_t bytes[] = {8, 1, 7, 4, 4, 8, 4, 4, 8};
    static const division wants[] = {
        {1, false, {0, 0, 0, 0, 0, 0, 0, 0, 0}}, {2, false, {0, 0, 0, 0, 0, 1, 1, 1, 1}},
        {3, false, {0, 0, 0, 1, 1, 1, 2, 2, 2}}, {6, false, {0, 1, 1, 2, 2, 3, 4, 4, 5}},
        {2, true, {0, 1, 1, 0, 0, 1, 0, 0, 1}},  {4, true, {0, 1, 1, 2, 2, 3, 0, 0, 1}},
    };
    for (size_t i = 0; i < KOLO_COUNT(wants); i++) {
        check(names, bytes, (int)KOLO_COUNT(bytes), &wants[i]);
    }
}

/* A layer that is larger than all others leaves each fragment one. */
static void each_fragment_has_a_layer(void **state) {
    static const char *const names[] = {"a.w", "b.w", "c.w", "d.w", "e.w"};
    for (int large = 0; large < 5; large++) {
        size_t bytes[] = {1, 1, 1, 1, 1};
        bytes[large] = 1000;
        for (int fragments = 1; fragments <= 5; fragments++) {
            int of[5], layers[5] = {0};
            ASSERT_OK(kolo_fragments_assign(names, bytes, 5, fragments, false, of));
            for (int i = 0; i < 5; i++) layers[of[i]]++;
            for (int f = 0; f < fragments; f++) assert_true(layers[f] > 0);
            for (int i = 1; i < 5; i++) assert_true(of[i] == of[i - 1] || of[i] == of[i - 1] + 1);
        }
    }
}

static void more_fragments_than_layers_are_refused(void **state) {
    static const char *const names[] = {"fc1.weight", "fc1.bias"};
    static const size_t bytes[] = {8, 4};
    int of[2];
    assert_int_equal(kolo_fragments_assign(names, bytes, 2, 2, true, of), KOLO_ERR_ARG);
    assert_string_equal(kolo_last_error(),
                        "2 fragments of a model that has 1 layer: give fewer fragments");
}

TEST_MAIN(test_fragments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_stay_together),
        cmocka_unit_test(each_fragment_has_a_layer),
        cmocka_unit_test(more_fragments_than_layers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
