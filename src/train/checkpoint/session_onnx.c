/* Exporting a session's graph and parameters as an ONNX file. */
#include "kolo/session.h"
#include "kolo/train.h"
#include "onnx/export/export.h"
#include "train/session/agree.h"
#include "train/session/session.h"

static kolo_status build(kolo_graph *g, int64_t samples, void *arg) {
    const kolo_session_config *config = arg;
    const kolo_model *model = config->found;
    if (config->build) return config->build(g, samples, config->build_arg);
    if (!model) KOLO_TRY(kolo_model_find(config->model, &model));
    const kolo_model_opts opts = {.batch = samples,
                                  .sample = config->sample,
                                  .classes = config->classes,
                                  .options = config->model_options};
    return kolo_model_add(model, g, &opts);
}

static kolo_status read_tensor(void *arg, const char *name, const kolo_shape *shape, float *data) {
    return kolo_session_get(arg, name, data, (size_t)kolo_shape_count(shape) * sizeof *data);
}

kolo_status kolo_session_export_onnx(kolo_session *session, const char *path) {
    if (!session || !path) return KOLO_FAIL(KOLO_ERR_ARG, "no session or no path");
    KOLO_TRY(kolo_session_check_f32(session, "ONNX files"));
    KOLO_TRY(kolo_session_check_together(session));
    KOLO_TRY(kolo_session_consolidate(session));
    kolo_comm *comm = kolo_session_comm(session);
    const bool writes = !comm || kolo_comm_rank(comm) == 0;
    kolo_session_config config = *kolo_session_config_of(session);
    return kolo_agree(comm,
                      kolo_onnx_write(writes ? path : NULL, build, &config, read_tensor, session));
}
