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
    if (!model->windows) return KOLO_OK;
    kolo_dataset_opts windows = {0};
    kolo_status status = model->windows(options, &windows);
    *sample = kolo_shape_1(windows.context);
    *classes = windows.vocabulary;
    return status;
}

kolo_status kolo_model_find(const char *name, const kolo_model **model) {
    const char *names[MODELS] = {NULL};
    if (!name) return kolo_error_set(KOLO_ERR_ARG, "no model: give the name of one");
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
