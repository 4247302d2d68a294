/* The table of all kernels, and capabilities that depend on which families are built. */
#include "kernel/select/families.h"

#include "base/isa.h"
#include "base/status.h"
#include "device/device.h"
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

static _Thread_local const kolo_kernel *pinned;
static _Thread_local size_t n_pinned;

void kolo_kernel_pin_more(const kolo_kernel *kernels, size_t n) {
    pinned = kernels;
    n_pinned = n;
}

const kolo_kernel *kolo_fast_kernel_at(size_t i) {
    if (i < KOLO_COUNT(fast)) return fast[i];
    return i - KOLO_COUNT(fast) < n_pinned ? &pinned[i - KOLO_COUNT(fast)] : NULL;
}

const kolo_kernel *kolo_kernel_at(size_t i) {
    const kolo_kernel *kernel = kolo_fast_kernel_at(i);
    return kernel ? kernel : kolo_reference_at(i - KOLO_COUNT(fast) - n_pinned);
}

bool kolo_kernel_is_ref(const kolo_kernel *kernel) {
    return kolo_reference_of(kernel->op) == kernel;
}

bool kolo_kernel_runs_on(const kolo_kernel *kernel, const kolo_device_kind *device) {
    if (kernel->device) return kernel->device == device;
    return !device || device->host_kernels;
}

kolo_status kolo_kernel_check_device(kolo_kernel_set set, const kolo_op *op,
                                     const kolo_device_kind *device) {
    const kolo_kernel *kernel;
    if (!device || device->host_kernels) return KOLO_OK; /* there all ops have one */
    for (size_t i = 0; set != KOLO_KERNELS_REF && (kernel = kolo_fast_kernel_at(i)); i++) {
        if (kernel->op == op && kolo_kernel_runs_on(kernel, device)) return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "%s: no %skernel of this build runs on device %s: choose a model without "
                     "this op, or --device cpu",
                     op->name, set == KOLO_KERNELS_REF ? "reference " : "", device->name);
}

kolo_status kolo_kernel_check_graph(kolo_kernel_set set, const kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->view || n->op->comm != KOLO_OP_LOCAL) continue;
        KOLO_TRY(kolo_kernel_check_device(set, n->op, g->device));
    }
    return KOLO_OK;
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
