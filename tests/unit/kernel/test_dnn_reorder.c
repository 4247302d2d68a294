/* Layouts between Kolo and oneDNN, and the reorder kernel. */
#include "graph/ops/ops.h"
#include "support/dnn_check.h"

#include <stdio.h>

#if KOLO_HAS_DNNL
#include "kernel/dnn/dnn.h"

typedef struct layout_case {
    kolo_shape shape;
    int64_t groups;
    const char *layout;
    bool refused;
} layout_case;

static const layout_case layouts[] = {
    {{1, {7}}, 1, "a", false},
    {{2, {3, 5}}, 1, "ba", false},
    {{4, {2, 6, 3, 3}}, 1, "abcd", false},
    {{4, {2, 6, 3, 3}}, 1, "acdb", false},
    {{4, {2, 6, 3, 3}}, 1, "aBcd8b", false},
    {{4, {16, 6, 3, 3}}, 1, "ABcd8b8a", false},
    {{4, {16, 6, 3, 3}}, 1, "ABcd4b8a2b", false},
    {{4, {2, 1, 3, 3}}, 1, "abcd", false}, /* one channel: same memory, own names */
    {{4, {2, 1, 3, 3}}, 1, "acdb", false},
    {{4, {6, 1, 5, 5}}, 1, "Abcd8a", false},
    {{6, {2, 3, 2, 2, 3, 2}}, 1, "afbdce", false},
    {{4, {12, 2, 3, 3}}, 3, "abcd", false},
    {{4, {12, 2, 3, 3}}, 3, "cdba", false},
    {{4, {24, 8, 3, 3}}, 3, "ABcd8b8a", false},
    {{4, {12, 2, 3, 3}}, 3, "Abcd8a", true}, /* a block of O across two groups */
    {{4, {11, 1, 3, 3}}, 11, "Abcd8a", false},
};

static void layouts_go_to_onednn_and_back(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(layouts); i++) {
        const layout_case *c = &layouts[i];
        kolo_tensor t = kolo_tensor_plain(KOLO_DTYPE_F32, c->shape), back = t;
        dnnl_memory_desc_t desc;
        char text[KOLO_LAYOUT_TEXT];
        ASSERT_OK(kolo_layout_parse(c->layout, &t.layout));
        assert_int_equal(kolo_dnn_desc(&t, c->groups, &desc), !c->refused);
        if (c->refused) continue;
        assert_int_equal(dnnl_memory_desc_get_size(&desc), kolo_tensor_bytes(&t));
        assert_true(kolo_dnn_layout(&desc, c->groups, &back.layout));
        assert_string_equal(kolo_layout_text(&back.layout, text), c->layout);
        assert_true(kolo_dnn_same_memory(&t, &back));
    }
}

/* Formats that no layout can express: opaque, with gaps, of another start. */
static void foreign_formats_are_refused(void **state) {
    kolo_tensor t = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_2(4, 6));
    kolo_layout layout;
    dnnl_memory_desc_t good, desc;
    assert_true(kolo_dnn_desc(&t, 1, &good));
    desc = good;
    desc.format_kind = dnnl_format_kind_wino;
    assert_false(kolo_dnn_layout(&desc, 1, &layout));
    desc = good;
    desc.format_desc.blocking.strides[0] = 8;
    assert_false(kolo_dnn_layout(&desc, 1, &layout));
    desc = good;
    desc.offset0 = 1;
    assert_false(kolo_dnn_layout(&desc, 1, &layout));
    desc = good;
    desc.extra.flags = dnnl_memory_extra_flag_compensation_conv_s8s8;
    assert_false(kolo_dnn_layout(&desc, 1, &layout));
    t.dtype = KOLO_DTYPE_F64;
    assert_false(kolo_dnn_desc(&t, 1, &desc));
}

static void padding_and_channels_are_the_same_memory(void **state) {
    kolo_tensor six = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_4(2, 6, 3, 3));
    assert_false(kolo_dnn_same_memory(&six, &(kolo_tensor){six.dtype, six.shape, {0}}));
    ASSERT_OK(kolo_layout_parse("aBcd8b", &six.layout));
    kolo_tensor eight = kolo_dnn_pad(&six, 1);
    assert_int_equal(eight.shape.dim[1], 8);
    assert_true(kolo_dnn_same_memory(&six, &eight));
    ASSERT_OK(kolo_layout_parse("acdb", &eight.layout));
    assert_false(kolo_dnn_same_memory(&six, &eight));
}
#endif

typedef struct reorder_case {
    kolo_shape shape;
    const char *layouts[6];
} reorder_case;

static const reorder_case cases[] = {
    {{2, {5, 7}}, {"ab", "ba"}},
    {{4, {3, 6, 5, 4}}, {"abcd", "acdb", "aBcd8b", "aBcd16b"}},
    {{4, {2, 32, 7, 7}}, {"abcd", "acdb", "aBcd8b", "aBcd16b"}},
    {{4, {2, 1, 7, 5}}, {"abcd", "acdb", "aBcd8b"}},
    {{4, {16, 6, 5, 5}}, {"abcd", "cdba", "ABcd8b8a", "ABcd8a8b", "Acdb8a", "acdb"}},
    {{4, {6, 1, 5, 5}}, {"abcd", "Acdb8a", "ABcd8b8a"}},
    {{3, {2, 3, 10}}, {"abc", "acb", "aBc8b"}},
};

static void reorder_is_the_reference(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (size_t j = 0; j < KOLO_COUNT(cases[i].layouts) && cases[i].layouts[j]; j++) {
            for (size_t k = 0; k < KOLO_COUNT(cases[i].layouts) && cases[i].layouts[k]; k++) {
                kolo_kernel_spec spec;
                test_kernel_spec(&spec, &kolo_op_reorder, NULL, 1, &cases[i].shape,
                                 &cases[i].layouts[j], 1, &cases[i].layouts[k], 1 + (j + k) % 2);
                assert_true(test_dnn_kernel("dnn_reorder", &spec));
                spec.in[0].dtype = spec.out[0].dtype = KOLO_DTYPE_BF16;
                assert_true(test_dnn_kernel("dnn_reorder", &spec) ||
                            kolo_isa_best() < KOLO_ISA_AVX512);
            }
        }
    }
}

TEST_MAIN(test_dnn_reorder) {
    if (!test_kernel("dnn_reorder")) {
        puts("skip: built without oneDNN");
        return 77;
    }
    const struct CMUnitTest tests[] = {
#if KOLO_HAS_DNNL
        cmocka_unit_test(layouts_go_to_onednn_and_back),
        cmocka_unit_test(foreign_formats_are_refused),
        cmocka_unit_test(padding_and_channels_are_the_same_memory),
#endif
        cmocka_unit_test(reorder_is_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
