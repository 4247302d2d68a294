/* The table of reference kernels. */
#include "kernel/ref/kernels.h"

#define ADDRESS(name) &kolo_ref_##name,
const kolo_kernel *const kolo_ref_kernels[] = {KOLO_OP_LIST(ADDRESS) NULL};
