/* The table of kernels: a kernel of a fast family is not the reference under another name. That its
 * object file calls no reference is a check of tools/lint_symbols.sh, and that it selects none as
 * an inner kernel one of support/kernel_check.c. */
#include "kernel/select/families.h"
#include "support/kernel_check.h"

#include <string.h>

/* Fast kernels that run the loop of the reference, and why no faster one is due. */
static const struct {
    const char *name, *reason;
} shared[] = {{"simd_mask_tokens", "draws and moves a few integers for each window"}};

static bool may_share(const char *name) {
    for (size_t i = 0; i < KOLO_COUNT(shared); i++) {
        if (strcmp(shared[i].name, name) == 0) return true;
    }
    return false;
}

/* The first kernel of `table` that runs what a reference kernel runs; NULL: there is none. */
static const kolo_kernel *find_copy(const kolo_kernel *const *table, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const kolo_kernel *k;
        if (kolo_kernel_is_ref(table[i])) continue;
        for (size_t r = 0; (k = kolo_kernel_at(r)); r++) {
            if (kolo_kernel_is_ref(k) && k->run == table[i]->run) return table[i];
        }
    }
    return NULL;
}

static void no_fast_kernel_is_a_reference(void **state) {
    const kolo_kernel *k;
    size_t found = 0, fast = 0;
    for (size_t i = 0; (k = kolo_kernel_at(i)); i++) {
        fast += !kolo_kernel_is_ref(k);
        if (!find_copy(&k, 1)) continue;
        found++;
        if (!may_share(k->name)) fail_msg("%s runs the loop of a reference kernel", k->name);
    }
    assert_true(fast > 100);
    assert_int_equal(found, KOLO_COUNT(shared)); /* no row of `shared` is outdated */
}

/* A kernel that names another's loop its own is found, whichever op the loop is of. */
static void a_copy_is_found(void **state) {
    const kolo_kernel *relu = test_kernel("simd_relu"), *reference = test_kernel("ref_add");
    kolo_kernel toy = *relu;
    toy.name = "simd_toy";
    const kolo_kernel *table[] = {relu, &toy};
    assert_null(find_copy(table, 2));
    toy.run = reference->run;
    assert_ptr_equal(find_copy(table, 2), &toy);
}

TEST_MAIN(test_families) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_fast_kernel_is_a_reference),
        cmocka_unit_test(a_copy_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
