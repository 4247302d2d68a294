/* fasttext: a classifier of texts. Joulin, Grave, Bojanowski, Mikolov, "Bag of tricks for efficient
 * text classification", EACL 2017.
 *
 *     ids [N,features] -> a row of the table for each feature of the text, n-grams of its words
 *     the mean of these rows [N,width] -> linear, without a bias -> classes
 *
 * x [N,1] is the reciprocal of the number of features; the ids after them are -1, whose rows are
 * zeros. The rows are drawn and the output layer begins with zeros, as in the authors' code. The
 * table can be at servers (--table emb.weight): rows of features that no text has then cost
 * nothing. */
#include "models/options.h"
#include "models/zoo.h"

#include <inttypes.h>

typedef struct fasttext {
    int64_t rows, width, features;
} fasttext;

static kolo_status parse(fasttext *m, const char *options) {
    *m = (fasttext){.rows = 1000000, .width = 10, .features = 256};
    const kolo_model_option table[] = {
        {"rows", 1, INT32_MAX, &m->rows, 0},
        {"width", 1, 1 << 14, &m->width, 0},
        {"features", 1, 1 << 20, &m->features, 0},
    };
    return kolo_model_options_parse("fasttext", options, table, 3);
}

static kolo_status windows(const char *options, kolo_dataset_opts *data) {
    fasttext m;
    kolo_status status = parse(&m, options);
    if (status == KOLO_OK) *data = (kolo_dataset_opts){.features = m.features, .rows = m.rows};
    return status;
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    fasttext m;
    const int64_t n = opts->batch;
    kolo_status status = parse(&m, opts->options);
    if (status != KOLO_OK) return status;
    if (opts->sample.rank != 1 || opts->sample.dim[0] != 1) {
        char text[KOLO_SHAPE_TEXT];
        return kolo_error_set(KOLO_ERR_ARG,
                              "model fasttext takes labelled texts, not samples %s: choose data "
                              "such as fasttext:FILE or synthetic-labelled",
                              kolo_shape_text(&opts->sample, text));
    }
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(n, 1));
    kolo_value ids = kolo_input(g, "ids", KOLO_DTYPE_I32, kolo_shape_2(n, m.features));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value rows = kolo_param(g, "emb.weight", kolo_shape_2(m.rows, m.width),
                                 (kolo_init){KOLO_INIT_UNIFORM, 1.0 / (double)m.width});
    kolo_value w = kolo_param(g, "output.weight", kolo_shape_2(opts->classes, m.width),
                              (kolo_init){.kind = KOLO_INIT_ZERO});
    kolo_value mean = kolo_mul(g, kolo_embedding_bag(g, rows, ids, false), x);
    kolo_value logits = kolo_linear(g, mean, w);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return kolo_graph_check(g);
}

const kolo_model kolo_model_fasttext = {
    .name = "fasttext",
    .recipe = "optimizer=sgd lr=0.1 scale-lr=1 batch=64 schedule=poly lr-power=1",
    .recipe_source =
        "Joulin et al., 2017: the rate of a sample, scaled to the batch, and its decay",
    .summary = "text classifier, a bag of n-grams (Joulin et al., 2017)",
    .options_help = "rows=1000000 (of the table that n-grams are hashed to), width=10 (of a row), "
                    "features=256 (n-grams of a text; of longer ones the first)",
    .sample = {1, {1}},
    .classes = 10,
    .windows = windows,
    .build = build,
};
