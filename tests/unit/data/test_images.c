/* Images: decoding (grey, palette, CMYK, turned), limits, resizing, crops. The test writes its
 * images with the same libraries. */
#include "base/isa.h"
#include "base/memory.h"
#include "data/images/formats.h"
#include "support/support.h"
#include "unit/data/image_files.h"

#include <png.h>

enum { H = 6, W = 10 };

static size_t make_png(int height, int width, uint32_t format, const void *pixels, uint8_t *out,
                       size_t room) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    png.height = (png_uint_32)height;
    png.width = (png_uint_32)width;
    png.format = format;
    png_alloc_size_t length = room;
    assert_true(png_image_write_to_memory(&png, out, &length, 0, pixels, 0, NULL));
    return length;
}

static void pixel_is(const kolo_image *image, int64_t y, int64_t x, int red, int green, int blue) {
    const uint8_t *p = image->origin + y * image->row + x * image->column;
    const int want[] = {red, green, blue};
    for (int c = 0; c < 3; c++) {
        if (abs(p[c] - want[c]) > 3) fail_msg("channel %d is %d, not %d", c, p[c], want[c]);
    }
}

static void colours_become_rgb(void **state) {
    static uint8_t file[8192];
    kolo_image image;
    const struct {
        int components;
        uint8_t colour[4];
        int red, green, blue;
    } cases[] = {
        {3, {200, 100, 50}, 200, 100, 50},
        {1, {90}, 90, 90, 90},
        {4, {255, 128, 0, 255}, 255, 128, 0}, /* inverted inks, as Adobe stores them */
        {4, {255, 255, 255, 100}, 100, 100, 100},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        size_t n = make_jpeg(H, W, cases[i].components, cases[i].colour, 0, file, sizeof file);
        ASSERT_OK(kolo_image_decode(file, n, "a.jpg", &image));
        assert_true(image.height == H && image.width == W);
        pixel_is(&image, 0, 0, cases[i].red, cases[i].green, cases[i].blue);
        pixel_is(&image, H - 1, W - 1, cases[i].red, cases[i].green, cases[i].blue);
        kolo_image_fini(&image);
    }
    uint8_t grey[] = {0, 255, 128, 7}, clear[] = {10, 20, 30, 0, 40, 50, 60, 255};
    size_t n = make_png(2, 2, PNG_FORMAT_GRAY, grey, file, sizeof file);
    ASSERT_OK(kolo_image_decode(file, n, "a.png", &image));
    pixel_is(&image, 0, 1, 255, 255, 255);
    pixel_is(&image, 1, 1, 7, 7, 7);
    kolo_image_fini(&image);
    n = make_png(1, 2, PNG_FORMAT_RGBA, clear, file, sizeof file);
    ASSERT_OK(kolo_image_decode(file, n, "a.png", &image));
    pixel_is(&image, 0, 0, 10, 20, 30);
    pixel_is(&image, 0, 1, 40, 50, 60);
    kolo_image_fini(&image);
}

/* Where the stored pixel (0, 0) is shown, by orientation: top, left; and whether sides change. */
static void exif_turns_images(void **state) {
    static uint8_t file[8192];
    for (int o = 1; o <= 8; o++) {
        kolo_image image;
        size_t n = make_jpeg(H, W, 3, (const uint8_t[]){1, 2, 3}, o, file, sizeof file);
        ASSERT_OK(kolo_image_decode(file, n, "a.jpg", &image));
        assert_int_equal(image.height, o > 4 ? W : H);
        assert_int_equal(image.width, o > 4 ? H : W);
        /* The stored top left corner is shown at: */
        bool bottom = o == 3 || o == 4 || o == 7 || o == 8,
             right = o == 2 || o == 3 || o == 6 || o == 7;
        const uint8_t *shown = image.origin + (bottom ? (image.height - 1) * image.row : 0) +
                               (right ? (image.width - 1) * image.column : 0);
        assert_ptr_equal(shown, image.pixels);
        /* The stored neighbour on its right is shown beside it, or below where sides change. */
        ptrdiff_t step = o > 4   ? (bottom ? -image.row : image.row)
                         : right ? -image.column
                                 : image.column;
        assert_int_equal(step, 3);
        kolo_image_fini(&image);
        ASSERT_OK(kolo_image_decode_part(file, n, "a.jpg", &(kolo_image_request){0}, &image));
        assert_int_equal(image.height, H);
        assert_int_equal(image.width, W);
        assert_ptr_equal(image.origin, image.pixels);
        assert_int_equal(image.column, 3);
        kolo_image_fini(&image);
    }
}

static void damaged_images_are_refused(void **state) {
    static uint8_t file[8192], cut[8192];
    kolo_image image;
    size_t n = make_jpeg(40, 40, 3, (const uint8_t[]){200, 100, 50}, 0, file, sizeof file);
    memcpy(cut, file, n);
    assert_int_equal(kolo_image_decode(cut, n - 12, "a.jpg", &image), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "a.jpg: damaged JPEG: "));
    assert_int_equal(kolo_image_decode(cut, 30, "a.jpg", &image), KOLO_ERR_FORMAT);
    assert_int_equal(kolo_image_decode((const uint8_t *)"GIF89a", 6, "a.gif", &image),
                     KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "neither a JPEG nor a PNG"));
    uint8_t *frame = file; /* claims 65000 x 65000 pixels */
    while (frame[0] != 0xff || frame[1] != 0xc0) frame++;
    for (int i = 5; i < 9; i++) frame[i] = i % 2 ? 0xfd : 0xe8;
    assert_int_equal(kolo_image_decode(file, n, "bomb.jpg", &image), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "bomb.jpg: an image of 65000x65000 pixels"));
    for (int i = 5; i < 9; i++) frame[i] = i % 2 ? 0x20 : 0;
    assert_int_equal(kolo_image_decode(file, n, "bomb.jpg", &image), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "more than 1000 in each"));
    const uint8_t black = 0;
    n = make_png(1, 1, PNG_FORMAT_GRAY, &black, file, sizeof file);
    file[n - 20] ^= 1;
    assert_int_equal(kolo_image_decode(file, n, "a.png", &image), KOLO_ERR_FORMAT);
}

/* ---- parts ---- */

typedef struct wanted {
    kolo_box part;
    int64_t shrink, height, width;
} wanted;

static kolo_box want(const void *arg, int64_t height, int64_t width, int64_t *shrink) {
    const wanted *w = arg;
    *shrink = w->shrink;
    assert_true(height == w->height && width == w->width);
    return w->part;
}

static void decode_want(const uint8_t *file, size_t n, const wanted *w, kolo_image *image) {
    const kolo_image_choice choice = {want, w};
    const kolo_image_request request = {.choice = &choice, .turned = true};
    ASSERT_OK(kolo_image_decode_part(file, n, "a.jpg", &request, image));
    assert_true(image->height == w->height && image->width == w->width);
    assert_int_equal(image->shrink, w->shrink);
}

/* All pixels of a part, which it holds, are those of the whole image at that size. */
static void part_is_of(const kolo_image *part, const kolo_box *box, const kolo_image *all) {
    const int64_t s = all->shrink, *before = all->before;
    const kolo_box *held = &part->held;
    assert_memory_equal(part->before, before, sizeof part->before);
    for (int64_t y = (box->y + before[0]) / s; y * s < box->y + before[0] + box->height; y++) {
        for (int64_t x = (box->x + before[1]) / s; x * s < box->x + before[1] + box->width; x++) {
            assert_true(y >= held->y && y < held->y + held->height);
            assert_true(x >= held->x && x < held->x + held->width);
            const uint8_t *is =
                part->origin + (y - held->y) * part->row + (x - held->x) * part->column;
            assert_memory_equal(is, all->origin + y * all->row + x * all->column, 3);
        }
    }
}

static int64_t below(uint64_t *state, int64_t bound) {
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (int64_t)(*state >> 33) % bound;
}

/* Random parts of an image, whose pixels are `all`; every other one is narrow. */
static void parts_are_of(const uint8_t *file, size_t n, wanted w, const kolo_image *all,
                         uint64_t *random) {
    enum { PARTS = 24, NARROW = 3 };
    for (int i = 0; i < PARTS; i++) {
        kolo_image part;
        w.part.y = below(random, w.height);
        w.part.x = below(random, w.width);
        w.part.height = 1 + below(random, w.height - w.part.y);
        w.part.width = w.width - w.part.x;
        if (i % 2 && w.part.width > NARROW) w.part.width = NARROW;
        w.part.width = 1 + below(random, w.part.width);
        decode_want(file, n, &w, &part);
        part_is_of(&part, &w.part, all);
        kolo_image_fini(&part);
    }
}

/* Also those of the same image made seekable. */
static void parts_are_those_of_the_whole(void **state) {
    enum { HEIGHT = 75, WIDTH = 100, KINDS = 9 };
    static uint8_t file[1 << 16];
    uint64_t random = 1;
    for (int kind = 0; kind < KINDS; kind++) {
        const int turned = (int)below(&random, 9); /* 0: no EXIF */
        const size_t n = make_texture(kind, HEIGHT, WIDTH, turned, file, sizeof file);
        uint8_t *seekable;
        size_t length;
        ASSERT_OK(kolo_image_make_seekable(file, n, &seekable, &length));
        assert_non_null(seekable);
        for (int64_t shrink = 1; shrink <= 8; shrink *= 2) {
            kolo_image all;
            wanted w = {.shrink = shrink, .height = HEIGHT, .width = WIDTH};
            if (turned > 4) w.height = WIDTH, w.width = HEIGHT;
            w.part = (kolo_box){0, 0, w.height, w.width};
            decode_want(file, n, &w, &all);
            assert_int_equal(all.held.height, (w.height + shrink - 1) / shrink);
            parts_are_of(file, n, w, &all, &random);
            parts_are_of(seekable, length, w, &all, &random);
            kolo_image_fini(&all);
        }
        kolo_free(seekable);
    }
}

/* Cuts a progressive file behind its first `scans` scans, and ends it. */
static size_t keep_scans(uint8_t *file, size_t n, int scans) {
    for (size_t i = 2; i + 1 < n; i++) {
        if (file[i] != 0xff || file[i + 1] != 0xda || scans-- > 0) continue;
        file[i + 1] = JPEG_EOI;
        return i + 2;
    }
    return 0;
}

/* Where scans are missing libjpeg smooths blocks by their neighbours. */
static void parts_of_unfinished_images_are_those_of_the_whole(void **state) {
    enum { HEIGHT = 90, WIDTH = 130, PARTS = 12 };
    static uint8_t file[1 << 16];
    uint64_t random = 2;
    for (int scans = 1; scans <= 5; scans += 2) {
        size_t n = make_texture(3, HEIGHT, WIDTH, 0, file, sizeof file);
        n = keep_scans(file, n, scans);
        assert_true(n > 0);
        for (int64_t shrink = 1; shrink <= 2; shrink *= 2) {
            kolo_image all, part;
            wanted w = {.shrink = shrink, .height = HEIGHT, .width = WIDTH};
            w.part = (kolo_box){0, 0, HEIGHT, WIDTH};
            decode_want(file, n, &w, &all);
            for (int p = 0; p < PARTS; p++) {
                w.part.height = 1 + below(&random, HEIGHT / 2);
                w.part.width = 1 + below(&random, WIDTH / 2);
                w.part.y = below(&random, HEIGHT - w.part.height + 1);
                w.part.x = below(&random, WIDTH - w.part.width + 1);
                decode_want(file, n, &w, &part);
                part_is_of(&part, &w.part, &all);
                kolo_image_fini(&part);
            }
            kolo_image_fini(&all);
        }
    }
}

/* An image for which memory is lacking is not damaged: no other one takes its place. */
static void lack_of_memory_is_no_damage(void **state) {
    static uint8_t file[1 << 16];
    kolo_image image;
    const size_t n = make_texture(3, 150, 200, 0, file, sizeof file);
    assert_int_equal(setenv("JPEGMEM", "10", 1), 0); /* KB, of libjpeg */
    const kolo_status status = kolo_image_decode(file, n, "a.jpg", &image);
    unsetenv("JPEGMEM");
    assert_int_equal(status, KOLO_ERR_NOMEM);
    assert_non_null(strstr(kolo_last_error(), "a.jpg: no memory for libjpeg: "));
    ASSERT_OK(kolo_image_decode(file, n, "a.jpg", &image));
    kolo_image_fini(&image);
}

/* The part of an image that resizing needs is what it needs: the bytes are those of the whole. */
static void parts_are_enough_to_resize(void **state) {
    enum { HEIGHT = 75, WIDTH = 102, SIDE = 9, TIMES = 60 };
    static uint8_t file[1 << 16];
    uint64_t random = 7;
    uint8_t is[3 * SIDE * SIDE], should[3 * SIDE * SIDE];
    for (int i = 0; i < TIMES; i++) {
        const int turned = (int)below(&random, 9);
        const size_t n = make_texture(2, HEIGHT, WIDTH, turned, file, sizeof file);
        wanted w = {.height = turned > 4 ? WIDTH : HEIGHT, .width = turned > 4 ? HEIGHT : WIDTH};
        kolo_box from = {.height = 1 + below(&random, w.height),
                         .width = 1 + below(&random, w.width)};
        from.y = below(&random, w.height - from.height + 1);
        from.x = below(&random, w.width - from.width + 1);
        const kolo_box window = {below(&random, SIDE), below(&random, SIDE), 1, 1};
        for (w.shrink = 1; w.shrink <= 8; w.shrink *= 2) {
            if (from.height < SIDE * w.shrink || from.width < SIDE * w.shrink) break;
            kolo_image all, part;
            w.part = (kolo_box){0, 0, w.height, w.width};
            decode_want(file, n, &w, &all);
            w.part = kolo_image_needs(from, SIDE, SIDE, window);
            decode_want(file, n, &w, &part);
            ASSERT_OK(kolo_image_resize(&all, from, SIDE, SIDE, window, should));
            ASSERT_OK(kolo_image_resize(&part, from, SIDE, SIDE, window, is));
            assert_memory_equal(is, should, 3);
            kolo_image_fini(&all);
            kolo_image_fini(&part);
        }
    }
}

/* Images that use one memory after the other, larger and smaller ones, are those of their own. */
static void memory_is_used_again(void **state) {
    enum { SIDE = 9, MOST = 120, TIMES = 30 };
    static uint8_t file[1 << 16];
    const kolo_box window = {0, 0, SIDE, SIDE};
    uint64_t random = 11;
    kolo_image_pool *pool;
    kolo_image_memory *memory, *other;
    ASSERT_OK(kolo_image_pool_create(&pool));
    for (int i = 0; i < TIMES; i++) {
        const int height = SIDE + (int)below(&random, MOST), turned = (int)below(&random, 9);
        const int width = SIDE + (int)below(&random, MOST);
        uint8_t is[3 * SIDE * SIDE] = {0}, should[3 * SIDE * SIDE];
        const size_t n = i % 5 == 4 ? make_png(SIDE, SIDE, PNG_FORMAT_GRAY, is, file, sizeof file)
                                    : make_texture(i % 6, height, width, turned, file, sizeof file);
        kolo_image part, own;
        ASSERT_OK(kolo_image_pool_take(pool, &memory));
        const kolo_image_request request = {.turned = true, .memory = memory};
        ASSERT_OK(kolo_image_decode_part(file, n, "a.jpg", &request, &part));
        ASSERT_OK(kolo_image_decode(file, n, "a.jpg", &own));
        assert_ptr_equal(part.pixels, memory->block[KOLO_IMAGE_PIXELS]);
        ASSERT_OK(kolo_image_resize(&part, part.held, SIDE, SIDE, window, is));
        ASSERT_OK(kolo_image_resize(&own, own.held, SIDE, SIDE, window, should));
        assert_memory_equal(is, should, sizeof is);
        kolo_image_fini(&part);
        kolo_image_fini(&own);
        kolo_image_pool_give(pool, memory);
        ASSERT_OK(kolo_image_pool_take(pool, &other));
        assert_ptr_equal(other, memory);
        kolo_image_pool_give(pool, other);
    }
    /* Two threads have one each, and what a very large image took is freed. */
    ASSERT_OK(kolo_image_pool_take(pool, &memory));
    ASSERT_OK(kolo_image_pool_take(pool, &other));
    assert_ptr_not_equal(other, memory);
    assert_non_null(kolo_image_reserve(memory, KOLO_IMAGE_PIXELS, 17 << 20));
    kolo_image_pool_give(pool, memory);
    assert_null(memory->block[KOLO_IMAGE_PIXELS]);
    kolo_image_pool_give(pool, other);
    kolo_image_pool_destroy(pool);
}

/* Where an image is shown mirrored, its smaller pixels are in the same place: a ramp shrinks to the
 * mirrored ramp's resized image. */
static void shrunk_images_lie_where_they_were(void **state) {
    enum { HEIGHT = 64, WIDTH = 83, SIDE = 8 };
    static uint8_t file[1 << 16];
    for (int turned = 1; turned <= 8; turned++) {
        const size_t n = make_texture(6, HEIGHT, WIDTH, turned, file, sizeof file);
        uint8_t x[2][3 * SIDE * SIDE];
        wanted w = {.height = turned > 4 ? WIDTH : HEIGHT, .width = turned > 4 ? HEIGHT : WIDTH};
        w.part = (kolo_box){0, 0, w.height, w.width};
        for (int i = 0; i < 2; i++) {
            kolo_image image;
            w.shrink = i ? 4 : 1;
            decode_want(file, n, &w, &image);
            ASSERT_OK(
                kolo_image_resize(&image, w.part, SIDE, SIDE, (kolo_box){0, 0, SIDE, SIDE}, x[i]));
            kolo_image_fini(&image);
        }
        for (int i = 0; i < 3 * SIDE * SIDE; i++) assert_in_range(x[1][i] + 2 - x[0][i], 0, 4);
    }
}

/* Bytes of Pillow 13.0.0: Image.fromarray(a).resize((w, h), Image.BILINEAR) of a[y, x, c] = (37 y +
 * 11 x + 5 c) % 256. */
static void resizing_is_that_of_pillow(void **state) {
    uint8_t pixels[7 * 9 * 3];
    for (int i = 0; i < 7 * 9 * 3; i++) {
        pixels[i] = (uint8_t)(37 * (i / 27) + 11 * (i / 3 % 9) + 5 * (i % 3));
    }
    const kolo_image image = {.height = 7,
                              .width = 9,
                              .shrink = 1,
                              .held = {0, 0, 7, 9},
                              .origin = pixels,
                              .row = 27,
                              .column = 3};
    uint8_t whole[3 * 4 * 5], part[3 * 2 * 3];
    ASSERT_OK(
        kolo_image_resize(&image, (kolo_box){0, 0, 7, 9}, 4, 5, (kolo_box){0, 0, 4, 5}, whole));
    const uint8_t red[] = {25,  42,  63,  84,  101, 83,  100, 121, 142, 159,
                           151, 168, 189, 200, 179, 209, 226, 144, 113, 49};
    for (int i = 0; i < 20; i++) assert_int_equal(whole[i], red[i]);
    ASSERT_OK(
        kolo_image_resize(&image, (kolo_box){0, 0, 7, 9}, 4, 5, (kolo_box){1, 2, 2, 3}, part));
    for (int y = 0; y < 2; y++) assert_memory_equal(part + 3 * y, whole + 5 * (y + 1) + 2, 3);
    uint8_t same[7 * 9 * 3];
    ASSERT_OK(
        kolo_image_resize(&image, (kolo_box){0, 0, 7, 9}, 7, 9, (kolo_box){0, 0, 7, 9}, same));
    for (int i = 0; i < 63; i++) assert_int_equal(same[i], pixels[3 * i]);
}

/* All instruction sets give the same bytes, also of images that are turned, of all numbers of rows
 * and columns that are left over, in what is behind the result too. */
static void instruction_sets_resize_alike(void **state) {
    enum { HEIGHT = 61, WIDTH = 83, ROOM = 3 * 41 * 67 };
    static uint8_t pixels[3 * HEIGHT * WIDTH], first[ROOM], other[ROOM];
    uint64_t random = 3;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)below(&random, 256);
    for (int i = 0; i < 40; i++) {
        kolo_image image = {.height = HEIGHT, .width = WIDTH, .shrink = 1, .grey = i % 2 == 1};
        const ptrdiff_t pixel = image.grey ? 1 : 3;
        image.origin = pixels;
        image.row = pixel * WIDTH;
        image.column = pixel;
        if (i % 3 == 1) { /* mirrored */
            image.origin = pixels + pixel * (WIDTH - 1);
            image.column = -pixel;
        } else if (i % 3 == 2) { /* rows and columns exchanged */
            image.height = WIDTH;
            image.width = HEIGHT;
            image.row = pixel;
            image.column = pixel * WIDTH;
        }
        image.held = (kolo_box){0, 0, image.height, image.width};
        const int64_t height = 1 + below(&random, 41), width = 1 + below(&random, 67);
        const kolo_box window = {0, 0, height, width};
        for (int isa = 0; isa < KOLO_ISA_COUNT; isa++) {
            uint8_t *to = isa ? other : first;
            if (!kolo_isa_runs((kolo_isa)isa)) continue;
            memset(to, 77, ROOM);
            kolo_isa_pin(isa);
            ASSERT_OK(kolo_image_resize(&image, image.held, height, width, window, to));
            kolo_isa_pin(-1);
            if (isa) assert_memory_equal(other, first, ROOM);
        }
        for (int64_t k = 3 * height * width; k < ROOM; k++) assert_int_equal(first[k], 77);
    }
}

/* A grey JPEG that is kept grey takes a third of the memory; its samples are those of its RGB. */
static void grey_images_resize_as_rgb(void **state) {
    enum { HEIGHT = 61, WIDTH = 75, SIDE = 13, GREY = 4, CMYK = 5 };
    static uint8_t file[1 << 16];
    uint64_t random = 5;
    const kolo_box window = {0, 0, SIDE, SIDE};
    for (int turned = 0; turned <= 8; turned++) {
        for (int64_t shrink = 1; shrink <= 4; shrink *= 2) {
            const size_t n = make_texture(GREY, HEIGHT, WIDTH, turned, file, sizeof file);
            uint8_t is[3 * SIDE * SIDE], should[3 * SIDE * SIDE];
            wanted w = {.shrink = shrink, .height = HEIGHT, .width = WIDTH};
            if (turned > 4) w.height = WIDTH, w.width = HEIGHT;
            w.part = (kolo_box){below(&random, 9), below(&random, 7), 52, 54};
            const kolo_image_choice choice = {want, &w};
            kolo_image_request request = {.choice = &choice, .turned = true};
            kolo_image rgb, grey;
            ASSERT_OK(kolo_image_decode_part(file, n, "a.jpg", &request, &rgb));
            request.keeps_grey = true;
            ASSERT_OK(kolo_image_decode_part(file, n, "a.jpg", &request, &grey));
            assert_true(grey.grey && !rgb.grey);
            ASSERT_OK(kolo_image_resize(&grey, w.part, SIDE, SIDE, window, is));
            ASSERT_OK(kolo_image_resize(&rgb, w.part, SIDE, SIDE, window, should));
            assert_memory_equal(is, should, sizeof is);
            kolo_image_fini(&grey);
            kolo_image_fini(&rgb);
        }
    }
    kolo_image image;
    const kolo_image_request request = {.keeps_grey = true};
    const size_t n = make_texture(CMYK, HEIGHT, WIDTH, 0, file, sizeof file);
    ASSERT_OK(kolo_image_decode_part(file, n, "a.jpg", &request, &image));
    assert_false(image.grey);
    kolo_image_fini(&image);
}

TEST_MAIN(test_images) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colours_become_rgb),
        cmocka_unit_test(exif_turns_images),
        cmocka_unit_test(damaged_images_are_refused),
        cmocka_unit_test(resizing_is_that_of_pillow),
        cmocka_unit_test(parts_are_those_of_the_whole),
        cmocka_unit_test(parts_of_unfinished_images_are_those_of_the_whole),
        cmocka_unit_test(lack_of_memory_is_no_damage),
        cmocka_unit_test(parts_are_enough_to_resize),
        cmocka_unit_test(memory_is_used_again),
        cmocka_unit_test(shrunk_images_lie_where_they_were),
        cmocka_unit_test(instruction_sets_resize_alike),
        cmocka_unit_test(grey_images_resize_as_rgb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
