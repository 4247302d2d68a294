/* dlrm: a recommendation model of click logs. Naumov et al., "Deep learning recommendation model
 * for personalization and recommendation systems", 2019.
 *
 *     x [N,dense] -> bottom: linear, ReLU, ... -> [N,dim]
 *     ids [N,tables] -> a row of each table -> [N,tables,dim]
 *     the dot products of all pairs of these 1 + tables vectors, after the first of them
 *       -> top: linear, ReLU, ..., linear -> a logit
 *
 * The tables are one parameter, "emb.weight" [tables rows, dim]: table t has the rows from t rows
 * on, and the ids in the data count from there. One lookup reads all of them, one exchange gathers
 * the rows of a sparse gradient, and tensor parallelism gives each worker some of the tables. The
 * loss is binary cross-entropy; a positive logit predicts a click. Names of the layers and initial
 * values are those of the authors' code. */
#include "models/options.h"
#include "models/zoo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { MAX_TABLES = 1024, BOTTOM = 3, TOP = 2 };

typedef struct dlrm {
    int64_t tables, rows, dim, dense;
    int64_t bottom[BOTTOM], top[TOP]; /* hidden layers; 0: there is none */
} dlrm;

static kolo_status parse(dlrm *m, const char *options) {
    *m = (dlrm){.tables = 26,
                .rows = 10000,
                .dim = 16,
                .dense = 13,
                .bottom = {512, 256, 64},
                .top = {512, 256}};
    const kolo_model_option table[] = {
        {"tables", 1, MAX_TABLES, &m->tables, 0},  {"rows", 1, 1 << 28, &m->rows, 0},
        {"dim", 1, 1 << 12, &m->dim, 0},           {"dense", 1, 1 << 16, &m->dense, 0},
        {"bottom1", 0, 1 << 16, &m->bottom[0], 0}, {"bottom2", 0, 1 << 16, &m->bottom[1], 0},
        {"bottom3", 0, 1 << 16, &m->bottom[2], 0}, {"top1", 0, 1 << 16, &m->top[0], 0},
        {"top2", 0, 1 << 16, &m->top[1], 0},
    };
    kolo_status status = kolo_model_options_parse("dlrm", options, table, 9);
    if (status == KOLO_OK && m->rows > INT32_MAX / m->tables) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "model dlrm: %" PRId64 " tables of %" PRId64
                              " rows: at most 2147483647 rows fit; give rows=%" PRId64,
                              m->tables, m->rows, INT32_MAX / m->tables);
    }
    return status;
}

static kolo_status windows(const char *options, kolo_dataset_opts *data) {
    dlrm m;
    kolo_status status = parse(&m, options);
    if (status != KOLO_OK) return status;
    *data = (kolo_dataset_opts){.numbers = m.dense, .categories = m.tables, .rows = m.rows};
    return KOLO_OK;
}

/* Layer `number` of a sequence of linear layers and ReLUs. */
static kolo_value linear(kolo_graph *g, const char *stack, int number, kolo_value x,
                         int64_t outputs) {
    char name[32];
    const int64_t inputs = kolo_value_shape(g, x).dim[1];
    snprintf(name, sizeof name, "%s.%d.weight", stack, 2 * number);
    kolo_value w =
        kolo_param(g, name, kolo_shape_2(outputs, inputs),
                   (kolo_init){KOLO_INIT_NORMAL, sqrt(2.0 / (double)(inputs + outputs))});
    snprintf(name, sizeof name, "%s.%d.bias", stack, 2 * number);
    kolo_value b = kolo_param(g, name, kolo_shape_1(outputs),
                              (kolo_init){KOLO_INIT_NORMAL, sqrt(1.0 / (double)outputs)});
    return kolo_linear_bias(g, x, w, b);
}

/* The hidden layers that there are; *number counts on. */
static kolo_value hidden(kolo_graph *g, const char *stack, const int64_t *units, int n,
                         kolo_value x, int *number) {
    for (int i = 0; i < n; i++) {
        if (units[i] > 0) x = kolo_relu(g, linear(g, stack, (*number)++, x, units[i]));
    }
    return x;
}

/* x [N,F,C] -> the dot products of each vector with those before it, [N, F (F - 1) / 2]. */
static kolo_value pairs(kolo_graph *g, kolo_value x, int64_t batch, int64_t f) {
    kolo_value row[MAX_TABLES];
    kolo_value all = kolo_reshape(g, kolo_matmul(g, x, x, false, true), kolo_shape_2(batch, f * f));
    for (int64_t i = 1; i < f; i++) row[i - 1] = kolo_slice(g, all, 1, i * f, i);
    return kolo_concat_along(g, row, (int)f - 1, 1);
}

/* The number of samples whose logit [N] is above 0 if and only if they are clicks: 1 - |p - y| is 1
 * for them, where p is 1 for positive logits and else 0. */
static kolo_value count_correct(kolo_graph *g, kolo_value logits, kolo_value y) {
    const double huge = 0x1p126; /* takes every normal f32 above 0 to 1 or more */
    kolo_value p = kolo_clamp(g, kolo_scale(g, logits, huge), 0, 1);
    kolo_value wrong = kolo_abs(g, kolo_sub(g, p, y));
    return kolo_sum(g, kolo_add_number(g, kolo_neg(g, wrong), 1));
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    dlrm m;
    const int64_t n = opts->batch;
    kolo_status status = parse(&m, opts->options);
    if (status != KOLO_OK) return status;
    if (opts->sample.rank != 1 || opts->sample.dim[0] != m.dense) {
        char text[KOLO_SHAPE_TEXT];
        return kolo_error_set(KOLO_ERR_ARG,
                              "model dlrm takes samples of %d numbers and %d ids, not %s: choose "
                              "data such as criteo:FILE or synthetic-clicks, or dense=N",
                              (int)m.dense, (int)m.tables, kolo_shape_text(&opts->sample, text));
    }
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(n, m.dense));
    kolo_value ids = kolo_input(g, "ids", KOLO_DTYPE_I32, kolo_shape_2(n, m.tables));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_1(n));
    kolo_value tables = kolo_param(g, "emb.weight", kolo_shape_2(m.tables * m.rows, m.dim),
                                   (kolo_init){KOLO_INIT_UNIFORM, sqrt(1.0 / (double)m.rows)});
    int number = 0;
    x = hidden(g, "bot_l", m.bottom, BOTTOM, x, &number);
    x = kolo_relu(g, linear(g, "bot_l", number, x, m.dim));
    kolo_value rows = kolo_embedding(g, tables, ids, (kolo_value){.id = -1});
    kolo_value all[] = {kolo_reshape(g, x, kolo_shape_3(n, 1, m.dim)), rows};
    all[1] = pairs(g, kolo_concat_along(g, all, 2, 1), n, 1 + m.tables);
    all[0] = x;
    number = 0;
    x = hidden(g, "top_l", m.top, TOP, kolo_concat(g, all, 2), &number);
    kolo_value logits = linear(g, "top_l", number, x, 1);
    kolo_output(g, "logits", logits);
    logits = kolo_reshape(g, logits, kolo_shape_1(n));
    kolo_output(g, "loss", kolo_bce_with_logits(g, logits, y));
    kolo_output(g, "correct", count_correct(g, logits, y));
    kolo_output(g, "score_counts", kolo_score_counts(g, logits, y));
    return kolo_graph_check(g);
}

const kolo_model kolo_model_dlrm = {
    .name = "dlrm",
    .recipe = "optimizer=sgd lr=0.1 batch=128",
    .recipe_source = "Naumov et al., 2019: dlrm_s_criteo_kaggle.sh of the authors' code",
    .summary = "deep learning recommendation model of click logs (Naumov et al., 2019)",
    .options_help = "tables=26 (one for each category), rows=10000 (of a table), dim=16 (of a "
                    "row), dense=13 (numbers of a sample), bottom1=512, bottom2=256, bottom3=64, "
                    "top1=512, top2=256 (units of the hidden layers; 0: no such layer)",
    .sample = {1, {13}},
    .classes = 1,
    .windows = windows,
    .build = build,
};
