/* The table of all kernels, and capabilities that depend on which families are built. */
#include "kernel/select/families.h"

#include "base/isa.h"
#include "base/status.h"
#include "kernel/chain.h"
#include "kernel/ref/table.h"
#include "kernel/simd/kernels.h"
#if KOLO_HAS_DNNL
#include "kernel/dnn/kernels.h"
#endif

#define SIMD(name) &kolo_simd_##name,
#define DNN(name) &kolo_dnn_##name,
static const kolo_kernel *const fast[] = {KOLO_SIMD_KERNELS(SIMD) SIMD(chain)
#if KOLO_HAS_DNNL
                                              KOLO_DNN_KERNELS(DNN)
#endif
};

const kolo_kernel *kolo_fast_kernel_at(size_t i) { return i < KOLO_COUNT(fast) ? fast[i] : NULL; }

const kolo_kernel *kolo_kernel_at(size_t i) {
    return i < KOLO_COUNT(fast) ? fast[i] : kolo_reference_at(i - KOLO_COUNT(fast));
}

bool kolo_kernel_is_ref(const kolo_kernel *kernel) {
    return kolo_reference_of(kernel->op) == kernel;
}

static _Thread_local bool pinned_bf16;

void kolo_kernel_pin_bf16(bool on) { pinned_bf16 = on; }

bool kolo_kernel_has_bf16(void) {
#if KOLO_HAS_DNNL
    return pinned_bf16 || kolo_dnn_has_bf16();
#else
    return pinned_bf16;
#endif
}

kolo_status kolo_kernel_check_bf16(kolo_isa isa) {
    if (isa > KOLO_ISA_BASELINE) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "precision bf16 requires AVX2 or AVX-512, which this processor lacks: "
                     "use f32 or the reference kernels");
}

void kolo_kernel_describe(kolo_text *text) {
    kolo_text_add(text, "%s", kolo_isa_describe(kolo_isa_best())->name);
#if KOLO_HAS_DNNL
    int version[3];
    kolo_dnn_version(version);
    kolo_text_add(text, ", oneDNN %d.%d.%d", version[0], version[1], version[2]);
#endif
}
