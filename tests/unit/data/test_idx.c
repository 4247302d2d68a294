/* The IDX reader: valid files, plain and gzipped, and all kinds of invalid ones. */
#include "base/memory.h"
#include "data/readers/idx.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct bytes {
    uint8_t data[4096];
    size_t n;
} bytes;

static void put_32(bytes *b, uint32_t v) {
    for (int shift = 24; shift >= 0; shift -= 8) b->data[b->n++] = (uint8_t)(v >> shift);
}

/* A header with the magic number and dimensions given, then `n` bytes 0, 1, 2, ... */
static bytes make(uint32_t magic, int rank, const uint32_t *dim, size_t n) {
    bytes b = {.n = 0};
    put_32(&b, magic);
    for (int i = 0; i < rank; i++) put_32(&b, dim[i]);
    for (size_t i = 0; i < n; i++) b.data[b.n++] = (uint8_t)i;
    return b;
}

static bytes images(size_t n) { return make(0x803, 3, (uint32_t[]){4, 5, 3}, n); }

static bytes gzip(const uint8_t *data, size_t n) {
    bytes b;
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = b.data;
    z.avail_out = sizeof b.data;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    b.n = z.total_out;
    deflateEnd(&z);
    return b;
}

static void good_files_are_read_plain_and_gzipped(void **state) {
    bytes plain = images(60), packed = gzip(plain.data, plain.n);
    /* A gzip file may have several members, which are concatenated. */
    bytes first = gzip(plain.data, 10), second = gzip(plain.data + 10, plain.n - 10), both = first;
    memcpy(both.data + both.n, second.data, second.n);
    both.n += second.n;
    const bytes *files[] = {&plain, &packed, &both};
    for (size_t f = 0; f < KOLO_COUNT(files); f++) {
        kolo_idx idx;
        ASSERT_OK(kolo_idx_parse(files[f]->data, files[f]->n, KOLO_IDX_IMAGES, "x", &idx));
        assert_int_equal(idx.dim[0], 4);
        assert_int_equal(idx.dim[1], 5);
        assert_int_equal(idx.dim[2], 3);
        assert_memory_equal(idx.data, plain.data + 16, 60);
        kolo_idx_fini(&idx);
    }
    bytes labels = make(0x801, 1, (uint32_t[]){7}, 7);
    kolo_idx idx;
    ASSERT_OK(kolo_idx_parse(labels.data, labels.n, KOLO_IDX_LABELS, "x", &idx));
    assert_int_equal(idx.dim[0], 7);
    assert_int_equal(idx.dim[1] * idx.dim[2], 1);
    assert_memory_equal(idx.data, labels.data + 8, 7);
    kolo_idx_fini(&idx);
}

static void rejects(const bytes *b, kolo_idx_kind kind, const char *text) {
    kolo_idx idx = {.data = (const uint8_t *)"untouched"};
    assert_int_equal(kolo_idx_parse(b->data, b->n, kind, "a/file", &idx), KOLO_ERR_FORMAT);
    if (!strstr(kolo_last_error(), text)) fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), text);
    assert_ptr_equal(strstr(kolo_last_error(), "a/file: "), kolo_last_error());
    assert_null(strchr(kolo_last_error(), '\n'));
    assert_string_equal(idx.data, "untouched");
}

/* Each invalid file, plain and gzipped, gives one line with its name and the cause. */
static void bad_contents_are_refused(void **state) {
    const struct {
        bytes file;
        kolo_idx_kind kind;
        const char *text;
    } cases[] = {
        {{.n = 0}, KOLO_IDX_IMAGES, "truncated"},
        {{.data = {0, 0, 8}, .n = 3}, KOLO_IDX_IMAGES, "truncated"},
        {make(0x803, 2, (uint32_t[]){4, 5}, 0), KOLO_IDX_IMAGES, "truncated"},
        {make(0x803, 3, (uint32_t[]){4, 5, 3}, 59), KOLO_IDX_IMAGES, "found 59"},
        {make(0x803, 3, (uint32_t[]){4, 5, 3}, 61), KOLO_IDX_IMAGES, "too long"},
        {make(0x803, 3, (uint32_t[]){4, 0, 3}, 0), KOLO_IDX_IMAGES, "dimension 1 is 0"},
        {make(0x801, 1, (uint32_t[]){0}, 0), KOLO_IDX_LABELS, "dimension 0 is 0"},
        {make(0x803, 3, (uint32_t[]){~0U, ~0U, ~0U}, 9), KOLO_IDX_IMAGES,
         "exceed the address space"},
        {make(0x803, 3, (uint32_t[]){1U << 30, 1U << 30, 8}, 9), KOLO_IDX_IMAGES,
         "exceed the address space"},
        {make(0x803, 3, (uint32_t[]){4, 5, 3}, 60), KOLO_IDX_LABELS,
         "(images), expected 0x00000801"},
        {make(0x801, 1, (uint32_t[]){4}, 4), KOLO_IDX_IMAGES, "(labels), expected 0x00000803"},
        {make(0xd03, 3, (uint32_t[]){1, 1, 1}, 4), KOLO_IDX_IMAGES, "not an IDX file"},
        {make(0x03080000, 3, (uint32_t[]){1, 1, 1}, 1), KOLO_IDX_IMAGES, "not an IDX file"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        rejects(&cases[i].file, cases[i].kind, cases[i].text);
        bytes packed = gzip(cases[i].file.data, cases[i].file.n);
        rejects(&packed, cases[i].kind, cases[i].text);
    }
}

static void damaged_gzip_is_refused(void **state) {
    bytes plain = images(60), packed = gzip(plain.data, plain.n);
    for (size_t n = 2; n < packed.n; n++) { /* every truncation */
        bytes cut = packed;
        cut.n = n;
        rejects(&cut, KOLO_IDX_IMAGES, "truncated");
    }
    for (size_t i = packed.n - 8; i < packed.n; i++) { /* checksum and length at the end */
        bytes wrong = packed;
        wrong.data[i] ^= 1;
        rejects(&wrong, KOLO_IDX_IMAGES, "damaged gzip");
    }
    bytes garbage = packed;
    garbage.data[garbage.n++] = 'x';
    rejects(&garbage, KOLO_IDX_IMAGES, "");
}

/* 64 MiB of zeros in 64 KiB of gzip: decompression stops at the announced size, and a size that the
 * stream cannot reach allocates no memory. */
static void gzip_bombs_are_stopped(void **state) {
    size_t room = 256 << 10, bomb_bytes = 64 << 20;
    uint8_t *bomb = calloc(1, bomb_bytes), *packed = malloc(room);
    bytes start = images(0);
    memcpy(bomb, start.data, start.n);
    z_stream z = {0};
    deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    z.next_in = bomb;
    z.avail_in = (uInt)bomb_bytes;
    z.next_out = packed;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    kolo_idx idx;
    assert_int_equal(kolo_idx_parse(packed, z.total_out, KOLO_IDX_IMAGES, "bomb", &idx),
                     KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "announces 60 bytes"));
    assert_non_null(strstr(kolo_last_error(), "found at least 61"));
    free(bomb);
    free(packed);

    bytes promise = make(0x803, 3, (uint32_t[]){60000, 10000, 10000}, 100);
    bytes small = gzip(promise.data, promise.n);
    rejects(&small, KOLO_IDX_IMAGES, "gzipped bytes can hold");
}

static void failing_memory_is_reported(void **state) {
    bytes plain = images(60), packed = gzip(plain.data, plain.n);
    kolo_idx idx;
    kolo_alloc_fail_nth(1);
    assert_int_equal(kolo_idx_parse(packed.data, packed.n, KOLO_IDX_IMAGES, "x", &idx),
                     KOLO_ERR_NOMEM);
    kolo_alloc_fail_nth(0);
}

static void files_are_opened_by_name(void **state) {
    bytes plain = images(60), packed = gzip(plain.data, plain.n);
    const bytes *files[] = {&plain, &packed};
    for (size_t f = 0; f < KOLO_COUNT(files); f++) {
        ASSERT_OK(kolo_file_write("test_idx.tmp", files[f]->data, files[f]->n));
        kolo_idx idx;
        ASSERT_OK(kolo_idx_open("test_idx.tmp", KOLO_IDX_IMAGES, &idx));
        uint8_t elements[60];
        ASSERT_OK(kolo_idx_read(&idx, 0, 60, elements));
        assert_memory_equal(elements, plain.data + 16, 60);
        ASSERT_OK(kolo_idx_read(&idx, 7, 5, elements));
        assert_memory_equal(elements, plain.data + 16 + 7, 5);
        kolo_idx_fini(&idx);
        assert_int_equal(kolo_idx_open("test_idx.tmp", KOLO_IDX_LABELS, &idx), KOLO_ERR_FORMAT);
    }
    ASSERT_OK(kolo_file_write("test_idx.tmp", "", 0));
    kolo_idx idx;
    assert_int_equal(kolo_idx_open("test_idx.tmp", KOLO_IDX_IMAGES, &idx), KOLO_ERR_FORMAT);
    assert_int_equal(kolo_idx_open("test_idx.missing", KOLO_IDX_IMAGES, &idx), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "test_idx.missing"));
    assert_int_equal(kolo_idx_open(".", KOLO_IDX_IMAGES, &idx), KOLO_ERR_IO);
}

TEST_MAIN(test_idx) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_are_read_plain_and_gzipped),
        cmocka_unit_test(bad_contents_are_refused),
        cmocka_unit_test(damaged_gzip_is_refused),
        cmocka_unit_test(gzip_bombs_are_stopped),
        cmocka_unit_test(failing_memory_is_reported),
        cmocka_unit_test(files_are_opened_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
