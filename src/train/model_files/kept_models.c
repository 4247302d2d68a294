#include "train/model_files/kept_models.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdatomic.h>
#include <string.h>

/* Added to at the front, by any thread, and never removed from. */
static _Atomic(kolo_kept_model *) models;

const kolo_model *kolo_kept_model_find(const char *path) {
    const kolo_kept_model *m = atomic_load(&models);
    while (m && strcmp(m->path, path) != 0) m = m->next;
    return m ? &m->model : NULL;
}

kolo_status kolo_kept_model_create(const char *path, kolo_kept_model **kept) {
    kolo_kept_model *m = kolo_zalloc(sizeof *m);
    if (m) m->path = kolo_strdup(path);
    if (!m || !m->path) {
        kolo_free(m);
        return KOLO_NOMEM(strlen(path));
    }
    *kept = m;
    return KOLO_OK;
}

void kolo_kept_model_destroy(kolo_kept_model *kept) {
    if (!kept) return;
    kolo_free(kept->path);
    kolo_free(kept);
}

void kolo_kept_model_add(kolo_kept_model *kept) {
    kept->next = atomic_load(&models);
    while (!atomic_compare_exchange_weak(&models, &kept->next, kept)) continue;
}
