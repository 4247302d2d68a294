#pragma once
/* Models of files, which stay in memory until the process ends: sessions refer to them. */

#include "kolo/train.h"

typedef struct kolo_kept_model {
    struct kolo_kept_model *next;
    char *name;         /* the path as it was given */
    char *file;         /* from the root */
    char *stamp;        /* of the file as it was read */
    kolo_shape samples; /* for which it was read; rank 0: those that the file states */
    kolo_model model;
} kolo_kept_model;

/* The model that was added for a file and samples, of this stamp unless it is NULL; NULL: none. Any
 * thread. */
const kolo_kept_model *kolo_kept_model_find(const char *file, const char *stamp,
                                            const kolo_shape *samples);
/* Allocates one for a path, with the name, the file and the stamp that the file has now. NOMEM; IO:
 * it cannot be read. */
kolo_status kolo_kept_model_create(const char *path, kolo_kept_model **kept);
/* Frees one that was not added. NULL is allowed. */
void kolo_kept_model_destroy(kolo_kept_model *kept);
/* Adds it. Any thread; of two threads that add the same file at a time, both models stay. */
void kolo_kept_model_add(kolo_kept_model *kept);
