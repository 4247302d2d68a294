#pragma once
/* A cache of kernel selections: equal nodes, such as repeated layers, are selected once. */

#include "kernel/select/select.h"

enum { KOLO_SELECTION_CHAINS = 1024 };

/* Zero-initialize it. */
typedef struct kolo_selections {
    struct kolo_selection *chains[KOLO_SELECTION_CHAINS]; /* by hash of the spec */
    kolo_arena arena;
} kolo_selections;

/* As kolo_kernel_select_tuned, always with the same set, tuner and device. A repeated failure has
 * no error text. */
kolo_status kolo_kernel_select_cached(kolo_selections *cache, kolo_kernel_set set,
                                      struct kolo_tuner *tuner, kolo_kernel_spec *spec,
                                      const kolo_kernel **kernel, double *seconds);
void kolo_selections_fini(kolo_selections *cache);
