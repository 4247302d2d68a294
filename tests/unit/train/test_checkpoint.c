/* Checkpoints: saving and loading, also into other layouts; files of another model and damaged
 * files are refused and change nothing. */
#include "base/file.h"
#include "support/support.h"
#include "train/checkpoint/checkpoint.h"
#include "train/session/session.h"

#include <stdio.h>
#include <string.h>

static const char path[] = "test_checkpoint.safetensors";

static kolo_session *make_session(const char *model, const char *options, kolo_kernel_set kernels,
                                  uint64_t seed) {
    kolo_session_config opts = {
        .model = model,
        .model_options = options,
        .sample = {3, {1, 28, 28}},
        .classes = 10,
        .batch = 8,
        .plan = {.kernels = kernels, .optimizer.momentum = 0.9},
    };
    kolo_session *session;
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    ASSERT_OK(kolo_session_init(session, seed));
    return session;
}

static kolo_checkpoint_info info_of(const char *model, const char *options) {
    return (kolo_checkpoint_info){
        .model = model,
        .model_options = options,
        .sample = {3, {1, 28, 28}},
        .classes = 10,
        .data = "synthetic:seed=1",
        .epochs = 2,
        .steps = 345,
        .seed = UINT64_MAX,
    };
}

/* Whether both have equal parameters in canonical order. */
static bool same_parameters(const kolo_session *a, const kolo_session *b) {
    const kolo_store *x = kolo_session_store(a), *y = kolo_session_store(b);
    bool same = true;
    for (int i = 0; i < kolo_store_count(x); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(x, i);
        if (entry->kind != KOLO_VALUE_PARAM) continue;
        size_t bytes = (size_t)kolo_shape_count(&entry->canon) * sizeof(float);
        float *p = kolo_alloc(bytes), *q = kolo_alloc(bytes);
        kolo_store_read(x, entry, p);
        kolo_store_read(y, kolo_store_find(y, entry->name), q);
        same = same && memcmp(p, q, bytes) == 0;
        kolo_free(p);
        kolo_free(q);
    }
    return same;
}

static void what_is_saved_comes_back_in_any_layout(void **state) {
    kolo_session *saved = make_session("lenet", NULL, KOLO_KERNELS_BEST, 1);
    kolo_session *loaded[] = {
        make_session("lenet", NULL, KOLO_KERNELS_BEST, 2),
        make_session("lenet", NULL, KOLO_KERNELS_REF, 2),
    };
    kolo_checkpoint_info info = info_of("lenet", NULL);
    ASSERT_OK(kolo_checkpoint_save(path, kolo_session_store(saved), &info));
    kolo_checkpoint c;
    ASSERT_OK(kolo_checkpoint_open(path, &c));
    assert_string_equal(c.info.model, "lenet");
    assert_string_equal(c.info.model_options, "");
    assert_string_equal(c.info.data, "synthetic:seed=1");
    assert_true(kolo_shape_equal(&c.info.sample, &info.sample));
    assert_int_equal(c.info.classes, 10);
    assert_int_equal(c.info.epochs, 2);
    assert_int_equal(c.info.steps, 345);
    assert_true(c.info.seed == UINT64_MAX);
    for (int i = 0; i < 2; i++) {
        assert_false(same_parameters(saved, loaded[i]));
        ASSERT_OK(kolo_checkpoint_load(&c, kolo_session_store(loaded[i])));
        assert_true(same_parameters(saved, loaded[i]));
        kolo_session_destroy(loaded[i]);
    }
    /* The file has parameters only, with the shapes of the model's builder. */
    assert_int_equal(kolo_safetensors_count(c.file), 10);
    kolo_shape fc1 = kolo_shape_2(120, 400);
    assert_true(kolo_shape_equal(&kolo_safetensors_find(c.file, "fc1.weight")->shape, &fc1));
    kolo_checkpoint_close(&c);
    kolo_session_destroy(saved);
    remove(path);
}

/* Paths may have other bytes than UTF-8, which a header may not: the run's weights are saved all
 * the same. */
static void bytes_that_are_no_utf8_are_replaced(void **state) {
    kolo_session *session = make_session("mlp", NULL, KOLO_KERNELS_BEST, 1);
    kolo_checkpoint_info info = info_of("net\xc3.onnx", "name=\x80");
    info.data = "mnist:z\xff/\xc3\xa9,split=0.1";
    ASSERT_OK(kolo_checkpoint_save(path, kolo_session_store(session), &info));
    kolo_checkpoint c;
    ASSERT_OK(kolo_checkpoint_open(path, &c));
    assert_string_equal(c.info.model, "net\xef\xbf\xbd.onnx");
    assert_string_equal(c.info.model_options, "name=\xef\xbf\xbd");
    assert_string_equal(c.info.data, "mnist:z\xef\xbf\xbd/\xc3\xa9,split=0.1");
    kolo_checkpoint_close(&c);
    kolo_session_destroy(session);
    remove(path);
}

typedef struct other_model {
    const char *model, *options; /* that the checkpoint holds */
    const char *text;            /* error of loading it into mlp with hidden=16 */
} other_model;

static const other_model others[] = {
    {"mlp", "hidden=17",
     "tensor \"fc1.weight\" is f32 [17,784] and model mlp has f32 [16,784]: give a checkpoint of "
     "that model"},
    {"mlp", "hidden=16,layers=1", "is f32 [10,16] and model mlp has f32 [16,16]"},
    {"mlp", "hidden=16,layers=3", "is f32 [16,16] and model mlp has f32 [10,16]"},
    {"lenet", NULL, "is f32 [120,400] and model mlp has f32 [16,784]"},
};

/* The hash does not depend on the layout. */
static void a_hash_is_of_numbers_in_any_layout(void **state) {
    kolo_session *blocked = make_session("resnet20", "width=16", KOLO_KERNELS_BEST, 1);
    kolo_session *plain = make_session("resnet20", "width=16", KOLO_KERNELS_REF, 1);
    kolo_session *other = make_session("resnet20", "width=16", KOLO_KERNELS_REF, 2);
    kolo_store *stores[] = {kolo_session_store(blocked), kolo_session_store(plain),
                            kolo_session_store(other)};
    bool differ = false;
    for (int i = 0; i < kolo_store_count(stores[0]); i++) {
        differ |= !kolo_layout_equal(&kolo_store_entry_at(stores[0], i)->tensor.layout,
                                     &kolo_store_entry_at(stores[1], i)->tensor.layout);
    }
    if (!differ) print_message("the layouts are the same here\n");
    assert_true(kolo_store_hash(stores[0]) == kolo_store_hash(stores[1]));
    assert_true(kolo_store_hash(stores[1]) != kolo_store_hash(stores[2]));
    kolo_session_destroy(blocked);
    kolo_session_destroy(plain);
    kolo_session_destroy(other);
}

static void another_model_is_refused_and_changes_nothing(void **state) {
    kolo_session *session = make_session("mlp", "hidden=16", KOLO_KERNELS_BEST, 1);
    uint64_t before = kolo_store_hash(kolo_session_store(session));
    for (size_t i = 0; i < KOLO_COUNT(others); i++) {
        kolo_session *other =
            make_session(others[i].model, others[i].options, KOLO_KERNELS_BEST, 2);
        /* The metadata name the session's model, but the tensors differ. */
        kolo_checkpoint_info info = info_of("mlp", "hidden=16");
        kolo_checkpoint c;
        ASSERT_OK(kolo_checkpoint_save(path, kolo_session_store(other), &info));
        ASSERT_OK(kolo_checkpoint_open(path, &c));
        assert_int_equal(kolo_checkpoint_load(&c, kolo_session_store(session)), KOLO_ERR_FORMAT);
        assert_non_null(strstr(kolo_last_error(), path));
        if (!strstr(kolo_last_error(), others[i].text)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), others[i].text);
        }
        assert_int_equal(kolo_store_hash(kolo_session_store(session)), before);
        kolo_checkpoint_close(&c);
        kolo_session_destroy(other);
    }
    kolo_session_destroy(session);
    remove(path);
}

/* Writes a file with the given metadata (pairs) and one tensor "fc1.bias". */
static void write_file(const char *const *pairs, const char *tensor) {
    static const float zeros[10];
    kolo_shape shape = kolo_shape_1(10);
    kolo_safetensors_writer *writer;
    ASSERT_OK(kolo_safetensors_create(path, &writer));
    for (; pairs[0]; pairs += 2) ASSERT_OK(kolo_safetensors_set(writer, pairs[0], pairs[1]));
    ASSERT_OK(kolo_safetensors_add(writer, tensor, KOLO_DTYPE_F32, &shape, zeros));
    ASSERT_OK(kolo_safetensors_finish(writer));
    kolo_safetensors_destroy(writer);
}

#define METADATA(sample, classes, steps, seed)                                                    \
    {                                                                                             \
        "model", "mlp", "model_options", "", "sample", sample, "classes", classes, "epochs", "1", \
            "steps", steps, "seed", seed                                                          \
    }

static void metadata_is_checked(void **state) {
    static const struct {
        const char *pairs[16], *text;
    } cases[] = {
        {{NULL}, "the metadata name no model"},
        {{"model", "mlp"}, "the metadata name no model"},
        {METADATA("1x28x28x", "10", "1", "1"), "sample \"1x28x28x\", which is not a shape"},
        {METADATA("0x28", "10", "1", "1"), "which is not a shape"},
        {METADATA("-1", "10", "1", "1"), "which is not a shape"},
        {METADATA("1x1x1x1x1x1x1", "10", "1", "1"), "which is not a shape"},
        {METADATA("1048576x1048576", "10", "1", "1"), "which is not a shape"},
        {METADATA("28", "0", "1", "1"), "classes \"0\", which is not a valid number"},
        {METADATA("28", "ten", "1", "1"), "classes \"ten\", which is not a valid number"},
        {METADATA("28", "10", "", "1"), "steps \"\", which is not a valid number"},
        {METADATA("28", "10", " 1", "1"), "steps \" 1\", which is not a valid number"},
        {METADATA("28", "10", "1", "18446744073709551616"), "which is not a valid number"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_checkpoint c;
        write_file(cases[i].pairs, "fc1.bias");
        assert_int_equal(kolo_checkpoint_open(path, &c), KOLO_ERR_FORMAT);
        assert_non_null(strstr(kolo_last_error(), path));
        if (!strstr(kolo_last_error(), cases[i].text)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), cases[i].text);
        }
    }
    remove(path);
}

static void missing_and_foreign_tensors_are_named(void **state) {
    static const char *const pairs[16] = METADATA("1x28x28", "10", "1", "1");
    kolo_session *session = make_session("mlp", "layers=0", KOLO_KERNELS_BEST, 1);
    kolo_checkpoint c;
    write_file(pairs, "fc1.bias");
    ASSERT_OK(kolo_checkpoint_open(path, &c));
    assert_int_equal(kolo_checkpoint_load(&c, kolo_session_store(session)), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "tensor \"fc1.weight\" of model mlp is missing"));
    kolo_checkpoint_close(&c);

    /* All tensors of the model and one more; optimizer state is unexpected too. */
    kolo_session *bigger = make_session("mlp", "layers=0", KOLO_KERNELS_REF, 1);
    kolo_safetensors_writer *writer;
    ASSERT_OK(kolo_safetensors_create(path, &writer));
    for (int i = 0; pairs[i]; i += 2)
        ASSERT_OK(kolo_safetensors_set(writer, pairs[i], pairs[i + 1]));
    const kolo_store *store = kolo_session_store(bigger);
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        ASSERT_OK(kolo_safetensors_add(writer, entry->name, KOLO_DTYPE_F32, &entry->canon,
                                       kolo_store_data(store, entry)));
    }
    ASSERT_OK(kolo_safetensors_finish(writer));
    kolo_safetensors_destroy(writer);
    ASSERT_OK(kolo_checkpoint_open(path, &c));
    assert_int_equal(kolo_checkpoint_load(&c, kolo_session_store(session)), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "model mlp has no tensor"));
    kolo_checkpoint_close(&c);
    kolo_session_destroy(bigger);
    kolo_session_destroy(session);
    remove(path);
}

static void garbage_is_refused(void **state) {
    kolo_checkpoint c;
    ASSERT_OK(kolo_file_write(path, "garbage that is no checkpoint", 29));
    assert_int_equal(kolo_checkpoint_open(path, &c), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), path));
    remove(path);
    assert_int_equal(kolo_checkpoint_open(path, &c), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), path));
}

TEST_MAIN(test_checkpoint) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_comes_back_in_any_layout),
        cmocka_unit_test(bytes_that_are_no_utf8_are_replaced),
        cmocka_unit_test(a_hash_is_of_numbers_in_any_layout),
        cmocka_unit_test(another_model_is_refused_and_changes_nothing),
        cmocka_unit_test(metadata_is_checked),
        cmocka_unit_test(missing_and_foreign_tensors_are_named),
        cmocka_unit_test(garbage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
