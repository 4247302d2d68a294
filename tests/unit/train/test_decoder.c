/* Reading a text token by token, with cached keys and values, against whole windows; models for
 * which that does not apply. */
#include "base/compiler.h"
#include "pass/cache.h"
#include "pass/pass.h"
#include "support/support.h"
#include "train/inference/decoder.h"

#include <math.h>
#include <string.h>

enum { LENGTH = 12, WORDS = 17 };

static const char *const models[][2] = {
    {"gpt2_tiny", "layers=2,width=16,heads=2,context=12,vocab=17,dropout=10"},
    {"gpt2_tiny", "layers=1,width=12,heads=1,context=20,vocab=17,tied=0"},
    {"llama_tiny", "layers=2,width=32,heads=4,kv_heads=2,mlp=24,context=12,vocab=17"},
    {"llama_tiny", "layers=2,width=16,heads=4,kv_heads=4,mlp=20,context=12,vocab=17"},
    {"llama_tiny", "layers=1,width=40,heads=4,kv_heads=1,mlp=20,context=12,vocab=17,tied=1"},
};

static const int32_t text[LENGTH] = {3, 0, 16, 7, 7, 2, 11, 5, 16, 1, 9, 4};

static kolo_session_config config_of(size_t model, bool f64, int threads) {
    return (kolo_session_config){
        .model = models[model][0],
        .model_options = models[model][1],
        .sample = kolo_shape_1(LENGTH),
        .label = kolo_shape_1(LENGTH),
        .classes = WORDS,
        .batch = 1,
        .evaluate_only = true,
        .f64 = f64,
        .plan = {.threads = threads},
    };
}

/* The logits of the whole window, [LENGTH,WORDS], of whose tokens all but the first n are 0. */
static void whole_window(const kolo_session_config *config, int64_t n, double *logits) {
    kolo_session *s;
    int32_t window[LENGTH] = {0};
    float single[LENGTH * WORDS];
    const kolo_field field = {.name = "x", .dtype = KOLO_DTYPE_I32, .shape = config->sample};
    const kolo_batch batch = {.count = 1, .n_fields = 1, .fields = &field, .data = {window}};
    memcpy(window, text, sizeof *text * (size_t)n);
    ASSERT_OK(kolo_session_create_for(config, NULL, &s));
    ASSERT_OK(kolo_session_init(s, 5));
    const size_t bytes = LENGTH * WORDS * (config->f64 ? sizeof *logits : sizeof *single);
    ASSERT_OK(kolo_session_predict(s, &batch, "logits", config->f64 ? (void *)logits : single,
                                   bytes, NULL));
    for (int i = 0; !config->f64 && i < LENGTH * WORDS; i++) logits[i] = (double)single[i];
    kolo_session_destroy(s);
}

/* Reads n tokens from `first` on, and compares the logits behind them with those of the window. */
static void read(kolo_decoder *d, const kolo_session_config *config, const double *want, int64_t n,
                 int64_t first) {
    const void *logits;
    ASSERT_OK(kolo_decoder_read(d, text + first, n, first, &logits));
    for (int k = 0; k < WORDS; k++) {
        const double is =
            config->f64 ? ((const double *)logits)[k] : (double)((const float *)logits)[k];
        const double should = want[(first + n - 1) * WORDS + k];
        if (fabs(is - should) <= (config->f64 ? 1e-12 : 1e-5) * fmax(1, fabs(should))) continue;
        fail_msg("%s:%s: %d tokens from %d on: logit %d is %.17g, not %.17g", config->model,
                 config->model_options, (int)n, (int)first, k, is, should);
    }
}

/* Tokens that are read at once; 0: a new text begins. */
static const int64_t plans[][LENGTH + 1] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0},
    {5, 1, 1, 1, 1, 1, 1, 1, 0},
    {2, 3, 1, 4, 2, 0},
    {12, 0},
    {1, 5, 0},
};

static void compare(const kolo_session_config *config) {
    double want[LENGTH * WORDS];
    kolo_decoder *d;
    whole_window(config, LENGTH, want);
    ASSERT_OK(kolo_decoder_create(config, &d));
    ASSERT_OK(kolo_store_init(kolo_decoder_store(d), 5));
    for (size_t p = 0; p < KOLO_COUNT(plans); p++) { /* the caches keep what was read before */
        for (int64_t k = 0, first = 0; plans[p][k] > 0; first += plans[p][k++]) {
            read(d, config, want, plans[p][k], first);
        }
    }
    kolo_decoder_destroy(d);
}

static void logits_are_those_of_the_window(void **state) {
    for (size_t m = 0; m < KOLO_COUNT(models); m++) {
        for (int f64 = 0; f64 < 2; f64++) {
            const kolo_session_config config = config_of(m, f64, !f64 && m == 2 ? 2 : 1);
            compare(&config);
        }
    }
}

/* What follows a token in a window has no influence, which is what the caches rely on. */
static void later_tokens_have_no_influence(void **state) {
    double all[LENGTH * WORDS], some[LENGTH * WORDS];
    const kolo_session_config config = config_of(2, true, 1);
    whole_window(&config, LENGTH, all);
    whole_window(&config, 7, some);
    assert_memory_equal(all, some, 7 * WORDS * sizeof *all);
    assert_memory_not_equal(all + 7 * WORDS, some + 7 * WORDS, WORDS * sizeof *all);
}

/* Keys and values of a group of queries are kept once. */
static void groups_are_kept_once(void **state) {
    const kolo_session_config config = config_of(2, false, 1);
    kolo_decoder *d;
    int caches = 0;
    ASSERT_OK(kolo_decoder_create(&config, &d));
    const kolo_store *store = kolo_decoder_store(d);
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        const kolo_shape want = kolo_shape_4(1, 2 * 2, LENGTH, 8);
        if (strncmp(entry->name, KOLO_CACHE_STATE, strlen(KOLO_CACHE_STATE)) != 0) continue;
        caches++;
        assert_true(kolo_shape_equal(&entry->canon, &want));
        assert_false(kolo_store_entry_is_model(entry));
    }
    assert_int_equal(caches, 2);
    kolo_decoder_destroy(d);
}

/* ---- models that need several tokens ---- */

static kolo_value words(kolo_graph *g, kolo_value x) {
    kolo_value w = kolo_param(g, "words", kolo_shape_2(WORDS, 8), (kolo_init){KOLO_INIT_ONE, 0});
    return kolo_embedding(g, w, x, (kolo_value){.id = -1});
}
static kolo_value one_token(kolo_graph *g, kolo_value x) { return kolo_gelu(g, words(g, x), true); }
static kolo_value uncausal(kolo_graph *g, kolo_value x) {
    const kolo_value h = words(g, x), qkv[] = {h, h, h};
    return kolo_attention(g, kolo_concat_along(g, qkv, 3, 2), &(kolo_attention_opts){.heads = 2});
}
static kolo_value recurrent(kolo_graph *g, kolo_value x) {
    return kolo_lstm(g, words(g, x), "rnn", 0, 8);
}
static kolo_value own_positions(kolo_graph *g, kolo_value x) {
    return kolo_add(g, words(g, x), kolo_param(g, "p", kolo_shape_2(6, 8), (kolo_init){0}));
}
static kolo_value mean(kolo_graph *g, kolo_value x) {
    const kolo_value h = words(g, x);
    return kolo_add(g, h, kolo_reduce_mean(g, h, (int[]){1}, 1, true));
}
static kolo_value cross(kolo_graph *g, kolo_value x) {
    const kolo_value h = words(g, x);
    return kolo_cross_attention(g, h, h, h,
                                &(kolo_cross_attention_opts){.heads = 2, .causal = true});
}
static kolo_value shifted(kolo_graph *g, kolo_value x) {
    return kolo_rotary(g, words(g, x), 2, 0, 3);
}
static kolo_value by_label(kolo_graph *g, kolo_value x) {
    return words(g, kolo_input(g, "y", KOLO_DTYPE_I32, kolo_value_shape(g, x)));
}

static void what_needs_several_tokens_is_named(void **state) {
    static const struct {
        kolo_value (*build)(kolo_graph *g, kolo_value x);
        const char *error; /* NULL: none */
    } cases[] = {
        {one_token, NULL},
        {uncausal, "attention attends to later tokens"},
        {recurrent, "lstm takes the tokens of a window together"},
        {own_positions, "broadcast_add takes"},
        {mean, "sum takes"},
        {cross, " takes the tokens"},
        {shifted, "rotary takes"},
        {by_label, "other inputs than the tokens"},
    };
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(1, 6));
        kolo_value h = cases[c].build(g, x);
        kolo_output(g, "logits", kolo_reshape(g, h, kolo_shape_2(6, 8)));
        ASSERT_OK(kolo_pass_inference(g));
        const kolo_status status = kolo_cache_check(g);
        assert_int_equal(status, cases[c].error ? KOLO_ERR_UNSUPPORTED : KOLO_OK);
        if (cases[c].error && !strstr(kolo_last_error(), cases[c].error)) {
            fail_msg("case %d: %s", (int)c, kolo_last_error());
        }
        kolo_graph_destroy(g);
    }
}

/* Keys and values that are repeated in other pieces than heads are not kept as groups. */
static void other_pieces_than_heads_are_kept_as_they_are(void **state) {
    enum { T = 6 };
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    const kolo_value x = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(1, T));
    const kolo_value h = words(g, x), pieces = kolo_reshape(g, h, (kolo_shape){5, {1, T, 2, 1, 4}});
    const kolo_value twice[] = {pieces, pieces};
    const kolo_value wide =
        kolo_reshape(g, kolo_concat_along(g, twice, 2, 3), kolo_shape_3(1, T, 16));
    const kolo_value qkv[] = {wide, wide, wide};
    const kolo_value y = kolo_attention(g, kolo_concat_along(g, qkv, 3, 2),
                                        &(kolo_attention_opts){.heads = 8, .causal = true});
    kolo_output(g, "logits", kolo_reshape(g, y, kolo_shape_2(T, 16)));
    ASSERT_OK(kolo_pass_cache(g, &(kolo_cache_opts){.rows = T}));
    ASSERT_OK(kolo_graph_verify(g));
    const kolo_shape want = kolo_shape_4(1, 2 * 8, T, 2);
    const kolo_value cache = kolo_graph_find(g, KOLO_CACHE_STATE "0");
    assert_true(kolo_shape_equal(&kolo_info(g, cache)->tensor.shape, &want));
    kolo_graph_destroy(g);
}

/* ---- logits ---- */

static kolo_status build_columns(kolo_graph *g, const kolo_model_opts *opts) {
    const int64_t n = opts->batch, length = opts->sample.dim[0];
    const kolo_value x = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(n, length));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_2(n, length));
    const kolo_value w =
        kolo_param(g, "w", kolo_shape_2(opts->classes, opts->classes), kolo_init_fan_in(WORDS));
    const kolo_value h = kolo_embedding(g, w, x, (kolo_value){.id = -1});
    const kolo_value logits = kolo_permute(g, h, (int[]){0, 2, 1}); /* [N,V,T] */
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    return KOLO_OK;
}
static kolo_status windows(const char *options, kolo_dataset_opts *of) {
    *of = (kolo_dataset_opts){.context = LENGTH, .vocabulary = WORDS};
    return KOLO_OK;
}
static const kolo_model columns = {
    .name = "columns",
    .summary = "the logits of a token are a column",
    .sample = {1, {LENGTH}},
    .classes = WORDS,
    .options_help = "",
    .windows = windows,
    .build = build_columns,
};

static void logits_of_a_token_lie_together(void **state) {
    const int32_t prompt[] = {1};
    kolo_generate_opts opts = {
        .checkpoint = "none", .model = "columns", .prompt = prompt, .prompt_length = 1};
    ASSERT_OK(kolo_model_register(&columns));
    for (int whole = 0; whole < 2; whole++) {
        opts.whole_window = whole;
        assert_int_equal(kolo_generate(&opts), KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), "the logits of columns are [1,17,12]"));
    }
}

TEST_MAIN(test_decoder) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_window),
        cmocka_unit_test(later_tokens_have_no_influence),
        cmocka_unit_test(groups_are_kept_once),
        cmocka_unit_test(what_needs_several_tokens_is_named),
        cmocka_unit_test(other_pieces_than_heads_are_kept_as_they_are),
        cmocka_unit_test(logits_of_a_token_lie_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
