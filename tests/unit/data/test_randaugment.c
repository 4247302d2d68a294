/* RandAugment: the bytes of torchvision for each operation, and the draws of samples. */
#include "base/compiler.h"
#include "data/augment.h"
#include "data/images/randaugment.h"
#include "data/prefetch.h"
#include "data/safetensors/safetensors.h"
#include "support/support.h"

#include <string.h>

enum { OPS = KOLO_RANDAUGMENT_OPS, HEIGHT = 16, WIDTH = 22, BYTES = 3 * HEIGHT * WIDTH };

static const int steps[] = {9, 30};

static const void *find(const kolo_safetensors *file, const char *name, size_t bytes) {
    const kolo_safetensors_entry *e = kolo_safetensors_find(file, name);
    assert_true(e && e->bytes == bytes);
    return e->data;
}

static void strengths_are_those_of_torchvision(void **state) {
    kolo_safetensors *file;
    float wanted[OPS][KOLO_RANDAUGMENT_STRENGTHS];
    ASSERT_OK(
        kolo_safetensors_open(KOLO_SOURCE_DIR "/tests/golden/randaugment.safetensors", &file));
    memcpy(wanted, find(file, "strengths", sizeof wanted), sizeof wanted);
    for (int op = 0; op < OPS; op++) {
        for (int s = 0; s < KOLO_RANDAUGMENT_STRENGTHS; s++) {
            const float found = kolo_randaugment_strength(op, s, HEIGHT, WIDTH);
            if (found != wanted[op][s]) {
                fail_msg("operation %d, %d: %.9g, not %.9g", op, s, (double)found,
                         (double)wanted[op][s]);
            }
        }
    }
    kolo_safetensors_close(file);
}

static void bytes_are_those_of_torchvision(void **state) {
    static const struct {
        const char *image, *results;
        int channels, first; /* operation */
    } cases[] = {
        {"image", "results", 3, 0}, {"grey", "greys", 1, 0}, {"flat", "flats", 3, OPS - 2}};
    kolo_safetensors *file;
    ASSERT_OK(
        kolo_safetensors_open(KOLO_SOURCE_DIR "/tests/golden/randaugment.safetensors", &file));
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        const int n = cases[c].channels * HEIGHT * WIDTH, each = 2 * (int)KOLO_COUNT(steps);
        const uint8_t *image = find(file, cases[c].image, (size_t)n);
        const uint8_t *wanted =
            find(file, cases[c].results, (size_t)((OPS - cases[c].first) * each * n));
        for (int i = cases[c].first * each; i < OPS * each; i++, wanted += n) {
            const int op = i / each, step = steps[i / 2 % (int)KOLO_COUNT(steps)];
            double strength = kolo_randaugment_strength(op, step, HEIGHT, WIDTH);
            uint8_t bytes[BYTES], work[BYTES];
            if (i % 2 && kolo_randaugment_is_signed(op)) strength = -strength;
            memcpy(bytes, image, (size_t)n);
            kolo_randaugment_apply(op, strength, cases[c].channels, HEIGHT, WIDTH, bytes, work);
            for (int k = 0; k < n; k++) {
                if (bytes[k] == wanted[k]) continue;
                fail_msg("%s, operation %d, strength %g: byte %d is %d, not %d", cases[c].image, op,
                         strength, k, bytes[k], wanted[k]);
            }
        }
    }
    kolo_safetensors_close(file);
}

/* With one operation each of the 14 comes up as often, and with both signs; two are one after the
 * other. */
static void operations_are_drawn_for_each_sample(void **state) {
    enum { DRAWS = 2800 };
    static const kolo_field fields[] = {
        {"x", KOLO_DTYPE_U8, {3, {3, HEIGHT, WIDTH}}, .mean = {0}},
        {"y", KOLO_DTYPE_I32, {0}, .mean = {0}},
    };
    const kolo_augment one = {.operations = 1, .strength = 9};
    const kolo_augment two = {.operations = 2, .strength = 9};
    kolo_safetensors *file;
    static uint8_t table[OPS][2][BYTES];
    uint8_t work[BYTES], bytes[BYTES], both[BYTES];
    int seen[OPS][2] = {{0}}, pairs = 0;
    ASSERT_OK(
        kolo_safetensors_open(KOLO_SOURCE_DIR "/tests/golden/randaugment.safetensors", &file));
    const uint8_t *image = find(file, "image", BYTES);
    for (int op = 0; op < OPS; op++) {
        for (int sign = 0; sign < 2; sign++) {
            const double s = kolo_randaugment_strength(op, 9, HEIGHT, WIDTH);
            memcpy(table[op][sign], image, BYTES);
            kolo_randaugment_apply(op, sign ? -s : s, 3, HEIGHT, WIDTH, table[op][sign], work);
        }
    }
    for (int i = 0; i < DRAWS; i++) {
        int op = 0, sign = 0;
        memcpy(bytes, image, BYTES);
        memcpy(both, image, BYTES);
        kolo_augment_apply(&one, 4, 2, i, fields, bytes, NULL, work);
        kolo_augment_apply(&two, 4, 2, i, fields, both, NULL, work);
        for (op = 0; op < OPS && memcmp(bytes, table[op][sign], BYTES) != 0; op += sign)
            sign = !sign;
        assert_true(op < OPS);
        seen[op][sign]++;
        pairs += memcmp(bytes, both, BYTES) != 0;
        uint8_t again[BYTES];
        memcpy(again, image, BYTES);
        kolo_augment_apply(&one, 4, 2, i, fields, again, NULL, work);
        assert_memory_equal(bytes, again, BYTES);
    }
    /* Of 200 each: 100 and 100 where there is a sign. */
    for (int op = 0; op < OPS; op++) {
        const int all = seen[op][0] + seen[op][1];
        if (all < 130 || all > 280) fail_msg("operation %d: %d times", op, all);
        if (kolo_randaugment_is_signed(op)) assert_true(seen[op][0] > 55 && seen[op][1] > 55);
    }
    assert_true(pairs > DRAWS * 8 / 10);
    kolo_safetensors_close(file);
}

static void unsuitable_data_are_refused(void **state) {
    static const struct {
        const char *data, *error;
    } cases[] = {
        {"synthetic:N=8,test=1,shape=3x4x4", NULL},
        {"synthetic:N=8,test=1,shape=1x4x4", NULL},
        {"synthetic:N=8,test=1,shape=2x4x4", "randaugment is for images of one channel or three"},
        {"synthetic-seg:N=8,test=1,shape=3x8x8", "randaugment moves pixels"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_dataset *d;
        kolo_loader *loader = NULL;
        ASSERT_OK(kolo_dataset_open(cases[i].data, KOLO_SPLIT_TRAIN, &d));
        kolo_loader_opts opts = {.dataset = d, .global_batch = 2};
        ASSERT_OK(kolo_augment_parse("flip,randaugment=3:20", &opts.augment));
        assert_true(opts.augment.operations == 3 && opts.augment.strength == 20);
        assert_int_equal(kolo_loader_create(&opts, &loader),
                         cases[i].error ? KOLO_ERR_ARG : KOLO_OK);
        if (cases[i].error) assert_non_null(strstr(kolo_last_error(), cases[i].error));
        kolo_loader_destroy(loader);
        kolo_dataset_close(d);
    }
    static const char *const bad[] = {"randaugment=2",    "randaugment=0:9",  "randaugment=2:31",
                                      "randaugment=17:1", "randaugment=1:-1", "randaugment=1:2x"};
    kolo_augment a;
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        assert_int_equal(kolo_augment_parse(bad[i], &a), KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), "write randaugment=N:M"));
    }
    ASSERT_OK(kolo_augment_parse("randaugment", &a));
    assert_true(a.operations == 2 && a.strength == 9 && kolo_augment_any(&a));
}

TEST_MAIN(test_randaugment) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strengths_are_those_of_torchvision),
        cmocka_unit_test(bytes_are_those_of_torchvision),
        cmocka_unit_test(operations_are_drawn_for_each_sample),
        cmocka_unit_test(unsuitable_data_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
