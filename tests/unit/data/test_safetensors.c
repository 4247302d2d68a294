/* safetensors: a file of the reference implementation, round trips, and invalid files. */
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "data/safetensors/safetensors.h"
#include "support/support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTPUT "test_safetensors.tmp"

/* The contents of tests/golden/python.safetensors, written by tools/make_safetensors.py. */
static const float conv[18] = {-3,    -2.75F, -2.5F, -2.25F, -2,   -1.75F, -1.5F, -1.25F, -1,
                               -.75F, -.5F,   -.25F, 0,      .25F, .5F,    .75F,  1,      1.25F};
static const double third = 1.0 / 3;
static const uint16_t half[3] = {0x3c00, 0xc000, 0x3800}, brain[2] = {0x3f80, 0xc000};
static const int8_t signed_bytes[3] = {1, -1, -128};
static const uint8_t bytes[5] = {1, 2, 3, 4, 255};
static const int32_t ints[2] = {-5, 7};
static const int64_t step = (INT64_C(1) << 53) + 1;

static const struct {
    const char *name;
    kolo_dtype dtype;
    kolo_shape shape;
    const void *data;
    size_t bytes;
} tensors[] = {
    {"conv1.weight", KOLO_DTYPE_F32, {4, {2, 1, 3, 3}}, conv, sizeof conv},
    {"scalar", KOLO_DTYPE_F64, {0, {0}}, &third, sizeof third},
    {"empty", KOLO_DTYPE_F32, {2, {0, 3}}, "", 0},
    {"half", KOLO_DTYPE_F16, {1, {3}}, half, sizeof half},
    {"brain", KOLO_DTYPE_BF16, {1, {2}}, brain, sizeof brain},
    {"signed bytes", KOLO_DTYPE_I8, {1, {3}}, signed_bytes, sizeof signed_bytes},
    {"bytes", KOLO_DTYPE_U8, {1, {5}}, bytes, sizeof bytes},
    {"ints", KOLO_DTYPE_I32, {2, {2, 1}}, ints, sizeof ints},
    {"step", KOLO_DTYPE_I64, {1, {1}}, &step, sizeof step},
};

static void check_tensors(const kolo_safetensors *file) {
    assert_int_equal(kolo_safetensors_count(file), KOLO_COUNT(tensors));
    for (size_t i = 0; i < KOLO_COUNT(tensors); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_find(file, tensors[i].name);
        assert_non_null(e);
        assert_string_equal(e->name, tensors[i].name);
        assert_int_equal(e->dtype, tensors[i].dtype);
        assert_true(kolo_shape_equal(&e->shape, &tensors[i].shape));
        assert_int_equal(e->bytes, tensors[i].bytes);
        if (e->bytes > 0) assert_memory_equal(e->data, tensors[i].data, e->bytes);
    }
    assert_null(kolo_safetensors_find(file, "conv1"));
    assert_string_equal(kolo_safetensors_metadata(file, "model"), "lenet");
    assert_string_equal(kolo_safetensors_metadata(file, "note"), "na\xc3\xafve \xe2\x9c\x93");
    assert_null(kolo_safetensors_metadata(file, "none"));
}

static void files_of_the_formats_own_library_are_read(void **state) {
    kolo_safetensors *file;
    ASSERT_OK(kolo_safetensors_open(KOLO_SOURCE_DIR "/tests/golden/python.safetensors", &file));
    check_tensors(file);
    kolo_safetensors_close(file);
    kolo_safetensors_close(NULL);
}

static kolo_status write_tensors(const char *path, kolo_safetensors_writer **writer) {
    KOLO_TRY(kolo_safetensors_create(path, writer));
    for (size_t i = 0; i < KOLO_COUNT(tensors); i++) {
        KOLO_TRY(kolo_safetensors_add(*writer, tensors[i].name, tensors[i].dtype, &tensors[i].shape,
                                      tensors[i].data));
    }
    KOLO_TRY(kolo_safetensors_set(*writer, "model", "lenet"));
    KOLO_TRY(kolo_safetensors_set(*writer, "note", "na\xc3\xafve \xe2\x9c\x93"));
    return kolo_safetensors_finish(*writer);
}

static void what_is_written_is_read_back(void **state) {
    kolo_safetensors_writer *writer;
    ASSERT_OK(write_tensors(OUTPUT, &writer));
    kolo_safetensors_destroy(writer);
    kolo_safetensors *file;
    ASSERT_OK(kolo_safetensors_open(OUTPUT, &file));
    check_tensors(file);
    for (int i = 0; i < kolo_safetensors_count(file); i++) { /* in the order of adding */
        assert_string_equal(kolo_safetensors_get(file, i)->name, tensors[i].name);
    }
    assert_int_equal((uintptr_t)kolo_safetensors_get(file, 0)->data % 64, 0);
    kolo_safetensors_close(file);

    /* A file without tensors. */
    ASSERT_OK(kolo_safetensors_create(OUTPUT ".empty", &writer));
    ASSERT_OK(kolo_safetensors_finish(writer));
    kolo_safetensors_destroy(writer);
    ASSERT_OK(kolo_safetensors_open(OUTPUT ".empty", &file));
    assert_int_equal(kolo_safetensors_count(file), 0);
    assert_null(kolo_safetensors_metadata(file, "model"));
    kolo_safetensors_close(file);
    unlink(OUTPUT ".empty");
}

static void without_a_finish_the_old_file_stays(void **state) {
    const char *path = OUTPUT ".old";
    ASSERT_OK(kolo_file_write(path, "old", 3));
    kolo_safetensors_writer *writer;
    ASSERT_OK(kolo_safetensors_create(path, &writer));
    ASSERT_OK(kolo_safetensors_set(writer, "a", "b"));
    kolo_safetensors_destroy(writer);
    char *data;
    size_t n;
    ASSERT_OK(kolo_file_read(path, 100, &data, &n));
    assert_string_equal(data, "old");
    kolo_free(data);
    unlink(path);
    assert_int_equal(kolo_safetensors_create("no/such/folder/x", &writer), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "no/such/folder/x"));
    /* A full disk is detected by finish. */
    ASSERT_OK(kolo_safetensors_create("/dev/full", &writer));
    assert_int_equal(kolo_safetensors_finish(writer), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "/dev/full"));
    kolo_safetensors_destroy(writer);
}

static void writing_refuses_what_the_format_cannot_hold(void **state) {
    kolo_safetensors_writer *writer;
    const kolo_shape two = kolo_shape_1(2), negative = kolo_shape_1(-1);
    const kolo_shape huge = kolo_shape_2(INT64_C(1) << 40, INT64_C(1) << 40);
    ASSERT_OK(kolo_safetensors_create(OUTPUT ".bad", &writer));
    ASSERT_OK(kolo_safetensors_add(writer, "a", KOLO_DTYPE_I32, &two, ints));
    const struct {
        const char *name;
        const kolo_shape *shape;
        const char *text;
    } cases[] = {
        {"a", &two, "\"a\" exists already"}, {"__metadata__", &two, "is reserved"},
        {"\xff", &two, "not UTF-8"},         {"b", &negative, "shape [-1]"},
        {"b", &huge, "cannot be written"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        assert_int_equal(
            kolo_safetensors_add(writer, cases[i].name, KOLO_DTYPE_I32, cases[i].shape, ints),
            KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), cases[i].text));
    }
    ASSERT_OK(kolo_safetensors_set(writer, "k", "v"));
    assert_int_equal(kolo_safetensors_set(writer, "k", "w"), KOLO_ERR_ARG);
    assert_int_equal(kolo_safetensors_set(writer, "l", "\xc0"), KOLO_ERR_ARG);
    /* Refused entries leave no trace. */
    ASSERT_OK(kolo_safetensors_finish(writer));
    kolo_safetensors_destroy(writer);
    kolo_safetensors *file;
    ASSERT_OK(kolo_safetensors_open(OUTPUT ".bad", &file));
    assert_int_equal(kolo_safetensors_count(file), 1);
    assert_memory_equal(kolo_safetensors_get(file, 0)->data, ints, sizeof ints);
    assert_string_equal(kolo_safetensors_metadata(file, "k"), "v");
    kolo_safetensors_close(file);
    unlink(OUTPUT ".bad");
}

/* ---- bad files ---- */

/* Parses a file made of `header`, its length, and `n` bytes of data; memory is exact, so that the
 * sanitizers see a read beyond it. */
static kolo_status parse(const char *header, size_t n, kolo_safetensors **file, uint8_t **memory) {
    uint64_t length = strlen(header);
    *memory = calloc(1, 8 + length + n);
    memcpy(*memory, &length, 8);
    memcpy(*memory + 8, header, length);
    return kolo_safetensors_parse(*memory, 8 + length + n, "w.st", file);
}

#define TENSOR(dtype, shape, range) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" range "}"
#define F32(shape, range) TENSOR("F32", shape, range)

static void good_headers_are_taken(void **state) {
    const struct {
        const char *header;
        size_t bytes;
        int count;
    } cases[] = {
        {"{}", 0, 0},
        {"{}   \n ", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"a\":" F32("[1]", "[4,8]") ",\"b\":" F32("[1]", "[0,4]") "}", 8, 2},
        {"{\"a\":" F32("[]", "[0,4]") ",\"e\":" F32("[0]", "[4,4]") "}", 4, 2},
        {"{\"e\":" F32("[7,0]", "[4,4]") ",\"a\":" F32("[1]", "[0,4]") ",\"b\":" F32("[1]",
                                                                                     "[4,8]") "}",
         8, 3},
        {"{\"\":" F32("[1,1,1,1,1,1]", "[0,4]") "}", 4, 1},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_safetensors *file;
        uint8_t *memory;
        ASSERT_OK(parse(cases[i].header, cases[i].bytes, &file, &memory));
        assert_int_equal(kolo_safetensors_count(file), cases[i].count);
        kolo_safetensors_close(file);
        free(memory);
    }
}

static void bad_headers_are_refused(void **state) {
    const struct {
        const char *header;
        size_t bytes;
        const char *text;
    } cases[] = {
        {"", 0, "not JSON"},
        {"[]", 0, "not JSON"},
        {" {}", 0, "not JSON"},
        {"{", 0, "not JSON"},
        {"{]", 0, "bad JSON"},
        {"{} x", 0, "bad JSON"},
        {"{\"a\n\":1}", 0, "bad JSON"},
        {"{\"\xff\":1}", 0, "bad JSON"},
        {"{\"a\":" F32("[1]", "[0,4]") ",\"a\":" F32("[1]", "[4,8]") "}", 8, "duplicate"},
        {"{\"a\":" F32("[99999999999999999999]", "[0,4]") "}", 4, "bad JSON"},
        {"{}", 1, "the tensors take 0"},
        {"{\"__metadata__\":3}", 0, "not an object of strings"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "metadata \"k\" is not a string"},
        {"{\"a\":3}", 0, "not described by"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "not described by"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
         "not described by"},
        {"{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "has no dtype"},
        {"{\"a\":{\"dtyp\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "has no dtype"},
        {"{\"a\":" F32("4", "[0,4]") "}", 4, "has no shape"},
        {"{\"a\":" F32("[1.0]", "[0,4]") "}", 4, "dimension 0 is not a count"},
        {"{\"a\":" F32("[-1,-1]", "[0,4]") "}", 4, "dimension 0 is not a count"},
        {"{\"a\":" F32("[4294967296,4294967296]", "[0,4]") "}", 4, "exceeds the address space"},
        {"{\"a\":" F32("[4294967296,4294967296,0]", "[0,0]") "}", 0, "exceeds the address space"},
        {"{\"a\":" F32("[1]", "4") "}", 4, "no data_offsets"},
        {"{\"a\":" F32("[1]", "[0,4,8]") "}", 4, "no data_offsets"},
        {"{\"a\":" F32("[1]", "[0,\"4\"]") "}", 4, "no data_offsets"},
        {"{\"a\":" F32("[1]", "[-4,0]") "}", 4, "outside the 4 bytes"},
        {"{\"a\":" F32("[1]", "[4,0]") "}", 4, "outside the 4 bytes"},
        {"{\"a\":" F32("[2]", "[0,8]") "}", 4, "outside the 4 bytes"},
        {"{\"a\":" F32("[1]", "[9223372036854775803,9223372036854775807]") "}", 4, "outside the 4"},
        {"{\"a\":" F32("[2]", "[0,4]") "}", 4,
         "f32 of shape [2] takes 8 bytes, data_offsets give 4"},
        {"{\"a\":" F32("[1]", "[4,8]") "}", 8, "after a gap from 0"},
        {"{\"a\":" F32("[1]", "[0,4]") "}", 8, "the tensors take 4"},
        {"{\"a\":" F32("[2]", "[0,8]") ",\"b\":" F32("[2]", "[4,12]") "}", 12, "inside another"},
        {"{\"a\":" F32("[1]", "[0,4]") ",\"b\":" F32("[1]", "[0,4]") "}", 4, "inside another"},
        {"{\"a\":" F32("[2]", "[0,8]") ",\"b\":" F32("[0]", "[4,4]") "}", 8, "inside another"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_safetensors *file = NULL;
        uint8_t *memory;
        assert_int_equal(parse(cases[i].header, cases[i].bytes, &file, &memory), KOLO_ERR_FORMAT);
        assert_null(file);
        free(memory);
        if (!strstr(kolo_last_error(), cases[i].text)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), cases[i].text);
        }
        assert_ptr_equal(strstr(kolo_last_error(), "w.st: "), kolo_last_error());
    }
}

static void what_kolo_lacks_is_unsupported(void **state) {
    const char *headers[] = {"{\"a\":" TENSOR("BOOL", "[1]", "[0,1]") "}",
                             "{\"a\":" TENSOR("f32", "[1]", "[0,4]") "}",
                             "{\"a\":" F32("[1,1,1,1,1,1,1]", "[0,4]") "}"};
    for (size_t i = 0; i < KOLO_COUNT(headers); i++) {
        kolo_safetensors *file = NULL;
        uint8_t *memory;
        assert_int_equal(parse(headers[i], 4, &file, &memory), KOLO_ERR_UNSUPPORTED);
        free(memory);
    }
}

static void damaged_files_are_refused(void **state) {
    char *data;
    size_t n;
    kolo_safetensors *file = NULL;
    ASSERT_OK(kolo_file_read(KOLO_SOURCE_DIR "/tests/golden/python.safetensors", 10000, &data, &n));
    for (size_t cut = 0; cut < n; cut++) { /* every truncation */
        uint8_t *exact = malloc(cut ? cut : 1);
        memcpy(exact, data, cut);
        assert_int_equal(kolo_safetensors_parse(exact, cut, "cut", &file), KOLO_ERR_FORMAT);
        free(exact);
    }
    const uint64_t lengths[] = {n - 7, 99999999, 100000001, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < KOLO_COUNT(lengths); i++) {
        memcpy(data, &lengths[i], 8);
        assert_int_equal(kolo_safetensors_parse((uint8_t *)data, n, "w", &file), KOLO_ERR_FORMAT);
    }
    kolo_free(data);
    assert_null(file);
    assert_int_equal(kolo_safetensors_open("test_safetensors.missing", &file), KOLO_ERR_IO);
    assert_int_equal(kolo_safetensors_open("/tmp", &file), KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(), "/tmp is a folder: give a .safetensors file in it");
    ASSERT_OK(kolo_file_write(OUTPUT ".zero", "", 0));
    assert_int_equal(kolo_safetensors_open(OUTPUT ".zero", &file), KOLO_ERR_FORMAT);
    unlink(OUTPUT ".zero");
}

/* Flips every bit of a file, except in the key of the hashes. */
static void a_flipped_bit_is_found(void **state) {
    char *data;
    size_t n;
    kolo_safetensors_writer *writer = NULL;
    ASSERT_OK(write_tensors(OUTPUT, &writer));
    kolo_safetensors_destroy(writer);
    ASSERT_OK(kolo_file_read(OUTPUT, 10000, &data, &n));
    static const char name[] = "kolo_xxh3_blocks";
    size_t key = 0, end = sizeof name - 1;
    while (memcmp(data + key, name, end) != 0) key++;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        kolo_safetensors *file = NULL;
        if (bit / 8 >= key && bit / 8 < key + end) continue;
        data[bit / 8] = (char)(data[bit / 8] ^ 1 << bit % 8);
        kolo_status status = kolo_safetensors_parse((uint8_t *)data, n, "flipped", &file);
        if (status == KOLO_OK) status = kolo_safetensors_check(file);
        kolo_safetensors_close(file);
        data[bit / 8] = (char)(data[bit / 8] ^ 1 << bit % 8);
        if (status == KOLO_OK) fail_msg("bit %zu of byte %zu", bit % 8, bit / 8);
    }
    kolo_free(data);
}

/* A file of earlier versions, which had a hash of the bytes of each tensor. */
static void hashes_of_whole_tensors_are_checked(void **state) {
    static const char text[] =
        "{\"__metadata__\":{\"kolo_xxh3\":\"%016" PRIx64 "%016" PRIx64 "\"},%s}";
    static const char bare[] = "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}";
    static const char sorted[] = "{\"a\":{\"data_offsets\":[0,8],\"dtype\":\"F32\",\"shape\":[2]}}";
    const uint8_t zeros[8] = {0};
    for (int damaged = 0; damaged < 2; damaged++) {
        char header[256];
        uint8_t *memory;
        kolo_safetensors *file;
        snprintf(header, sizeof header, text, kolo_hash_text(sorted), kolo_hash_bytes(zeros, 8),
                 bare);
        ASSERT_OK(parse(header, 8, &file, &memory));
        memory[8 + strlen(header)] = (uint8_t)damaged;
        kolo_status status = kolo_safetensors_check(file);
        if (status != (damaged ? KOLO_ERR_FORMAT : KOLO_OK)) fail_msg("%s", kolo_last_error());
        kolo_safetensors_close(file);
        free(memory);
    }
}

/* ---- files in parts ---- */

enum { LONG = 3 * KOLO_SAFETENSORS_BLOCK + 5 };

static kolo_status declare_two(kolo_safetensors_writer *w) {
    const kolo_shape all = kolo_shape_1(LONG), two = kolo_shape_1(2);
    KOLO_TRY(kolo_safetensors_declare(w, "long", KOLO_DTYPE_I32, &all));
    return kolo_safetensors_declare(w, "ints", KOLO_DTYPE_I32, &two);
}

/* Two writers, which put parts in any order, make the file that one makes. */
static void parts_make_the_same_file(void **state) {
    static int32_t numbers[LONG];
    const kolo_shape all = kolo_shape_1(LONG), two = kolo_shape_1(2);
    const int64_t block = KOLO_SAFETENSORS_BLOCK;
    kolo_safetensors_writer *whole, *first, *second;
    kolo_safetensors_place place;
    uint64_t *hashes, *others;
    size_t n, sizes[2];
    char *data[2];
    for (int i = 0; i < LONG; i++) numbers[i] = 3 * i;
    ASSERT_OK(kolo_safetensors_create(OUTPUT ".a", &whole));
    ASSERT_OK(kolo_safetensors_add(whole, "long", KOLO_DTYPE_I32, &all, numbers));
    ASSERT_OK(kolo_safetensors_add(whole, "ints", KOLO_DTYPE_I32, &two, ints));
    ASSERT_OK(kolo_safetensors_finish(whole));
    ASSERT_OK(kolo_safetensors_create(OUTPUT ".b", &first));
    ASSERT_OK(declare_two(first));
    ASSERT_OK(kolo_safetensors_begin(first, &place));
    place.mark++;
    assert_int_equal(kolo_safetensors_join(&place, &second), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "there is another file of this name"));
    place.mark--;
    ASSERT_OK(kolo_safetensors_join(&place, &second));
    ASSERT_OK(declare_two(second));
    ASSERT_OK(kolo_safetensors_put(second, 0, 2 * block, block + 5, numbers + 2 * block));
    ASSERT_OK(kolo_safetensors_put(second, 0, block, block, numbers + block));
    ASSERT_OK(kolo_safetensors_put(first, 1, 0, 2, ints));
    ASSERT_OK(kolo_safetensors_put(first, 0, 0, block, numbers));
    ASSERT_OK(kolo_safetensors_sync(second));
    ASSERT_OK(kolo_safetensors_hashes_of(first, &hashes, &n));
    ASSERT_OK(kolo_safetensors_hashes_of(second, &others, &n));
    assert_int_equal(n, 5);
    for (size_t i = 0; i < n; i++) hashes[i] |= others[i];
    ASSERT_OK(kolo_safetensors_finish(first));
    kolo_safetensors_destroy(whole);
    kolo_safetensors_destroy(first);
    kolo_safetensors_destroy(second);
    kolo_free(place.temporary);
    ASSERT_OK(kolo_file_read(OUTPUT ".a", 1 << 20, &data[0], &sizes[0]));
    ASSERT_OK(kolo_file_read(OUTPUT ".b", 1 << 20, &data[1], &sizes[1]));
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(data[0], data[1], sizes[0]);
    kolo_free(data[0]);
    kolo_free(data[1]);
    unlink(OUTPUT ".a");
    unlink(OUTPUT ".b");
}

static void devices_are_not_written_in_parts(void **state) {
    kolo_safetensors_writer *writer;
    kolo_safetensors_place place = {0};
    ASSERT_OK(kolo_safetensors_create("/dev/null", &writer));
    assert_int_equal(kolo_safetensors_begin(writer, &place), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "cannot write /dev/null in parts"));
    kolo_safetensors_destroy(writer);
}

static void failing_memory_is_reported(void **state) {
    kolo_status status = KOLO_ERR_NOMEM;
    long failures = 0;
    for (; status != KOLO_OK && failures < 1000; failures++) {
        kolo_safetensors_writer *writer = NULL;
        kolo_alloc_fail_nth(failures + 1);
        status = write_tensors(OUTPUT, &writer);
        kolo_alloc_fail_nth(0);
        kolo_safetensors_destroy(writer);
        if (status != KOLO_OK)
            assert_int_equal(status == KOLO_ERR_NOMEM || status == KOLO_ERR_IO, 1);
    }
    assert_true(failures > 4 && failures < 1000);
    for (failures = 0, status = KOLO_ERR_NOMEM; status != KOLO_OK && failures < 100; failures++) {
        kolo_safetensors *file = NULL;
        kolo_alloc_fail_nth(failures + 1);
        status = kolo_safetensors_open(OUTPUT, &file);
        kolo_alloc_fail_nth(0);
        if (status != KOLO_OK) assert_int_equal(status, KOLO_ERR_NOMEM);
        kolo_safetensors_close(file);
    }
    assert_true(failures > 2 && failures < 100);
}

TEST_MAIN(test_safetensors) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_the_formats_own_library_are_read),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(without_a_finish_the_old_file_stays),
        cmocka_unit_test(writing_refuses_what_the_format_cannot_hold),
        cmocka_unit_test(good_headers_are_taken),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(what_kolo_lacks_is_unsupported),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(a_flipped_bit_is_found),
        cmocka_unit_test(hashes_of_whole_tensors_are_checked),
        cmocka_unit_test(parts_make_the_same_file),
        cmocka_unit_test(devices_are_not_written_in_parts),
        cmocka_unit_test(failing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
