/* ONNX files as models of the command: the input is called "x"; the shapes of samples and classes
 * are the file's. A file that leaves dimensions of its input open is read anew for each shape of
 * samples that is asked for. Files are never closed: sessions borrow their weights. */
#include "base/status.h"
#include "kolo/onnx.h"
#include "train/model_files/kept_models.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

static kolo_status find_for(const kolo_model *open, const kolo_shape *sample,
                            const kolo_model **model);

static kolo_status build(const kolo_model *model, kolo_graph *g, const kolo_model_opts *opts) {
    if (opts->options && *opts->options) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s has no options; \"%s\" is given", model->name,
                         opts->options);
    }
    if (!model->file && opts->sample.rank == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the input of %s has open dimensions: give data, whose samples have a "
                         "shape, or export the net with sizes",
                         model->name);
    }
    if (!model->file) KOLO_TRY(find_for(model, &opts->sample, &model));
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
    model->file = onnx;
    kolo_onnx_describe(onnx, &model->sample, &integers, &model->classes);
    if (!integers || model->sample.rank != 1) return;
    model->window.context = model->sample.dim[0];
    model->window.vocabulary = model->classes;
}

/* Reads the file of a model, for its samples, and adds it; frees it on failure. Samples of rank 0:
 * the shape that the file states; if it states none, the model has no `file`, and no shape either.
 */
static kolo_status open_file(kolo_kept_model *kept, const kolo_model **model) {
    const kolo_onnx_opts opts = {.sample = kept->samples, .as_zoo = true};
    kolo_onnx *onnx = NULL;
    kolo_status status = kolo_onnx_open(kept->name, &opts, &onnx);
    const bool is_open = status == KOLO_ERR_ARG && kept->samples.rank == 0;
    if (status != KOLO_OK && !is_open) {
        kolo_kept_model_destroy(kept);
        return status;
    }
    kept->model = (kolo_model){
        .name = kept->name, .summary = "ONNX file", .options_help = "", .build_file = build};
    if (onnx) describe(&kept->model, onnx);
    kolo_kept_model_add(kept);
    *model = &kept->model;
    return KOLO_OK;
}

/* The model of a file with open dimensions for samples of this shape. */
static kolo_status find_for(const kolo_model *open, const kolo_shape *sample,
                            const kolo_model **model) {
    const kolo_kept_model *of =
        (const kolo_kept_model *)((const char *)open - offsetof(kolo_kept_model, model));
    const kolo_kept_model *found = kolo_kept_model_find(of->file, of->stamp, sample);
    kolo_kept_model *kept;
    if (found) {
        *model = &found->model;
        return KOLO_OK;
    }
    KOLO_TRY(kolo_kept_model_create(of->file, &kept));
    if (strcmp(kept->stamp, of->stamp) != 0) {
        kolo_kept_model_destroy(kept);
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s has changed since it was opened: open it again",
                         of->name);
    }
    kept->samples = *sample;
    return open_file(kept, model);
}

kolo_status kolo_model_open_onnx(const char *path, const kolo_model **model) {
    kolo_kept_model *kept;
    KOLO_TRY(kolo_kept_model_create(path, &kept));
    const kolo_kept_model *found = kolo_kept_model_find(kept->file, kept->stamp, &kept->samples);
    if (!found) return open_file(kept, model);
    kolo_kept_model_destroy(kept);
    *model = &found->model;
    return KOLO_OK;
}
