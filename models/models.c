/* The table of models, one file each, and those that programs register. */
#include "models/options.h"
#include "models/zoo.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define ADDRESS(name) &kolo_model_##name,
static const kolo_model *const zoo[] = {KOLO_MODEL_LIST(ADDRESS) NULL};

enum { MODELS = sizeof zoo / sizeof zoo[0] - 1, MAX_REGISTERED = 64 };

/* Filled from the front, by any thread. */
static const kolo_model *_Atomic registered[MAX_REGISTERED];

/* Model i of the zoo and the registered ones; NULL: there are no more. */
static const kolo_model *known(int i) {
    if (i < MODELS) return zoo[i];
    return i < MODELS + MAX_REGISTERED ? atomic_load(&registered[i - MODELS]) : NULL;
}

const kolo_model *const *kolo_models(void) { return zoo; }

kolo_status kolo_model_sample(const kolo_model *model, const char *options, kolo_shape *sample,
                              int64_t *classes) {
    if (!model) return kolo_error_set(KOLO_ERR_ARG, "no model: find one with kolo_model_find");
    *sample = model->sample;
    *classes = model_options_number(options, "classes", model->classes);
    kolo_dataset_opts windows;
    kolo_status status = kolo_model_window(model, options, &windows);
    if (windows.numbers > 0) *sample = kolo_shape_1(windows.numbers);
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

/* Models in files, by the end of their names. */
static const struct {
    const char *end;
    kolo_status (*open)(const char *path, const kolo_model **model);
} kinds_of_files[] = {{".onnx", kolo_model_open_onnx}, {".so", kolo_model_open_library}};

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), n = strlen(end);
    return length > n && strcmp(name + length - n, end) == 0;
}

/* The known name closest to `name`, or NULL. */
static const char *suggest(const char *name) {
    const char *names[MODELS + MAX_REGISTERED + 1] = {NULL};
    for (int i = 0; known(i); i++) names[i] = known(i)->name;
    return kolo_closest(name, names);
}

static const kolo_model *find(const char *name) {
    int i = 0;
    while (known(i) && strcmp(known(i)->name, name) != 0) i++;
    return known(i);
}

kolo_status kolo_model_find(const char *name, const kolo_model **model) {
    if (!name) return kolo_error_set(KOLO_ERR_ARG, "no model: give the name of one");
    for (size_t i = 0; i < sizeof kinds_of_files / sizeof kinds_of_files[0]; i++) {
        if (ends_with(name, kinds_of_files[i].end)) return kinds_of_files[i].open(name, model);
    }
    const kolo_model *found = find(name);
    if (found) {
        *model = found;
        return KOLO_OK;
    }
    const char *closest = suggest(name);
    if (closest) {
        return kolo_error_set(KOLO_ERR_ARG, "unknown model \"%s\": did you mean \"%s\"?", name,
                              closest);
    }
    char all[512] = "";
    for (int i = 0, length = 0; known(i) && length < (int)sizeof all; i++) {
        length += snprintf(all + length, sizeof all - (size_t)length, "%s%s", i ? ", " : "",
                           known(i)->name);
    }
    return kolo_error_set(KOLO_ERR_ARG,
                          "unknown model \"%s\": choose one of %s; or a file that ends in .onnx or "
                          ".so",
                          name, all);
}

kolo_status kolo_model_register(const kolo_model *model) {
    if (!model || !model->name || !*model->name || !model->summary || !model->build ||
        model->sample.rank < 1 || model->classes < 1) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "the model %s lacks a name, summary, sample, number of "
                              "classes or builder",
                              model && model->name ? model->name : "");
    }
    if (strpbrk(model->name, ":,/.")) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "model name \"%s\": omit colons, commas, slashes and "
                              "dots",
                              model->name);
    }
    for (int i = 0; i < MAX_REGISTERED; i++) {
        const kolo_model *none = NULL;
        if (find(model->name)) {
            return kolo_error_set(KOLO_ERR_ARG, "there is a model %s: choose another name",
                                  model->name);
        }
        if (atomic_compare_exchange_strong(&registered[i], &none, model)) return KOLO_OK;
    }
    return kolo_error_set(KOLO_ERR_NOMEM, "%d models are registered: no more are possible",
                          MAX_REGISTERED);
}
