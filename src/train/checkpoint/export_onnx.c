/* Exporting a checkpoint as an ONNX file: the model that it names, for evaluation, with its
 * parameters. */
#include "kolo/onnx.h"
#include "kolo/train.h"
#include "onnx/export/export.h"
#include "train/checkpoint/checkpoint.h"

#include <string.h>

static kolo_status build(kolo_graph *g, int64_t samples, void *arg) {
    const kolo_checkpoint *c = arg;
    const kolo_checkpoint_info *info = &c->info;
    const kolo_model *model;
    KOLO_TRY(kolo_checkpoint_model(c, &model));
    const kolo_model_opts opts = {.batch = samples,
                                  .sample = info->sample,
                                  .classes = info->classes,
                                  .options = info->model_options};
    return kolo_model_add(model, g, &opts);
}

static kolo_status read_tensor(void *arg, const char *name, const kolo_shape *shape, float *data) {
    const kolo_checkpoint *c = arg;
    const kolo_safetensors_entry *e = kolo_safetensors_find(c->file, name);
    if (!e || e->dtype != KOLO_DTYPE_F32 || !kolo_shape_equal(&e->shape, shape)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the tensor %s is missing or of another shape",
                         c->path, name);
    }
    memcpy(data, e->data, e->bytes);
    return KOLO_OK;
}

kolo_status kolo_checkpoint_export_onnx(kolo_checkpoint *c, const char *to) {
    const bool code = kolo_checkpoint_model_is_code(c->info.model);
    if (code || !c->info.model || !*c->info.model) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s %s: export it from the program that has its graph "
                         "(kolo_session_export_onnx)",
                         c->path, code ? "is of a model in a shared object" : "names no model");
    }
    kolo_status status = kolo_onnx_write(to, build, c, read_tensor, c);
    return status == KOLO_OK ? status : kolo_fail_in(status, "%s", c->path);
}
