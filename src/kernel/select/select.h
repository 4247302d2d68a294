#pragma once
/* Selection of the kernel that runs a node. */

#include "kernel/select/families.h"
#include "kernel/select/tune.h"

/* The kernel with the least time for the spec among the set, its open layouts chosen; *seconds (may
 * be NULL) is its estimate. UNSUPPORTED, naming op, dtypes and layouts, when none fits. */
kolo_status kolo_kernel_select(kolo_kernel_set set, kolo_kernel_spec *spec,
                               const kolo_kernel **kernel, double *seconds);
/* The same by the times that `tuner` (may be NULL) knows or measures; where it has one of any
 * kernel for the spec, those without count for nothing. */
kolo_status kolo_kernel_select_tuned(kolo_kernel_set set, struct kolo_tuner *tuner,
                                     kolo_kernel_spec *spec, const kolo_kernel **kernel,
                                     double *seconds);
