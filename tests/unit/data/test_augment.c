/* Augmentation: the transforms and their distribution, equal draws for any number of ranks, invalid
 * options. */
#include "base/compiler.h"
#include "data/augment.h"
#include "data/images/colour.h"
#include "data/prefetch.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { HEIGHT = 5, WIDTH = 7, PIXELS = HEIGHT * WIDTH, BYTES = 2 * PIXELS };

static const kolo_field fields[] = {
    {"x", KOLO_DTYPE_U8, {3, {2, HEIGHT, WIDTH}}, .mean = {0.4F, 0.8F}},
    {"y", KOLO_DTYPE_I32, {0}, .mean = {0}},
};

static void fill(uint8_t *sample) {
    for (int i = 0; i < BYTES; i++) sample[i] = (uint8_t)(1 + i);
}

/* The image shifted and mirrored, pixel by pixel. */
static void expect(const uint8_t *from, int dy, int dx, bool flip, uint8_t *to) {
    for (int c = 0; c < 2; c++) {
        for (int y = 0; y < HEIGHT; y++) {
            for (int x = 0; x < WIDTH; x++) {
                int sy = y + dy, sx = (flip ? WIDTH - 1 - x : x) + dx;
                bool inside = sy >= 0 && sy < HEIGHT && sx >= 0 && sx < WIDTH;
                to[c * PIXELS + y * WIDTH + x] =
                    inside ? from[c * PIXELS + sy * WIDTH + sx] : (uint8_t)0;
            }
        }
    }
}

/* Every sample is one of the transforms that the options allow, and all occur about equally often.
 */
static void moves_are_those_allowed(void **state) {
    const kolo_augment cases[] = {
        {.flip = true}, {.crop = 2}, {.flip = true, .crop = 1}, {.flip = true, .crop = 9}};
    for (size_t k = 0; k < KOLO_COUNT(cases); k++) {
        const kolo_augment *a = &cases[k];
        int side = 2 * a->crop + 1, kinds = side * side * (a->flip ? 2 : 1);
        if (a->crop > WIDTH) kinds = 0; /* far moves look alike: not counted */
        int seen[50] = {0}, draws = 4000;
        for (int i = 0; i < draws; i++) {
            uint8_t from[BYTES], sample[BYTES], work[BYTES], want[BYTES];
            fill(from);
            fill(sample);
            kolo_augment_apply(a, 3, 1, i, fields, sample, NULL, work);
            int found = -1;
            for (int kind = 0; kind < side * side * 2 && found < 0; kind++) {
                bool flip = kind / (side * side) > 0;
                if (flip && !a->flip) break;
                expect(from, kind / side % side - a->crop, kind % side - a->crop, flip, want);
                if (!memcmp(sample, want, BYTES)) found = kind;
            }
            assert_true(found >= 0);
            if (kinds) seen[found]++;
        }
        for (int kind = 0; kind < kinds; kind++) {
            assert_in_range(seen[kind], draws / kinds / 2, draws / kinds * 2);
        }
    }
}

/* Per-pixel labels are shifted with the image; pixels shifted in have none. */
static void maps_move_with_their_images(void **state) {
    const kolo_augment a = {.flip = true, .crop = 2, .erase = 2};
    const kolo_augment moves = {.flip = true, .crop = 2};
    const kolo_field maps[] = {fields[0], {"y", KOLO_DTYPE_I32, {2, {HEIGHT, WIDTH}}, .mean = {0}}};
    uint8_t work[PIXELS * 4];
    assert_in_range(kolo_augment_work(maps), 1, sizeof work);
    for (int i = 0; i < 200; i++) {
        uint8_t sample[BYTES], unerased[BYTES];
        int32_t labels[PIXELS];
        fill(sample);
        fill(unerased);
        for (int p = 0; p < PIXELS; p++) labels[p] = sample[p];
        kolo_augment_apply(&moves, 3, 0, i, fields, unerased, NULL, work);
        kolo_augment_apply(&a, 3, 0, i, maps, sample, labels, work);
        for (int p = 0; p < PIXELS; p++) {
            assert_int_equal(labels[p], unerased[p] == 0 ? -1 : unerased[p]);
        }
    }
}

static void a_square_is_set_to_the_mean(void **state) {
    const kolo_augment a = {.erase = 3};
    int full = 0;
    for (int i = 0; i < 500; i++) {
        uint8_t from[BYTES], sample[BYTES], work[BYTES];
        fill(from);
        fill(sample);
        kolo_augment_apply(&a, 3, 0, i, fields, sample, NULL, work);
        int y0 = HEIGHT, y1 = -1, x0 = WIDTH, x1 = -1, changed = 0;
        for (int p = 0; p < PIXELS; p++) {
            if (sample[p] == from[p] && sample[PIXELS + p] == from[PIXELS + p]) continue;
            assert_int_equal(sample[p], 102);
            assert_int_equal(sample[PIXELS + p], 204);
            changed++;
            if (p / WIDTH < y0) y0 = p / WIDTH;
            if (p / WIDTH > y1) y1 = p / WIDTH;
            if (p % WIDTH < x0) x0 = p % WIDTH;
            if (p % WIDTH > x1) x1 = p % WIDTH;
        }
        assert_int_equal(changed, (y1 - y0 + 1) * (x1 - x0 + 1));
        assert_in_range(y1 - y0, 1, 2); /* at least the centre and a neighbour are inside */
        assert_in_range(x1 - x0, 1, 2);
        full += changed == 9;
    }
    assert_in_range(full, 500 * 15 / 35 / 2, 499);
}

static void epochs_and_seeds_differ(void **state) {
    const kolo_augment a = {.flip = true, .crop = 2};
    uint8_t samples[4][BYTES], work[BYTES];
    int same[3] = {0};
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < 4; k++) fill(samples[k]);
        kolo_augment_apply(&a, 1, 0, i, fields, samples[0], NULL, work);
        kolo_augment_apply(&a, 1, 0, i, fields, samples[1], NULL, work);
        kolo_augment_apply(&a, 1, 1, i, fields, samples[2], NULL, work);
        kolo_augment_apply(&a, 2, 0, i, fields, samples[3], NULL, work);
        for (int k = 0; k < 3; k++) same[k] += !memcmp(samples[0], samples[k + 1], BYTES);
    }
    assert_int_equal(same[0], 100);
    assert_true(same[1] < 20 && same[2] < 20);
}

/* The images of a step do not depend on the number of ranks. */
static void ranks_see_the_images_of_one(void **state) {
    kolo_dataset *dataset;
    ASSERT_OK(kolo_dataset_open("synthetic:N=50,test=1,shape=3x6x5", KOLO_SPLIT_TRAIN, &dataset));
    kolo_loader_opts opts = {.dataset = dataset,
                             .global_batch = 12,
                             .seed = 4,
                             .first = 5,
                             .end = 10,
                             .augment = {.flip = true, .crop = 2, .erase = 2}};
    kolo_loader *alone, *ranks[3];
    ASSERT_OK(kolo_loader_create(&opts, &alone));
    opts.world = 3;
    for (opts.rank = 0; opts.rank < 3; opts.rank++) {
        ASSERT_OK(kolo_loader_create(&opts, &ranks[opts.rank]));
    }
    for (int step = 0; step < 5; step++) {
        kolo_batch whole, part;
        ASSERT_OK(kolo_loader_next(alone, &whole));
        int64_t at = 0;
        for (int r = 0; r < 3; r++) {
            ASSERT_OK(kolo_loader_next(ranks[r], &part));
            assert_memory_equal(part.data[0], (const char *)whole.data[0] + at * 90,
                                (size_t)part.count * 90);
            at += part.count;
        }
        assert_int_equal(at, whole.count);
    }
    kolo_loader_destroy(alone);
    for (int r = 0; r < 3; r++) kolo_loader_destroy(ranks[r]);
    kolo_dataset_close(dataset);
}

/* Areas and aspect ratios are uniform in their ranges; the ratio's logarithm is. */
static void crops_are_of_all_shapes(void **state) {
    const kolo_augment augment = {.least_area = 0.25};
    const kolo_draw by = {.augment = &augment, .seed = 5, .epoch = 2};
    enum { SIDE = 1000, BOXES = 4000, BINS = 4 };
    int ratios[BINS] = {0}, areas[BINS] = {0}, boxes = 0;
    for (int64_t i = 0; i < BOXES; i++) {
        const kolo_box box = kolo_augment_box(&by, i, SIDE, SIDE);
        assert_true(box.y >= 0 && box.x >= 0 && box.height > 0 && box.width > 0);
        assert_true(box.y + box.height <= SIDE && box.x + box.width <= SIDE);
        const double ratio = log((double)box.width / (double)box.height) / log(4.0 / 3);
        const double area = (double)(box.height * box.width) / SIDE / SIDE;
        assert_true(fabs(ratio) <= 1.01 && area >= 0.249 && area <= 1);
        if (area > 0.75) continue; /* of a wide or a tall part, which may not fit */
        ratios[(int)fmin(BINS - 1, (ratio + 1) / 2 * BINS)]++;
        areas[(int)fmin(BINS - 1, (area - 0.25) / 0.5 * BINS)]++;
        boxes++;
    }
    for (int k = 0; k < BINS; k++) {
        assert_in_range(ratios[k], boxes / BINS * 4 / 5, boxes / BINS * 5 / 4);
        assert_in_range(areas[k], boxes / BINS * 4 / 5, boxes / BINS * 5 / 4);
    }
}

/* Where no such part fits, the largest one in the centre is taken. */
static void crops_of_narrow_images_fit(void **state) {
    const kolo_augment augment = {.least_area = 1};
    const kolo_draw by = {.augment = &augment};
    const kolo_box tall = kolo_augment_box(&by, 0, 900, 30),
                   wide = kolo_augment_box(&by, 0, 30, 900);
    assert_true(tall.height == 40 && tall.width == 30 && tall.y == 430 && tall.x == 0);
    assert_true(wide.height == 30 && wide.width == 40 && wide.y == 0 && wide.x == 430);
}

/* Bytes of torchvision 0.29.2, functional.adjust_* of a tensor a[c, y, x] = (37 y + 11 x + 85 c +
 * 29 x y c) % 256. */
static void colours_are_those_of_torchvision(void **state) {
    enum { N = 4 * 5 };
    static const struct {
        kolo_colour_change *change;
        int64_t channels;
        double amount;
        uint8_t want[3 * N];
    } cases[] = {
        {kolo_colour_brightness, 3, 1.3, {0,   14,  28,  42,  57,  48,  62,  76,  91,  105,
                                          96,  110, 124, 139, 153, 144, 158, 172, 187, 201,
                                          110, 124, 139, 153, 167, 158, 210, 255, 255, 33,
                                          206, 255, 53,  143, 232, 254, 49,  176, 255, 98,
                                          220, 235, 249, 255, 255, 255, 26,  115, 205, 255,
                                          255, 149, 255, 146, 255, 32,  255, 180, 88,  255}},
        {kolo_colour_contrast, 3, 0.6, {48,  54,  61,  67,  74,  70,  76,  83,  90,  96,
                                        92,  99,  105, 112, 118, 114, 121, 127, 134, 141,
                                        99,  105, 112, 118, 125, 121, 145, 169, 193, 63,
                                        143, 184, 72,  114, 155, 165, 70,  129, 188, 93,
                                        150, 156, 163, 169, 176, 172, 60,  101, 142, 184,
                                        194, 117, 193, 115, 192, 63,  174, 131, 88,  199}},
        {kolo_colour_saturation, 3, 1.7, {0,   0,   0,   0,   0,   0,   3,   0,   0,   92,
                                          25,  24,  107, 105, 83,  83,  150, 131, 113, 180,
                                          96,  107, 118, 129, 140, 133, 197, 241, 255, 0,
                                          170, 255, 13,  110, 187, 227, 7,   136, 255, 45,
                                          240, 251, 255, 255, 255, 255, 0,   49,  142, 255,
                                          255, 75,  255, 115, 255, 0,   255, 141, 0,   255}},
        {kolo_colour_hue, 3, 0.2, {119, 130, 141, 152, 163, 156, 20,  59,  70,  227, 193, 85,
                                   242, 111, 204, 25,  210, 137, 68,  253, 0,   11,  22,  33,
                                   44,  37,  162, 143, 120, 26,  74,  170, 41,  107, 118, 196,
                                   38,  133, 234, 76,  170, 181, 192, 203, 214, 207, 162, 202,
                                   242, 132, 244, 228, 147, 113, 240, 144, 91,  139, 191, 139}},
        {kolo_colour_hue, 3, -0.4, {153, 164, 175, 186, 197, 190, 162, 202, 242, 51,  227, 228,
                                    66,  112, 228, 196, 38,  138, 234, 76,  170, 181, 192, 203,
                                    214, 207, 20,  59,  89,  227, 244, 85,  242, 113, 240, 25,
                                    210, 139, 68,  253, 0,   11,  22,  33,  44,  37,  105, 86,
                                    70,  26,  74,  112, 41,  107, 118, 180, 53,  133, 211, 84}},
        {kolo_colour_contrast, 1, 1.5, {0,  0,  0,   10,  27,  16,  33,  49,  66,  82,
                                        72, 88, 105, 121, 138, 127, 144, 160, 177, 193}},
    };
    for (size_t k = 0; k < KOLO_COUNT(cases); k++) {
        uint8_t image[3 * N];
        for (int i = 0; i < 3 * N; i++) {
            const int c = i / N, y = i % N / 5, x = i % 5;
            image[i] = (uint8_t)(37 * y + 11 * x + 85 * c + 29 * x * y * c);
        }
        cases[k].change(image, cases[k].channels, N, cases[k].amount);
        assert_memory_equal(image, cases[k].want, (size_t)cases[k].channels * N);
    }
    uint8_t grey[] = {1, 200};
    kolo_colour_saturation(grey, 1, 2, 0);
    kolo_colour_hue(grey, 1, 2, 0.3);
    assert_true(grey[0] == 1 && grey[1] == 200);
}

/* A grey pixel of 100 gets each brightness from 60 to 140 about equally often. */
static void jitter_is_uniform(void **state) {
    const kolo_augment a = {.jitter = {0.4}};
    const kolo_field grey[] = {{"x", KOLO_DTYPE_U8, {3, {1, 1, 1}}, .mean = {0}}, fields[1]};
    enum { DRAWS = 4000, BINS = 4 };
    int seen[BINS] = {0};
    for (int i = 0; i < DRAWS; i++) {
        uint8_t x = 100, work[4];
        kolo_augment_apply(&a, 3, 1, i, grey, &x, NULL, work);
        assert_in_range(x, 60, 140);
        seen[x >= 140 ? BINS - 1 : (x - 60) / 20]++;
    }
    for (int k = 0; k < BINS; k++)
        assert_in_range(seen[k], DRAWS / BINS * 4 / 5, DRAWS / BINS * 5 / 4);
}

/* The same draws give the same bytes, and those of samples differ. */
static void samples_jitter_on_their_own(void **state) {
    const kolo_augment a = {.jitter = {1, 1, 1, 0.5}};
    const kolo_field colour[] = {{"x", KOLO_DTYPE_U8, {3, {3, 1, 2}}, .mean = {0}}, fields[1]};
    uint8_t first[6] = {0}, work[8];
    int kinds = 0;
    for (int i = 0; i < 50; i++) {
        uint8_t x[] = {10, 200, 100, 40, 250, 90}, again[] = {10, 200, 100, 40, 250, 90};
        kolo_augment_apply(&a, 3, 1, i, colour, x, NULL, work);
        kolo_augment_apply(&a, 3, 1, i, colour, again, NULL, work);
        assert_memory_equal(x, again, sizeof x);
        kinds += memcmp(x, first, sizeof x) != 0;
        memcpy(first, x, sizeof x);
    }
    assert_true(kinds > 40);
}

static void jitter_needs_colours(void **state) {
    static const struct {
        const char *data, *augment;
        bool good;
    } cases[] = {
        {"synthetic:N=8,test=1,shape=3x4x4", "jitter=0.4:0.4:0.4:0.1", true},
        {"synthetic:N=8,test=1,shape=1x4x4", "jitter=0.4:0.4", true},
        {"synthetic:N=8,test=1,shape=1x4x4", "jitter=0.4:0:0.1", false},
        {"synthetic:N=8,test=1,shape=2x4x4", "jitter=0.4", false},
        {"synthetic:N=8,test=1,shape=3x4x4", "scale=0.5:2", false},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_dataset *d;
        kolo_loader *loader = NULL;
        ASSERT_OK(kolo_dataset_open(cases[i].data, KOLO_SPLIT_TRAIN, &d));
        kolo_loader_opts opts = {.dataset = d, .global_batch = 2};
        ASSERT_OK(kolo_augment_parse(cases[i].augment, &opts.augment));
        kolo_status status = kolo_loader_create(&opts, &loader);
        assert_int_equal(status, cases[i].good ? KOLO_OK : KOLO_ERR_ARG);
        kolo_loader_destroy(loader);
        kolo_dataset_close(d);
    }
}

static void texts_are_checked(void **state) {
    kolo_augment a;
    ASSERT_OK(kolo_augment_parse("flip,crop=4,erase=8", &a));
    assert_true(a.flip && a.crop == 4 && a.erase == 8);
    ASSERT_OK(kolo_augment_parse("", &a));
    assert_false(kolo_augment_any(&a));
    const struct {
        const char *text, *error;
    } bad[] = {
        {"flop", "did you mean flip"},
        {"crop", "write crop=PIXELS"},
        {"crop=", "write crop="},
        {"crop=0", "write crop="},
        {"erase=x", "write erase="},
        {"flip=1", "takes no value"},
        {"jitter", "write jitter="},
        {"jitter=0", "write jitter="},
        {"jitter=1:1:1:0.6", "to 0.5"},
        {"jitter=1:1:1:0.1:1", "write jitter="},
        {"jitter=0.1:", "write jitter="},
        {"jitter=nan", "write jitter="},
        {"crop=9999", "1 to 4096"},
        {"zoom=2", "known are flip"},
        {"scale", "write scale="},
        {"scale=2", "write scale="},
        {"scale=2:1", "write scale="},
        {"scale=0:1", "write scale="},
        {"scale=1:2,resized-crop", "give one of them"},
        {"flip,,", "unknown \"\""},
        {"crop=2x,flip", "\"crop=2x\""},
    };
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        assert_int_equal(kolo_augment_parse(bad[i].text, &a), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), bad[i].error)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), bad[i].error);
        }
    }
}

TEST_MAIN(test_augment) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_are_those_allowed),
        cmocka_unit_test(maps_move_with_their_images),
        cmocka_unit_test(a_square_is_set_to_the_mean),
        cmocka_unit_test(epochs_and_seeds_differ),
        cmocka_unit_test(ranks_see_the_images_of_one),
        cmocka_unit_test(crops_are_of_all_shapes),
        cmocka_unit_test(crops_of_narrow_images_fit),
        cmocka_unit_test(colours_are_those_of_torchvision),
        cmocka_unit_test(jitter_is_uniform),
        cmocka_unit_test(samples_jitter_on_their_own),
        cmocka_unit_test(jitter_needs_colours),
        cmocka_unit_test(texts_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
