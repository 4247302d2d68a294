/* The table of models, one file each. */
#include "models/options.h"
#include "models/zoo.h"

#include <stdio.h>
#include <string.h>

#define ADDRESS(name) &kolo_model_##name,
static const kolo_model *const zoo[] = {KOLO_MODEL_LIST(ADDRESS) NULL};

enum { MODELS = sizeof zoo / sizeof zoo[0] };

const kolo_model *const *kolo_models(void) { return zoo; }

kolo_status kolo_model_sample(const kolo_model *model, const char *options, kolo_shape *sample,
                              int64_t *classes) {
    if (!model) return kolo_error_set(KOLO_ERR_ARG, "no model: find one with kolo_model_find");
    *sample = model->sample;
    *classes = model_options_number(options, "classes", model->classes);
    kolo_dataset_opts windows;
    kolo_status status = kolo_model_window(model, options, &windows);
    if (windows.context == 0) return status;
    *sample = kolo_shape_1(windows.context);
    *classes = windows.vocabulary;
    return status;
}

kolo_status kolo_model_add(const kolo_model *model, kolo_graph *g, const kolo_model_opts *opts) {
    return model->build_file ? model->build_file(model, g, opts) : model->build(g, opts);
}

kolo_status kolo_model_window(const kolo_model *model, const char *options,
                              kolo_dataset_opts *windows) {
    *windows = model->window;
    return model->windows ? model->windows(options, windows) : KOLO_OK;
}

static bool is_onnx(const char *name) {
    const size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".onnx") == 0;
}

kolo_status kolo_model_find(const char *name, const kolo_model **model) {
    const char *names[MODELS] = {NULL};
    if (!name) return kolo_error_set(KOLO_ERR_ARG, "no model: give the name of one");
    if (is_onnx(name)) return kolo_model_open_onnx(name, model);
    for (int i = 0; zoo[i]; i++) {
        if (strcmp(zoo[i]->name, name) == 0) {
            *model = zoo[i];
            return KOLO_OK;
        }
        names[i] = zoo[i]->name;
    }
    const char *closest = kolo_closest(name, names);
    if (closest) {
        return kolo_error_set(KOLO_ERR_ARG, "unknown model \"%s\": did you mean \"%s\"?", name,
                              closest);
    }
    char known[512] = "";
    for (int i = 0, length = 0; zoo[i] && length < (int)sizeof known; i++) {
        length += snprintf(known + length, sizeof known - (size_t)length, "%s%s", i ? ", " : "",
                           zoo[i]->name);
    }
    return kolo_error_set(KOLO_ERR_ARG, "unknown model \"%s\": choose one of %s", name, known);
}
