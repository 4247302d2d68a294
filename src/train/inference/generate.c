/* Text generation: a language model predicts the token after its window, which is then part of the
 * window. The keys and values of the tokens in the window are kept, so that a token costs a forward
 * pass of that token alone. In a full window all tokens move, and with them their positions and
 * what they see: the window is then computed as a whole, as it is for each token with whole_window.
 */
#include "base/rng.h"
#include "graph/ops/ops.h"
#include "kolo/session.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/weights.h"
#include "train/inference/decoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    float logit;
    int32_t token;
} candidate;

typedef struct generator {
    kolo_generate_opts opts;
    kolo_checkpoint checkpoint; /* unless the model is given */
    kolo_decoder *decoder;
    kolo_session *session; /* with whole_window, instead of the decoder */
    kolo_shape window_shape;
    int64_t length, vocabulary; /* tokens of a window; numbers that a token may be */
    int32_t *window;
    int64_t filled, read; /* tokens in the window; those that the decoder has read */
    float *logits;        /* [length,vocabulary] of the session */
    candidate *candidates;
    kolo_rng rng;
} generator;

static kolo_status check(const kolo_generate_opts *o) {
    if (!o || !o->checkpoint) return KOLO_FAIL(KOLO_ERR_ARG, "no checkpoint: give one");
    if (o->prompt_length < 1 || !o->prompt) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no prompt: give one token or more");
    }
    if (!(o->temperature >= 0 && o->temperature <= 1e6)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "temperature %g: choose 0 to 1e6", o->temperature);
    }
    if (o->tokens < 0 || o->top_k < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: choose at least 0",
                         o->tokens < 0 ? "negative number of tokens" : "negative top_k");
    }
    return KOLO_OK;
}

/* The windows of the model, with samples and classes of the session. */
static kolo_status choose_model(generator *g, kolo_session_config *config) {
    const kolo_generate_opts *o = &g->opts;
    const kolo_model *model;
    kolo_dataset_opts windows;
    if (o->model) {
        config->model = o->model;
        config->model_options = o->model_options ? o->model_options : "";
        KOLO_TRY(kolo_model_find(o->model, &model));
        KOLO_TRY(
            kolo_model_sample(model, config->model_options, &config->sample, &config->classes));
    } else {
        KOLO_TRY(kolo_checkpoint_open(o->checkpoint, &g->checkpoint));
        KOLO_TRY(kolo_checkpoint_model(&g->checkpoint, &model));
        config->model = g->checkpoint.info.model;
        config->model_options = g->checkpoint.info.model_options;
        config->sample = g->checkpoint.info.sample;
        config->classes = g->checkpoint.info.classes;
    }
    config->found = model;
    KOLO_TRY(kolo_model_window(model, config->model_options, &windows));
    if (windows.context == 0 || config->sample.rank != 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is no language model: choose one, such as gpt2_tiny",
                         model->name);
    }
    config->label = g->window_shape = config->sample;
    g->length = config->sample.dim[0];
    g->vocabulary = config->classes;
    return KOLO_OK;
}

/* The logits are [T,V] or [1,T,V]: those of a token lie together. */
static kolo_status check_logits(const kolo_graph *g, const kolo_session_config *config) {
    const kolo_value logits = kolo_graph_output(g, "logits");
    char text[KOLO_SHAPE_TEXT];
    if (!kolo_value_ok(logits)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s has no output \"logits\"", config->model);
    }
    const kolo_shape *is = &kolo_info(g, logits)->tensor.shape;
    const int64_t length = config->sample.dim[0];
    if (is->rank > 1 && is->dim[is->rank - 1] == config->classes &&
        is->dim[is->rank - 2] == length && kolo_shape_count(is) == length * config->classes) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "the logits of %s are %s; those of %" PRId64 " tokens must be [%" PRId64
                     ",%" PRId64 "] or [1,%" PRId64 ",%" PRId64 "]",
                     config->model, kolo_shape_text(is, text), length, length, config->classes,
                     length, config->classes);
}

/* Models that predict masked tokens, as bert, do not continue a text. */
static kolo_status check_continues(const kolo_session_config *config) {
    kolo_graph *g;
    bool masks = false;
    KOLO_TRY(kolo_session_build(config, 1, &g));
    for (int32_t i = 0; i < g->n_nodes; i++) masks |= g->nodes[i]->op == &kolo_op_mask_tokens;
    const kolo_status status = masks ? KOLO_OK : check_logits(g, config);
    kolo_graph_destroy(g);
    if (!masks) return status;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s predicts masked tokens, not the next one: choose a model that does, such "
                     "as gpt2_tiny",
                     config->model);
}

static kolo_status open_model(generator *g) {
    kolo_session_config config = {
        .batch = 1,
        .evaluate_only = true,
        .plan = {.threads = g->opts.threads > 0 ? g->opts.threads : 1},
    };
    KOLO_TRY(choose_model(g, &config));
    if (g->opts.bytes && g->vocabulary != 256) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s has %" PRId64 " tokens, not bytes: give the prompt as their numbers",
                         config.model, g->vocabulary);
    }
    KOLO_TRY(check_continues(&config));
    kolo_store *store;
    if (g->opts.whole_window) {
        KOLO_TRY(kolo_session_create_for(&config, NULL, &g->session));
        store = kolo_session_store(g->session);
    } else {
        KOLO_TRY(kolo_decoder_create(&config, &g->decoder));
        store = kolo_decoder_store(g->decoder);
    }
    if (g->opts.model) return kolo_weights_load(g->opts.checkpoint, config.model, store, NULL);
    return kolo_checkpoint_load(&g->checkpoint, store);
}

/* The last tokens of the prompt; what follows them in the window has no influence. */
static kolo_status begin(generator *g) {
    const int64_t n = g->opts.prompt_length, skipped = n > g->length ? n - g->length : 0;
    const size_t rows = g->session ? (size_t)g->length : 0;
    const size_t numbers = rows * (size_t)g->vocabulary * sizeof *g->logits;
    g->window = kolo_zalloc((size_t)g->length * sizeof *g->window);
    g->logits = kolo_alloc(numbers);
    g->candidates = kolo_alloc((size_t)g->vocabulary * sizeof *g->candidates);
    if (!g->window || !g->logits || !g->candidates) return KOLO_NOMEM(numbers);
    for (int64_t i = 0; i < n; i++) {
        const int32_t token = g->opts.prompt[i];
        if (token >= 0 && token < g->vocabulary) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "token %" PRId64 " of the prompt is %d: choose numbers from 0 to %" PRId64,
                         i, token, g->vocabulary - 1);
    }
    g->filled = n - skipped;
    memcpy(g->window, g->opts.prompt + skipped, (size_t)g->filled * sizeof *g->window);
    g->rng = kolo_rng_make(g->opts.seed, KOLO_RNG_TOKEN, 0);
    return KOLO_OK;
}

/* The most probable first; of equals that with the lower number. */
static int compare(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* Draws one of the first n candidates by their probabilities. */
static int32_t draw(const generator *g, int64_t n, int64_t step) {
    const candidate *c = g->candidates;
    double sum = 0, below = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(((double)c[i].logit - (double)c[0].logit) / g->opts.temperature);
    }
    const double drawn = (double)kolo_rng_uniform(&g->rng, (uint64_t)step) * sum;
    for (int64_t i = 0; i < n; i++) {
        below += exp(((double)c[i].logit - (double)c[0].logit) / g->opts.temperature);
        if (drawn < below) return c[i].token;
    }
    return c[n - 1].token; /* rounding */
}

/* The logits of the token after those in the window. */
static kolo_status predict(generator *g, const float **logits) {
    if (g->decoder) {
        const void *last;
        KOLO_TRY(kolo_decoder_read(g->decoder, g->window + g->read, g->filled - g->read, g->read,
                                   &last));
        g->read = g->filled;
        *logits = last;
        return KOLO_OK;
    }
    const kolo_field field = {.name = "x", .dtype = KOLO_DTYPE_I32, .shape = g->window_shape};
    const kolo_batch batch = {.count = 1, .n_fields = 1, .fields = &field, .data = {g->window}};
    const size_t bytes = (size_t)(g->length * g->vocabulary) * sizeof *g->logits;
    *logits = g->logits + (g->filled - 1) * g->vocabulary;
    return kolo_session_predict(g->session, &batch, "logits", g->logits, bytes, NULL);
}

static kolo_status choose(generator *g, const float *logits, int64_t step, int32_t *token) {
    for (int64_t i = 0; i < g->vocabulary; i++) {
        if (isnan(logits[i])) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: a logit is NaN: the run diverged, or the "
                             "weights are damaged",
                             g->opts.checkpoint);
        }
        g->candidates[i] = (candidate){logits[i], (int32_t)i};
    }
    qsort(g->candidates, (size_t)g->vocabulary, sizeof *g->candidates, compare);
    const bool all = g->opts.top_k == 0 || g->opts.top_k > g->vocabulary;
    *token = g->opts.temperature > 0 ? draw(g, all ? g->vocabulary : g->opts.top_k, step)
                                     : g->candidates[0].token;
    return KOLO_OK;
}

static void append(generator *g, int32_t token) {
    if (g->filled == g->length) {
        g->filled--;
        g->read = 0;
        memmove(g->window, g->window + 1, (size_t)g->filled * sizeof *g->window);
    }
    g->window[g->filled++] = token;
}

static kolo_status generate(generator *g) {
    const int64_t tokens = g->opts.tokens > 0 ? g->opts.tokens : 100;
    for (int64_t step = 0; step < tokens; step++) {
        int32_t token;
        const float *logits = NULL;
        KOLO_TRY(predict(g, &logits));
        KOLO_TRY(choose(g, logits, step, &token));
        append(g, token);
        if (g->opts.sink) KOLO_TRY(g->opts.sink(g->opts.arg, token));
    }
    return KOLO_OK;
}

kolo_status kolo_generate(const kolo_generate_opts *opts) {
    KOLO_TRY(check(opts));
    generator g = {.opts = *opts};
    kolo_status status = open_model(&g);
    if (status == KOLO_OK) status = begin(&g);
    if (status == KOLO_OK) status = generate(&g);
    kolo_session_destroy(g.session);
    kolo_decoder_destroy(g.decoder);
    kolo_checkpoint_close(&g.checkpoint);
    kolo_free(g.window);
    kolo_free(g.logits);
    kolo_free(g.candidates);
    return status;
}
