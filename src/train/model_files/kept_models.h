#pragma once
/* Models of files, which stay in memory until the process ends: sessions refer to them. */

#include "kolo/train.h"

typedef struct kolo_kept_model {
    struct kolo_kept_model *next;
    char *path; /* by which it is found */
    kolo_model model;
} kolo_kept_model;

/* The model of a path that was added; NULL: none. Any thread. */
const kolo_model *kolo_kept_model_find(const char *path);
/* Allocates one for a path. NOMEM. */
kolo_status kolo_kept_model_create(const char *path, kolo_kept_model **kept);
/* Frees one that was not added. NULL is allowed. */
void kolo_kept_model_destroy(kolo_kept_model *kept);
/* Adds it. Any thread; of two threads that add the same path at a time, both models stay. */
void kolo_kept_model_add(kolo_kept_model *kept);
