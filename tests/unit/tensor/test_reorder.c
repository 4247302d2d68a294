/* Copies between layouts: each element is where its layout has it, and padding is zero. */
#include "base/compiler.h"
#include "support/support.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

static kolo_tensor tensor_of(const char *layout, kolo_dtype dtype, kolo_shape shape) {
    kolo_tensor t = {.dtype = dtype, .shape = shape};
    ASSERT_OK(kolo_layout_parse(layout, &t.layout));
    assert_int_equal(t.layout.rank, shape.rank);
    return t;
}

/* Checks a copy. The padding of a tensor is zero. */
static void compare(const kolo_tensor *to, const kolo_tensor *from) {
    const size_t each = kolo_dtype_bytes(to->dtype), n = kolo_tensor_bytes(from);
    const size_t room = kolo_tensor_bytes(to);
    uint8_t *src = calloc(1, n + 1), *dst = malloc(room ? room : 1), *want = calloc(1, room + 1);
    uint64_t random = 7;
    memset(dst, 0xa5, room);
    int64_t index[KOLO_MAX_RANK] = {0};
    for (int64_t k = kolo_shape_count(&to->shape); k > 0; k--) {
        const int64_t at = kolo_layout_offset(&to->layout, &to->shape, index);
        const int64_t from_at = kolo_layout_offset(&from->layout, &to->shape, index);
        random = random * 6364136223846793005U + 1442695040888963407U;
        memcpy(want + (size_t)at * each, &random, each);
        memcpy(src + (size_t)from_at * each, &random, each);
        for (int i = to->shape.rank - 1; i >= 0 && ++index[i] == to->shape.dim[i]; i--)
            index[i] = 0;
    }
    kolo_tensor_reorder(to, dst, from, src);
    if (memcmp(dst, want, room) != 0) {
        char a[KOLO_LAYOUT_TEXT], b[KOLO_LAYOUT_TEXT], c[KOLO_SHAPE_TEXT];
        fail_msg("%s from %s, %s", kolo_layout_text(&to->layout, a),
                 kolo_layout_text(&from->layout, b), kolo_shape_text(&to->shape, c));
    }
    free(src);
    free(dst);
    free(want);
}

static void elements_go_to_their_places(void **state) {
    static const char *const images[] = {
        "abcd",     "acdb",     "aBcd8b", "aBcd16b",  "dcba",       "cdba",      "bacd",
        "ABcd8b8a", "ABcd4a4b", "Abcd8a", "aBCd2c4b", "ABcd4b8a2b", "ABcd16a2b", "Acdb16a"};
    static const kolo_shape shapes[] = {
        {4, {16, 32, 3, 3}}, {4, {8, 8, 1, 1}}, {4, {16, 16, 2, 5}}, {4, {24, 40, 1, 3}},
        {4, {5, 3, 7, 2}},   {4, {1, 1, 1, 1}}, {4, {0, 8, 2, 2}},
    };
    static const kolo_dtype types[] = {KOLO_DTYPE_F32, KOLO_DTYPE_U8, KOLO_DTYPE_BF16,
                                       KOLO_DTYPE_F64};
    int n = 0;
    for (size_t s = 0; s < KOLO_COUNT(shapes); s++) {
        for (size_t a = 0; a < KOLO_COUNT(images); a++) {
            for (size_t b = 0; b < KOLO_COUNT(images); b++) {
                const kolo_dtype type = types[n++ % KOLO_COUNT(types)];
                const kolo_tensor to = tensor_of(images[a], type, shapes[s]);
                const kolo_tensor from = tensor_of(images[b], type, shapes[s]);
                compare(&to, &from);
            }
        }
    }
    const kolo_tensor matrix = tensor_of("ab", KOLO_DTYPE_F32, kolo_shape_2(6, 9));
    const kolo_tensor turned = tensor_of("ba", KOLO_DTYPE_F32, kolo_shape_2(6, 9));
    const kolo_tensor row = tensor_of("a", KOLO_DTYPE_F32, kolo_shape_1(10));
    const kolo_tensor blocks = tensor_of("A4a", KOLO_DTYPE_F32, kolo_shape_1(10));
    compare(&matrix, &turned);
    compare(&turned, &matrix);
    compare(&row, &blocks);
    compare(&blocks, &row);
}

TEST_MAIN(test_reorder) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_go_to_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
