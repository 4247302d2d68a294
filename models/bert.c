/* BERT for pre-training as a masked language model; with nsp=1 also for next sentence prediction.
 * Devlin, Chang, Lee, Toutanova,
 * "BERT: pre-training of deep bidirectional transformers", NAACL 2019; small sizes: Turc et
 * al., "Well-read students learn better", 2019.
 *
 *     masked tokens -> words + positions + segments, LayerNorm -> layers -> transform
 *     -> logits, with tied word embeddings
 *     layer: LayerNorm(x + output(attention(qkv(x)))), LayerNorm(x + output(GELU(intermediate(x))))
 *
 * Each step masks other `percent` of the tokens of each window (kolo_mask_tokens); the loss is over
 * masked tokens. Without nsp=1 there is one segment and no next sentence prediction, which later
 * work found to be of no use (Liu et al., "RoBERTa", 2019). With it windows are sentence pairs, and
 *
 *     h of the first token -> pooler -> tanh -> whether the second sentence is random
 *
 * has a loss of its own, whose mean over the windows is added. Its sum and the count of correct
 * predictions are the outputs "next_loss" and "next_correct". Weights are initially normal with
 * standard deviation 0.02. Parameter names of Hugging Face's BertForMaskedLM and
 * BertForPreTraining, except for query, key and value, which are one parameter: qkv. */
#include "models/options.h"
#include "models/sequence.h"
#include "models/zoo.h"

#include <stdio.h>

static const double deviation = 0.02, eps = 1e-12;

typedef struct bert_size {
    const char *name;
    int64_t layers, width, context, vocabulary, heads, mask, percent, dropout, nsp, first,
        separator;
} bert_size;

static kolo_status parse(bert_size *m, const char *options) {
    const kolo_model_option table[] = {
        {"layers", 1, 1000, &m->layers, 0},
        {"width", 1, 1 << 16, &m->width, 0},
        {"heads", 1, 1 << 12, &m->heads, 0},
        {"context", 1, 1 << 20, &m->context, 0},
        {"vocab", 1, 1 << 24, &m->vocabulary, 0},
        {"mask", 0, 1 << 24, &m->mask, 0},
        {"percent", 1, 100, &m->percent, 100},
        {"dropout", 0, 99, &m->dropout, 100},
        {"nsp", 0, 1, &m->nsp, 0},
        {"cls", 0, 1 << 24, &m->first, 0},
        {"sep", 0, 1 << 24, &m->separator, 0},
    };
    kolo_status status = kolo_model_options_parse(m->name, options, table, 11);
    if (status == KOLO_OK && m->width % m->heads != 0) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s: width %d is not a multiple of %d heads",
                              m->name, (int)m->width, (int)m->heads);
    }
    return status;
}

static kolo_value layer(kolo_graph *g, const bert_size *m, int i, kolo_value x) {
    char name[MODEL_NAME];
    int64_t c = m->width;
#define PART(part) (snprintf(name, sizeof name, "bert.encoder.layer.%d." part, i), name)
    kolo_value y = model_token_linear(g, PART("attention.self.qkv"), x, c, 3 * c, deviation);
    y = kolo_attention(
        g, y, &(kolo_attention_opts){.heads = m->heads, .dropout = (double)m->dropout / 100});
    y = model_token_linear(g, PART("attention.output.dense"), y, c, c, deviation);
    y = kolo_add(g, x, model_dropout(g, y, m->dropout));
    x = kolo_layer_norm(g, y, PART("attention.output.LayerNorm"), eps);
    y = model_token_linear(g, PART("intermediate.dense"), x, c, 4 * c, deviation);
    y = model_token_linear(g, PART("output.dense"), kolo_gelu(g, y, false), 4 * c, c, deviation);
    y = kolo_add(g, x, model_dropout(g, y, m->dropout));
    return kolo_layer_norm(g, y, PART("output.LayerNorm"), eps);
#undef PART
}

static kolo_value table(kolo_graph *g, const char *name, int64_t rows, int64_t width) {
    return kolo_param(g, name, kolo_shape_2(rows, width), (kolo_init){KOLO_INIT_NORMAL, deviation});
}

static kolo_value embed(kolo_graph *g, const bert_size *m, kolo_value words, kolo_value ids,
                        kolo_value segments) {
    kolo_value positions =
        table(g, "bert.embeddings.position_embeddings.weight", m->context, m->width);
    kolo_value types = table(g, "bert.embeddings.token_type_embeddings.weight", 2, m->width);
    kolo_value x = kolo_add(g, kolo_embedding(g, words, ids, positions),
                            kolo_embedding(g, types, segments, (kolo_value){.id = -1}));
    return model_dropout(g, kolo_layer_norm(g, x, "bert.embeddings.LayerNorm", eps), m->dropout);
}

/* Logits of the tokens from h [N,T,C]. */
static kolo_value predict(kolo_graph *g, const bert_size *m, const kolo_model_opts *opts,
                          kolo_value words, kolo_value h) {
    int64_t tokens = opts->batch * opts->sample.dim[0];
    h = model_token_linear(g, "cls.predictions.transform.dense", h, m->width, m->width, deviation);
    h = kolo_layer_norm(g, kolo_gelu(g, h, false), "cls.predictions.transform.LayerNorm", eps);
    kolo_value b = kolo_param(g, "cls.predictions.bias", kolo_shape_1(opts->classes),
                              (kolo_init){KOLO_INIT_ZERO, 0});
    return kolo_linear_bias(g, kolo_reshape(g, h, kolo_shape_2(tokens, m->width)), words, b);
}

typedef struct next_outputs {
    kolo_value logits, loss, correct;
} next_outputs;

/* Predicts `random`, i32 [N], from h [N,T,C]. Loss and count are sums over the windows, each
 * weighted by its tokens. */
static next_outputs next_sentence(kolo_graph *g, const bert_size *m, int64_t batch, double tokens,
                                  kolo_value h, kolo_value random) {
    h = kolo_reshape(g, kolo_channel_window(g, h, 0, 1), kolo_shape_2(batch, m->width));
    h = kolo_tanh(g, model_token_linear(g, "bert.pooler.dense", h, m->width, m->width, deviation));
    kolo_value logits = model_token_linear(g, "cls.seq_relationship", h, m->width, 2, deviation);
    kolo_value loss = kolo_scale(g, kolo_softmax_xent(g, logits, random), tokens);
    kolo_value correct = kolo_scale(g, kolo_accuracy(g, logits, random), tokens);
    return (next_outputs){logits, loss, correct};
}

/* A token id within the vocabulary, which may be smaller than the published one. */
static int64_t token(int64_t id, int64_t last, int64_t vocabulary) {
    int64_t other = vocabulary - last > 0 ? vocabulary - last : 0;
    return id < vocabulary ? id : other;
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts, bert_size m) {
    kolo_value x, y, hidden[4];
    kolo_status status = parse(&m, opts->options);
    if (status == KOLO_OK) status = model_token_inputs(g, m.name, opts, &x, &y);
    if (status != KOLO_OK) return status;
    int64_t length = opts->sample.dim[0], tokens = opts->batch * length;
    int64_t ours = m.nsp ? length - 3 : length, count = (ours * m.percent + 50) / 100;
    if (count < 1) count = 1;
    const kolo_mask_opts masking = {count, token(m.mask, 1, opts->classes), opts->classes, m.nsp};
    kolo_mask_tokens(g, x, y, &masking, hidden);

    kolo_value words = table(g, "bert.embeddings.word_embeddings.weight", opts->classes, m.width);
    kolo_value h = embed(g, &m, words, hidden[0], hidden[2]);
    for (int i = 0; i < m.layers; i++) h = layer(g, &m, i, h);
    kolo_value logits = predict(g, &m, opts, words, h);
    next_outputs next = {.loss = {.id = -1}};
    if (m.nsp) next = next_sentence(g, &m, opts->batch, (double)ours, h, hidden[3]);
    model_token_outputs(g, logits, kolo_reshape(g, hidden[1], kolo_shape_1(tokens)),
                        (double)ours / (double)count, next.loss);
    if (m.nsp) {
        kolo_output(g, "next_logits", next.logits);
        kolo_output(g, "next_loss", next.loss);
        kolo_output(g, "next_correct", next.correct);
    }
    return kolo_graph_check(g);
}

static kolo_status windows(const char *options, kolo_dataset_opts *windows, bert_size m) {
    kolo_status status = parse(&m, options);
    *windows = (kolo_dataset_opts){
        .context = m.context,
        .vocabulary = m.vocabulary,
        .pairs = m.nsp,
        .first = token(m.first, 2, m.vocabulary),
        .separator = token(m.separator, 3, m.vocabulary),
    };
    return status;
}

/* A linear decrease. */
#define RECIPE                                                                                     \
    "optimizer=adamw lr=1e-4 weight-decay=0.01 decay-matrices-only=true schedule=poly lr-power=1 " \
    "warmup-epochs=1/100"

#define BERT(id, help, n_layers, n_width, n_heads)                                                \
    static const bert_size id = {#id, n_layers, n_width, 512, 30522, n_heads,                     \
                                 103, 15,       0,       0,   101,   102};                        \
    static kolo_status build_##id(kolo_graph *g, const kolo_model_opts *opts) {                   \
        return build(g, opts, id);                                                                \
    }                                                                                             \
    static kolo_status windows_##id(const char *options, kolo_dataset_opts *opts) {               \
        return windows(options, opts, id);                                                        \
    }                                                                                             \
    const kolo_model kolo_model_##id = {                                                          \
        .name = #id,                                                                              \
        .recipe = RECIPE,                                                                         \
        .recipe_source = "Devlin et al., 2019, appendix A.2",                                     \
        .summary = "BERT as a masked language model, " help " (Devlin et al., 2019)",             \
        .options_help = "layers=" #n_layers ", width=" #n_width ", heads=" #n_heads               \
                        ", context=512 (tokens of a window), vocab=30522, mask=103 (token id), "  \
                        "percent=15 (of tokens masked), dropout=0 (percent), nsp=0 (1: pairs of " \
                        "sentences and whether one follows the other), cls=101, sep=102 (tokens " \
                        "before a pair and after each sentence)",                                 \
        .sample = {1, {512}},                                                                     \
        .classes = 30522,                                                                         \
        .windows = windows_##id,                                                                  \
        .build = build_##id,                                                                      \
    }

BERT(bert_tiny, "tiny", 2, 128, 2);
BERT(bert_mini, "mini", 4, 256, 4);
BERT(bert_small, "small", 4, 512, 8);
BERT(bert_medium, "medium", 8, 512, 8);
BERT(bert_base, "base", 12, 768, 12);
BERT(bert_large, "large", 24, 1024, 16);
