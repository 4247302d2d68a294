/* Shared objects as models of the command (KOLO_MODEL_ENTRY). They call the library that is loaded
 * already, and are never unloaded. */
#include "base/elf.h"
#include "base/file.h"
#include "base/status.h"
#include "train/model_files/kept_models.h"

#include <dlfcn.h>
#include <string.h>

/* The text of the dynamic linker, which begins with the path. */
static const char *reason(const char *path) {
    const char *text = dlerror();
    const size_t length = strlen(path);
    if (!text) return "unknown error";
    return strncmp(text, path, length) == 0 && text[length] == ':' ? text + length + 2 : text;
}

static kolo_status check_file(const char *path) {
    kolo_file_view view = {0};
    KOLO_TRY(kolo_file_map(path, &view));
    kolo_status status = kolo_elf_check(view.data, view.bytes, path);
    kolo_file_unmap(&view);
    return status;
}

/* `file` is the path from the root, with which the linker searches no other folders. */
static kolo_status load(const char *file, const char *path, const kolo_model **model) {
    const kolo_model *(*entry)(int *version);
    int version = 0;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: cannot be loaded: %s", path, reason(file));
    }
    *(void **)&entry = dlsym(library, "kolo_model_entry");
    if (!entry) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s: has no function kolo_model_entry: define it with KOLO_MODEL_ENTRY "
                         "(kolo/models.h)",
                         path);
    }
    const kolo_model *m = entry(&version);
    if (version != KOLO_MODEL_VERSION) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s: was compiled for version %d of models, and this is version %d: "
                         "compile it with the headers of Kolo %s",
                         path, version, KOLO_MODEL_VERSION, kolo_version());
    }
    *model = m;
    return KOLO_OK;
}

static kolo_status check_model(const kolo_model *m, const char *path) {
    const char *missing = !m                   ? "model"
                          : !m->name           ? "name"
                          : !m->summary        ? "summary"
                          : !m->build          ? "builder"
                          : m->sample.rank < 1 ? "shape of a sample"
                          : m->classes < 1     ? "number of classes"
                                               : NULL;
    if (!missing) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: its model has no %s: give one", path, missing);
}

static kolo_status open_library(kolo_kept_model *kept) {
    const kolo_model *own;
    KOLO_TRY(check_file(kept->name));
    KOLO_TRY(load(kept->file, kept->name, &own));
    KOLO_TRY(check_model(own, kept->name));
    kept->model = *own;
    if (!kept->model.options_help) kept->model.options_help = "";
    return KOLO_OK;
}

kolo_status kolo_model_open_library(const char *path, const kolo_model **model) {
    kolo_kept_model *kept;
    kolo_status status = KOLO_OK;
    KOLO_TRY(kolo_kept_model_create(path, &kept));
    const kolo_kept_model *found = kolo_kept_model_find(kept->file, NULL, &kept->samples);
    if (found && strcmp(found->stamp, kept->stamp) != 0) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT,
                           "%s has changed since it was loaded: start a new process for it", path);
    } else if (!found) {
        status = open_library(kept);
    }
    if (found || status != KOLO_OK) {
        kolo_kept_model_destroy(kept);
    } else {
        kolo_kept_model_add(kept);
        found = kept;
    }
    if (status == KOLO_OK) *model = &found->model;
    return status;
}
