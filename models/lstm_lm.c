/* lstm_lm: a language model of LSTM layers. Zaremba, Sutskever, Vinyals, "Recurrent neural network
 * regularization", 2014: dropout before, between and after the layers, not in the recurrence.
 *
 *     tokens -> embedding -> lstm layers -> decoder -> logits
 *
 * tied=1 shares the weights of embedding and decoder (Press, Wolf, 2017), which requires equal
 * widths of embedding and layers. Parameter names of PyTorch's word_language_model; embedding and
 * decoder are initially uniform in [-0.1, 0.1), the LSTM as nn.LSTM. */
#include "models/options.h"
#include "models/sequence.h"
#include "models/zoo.h"

typedef struct lstm_lm {
    int64_t layers, hidden, embedding, context, vocabulary, tied, dropout;
} lstm_lm;

static kolo_status parse(lstm_lm *m, const char *options) {
    *m = (lstm_lm){.layers = 2, .hidden = 512, .embedding = 0, .context = 64, .vocabulary = 10000};
    const kolo_model_option table[] = {
        {"layers", 1, 100, &m->layers, 0},        {"hidden", 1, 1 << 16, &m->hidden, 0},
        {"width", 1, 1 << 16, &m->embedding, 0},  {"context", 1, 1 << 20, &m->context, 0},
        {"vocab", 1, 1 << 24, &m->vocabulary, 0}, {"tied", 0, 1, &m->tied, 0},
        {"dropout", 0, 99, &m->dropout, 100},
    };
    kolo_status status = kolo_model_options_parse("lstm_lm", options, table, 7);
    if (status != KOLO_OK) return status;
    if (m->embedding == 0) m->embedding = m->hidden;
    if (m->tied && m->embedding != m->hidden) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "model lstm_lm: tied=1 needs a width of %d, that of the layers: drop "
                              "width=%d",
                              (int)m->hidden, (int)m->embedding);
    }
    return KOLO_OK;
}

static kolo_status windows(const char *options, kolo_dataset_opts *windows) {
    lstm_lm m;
    kolo_status status = parse(&m, options);
    if (status != KOLO_OK) return status;
    *windows = (kolo_dataset_opts){.context = m.context, .vocabulary = m.vocabulary};
    return KOLO_OK;
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    const kolo_init uniform = {KOLO_INIT_UNIFORM, 0.1}, zero = {KOLO_INIT_ZERO, 0};
    lstm_lm m;
    kolo_value x, y;
    kolo_status status = parse(&m, opts->options);
    if (status == KOLO_OK) status = model_token_inputs(g, "lstm_lm", opts, &x, &y);
    if (status != KOLO_OK) return status;
    kolo_value table =
        kolo_param(g, "encoder.weight", kolo_shape_2(opts->classes, m.embedding), uniform);
    kolo_value h = kolo_embedding(g, table, x, (kolo_value){.id = -1});
    for (int i = 0; i < m.layers; i++) {
        h = kolo_lstm(g, model_dropout(g, h, m.dropout), "rnn", i, m.hidden);
    }
    int64_t length = opts->sample.dim[0], tokens = opts->batch * length;
    h = kolo_reshape(g, model_dropout(g, h, m.dropout), kolo_shape_2(tokens, m.hidden));
    kolo_value w =
        m.tied ? table
               : kolo_param(g, "decoder.weight", kolo_shape_2(opts->classes, m.hidden), uniform);
    kolo_value b = kolo_param(g, "decoder.bias", kolo_shape_1(opts->classes), zero);
    kolo_value logits = kolo_linear_bias(g, h, w, b);
    model_token_outputs(g, logits, kolo_reshape(g, y, kolo_shape_1(tokens)), 1,
                        (kolo_value){.id = -1});
    return kolo_graph_check(g);
}

const kolo_model kolo_model_lstm_lm = {
    .name = "lstm_lm",
    .recipe = "optimizer=sgd lr=20 clip=0.25 batch=20 schedule=cosine",
    .recipe_source = "PyTorch's example word_language_model; the decrease as a cosine",
    .summary = "language model of LSTM layers (Zaremba et al., 2014)",
    .options_help = "layers=2, hidden=512, width=512 (of the embedding), context=64 (tokens of a "
                    "window), vocab=10000, tied=0 (1: the decoder shares the weights of the "
                    "embedding), dropout=0 (percent)",
    .sample = {1, {64}},
    .classes = 10000,
    .windows = windows,
    .build = build,
};
