/* Pascal VOC segmentation: images and masks stay together through every transform, damaged and
 * missing files are named, and a network trains, resumes and is evaluated on a set of shapes. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/images/image.h"
#include "data/prefetch.h"
#include "kolo/data.h"
#include "kolo/train.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 40, W = 50, NONE = 255 };

static void put_png(const char *path, int height, int width, uint32_t format, const void *pixels,
                    const void *palette) {
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)width,
                     .height = (png_uint_32)height,
                     .format = format,
                     .colormap_entries = 256};
    assert_true(png_image_write_to_file(&png, path, 0, pixels, 0, palette));
}

/* A square of class 1 + i % 2 with an edge without label, on class 0. Red is 100 times the class,
 * green is 255. Decoders go by the contents of a file, so the images are PNGs. */
static void put_sample(int i, int height, int width) {
    static uint8_t palette[256 * 3];
    uint8_t *image = malloc((size_t)(3 * height * width)), *mask = malloc((size_t)(height * width));
    char path[64];
    for (int p = 0; p < 256 * 3; p++) palette[p] = (uint8_t)(p * 7); /* colours are not read */
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const bool in = y > 8 && y < 30 && x > 5 + i && x < 30 + i;
            const bool edge = in && (y == 9 || y == 29 || x == 6 + i || x == 29 + i);
            const int class = in ? 1 + i % 2 : 0;
            const int at = y * width + x;
            mask[at] = (uint8_t)(edge ? NONE : class);
            image[3 * at] = (uint8_t)(100 * class);
            image[3 * at + 1] = 255;
            image[3 * at + 2] = (uint8_t)(x * 3);
        }
    }
    snprintf(path, sizeof path, "voc/JPEGImages/s%d.jpg", i);
    put_png(path, height, width, PNG_FORMAT_RGB, image, NULL);
    snprintf(path, sizeof path, "voc/SegmentationClass/s%d.png", i);
    put_png(path, height, width, PNG_FORMAT_RGB_COLORMAP, mask, palette);
    free(image);
    free(mask);
}

static void put_text(const char *path, const char *text) {
    ASSERT_OK(kolo_file_write(path, text, strlen(text)));
}

static void make_set(void) {
    assert_int_equal(system("rm -rf voc run other ledger.*"), 0);
    ASSERT_OK(kolo_folder_make("voc/JPEGImages"));
    ASSERT_OK(kolo_folder_make("voc/SegmentationClass"));
    ASSERT_OK(kolo_folder_make("voc/ImageSets/Segmentation"));
    for (int i = 0; i < 9; i++) put_sample(i, H, W + i);
    put_text("voc/ImageSets/Segmentation/train.txt", "s0\ns1\r\n\n  s2 \ns3\ns4\ns5");
    put_text("voc/ImageSets/Segmentation/val.txt", "s6\ns7\ns8\n");
    put_text("voc/ImageSets/Segmentation/trainval.txt", "s0\ns1\ns2\ns3\ns4\ns5\ns6\ns7\ns8\n");
}

/* Masks are not turned, so neither is an image. */
static void exif_turns_no_image(void **state) {
    static const char exif[] = {'\xff', '\xe1', 0, 34, 'E', 'x', 'i', 'f', 0, 0,
                                'M',    'M',    0, 42, 0,   0,   0,   8,   0, 1,
                                1,      0x12,   0, 3,  0,   0,   0,   1,   0, 6 /* a quarter */,
                                0,      0,      0, 0,  0,   0};
    static const char photo[] = "voc/JPEGImages/s6.jpg";
    static uint8_t x[2][3 * 64 * 64], mask[4096];
    static int32_t y[64 * 64];
    const int64_t first = 0;
    char *file;
    size_t bytes;
    kolo_image image;
    make_set();
    ASSERT_OK(kolo_file_read(KOLO_SOURCE_DIR "/tests/fuzz/corpus/image/baseline.jpg", 1 << 20,
                             &file, &bytes));
    ASSERT_OK(kolo_image_decode((uint8_t *)file, bytes, "baseline.jpg", &image));
    assert_true(image.height != image.width && image.height * image.width <= (int)sizeof mask);
    put_png("voc/SegmentationClass/s6.png", (int)image.height, (int)image.width, PNG_FORMAT_GRAY,
            mask, NULL);
    kolo_image_fini(&image);
    for (int turned = 0; turned < 2; turned++) {
        kolo_dataset *d;
        char *all = malloc(bytes + sizeof exif);
        const size_t room = turned ? sizeof exif : 0;
        memcpy(all, file, 2);
        memcpy(all + 2, exif, room);
        memcpy(all + 2 + room, file + 2, bytes - 2);
        ASSERT_OK(kolo_file_write(photo, all, bytes + room));
        free(all);
        ASSERT_OK(kolo_dataset_open("voc:voc,size=64,classes=3", KOLO_SPLIT_TEST, &d));
        ASSERT_OK(kolo_dataset_gather(d, &first, 1, (void *const[]){x[turned], y}));
        kolo_dataset_close(d);
    }
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    kolo_free(file);
}

/* In evaluation the whole image is there, with each label where the mask has it. */
static void samples_are_the_files(void **state) {
    kolo_dataset *d;
    static uint8_t x[3 * 64 * 64];
    static int32_t y[64 * 64];
    make_set();
    ASSERT_OK(kolo_dataset_open("voc:voc,size=64,classes=3", KOLO_SPLIT_TEST, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    assert_int_equal(info->count, 3);
    assert_int_equal(info->classes, 3);
    assert_true(kolo_shape_equal(&info->fields[KOLO_FIELD_Y].shape, &(kolo_shape){2, {64, 64}}));
    ASSERT_OK(kolo_dataset_gather(d, (const int64_t[]){1}, 1, (void *const[]){x, y}));
    int labels[4] = {0};
    for (int i = 0; i < 64; i++) {
        for (int j = 0; j < 64; j++) {
            const int at = i * 64 + j, top = (64 - H) / 2, left = (64 - (W + 7)) / 2;
            const bool inside = i >= top && i < top + H && j >= left && j < left + W + 7;
            labels[y[at] + 1]++;
            assert_int_equal(x[64 * 64 + at], inside ? 255 : 0);
            if (inside) assert_int_equal(x[2 * 64 * 64 + at], (j - left) * 3);
            if (!inside) assert_int_equal(y[at], -1);
            if (inside && y[at] >= 0) assert_int_equal(x[at], 100 * y[at]);
        }
    }
    assert_int_equal(labels[1 + 2], 19 * 22); /* the square of sample 7, without its edge */
    assert_int_equal(labels[1 + 0], H * (W + 7) - 21 * 24);
    assert_int_equal(labels[1 + 1], 0);
    kolo_dataset_close(d);
    /* One that does not fit shrinks. */
    ASSERT_OK(kolo_dataset_open("voc:voc,size=20x64,train=trainval", KOLO_SPLIT_TRAIN, &d));
    assert_int_equal(kolo_dataset_describe(d)->count, 9);
    assert_int_equal(kolo_dataset_describe(d)->classes, 21);
    ASSERT_OK(kolo_dataset_gather(d, (const int64_t[]){0}, 1, (void *const[]){x, y}));
    int green = 0;
    for (int at = 0; at < 20 * 64; at++) green += x[20 * 64 + at] == 255;
    assert_int_equal(green, 20 * 25);
    kolo_dataset_close(d);
}

/* Labels follow the colours of their pixels, and black has none. */
static void images_and_masks_move_together(void **state) {
    static const char *const augments[] = {"resized-crop=0.2,flip", "scale=0.5:2,flip",
                                           "flip,crop=9", "scale=0.3:0.5,crop=5"};
    enum { N = 48, PIXELS = N * N };
    make_set();
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open("voc:voc,size=48,classes=3", KOLO_SPLIT_TRAIN, &d));
    for (size_t a = 0; a < KOLO_COUNT(augments); a++) {
        kolo_loader_opts opts = {.dataset = d, .global_batch = 6, .seed = a, .end = 8};
        kolo_loader *loader, *again;
        int64_t wrong = 0, labelled = 0, black = 0, squares = 0;
        ASSERT_OK(kolo_augment_parse(augments[a], &opts.augment));
        ASSERT_OK(kolo_loader_create(&opts, &loader));
        opts.threads = 3;
        ASSERT_OK(kolo_loader_create(&opts, &again));
        for (;;) {
            kolo_batch b, c;
            ASSERT_OK(kolo_loader_next(loader, &b));
            ASSERT_OK(kolo_loader_next(again, &c));
            if (b.global_count == 0) break;
            assert_memory_equal(b.data[0], c.data[0], (size_t)b.count * 3 * PIXELS);
            assert_memory_equal(b.data[1], c.data[1], (size_t)b.count * 4 * PIXELS);
            for (int64_t s = 0; s < b.count; s++) {
                const uint8_t *x = (const uint8_t *)b.data[0] + s * 3 * PIXELS;
                const int32_t *y = (const int32_t *)b.data[1] + s * PIXELS;
                const int class = 1 + (int)(b.indices[s] % 2); /* of the square */
                for (int i = 0; i < PIXELS; i++) {
                    const bool outside = x[PIXELS + i] == 0;
                    black += outside;
                    if (outside) assert_int_equal(y[i], -1);
                    if (y[i] < 0) continue;
                    assert_int_equal(x[PIXELS + i], 255);
                    labelled++;
                    squares += y[i] > 0;
                    wrong += (x[i] > 50 * class) != (y[i] > 0);
                }
            }
        }
        assert_true(labelled > 5000 && squares > 1000);
        assert_true(wrong * 1000 < labelled); /* averages at the edges */
        if (a > 0) assert_true(black > 1000);
        if (a == 0) assert_int_equal(black, 0);
        kolo_loader_destroy(loader);
        kolo_loader_destroy(again);
    }
    kolo_dataset_close(d);
}

static void fails(const char *spec, kolo_status status, const char *text) {
    kolo_dataset *d = NULL;
    static uint8_t x[3 * 48 * 48];
    static int32_t y[48 * 48];
    kolo_status found = kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d);
    for (int64_t i = 0; found == KOLO_OK && i < kolo_dataset_describe(d)->count; i++) {
        found = kolo_dataset_gather(d, &i, 1, (void *const[]){x, y});
    }
    assert_int_equal(found, status);
    if (!strstr(kolo_last_error(), text)) fail_msg("%s", kolo_last_error());
    kolo_dataset_close(d);
}

static void what_is_wrong_is_named(void **state) {
    make_set();
    fails("voc:nowhere", KOLO_ERR_IO, "JPEGImages and SegmentationClass");
    fails("voc", KOLO_ERR_ARG, "DIR");
    fails("voc:voc,size=48,masks=Masks", KOLO_ERR_IO,
          "voc/Masks/s0.png: no such file, which line 1 of ImageSets/Segmentation/train.txt names");
    fails("voc:voc,train=more", KOLO_ERR_IO, "no file more.txt: give train=SET");
    fails("voc:voc/JPEGImages", KOLO_ERR_IO, "no folder ImageSets/Segmentation: give the folder");
    fails("voc:voc,size=48,classes=2", KOLO_ERR_ARG,
          "voc/SegmentationClass/s1.png: a pixel of class 2, which is outside 0..1 and is not 255, "
          "no label: give classes=3 or more");
    put_text("voc/ImageSets/Segmentation/odd.txt", "s0\n../s1\n");
    fails("voc:voc,train=odd", KOLO_ERR_FORMAT, "odd.txt: line 2: \"../s1\" is no name");
    put_text("voc/ImageSets/Segmentation/none.txt", "\n \n");
    fails("voc:voc,train=none", KOLO_ERR_FORMAT, "none.txt: no names");
    static uint8_t pixels[3 * 48 * 48];
    put_png("voc/SegmentationClass/s2.png", H, W, PNG_FORMAT_GRAY, pixels, NULL);
    fails("voc:voc,size=48", KOLO_ERR_FORMAT,
          "s2.png: a mask of 50x40 pixels for an image of 52x40");
    put_png("voc/SegmentationClass/s2.png", H, W + 2, PNG_FORMAT_RGB, pixels, NULL);
    fails("voc:voc,size=48", KOLO_ERR_FORMAT, "s2.png: a mask has one channel");
    put_text("voc/SegmentationClass/s2.png", "\x89PNG\r\n\x1a\n");
    fails("voc:voc,size=48", KOLO_ERR_FORMAT, "s2.png: damaged PNG: the file is truncated");
    assert_int_equal(remove("voc/SegmentationClass/s2.png"), 0);
    fails("voc:voc,size=48", KOLO_ERR_IO, "line 4 of ImageSets/Segmentation/train.txt");
}

/* Six images for training, three for evaluation. */
static const kolo_train_opts job = {.model = "deeplabv3_resnet101",
                                    .model_options = "width=2",
                                    .data = "voc:voc,size=33x40,classes=3",
                                    .augment = "scale=0.5:2,flip",
                                    .global_batch = 4,
                                    .reproducible = 2,
                                    .epochs = 2,
                                    .lr = 0.02};

static void networks_train_and_resume(void **state) {
    kolo_train_opts opts = job;
    make_set();
    const kolo_train_result straight = train_well(1, &opts);
    const double iou = kolo_metrics_get(&straight.test, "mean_iou");
    assert_true(straight.first_loss > 0.3 && iou > 0 && iou <= 1);
    opts.out_dir = "run";
    opts.checkpoint_steps = 3; /* in the middle of the second epoch */
    (void)train_well(2, &opts);
    assert_int_equal(remove("run/checkpoint-4.safetensors"), 0);
    opts.resume = "run/checkpoint-3.safetensors";
    opts.out_dir = "other";
    const kolo_train_result resumed = train_well(2, &opts);
    assert_same_run("resumed on 2 ranks", &straight, &resumed);
}

TEST_MAIN(test_voc) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exif_turns_no_image),
        cmocka_unit_test(samples_are_the_files),
        cmocka_unit_test(images_and_masks_move_together),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(networks_train_and_resume),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
