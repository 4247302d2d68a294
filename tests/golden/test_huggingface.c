/* Weights in Hugging Face's format: gpt2 and bert initialized from them give its logits, export
 * writes what was read, and inconsistent files are refused. tools/golden/make_huggingface.py makes
 * the files; where transformers is installed it also reads one back. */
#include "base/file.h"
#include "data/safetensors/safetensors.h"
#include "kolo/checkpoint.h"
#include "support/folder.h"
#include "support/support.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/weights.h"
#include "train/session/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { LENGTH = 8, BATCH = 2, VOCABULARY = 17, LOGITS = BATCH * LENGTH * VOCABULARY };

#define GOLDEN KOLO_SOURCE_DIR "/tests/golden/huggingface_"
#define SCRIPT "/usr/bin/python3 -B '" KOLO_SOURCE_DIR "/tools/golden/make_huggingface.py' "

typedef struct network {
    const char *model, *options, *weights, *logits;
} network;

static const network gpt2 = {"gpt2_tiny", "layers=2,width=16,heads=2,context=8,vocab=17",
                             GOLDEN "gpt2.safetensors", GOLDEN "gpt2.logits"};
static const network gpt2_untied = {"gpt2_tiny",
                                    "layers=2,width=16,heads=2,context=8,vocab=17,tied=0",
                                    GOLDEN "gpt2.safetensors", GOLDEN "gpt2.logits"};
static const network bert = {"bert_tiny", "layers=2,width=16,heads=2,context=8,vocab=17,mask=1",
                             GOLDEN "bert.safetensors", GOLDEN "bert.logits"};

static const network pairs = {"bert_tiny",
                              "layers=2,width=16,heads=2,context=8,vocab=17,mask=1,nsp=1",
                              GOLDEN "bert.safetensors", GOLDEN "bert.logits"};

static kolo_session *session_of(const network *n) {
    kolo_session *session;
    kolo_session_config opts = {.model = n->model,
                                .model_options = n->options,
                                .sample = kolo_shape_1(LENGTH),
                                .label = kolo_shape_1(LENGTH),
                                .classes = VOCABULARY,
                                .batch = BATCH,
                                .evaluate_only = true};
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    return session;
}

/* Numbers of the output against those in a file from element `first` on, to 1e-4. */
static void check_output(kolo_session *session, const network *n, const char *output,
                         size_t first) {
    kolo_tensor tensor;
    const float *got = kolo_session_output(session, output, &tensor);
    char *file;
    size_t bytes, count = (size_t)kolo_shape_count(&tensor.shape);
    assert_non_null(got);
    ASSERT_OK(kolo_file_read(n->logits, 1 << 20, &file, &bytes));
    assert_in_range((first + count) * sizeof *got, 1, bytes);
    for (size_t i = 0; i < count; i++) {
        float should;
        memcpy(&should, file + (first + i) * sizeof should, sizeof should);
        if (!(fabs((double)should - (double)got[i]) <= 1e-4)) {
            fail_msg("%s: %s %zu is %g, not %g", n->model, output, i, (double)got[i],
                     (double)should);
        }
    }
    kolo_free(file);
}

/* Runs the batch of the script; labels below 0 let bert hide nothing, and give its segments. */
static void evaluate(kolo_session *session) {
    int32_t x[BATCH * LENGTH], y[BATCH * LENGTH];
    const kolo_field fields[] = {{"x", KOLO_DTYPE_I32, {1, {LENGTH}}, .mean = {0}},
                                 {"y", KOLO_DTYPE_I32, {1, {LENGTH}}, .mean = {0}}};
    for (int i = 0; i < BATCH * LENGTH; i++) {
        x[i] = (7 * i + 3) % VOCABULARY;
        y[i] = -2 - (i % LENGTH >= LENGTH / 2 ? KOLO_PAIR_SECOND : 0);
    }
    kolo_batch batch = {
        .count = BATCH, .global_count = BATCH, .n_fields = 2, .fields = fields, .data = {x, y}};
    kolo_sums sums;
    ASSERT_OK(kolo_session_evaluate_batch(session, &batch, &sums));
}

static kolo_session *loaded(const network *n, const char *weights) {
    kolo_session *session = session_of(n);
    ASSERT_OK(kolo_weights_load(weights, n->model, kolo_session_store(session), NULL));
    return session;
}

static void export(const kolo_session *session, const network *n, const char *to) {
    kolo_checkpoint_info info = {.model = n->model,
                                 .model_options = n->options,
                                 .sample = kolo_shape_1(LENGTH),
                                 .classes = VOCABULARY};
    ASSERT_OK(kolo_checkpoint_save("own.safetensors", kolo_session_store(session), &info));
    ASSERT_OK(kolo_checkpoint_export("own.safetensors", to, KOLO_FORMAT_HUGGINGFACE));
}

/* ---- tests ---- */

static void logits_are_those_of_huggingface(void **state) {
    const network *networks[] = {&gpt2, &gpt2_untied, &bert};
    for (size_t i = 0; i < KOLO_COUNT(networks); i++) {
        kolo_session *session = loaded(networks[i], networks[i]->weights);
        evaluate(session);
        check_output(session, networks[i], "logits", 0);
        kolo_session_destroy(session);
    }
}

static void pairs_are_those_of_huggingface(void **state) {
    kolo_session *session = loaded(&pairs, pairs.weights);
    evaluate(session);
    check_output(session, &pairs, "logits", LOGITS);
    check_output(session, &pairs, "next_logits", (size_t)2 * LOGITS);
    kolo_session_destroy(session);
}

/* Every tensor of `written` is in `original`, to the bit; what else is there was tied or is no
 * parameter of the model. */
static void assert_same_weights(const char *written, const char *original,
                                const char *const *left_out) {
    kolo_safetensors *a, *b;
    ASSERT_OK(kolo_safetensors_open(written, &a));
    ASSERT_OK(kolo_safetensors_open(original, &b));
    int n = kolo_safetensors_count(a);
    for (int i = 0; i < n; i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(a, i);
        const kolo_safetensors_entry *other = kolo_safetensors_find(b, e->name);
        if (!other) fail_msg("%s is not in %s", e->name, original);
        assert_true(kolo_shape_equal(&e->shape, &other->shape) && e->dtype == other->dtype);
        assert_memory_equal(e->data, other->data, e->bytes);
    }
    for (; *left_out; left_out++, n++) {
        assert_null(kolo_safetensors_find(a, *left_out));
        assert_non_null(kolo_safetensors_find(b, *left_out));
    }
    assert_int_equal(n, kolo_safetensors_count(b));
    kolo_safetensors_close(a);
    kolo_safetensors_close(b);
}

static void assert_same_store(const kolo_session *a, const kolo_session *b) {
    assert_true(kolo_store_hash(kolo_session_store(a)) == kolo_store_hash(kolo_session_store(b)));
}

static const char *const tied_gpt2[] = {"lm_head.weight", NULL};
static const char *const tied_nothing[] = {NULL};
static const char *const tied_pairs[] = {"cls.predictions.decoder.weight",
                                         "cls.predictions.decoder.bias",
                                         "bert.embeddings.position_ids", NULL};
static const char *const tied_bert[] = {
    "cls.predictions.decoder.weight", "cls.predictions.decoder.bias",
    "bert.embeddings.position_ids",   "bert.pooler.dense.weight",
    "bert.pooler.dense.bias",         "cls.seq_relationship.weight",
    "cls.seq_relationship.bias",      NULL};

static void what_is_read_is_written_back(void **state) {
    const struct {
        const network *network;
        const char *const *left_out;
    } cases[] = {
        {&gpt2, tied_gpt2}, {&gpt2_untied, tied_nothing}, {&bert, tied_bert}, {&pairs, tied_pairs}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const network *n = cases[i].network;
        kolo_session *session = loaded(n, n->weights);
        export(session, n, "theirs.safetensors");
        assert_same_weights("theirs.safetensors", n->weights, cases[i].left_out);
        kolo_session *again = loaded(n, "theirs.safetensors");
        assert_same_store(session, again);
        kolo_session_destroy(again);
        kolo_session_destroy(session);
    }
}

/* Writes to `to` the tensors of `from` but `leave_out`, without `prefix` and with `with` for
 * `replace` in their names. */
static void rewrite(const char *from, const char *prefix, const char *replace, const char *with,
                    const char *leave_out, const char *to) {
    kolo_safetensors *file;
    kolo_safetensors_writer *writer;
    ASSERT_OK(kolo_safetensors_open(from, &file));
    ASSERT_OK(kolo_safetensors_create(to, &writer));
    for (int i = 0; i < kolo_safetensors_count(file); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(file, i);
        const char *name = e->name, *found = replace ? strstr(name, replace) : NULL;
        char text[256];
        if (leave_out && strcmp(name, leave_out) == 0) continue;
        if (prefix && strncmp(name, prefix, strlen(prefix)) == 0) name += strlen(prefix);
        snprintf(text, sizeof text, "%s", name);
        if (found) {
            snprintf(text, sizeof text, "%.*s%s%s", (int)(found - e->name), e->name, with,
                     found + strlen(replace));
        }
        ASSERT_OK(kolo_safetensors_add(writer, text, e->dtype, &e->shape, e->data));
    }
    ASSERT_OK(kolo_safetensors_finish(writer));
    kolo_safetensors_destroy(writer);
    kolo_safetensors_close(file);
}

/* No prefix, tied tensors left out whichever way, TensorFlow's names. */
static void other_spellings_are_understood(void **state) {
    const struct {
        const network *network;
        const char *prefix, *replace, *with, *leave_out;
    } cases[] = {
        {&gpt2, "transformer.", NULL, NULL, "lm_head.weight"},
        {&gpt2, NULL, NULL, NULL, "transformer.wte.weight"},
        {&bert, NULL, "LayerNorm.weight", "LayerNorm.gamma", "cls.predictions.bias"},
        {&bert, NULL, "LayerNorm.bias", "LayerNorm.beta", "bert.pooler.dense.weight"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const network *n = cases[i].network;
        rewrite(n->weights, cases[i].prefix, cases[i].replace, cases[i].with, cases[i].leave_out,
                "other.safetensors");
        kolo_session *session = loaded(n, n->weights), *other = loaded(n, "other.safetensors");
        assert_same_store(session, other);
        kolo_session_destroy(session);
        kolo_session_destroy(other);
    }
}

static void assert_refused(const network *n, const char *path, const char *text) {
    kolo_session *session = session_of(n);
    kolo_store *store = kolo_session_store(session);
    uint64_t before = kolo_store_hash(store);
    assert_int_equal(kolo_weights_load(path, n->model, store, NULL), KOLO_ERR_FORMAT);
    if (!strstr(kolo_last_error(), text)) fail_msg("%s", kolo_last_error());
    assert_true(kolo_store_hash(store) == before);
    kolo_session_destroy(session);
}

static void what_does_not_fit_is_named(void **state) {
    rewrite(gpt2.weights, NULL, "lm_head.weight", "unused", NULL, "other.safetensors");
    assert_refused(&gpt2, "other.safetensors", "1 unexpected (unused)");
    rewrite(gpt2.weights, NULL, NULL, NULL, "lm_head.weight", "other.safetensors");
    assert_refused(&gpt2_untied, "other.safetensors", "1 missing (lm_head.weight)");
    rewrite(bert.weights, NULL, "layer.1.attention.self.key", "layer.1.x", NULL,
            "other.safetensors");
    assert_refused(&bert, "other.safetensors",
                   "2 missing (bert.encoder.layer.1.attention.self.key.weight, "
                   "bert.encoder.layer.1.attention.self.key.bias), 2 unexpected (");
    rewrite(gpt2.weights, NULL, "lm_head.weight", "transformer.wpe.weight",
            "transformer.wpe.weight", "other.safetensors");
    assert_refused(&gpt2, "other.safetensors",
                   "1 of another type or shape (transformer.wpe.weight f32 [17,16], not [8,16])");
    network wider = gpt2;
    wider.options = "layers=2,width=32,heads=2,context=8,vocab=17";
    assert_refused(
        &wider, gpt2.weights,
        "28 of another type or shape (transformer.wte.weight f32 [17,16], not [17,32], ");

    /* A decoder of its own is not what the model has, unless it is told to. */
    kolo_safetensors *file;
    kolo_safetensors_writer *writer;
    float numbers[VOCABULARY * 16] = {0};
    ASSERT_OK(kolo_safetensors_open(gpt2.weights, &file));
    ASSERT_OK(kolo_safetensors_create("untied.safetensors", &writer));
    for (int i = 0; i < kolo_safetensors_count(file); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(file, i);
        bool head = strcmp(e->name, "lm_head.weight") == 0;
        if (head) assert_int_equal(e->bytes, sizeof numbers);
        const void *data = head ? (const void *)numbers : e->data;
        ASSERT_OK(kolo_safetensors_add(writer, e->name, e->dtype, &e->shape, data));
    }
    ASSERT_OK(kolo_safetensors_finish(writer));
    kolo_safetensors_destroy(writer);
    kolo_safetensors_close(file);
    kolo_session *untied = loaded(&gpt2_untied, "untied.safetensors");
    const kolo_store_entry *head = kolo_store_find(kolo_session_store(untied), "lm_head.weight");
    numbers[0] = 1; /* read back as 0 */
    kolo_store_read(kolo_session_store(untied), head, numbers);
    for (size_t i = 0; i < KOLO_COUNT(numbers); i++) assert_true(numbers[i] == 0);
    kolo_session_destroy(untied);
    assert_refused(&gpt2, "untied.safetensors",
                   "different from what they duplicate (lm_head.weight unlike "
                   "transformer.wte.weight)");
}

/* A third of what would be too long to count. */
static void a_shape_at_the_edge_of_numbers_is_refused(void **state) {
    kolo_safetensors_writer *writer;
    kolo_shape shape = kolo_shape_2(INT64_MAX, 0);
    ASSERT_OK(kolo_safetensors_create("edge.safetensors", &writer));
    ASSERT_OK(kolo_safetensors_add(writer, "bert.encoder.layer.0.attention.self.query.weight",
                                   KOLO_DTYPE_I8, &shape, ""));
    ASSERT_OK(kolo_safetensors_finish(writer));
    kolo_safetensors_destroy(writer);
    assert_refused(&bert, "edge.safetensors",
                   "1 of another type or shape (bert.encoder.layer.0.attention.self.query.weight "
                   "i8 [9223372036854775807,0], not [");
}

static bool run(const char *command) {
    int status = system(command);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void huggingface_reads_what_is_written(void **state) {
    if (!run("/usr/bin/python3 -c 'import transformers' >err 2>&1")) {
        print_message("skip: no transformers\n");
        skip();
    }
    const network *networks[] = {&gpt2, &pairs};
    for (size_t i = 0; i < KOLO_COUNT(networks); i++) {
        kolo_session *session = loaded(networks[i], networks[i]->weights);
        export(session, networks[i], "theirs.safetensors");
        kolo_session_destroy(session);
        assert_true(run(i == 0 ? SCRIPT "check gpt2 theirs.safetensors >err 2>&1"
                               : SCRIPT "check bert theirs.safetensors >err 2>&1"));
    }
}

TEST_MAIN(test_huggingface) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_huggingface),
        cmocka_unit_test(pairs_are_those_of_huggingface),
        cmocka_unit_test(what_is_read_is_written_back),
        cmocka_unit_test(other_spellings_are_understood),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(a_shape_at_the_edge_of_numbers_is_refused),
        cmocka_unit_test(huggingface_reads_what_is_written),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
