#pragma once
/* Selection of the kernel that runs a node. */

#include "kernel/select/families.h"
#include "kernel/select/tune.h"

/* Selects the kernel of `set` with the smallest estimate among those that run on the device of
 * `spec`, and sets its open layouts; *seconds (may be NULL) is the estimate. UNSUPPORTED, naming
 * op, dtypes and layouts, when no kernel fits; naming op and device, when the device has none. */
kolo_status kolo_kernel_select(kolo_kernel_set set, kolo_kernel_spec *spec,
                               const kolo_kernel **kernel, double *seconds);
/* As kolo_kernel_select, with measured times in place of estimates. `tuner` (may be NULL) looks
 * them up or measures them. If any kernel for the spec has a measured time, kernels without one
 * are not considered. */
kolo_status kolo_kernel_select_tuned(kolo_kernel_set set, struct kolo_tuner *tuner,
                                     kolo_kernel_spec *spec, const kolo_kernel **kernel,
                                     double *seconds);
