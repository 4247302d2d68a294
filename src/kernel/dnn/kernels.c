/* The list of the oneDNN kernels. There are none for pooling, element-wise ops and losses:
 * oneDNN is no faster than plain loops there (and its pooling is many times slower on some
 * processors). */
#include "kernel/dnn/kernels.h"

#include "kernel/dnn/dnn.h"

void kolo_dnn_version(int version[3]) {
    const dnnl_version_t *v = dnnl_version();
    version[0] = v->major;
    version[1] = v->minor;
    version[2] = v->patch;
}

bool kolo_dnn_has_bf16(void) {
    return (~dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == 0;
}

#define ADDRESS(name) &kolo_dnn_##name,
const kolo_kernel *const kolo_dnn_kernels[] = {KOLO_DNN_KERNELS(ADDRESS) NULL};
