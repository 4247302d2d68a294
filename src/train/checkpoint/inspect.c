/* Inspecting weight files: description, verification, comparison. */
#include "data/safetensors/safetensors.h"
#include "graph/graph.h"
#include "kolo/checkpoint.h"
#include "kolo/train.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/finite.h"
#include "train/checkpoint/folder.h"
#include "train/session/session.h"
#include "train/session/tables.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Passes a text on to the caller. */
static kolo_status give(kolo_text *text, char **out) {
    if (text->failed || !text->text) {
        kolo_text_fini(text);
        return KOLO_NOMEM(text->length);
    }
    *out = text->text;
    return KOLO_OK;
}

void kolo_checkpoint_text_free(char *text) { kolo_free(text); }

/* ---- describing ---- */

/* The options that a run resumed from the file must have, one per line. */
static void describe_training(const kolo_safetensors *file, kolo_text *text) {
    const char *version = kolo_safetensors_metadata(file, "training");
    const char *line = kolo_safetensors_metadata(file, "options");
    if (!version || !line) return;
    const char *order = kolo_safetensors_metadata(file, "order");
    kolo_text_add(text, "%-14s version %s: a run can be resumed from it\n", "training", version);
    kolo_text_add(text, "%-14s version %s of the order of samples\n", "", order ? order : "1");
    while (*line) {
        size_t length = strcspn(line, "\n");
        const char *colon = memchr(line, ':', length);
        bool empty = !colon || colon + 2 >= line + length;
        if (!empty) kolo_text_add(text, "%-14s %.*s\n", "", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

/* Which ranks held a tensor when it was saved, with two spaces before; nothing: all did. */
static void describe_holders(const kolo_safetensors *file, const char *name, kolo_text *text) {
    const char *line = kolo_safetensors_metadata(file, "holders");
    const size_t length = strlen(name);
    while (line && *line) {
        const size_t all = strcspn(line, "\n");
        if (all > length && memcmp(line, name, length) == 0 && line[length] == ' ') {
            kolo_text_add(text, "  %.*s", (int)(all - length - 1), line + length + 1);
            return;
        }
        line += all + (line[all] == '\n');
    }
}

kolo_status kolo_checkpoint_describe(const char *path, char **out) {
    kolo_safetensors *file;
    kolo_text text = {0};
    KOLO_TRY(kolo_safetensors_open(path, &file));
    for (const char *const *key = kolo_checkpoint_keys; *key; key++) {
        const char *value = kolo_safetensors_metadata(file, *key);
        if (value && *value) kolo_text_add(&text, "%-14s %s\n", *key, value);
    }
    describe_training(file, &text);
    int64_t elements = 0;
    size_t bytes = 0;
    for (int i = 0; i < kolo_safetensors_count(file); i++) {
        elements += kolo_shape_count(&kolo_safetensors_get(file, i)->shape);
        bytes += kolo_safetensors_get(file, i)->bytes;
    }
    kolo_text_add(&text, "%-14s %d, %" PRId64 " elements, %.1f MiB\n\n", "tensors",
                  kolo_safetensors_count(file), elements, (double)bytes / (1 << 20));
    for (int i = 0; i < kolo_safetensors_count(file); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(file, i);
        char shape[KOLO_SHAPE_TEXT];
        kolo_text_add(&text, "%-5s %-20s %s", kolo_dtype_name(e->dtype),
                      kolo_shape_text(&e->shape, shape), e->name);
        describe_holders(file, e->name, &text);
        kolo_text_add(&text, "\n");
    }
    kolo_safetensors_close(file);
    return give(&text, out);
}

/* ---- verifying ---- */

kolo_status kolo_checkpoint_check(const char *path) {
    kolo_safetensors *file;
    KOLO_TRY(kolo_safetensors_open(path, &file));
    kolo_status status = kolo_safetensors_check(file);
    kolo_safetensors_close(file);
    return status;
}

/* Element i of a tensor of floats. */
static double element(const kolo_safetensors_entry *e, int64_t i) {
    float f;
    double wide;
    if (e->dtype == KOLO_DTYPE_F64) {
        memcpy(&wide, (const char *)e->data + (size_t)i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&f, (const char *)e->data + (size_t)i * sizeof f, sizeof f);
    return (double)f;
}

static bool has_reals(const kolo_safetensors_entry *e) {
    return e->dtype == KOLO_DTYPE_F32 || e->dtype == KOLO_DTYPE_F64;
}

static kolo_status check_finite(const kolo_safetensors *file, const char *path) {
    for (int i = 0; i < kolo_safetensors_count(file); i++) {
        KOLO_TRY(kolo_check_finite(path, kolo_safetensors_get(file, i)));
    }
    return KOLO_OK;
}

/* The labels that a model takes; none leaves the options as they are. */
static kolo_status find_labels(const kolo_model *model, kolo_session_config *opts) {
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    const kolo_model_opts build = {1, opts->sample, opts->classes, opts->model_options};
    kolo_status status = kolo_model_add(model, g, &build);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    const kolo_value y = status == KOLO_OK ? kolo_graph_find(g, "y") : KOLO_NONE;
    if (kolo_value_ok(y)) {
        const kolo_tensor *t = &kolo_info(g, y)->tensor;
        opts->numeric = t->dtype == KOLO_DTYPE_F32;
        opts->label = (kolo_shape){t->shape.rank > 0 ? t->shape.rank - 1 : 0, {0}};
        for (int d = 0; d < opts->label.rank; d++) opts->label.dim[d] = t->shape.dim[d + 1];
    }
    kolo_graph_destroy(g);
    return status;
}

/* The rows of tables beside a checkpoint that a run can go on from. */
static kolo_status check_rows(const kolo_checkpoint *c) {
    if (!c->info.table || !c->info.options) return KOLO_OK;
    char *rows = kolo_checkpoint_tables_path(c->path);
    if (!rows) return KOLO_NOMEM(strlen(c->path));
    const kolo_status status = kolo_tables_check(rows, c->info.steps);
    kolo_free(rows);
    return status;
}

/* Builds the model that the file names and loads the parameters. */
static kolo_status try_loading(const char *path) {
    kolo_checkpoint c;
    const kolo_model *model;
    kolo_session *session = NULL;
    KOLO_TRY(kolo_checkpoint_open(path, &c));
    kolo_status status;
    KOLO_TRY_GOTO(kolo_checkpoint_model(&c, &model), done);
    kolo_session_config opts = {
        .model = c.info.model,
        .model_options = c.info.model_options,
        .sample = c.info.sample,
        .classes = c.info.classes,
        .batch = 1,
        .evaluate_only = true,
        .tables.names = c.info.table,
    };
    KOLO_TRY_GOTO(find_labels(model, &opts), done);
    KOLO_TRY_GOTO(kolo_session_create_for(&opts, NULL, &session), done);
    KOLO_TRY_GOTO(kolo_checkpoint_load(&c, kolo_session_store(session)), done);
    status = check_rows(&c);
done:
    kolo_session_destroy(session);
    if (status != KOLO_OK) status = kolo_fail_in(status, "%s", path);
    kolo_checkpoint_close(&c);
    return status;
}

kolo_status kolo_checkpoint_verify(const char *path, char **out) {
    kolo_safetensors *file;
    kolo_text text = {0};
    KOLO_TRY(kolo_safetensors_open(path, &file));
    const char *model = kolo_safetensors_metadata(file, "model");
    const bool code = kolo_checkpoint_model_is_code(model); /* is not executed here */
    if (code || (model && !*model)) model = NULL;           /* of a program's own session */
    kolo_status status = model ? try_loading(path) : kolo_safetensors_check(file);
    if (status == KOLO_OK) status = check_finite(file, path);
    if (status == KOLO_OK) {
        kolo_text_add(&text, "%s: %d tensors, all numbers finite; %s%s\n", path,
                      kolo_safetensors_count(file),
                      model  ? "they match model "
                      : code ? "its model is code, which is not executed for this"
                             : "it names no model to compare them with",
                      model ? model : "");
        status = give(&text, out);
    }
    kolo_safetensors_close(file);
    return status;
}

/* ---- comparing ---- */

static double distance(const kolo_safetensors_entry *a, const kolo_safetensors_entry *b) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < kolo_shape_count(&a->shape); i++) {
        double x = element(a, i), y = element(b, i);
        difference += (x - y) * (x - y);
        norm += x * x;
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

/* Adds a line if the tensors differ. */
static bool compare_two(const kolo_safetensors_entry *a, const kolo_safetensors_entry *b,
                        kolo_text *text) {
    char one[KOLO_SHAPE_TEXT], other[KOLO_SHAPE_TEXT];
    if (!kolo_shape_equal(&a->shape, &b->shape) || a->dtype != b->dtype) {
        kolo_text_add(text, "%s: %s %s and %s %s\n", a->name, kolo_dtype_name(a->dtype),
                      kolo_shape_text(&a->shape, one), kolo_dtype_name(b->dtype),
                      kolo_shape_text(&b->shape, other));
        return false;
    }
    if (memcmp(a->data, b->data, a->bytes) == 0) return true;
    if (has_reals(a)) {
        kolo_text_add(text, "%s: relative distance %.3g\n", a->name, distance(a, b));
    } else {
        kolo_text_add(text, "%s: different contents\n", a->name);
    }
    return false;
}

kolo_status kolo_checkpoint_compare(const char *a, const char *b, bool *equal, char **out) {
    kolo_safetensors *first, *second;
    kolo_text text = {0};
    int same = 0, differ = 0;
    KOLO_TRY(kolo_safetensors_open(a, &first));
    kolo_status status = kolo_safetensors_open(b, &second);
    if (status != KOLO_OK) {
        kolo_safetensors_close(first);
        return status;
    }
    for (int i = 0; i < kolo_safetensors_count(first); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(first, i);
        const kolo_safetensors_entry *other = kolo_safetensors_find(second, e->name);
        if (!other) kolo_text_add(&text, "%s: only in %s\n", e->name, a);
        bool alike = other && compare_two(e, other, &text);
        same += alike;
        differ += !alike;
    }
    for (int i = 0; i < kolo_safetensors_count(second); i++) {
        const char *name = kolo_safetensors_get(second, i)->name;
        if (kolo_safetensors_find(first, name)) continue;
        kolo_text_add(&text, "%s: only in %s\n", name, b);
        differ++;
    }
    kolo_text_add(&text, "%d tensors are the same, %d differ\n", same, differ);
    *equal = differ == 0;
    kolo_safetensors_close(first);
    kolo_safetensors_close(second);
    return give(&text, out);
}
