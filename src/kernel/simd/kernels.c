/* The list of the vectorised kernels. */
#include "kernel/simd/kernels.h"

#define ADDRESS(name) &kolo_simd_##name,
const kolo_kernel *const kolo_simd_kernels[] = {KOLO_SIMD_KERNELS(ADDRESS) NULL};
