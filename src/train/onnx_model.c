/* ONNX files as models of the command: the input is called "x"; the shapes of samples and classes
 * are the file's. Files are never closed: sessions borrow their weights. */
#include "base/memory.h"
#include "base/status.h"
#include "kolo/onnx.h"
#include "kolo/train.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

typedef struct onnx_model {
    struct onnx_model *next;
    kolo_model model;
    kolo_onnx *onnx;
} onnx_model;

/* Added to at the front, by any thread, and never removed from. */
static _Atomic(onnx_model *) files;

static kolo_status build(const kolo_model *model, kolo_graph *g, const kolo_model_opts *opts) {
    if (opts->options && *opts->options) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s has no options; \"%s\" is given", model->name,
                         opts->options);
    }
    if (!kolo_shape_equal(&opts->sample, &model->sample)) {
        char have[KOLO_SHAPE_TEXT], want[KOLO_SHAPE_TEXT];
        return KOLO_FAIL(KOLO_ERR_ARG, "%s takes samples of %s; the data has %s", model->name,
                         kolo_shape_text(&model->sample, want),
                         kolo_shape_text(&opts->sample, have));
    }
    if (opts->classes > model->classes && model->classes > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s has %" PRId64 " outputs; the data has %" PRId64 " classes",
                         model->name, model->classes, opts->classes);
    }
    return kolo_onnx_build(g, opts->batch, (void *)model->file);
}

static void describe(onnx_model *m) {
    bool integers;
    kolo_model *model = &m->model;
    model->summary = "ONNX file";
    model->options_help = "";
    model->build_file = build;
    model->file = m->onnx;
    kolo_onnx_describe(m->onnx, &model->sample, &integers, &model->classes);
    if (!integers || model->sample.rank != 1) return;
    model->window.context = model->sample.dim[0];
    model->window.vocabulary = model->classes;
}

static void close_model(onnx_model *m) {
    kolo_onnx_close(m->onnx);
    kolo_free((char *)m->model.name);
    kolo_free(m);
}

static kolo_status open_model(const char *path, onnx_model **result) {
    onnx_model *m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    m->model.name = kolo_strdup(path);
    kolo_status status = m->model.name ? KOLO_OK : KOLO_NOMEM(strlen(path));
    if (status == KOLO_OK) {
        status = kolo_onnx_open(path, &(kolo_onnx_opts){.as_zoo = true}, &m->onnx);
    }
    if (status != KOLO_OK) {
        close_model(m);
        return status;
    }
    describe(m);
    *result = m;
    return KOLO_OK;
}

static onnx_model *find(const char *path) {
    onnx_model *m = atomic_load(&files);
    while (m && strcmp(m->model.name, path) != 0) m = m->next;
    return m;
}

/* Two threads may open a file at the same time; then it is there twice. */
kolo_status kolo_model_open_onnx(const char *path, const kolo_model **model) {
    onnx_model *m = find(path);
    if (!m) {
        KOLO_TRY(open_model(path, &m));
        m->next = atomic_load(&files);
        while (!atomic_compare_exchange_weak(&files, &m->next, m)) continue;
    }
    *model = &m->model;
    return KOLO_OK;
}
