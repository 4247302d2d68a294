/* ONNX files as models of the command: the input is called "x"; the shapes of samples and classes
 * are the file's. Files are never closed: sessions borrow their weights. */
#include "base/status.h"
#include "kolo/onnx.h"
#include "train/model_files/kept_models.h"

#include <inttypes.h>

static kolo_status build(const kolo_model *model, kolo_graph *g, const kolo_model_opts *opts) {
    if (opts->options && *opts->options) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s has no options; \"%s\" is given", model->name,
                         opts->options);
    }
    if (!kolo_shape_equal(&opts->sample, &model->sample)) {
        char have[KOLO_SHAPE_TEXT], want[KOLO_SHAPE_TEXT];
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "%s takes samples of %s; the data has %s: choose other data, or export the "
            "net for these",
            model->name, kolo_shape_text(&model->sample, want),
            kolo_shape_text(&opts->sample, have));
    }
    if (opts->classes > model->classes && model->classes > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s has %" PRId64 " outputs; the data has %" PRId64
                         " classes: choose other data, or export the net with more outputs",
                         model->name, model->classes, opts->classes);
    }
    return kolo_onnx_build(g, opts->batch, (void *)model->file);
}

static void describe(kolo_model *model, kolo_onnx *onnx) {
    bool integers;
    model->summary = "ONNX file";
    model->options_help = "";
    model->build_file = build;
    model->file = onnx;
    kolo_onnx_describe(onnx, &model->sample, &integers, &model->classes);
    if (!integers || model->sample.rank != 1) return;
    model->window.context = model->sample.dim[0];
    model->window.vocabulary = model->classes;
}

kolo_status kolo_model_open_onnx(const char *path, const kolo_model **model) {
    const kolo_model *found = kolo_kept_model_find(path);
    kolo_kept_model *kept;
    kolo_onnx *onnx;
    if (found) {
        *model = found;
        return KOLO_OK;
    }
    KOLO_TRY(kolo_kept_model_create(path, &kept));
    kolo_status status = kolo_onnx_open(path, &(kolo_onnx_opts){.as_zoo = true}, &onnx);
    if (status != KOLO_OK) {
        kolo_kept_model_destroy(kept);
        return status;
    }
    kept->model.name = kept->path;
    describe(&kept->model, onnx);
    kolo_kept_model_add(kept);
    *model = &kept->model;
    return KOLO_OK;
}
