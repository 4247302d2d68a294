/* Checkpoints: reading metadata, loading after all tensors are checked. save.c writes them. */
#include "train/checkpoint/checkpoint.h"

#include "data/sampler.h"
#include "train/checkpoint/finite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint64_t kolo_checkpoint_training_version = 2;
static const int64_t max_dim = 1 << 20, max_count = INT64_C(1) << 32; /* of one sample */

const char *const kolo_checkpoint_keys[] = {"kolo",  "model",  "model_options", "sample", "classes",
                                            "data",  "epochs", "steps",         "seed",   "best",
                                            "table", "format", "mesh",          NULL};

/* ---- opening ---- */

/* Parses a number in [min, max] that is followed by `end`. */
static bool parse_number(const char *text, const char *end, uint64_t min, uint64_t max,
                         uint64_t *number) {
    char *stop;
    errno = 0;
    unsigned long long n = strtoull(text, &stop, 10);
    if (*text < '0' || *text > '9' || stop != end || errno != 0 || n < min || n > max) return false;
    *number = n;
    return true;
}

static bool parse_sample(const char *text, kolo_shape *shape) {
    *shape = kolo_shape_0();
    int64_t count = 1;
    while (*text) {
        size_t length = strcspn(text, "x");
        uint64_t dim;
        if (shape->rank == KOLO_MAX_RANK) return false;
        if (!parse_number(text, text + length, 1, (uint64_t)max_dim, &dim)) return false;
        count *= (int64_t)dim;
        if (count > max_count) return false;
        shape->dim[shape->rank++] = (int64_t)dim;
        text += length;
        if (*text == 'x' && *++text == '\0') return false;
    }
    return true;
}

/* Reads a number of the metadata. FORMAT: it is missing or outside [min, max]. */
static kolo_status get_number(const kolo_checkpoint *c, const char *key, uint64_t min, uint64_t max,
                              uint64_t *number) {
    const char *text = kolo_safetensors_metadata(c->file, key);
    if (text && parse_number(text, text + strlen(text), min, max, number)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: the metadata have %s \"%.40s\", which is not a valid number: the "
                     "file is damaged",
                     c->path, key, text ? text : "");
}

static kolo_status read_metadata(kolo_checkpoint *c) {
    kolo_checkpoint_info *info = &c->info;
    info->model = kolo_safetensors_metadata(c->file, "model");
    info->model_options = kolo_safetensors_metadata(c->file, "model_options");
    info->data = kolo_safetensors_metadata(c->file, "data");
    info->table = kolo_safetensors_metadata(c->file, "table");
    const char *sample = kolo_safetensors_metadata(c->file, "sample");
    if (!info->model || !info->model_options || !sample) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: the metadata name no model: give a checkpoint that kolo train "
                         "wrote",
                         c->path);
    }
    if (!parse_sample(sample, &info->sample)) {
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: the metadata have sample \"%.40s\", which is not a shape: the file is "
            "damaged",
            c->path, sample);
    }
    uint64_t classes, epochs, steps, version, order = 1;
    KOLO_TRY(get_number(c, "classes", 1, (uint64_t)max_dim, &classes));
    KOLO_TRY(get_number(c, "epochs", 0, INT64_MAX, &epochs));
    KOLO_TRY(get_number(c, "steps", 0, INT64_MAX, &steps));
    KOLO_TRY(get_number(c, "seed", 0, UINT64_MAX, &info->seed));
    info->classes = (int64_t)classes;
    info->epochs = (int64_t)epochs;
    info->steps = (int64_t)steps;
    if (!kolo_safetensors_metadata(c->file, "training")) return KOLO_OK;
    KOLO_TRY(get_number(c, "training", 1, UINT64_MAX, &version));
    if (version > kolo_checkpoint_training_version) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s: the training state has version %" PRIu64
                         ", of a newer kolo; this one reads up to %" PRIu64
                         ": use that kolo, or export the parameters with it",
                         c->path, version, kolo_checkpoint_training_version);
    }
    if (version > 1) KOLO_TRY(get_number(c, "order", 1, INT32_MAX, &order));
    if (order > KOLO_SAMPLE_ORDER) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s: the order of the samples has version %" PRIu64
                         ", of a newer kolo; this one reads up to %d: use that kolo, or export "
                         "the parameters with it",
                         c->path, order, KOLO_SAMPLE_ORDER);
    }
    info->order = (int)order;
    info->options = kolo_safetensors_metadata(c->file, "options");
    info->progress = kolo_safetensors_metadata(c->file, "progress");
    info->compressed = kolo_safetensors_metadata(c->file, "compressed");
    if (info->options && info->progress) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the metadata have no %s: the file is damaged", c->path,
                     info->options ? "progress" : "options");
}

kolo_status kolo_checkpoint_open(const char *path, kolo_checkpoint *checkpoint) {
    kolo_checkpoint c = {.path = kolo_strdup(path)};
    if (!c.path) return KOLO_NOMEM(strlen(path));
    kolo_status status = kolo_safetensors_open(path, &c.file);
    if (status == KOLO_OK) status = kolo_safetensors_check(c.file);
    if (status == KOLO_OK) status = read_metadata(&c);
    if (status != KOLO_OK) {
        kolo_checkpoint_close(&c);
        return status;
    }
    *checkpoint = c;
    return KOLO_OK;
}

bool kolo_checkpoint_model_is_code(const char *model) {
    const size_t length = model ? strlen(model) : 0;
    return length > 3 && strcmp(model + length - 3, ".so") == 0;
}

kolo_status kolo_checkpoint_model(const kolo_checkpoint *checkpoint, const kolo_model **model) {
    const char *name = checkpoint->info.model;
    if (!name || !*name) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s names no model: use it in the program that has its graph",
                         checkpoint->path);
    }
    if (kolo_checkpoint_model_is_code(name)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s is of the model %s, which is code: name it yourself, --model %s",
                         checkpoint->path, name, name);
    }
    return kolo_model_find(name, model);
}

void kolo_checkpoint_close(kolo_checkpoint *checkpoint) {
    kolo_safetensors_close(checkpoint->file);
    kolo_free(checkpoint->path);
    *checkpoint = (kolo_checkpoint){0};
}

/* ---- loading ---- */

static kolo_status check_parameter(const kolo_checkpoint *c, const kolo_store_entry *entry) {
    const kolo_safetensors_entry *stored = kolo_safetensors_find(c->file, entry->name);
    if (!stored) {
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: tensor \"%s\" of model %s is missing: give a checkpoint of that model", c->path,
            entry->name, c->info.model);
    }
    char want[KOLO_SHAPE_TEXT], have[KOLO_SHAPE_TEXT];
    if (!kolo_shape_equal(&stored->shape, &entry->canon) || stored->dtype != entry->tensor.dtype) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: tensor \"%s\" is %s %s and model %s has %s %s: give a checkpoint of "
                         "that model",
                         c->path, entry->name, kolo_dtype_name(stored->dtype),
                         kolo_shape_text(&stored->shape, have), c->info.model,
                         kolo_dtype_name(entry->tensor.dtype),
                         kolo_shape_text(&entry->canon, want));
    }
    return KOLO_OK;
}

/* Optimizer state that is not to be loaded. */
static bool is_skipped(const kolo_checkpoint *c, const char *name, bool training) {
    return !training && c->info.options && kolo_name_is_optimizer(name);
}

static kolo_status check_all(const kolo_checkpoint *c, const kolo_store *store, bool training) {
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (training || kolo_store_entry_is_model(entry)) KOLO_TRY(check_parameter(c, entry));
    }
    for (int i = 0; i < kolo_safetensors_count(c->file); i++) {
        const char *name = kolo_safetensors_get(c->file, i)->name;
        const kolo_store_entry *entry = kolo_store_find(store, name);
        if (is_skipped(c, name, training)) continue;
        if (!entry || !(training || kolo_store_entry_is_model(entry))) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: model %s has no tensor \"%s\": give a checkpoint of that "
                             "model",
                             c->path, c->info.model, name);
        }
    }
    return KOLO_OK;
}

static kolo_status check_finite(const kolo_checkpoint *c, bool training) {
    for (int i = 0; i < kolo_safetensors_count(c->file); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(c->file, i);
        if (is_skipped(c, e->name, training)) continue;
        KOLO_TRY(kolo_check_finite(c->path, e));
    }
    return KOLO_OK;
}

static kolo_status load(const kolo_checkpoint *checkpoint, kolo_store *store, bool training) {
    KOLO_TRY(check_all(checkpoint, store, training));
    KOLO_TRY(check_finite(checkpoint, training));
    /* Tensors in a file have any alignment; the copies are aligned. */
    size_t largest = 0;
    for (int i = 0; i < kolo_safetensors_count(checkpoint->file); i++) {
        size_t bytes = kolo_safetensors_get(checkpoint->file, i)->bytes;
        if (bytes > largest) largest = bytes;
    }
    void *copy = kolo_alloc(largest);
    if (!copy) return KOLO_NOMEM(largest);
    kolo_status status = KOLO_OK;
    for (int i = 0; i < kolo_safetensors_count(checkpoint->file); i++) {
        const kolo_safetensors_entry *stored = kolo_safetensors_get(checkpoint->file, i);
        if (is_skipped(checkpoint, stored->name, training)) continue;
        memcpy(copy, stored->data, stored->bytes);
        status = kolo_store_write(store, kolo_store_find(store, stored->name), copy);
        if (status != KOLO_OK) break;
    }
    kolo_free(copy);
    return status;
}

kolo_status kolo_checkpoint_load(const kolo_checkpoint *checkpoint, kolo_store *store) {
    return load(checkpoint, store, false);
}

kolo_status kolo_checkpoint_load_training(const kolo_checkpoint *checkpoint, kolo_store *store) {
    KOLO_ASSERT(checkpoint->info.options);
    return load(checkpoint, store, true);
}
