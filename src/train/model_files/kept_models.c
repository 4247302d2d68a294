#include "train/model_files/kept_models.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdatomic.h>
#include <string.h>

/* Added to at the front, by any thread, and never removed from. */
static _Atomic(kolo_kept_model *) models;

const kolo_kept_model *kolo_kept_model_find(const char *file, const char *stamp,
                                            const kolo_shape *samples) {
    for (const kolo_kept_model *m = atomic_load(&models); m; m = m->next) {
        const bool same = strcmp(m->file, file) == 0 && kolo_shape_equal(&m->samples, samples);
        if (same && (!stamp || strcmp(m->stamp, stamp) == 0)) return m;
    }
    return NULL;
}

kolo_status kolo_kept_model_create(const char *path, kolo_kept_model **kept) {
    kolo_kept_model *m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    kolo_status status = kolo_file_stamp(path, &m->stamp);
    m->name = kolo_strdup(path);
    m->file = kolo_file_absolute(path);
    if (status == KOLO_OK && (!m->name || !m->file)) status = KOLO_NOMEM(strlen(path));
    if (status != KOLO_OK) {
        kolo_kept_model_destroy(m);
        return status;
    }
    *kept = m;
    return KOLO_OK;
}

void kolo_kept_model_destroy(kolo_kept_model *kept) {
    if (!kept) return;
    kolo_free(kept->name);
    kolo_free(kept->file);
    kolo_free(kept->stamp);
    kolo_free(kept);
}

void kolo_kept_model_add(kolo_kept_model *kept) {
    kept->next = atomic_load(&models);
    while (!atomic_compare_exchange_weak(&models, &kept->next, kept)) continue;
}
