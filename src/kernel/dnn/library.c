/* oneDNN itself: its version, and what it does on this processor. */
#include "kernel/dnn/dnn.h"
#include "kernel/dnn/kernels.h"

void kolo_dnn_version(int version[3]) {
    const dnnl_version_t *v = dnnl_version();
    version[0] = v->major;
    version[1] = v->minor;
    version[2] = v->patch;
}

bool kolo_dnn_has_bf16(void) {
    return (~dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == 0;
}
