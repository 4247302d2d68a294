/* Runs an f32 or bf16 node on a body written for doubles. */
#include "kernel/ref/ref.h"

#include "base/bf16.h"
#include "base/integer.h"

double kolo_ref_seconds(const kolo_kernel_spec *spec) {
    kolo_tensor out[KOLO_MAX_IO];
    for (int i = 0; i < spec->n_out; i++) out[i] = spec->out[i];
    kolo_shape_query q = {spec->attr, spec->n_in, spec->in, spec->n_out, out, spec->op};
    double bytes = 0;
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) bytes += (double)kolo_tensor_bytes(&out[i]);
    double flops = spec->op->cost ? spec->op->cost(&q).flops : 0;
    return 1e-3 + kolo_kernel_seconds(flops, bytes, 1e-3);
}

/* True when all floating-point tensors are f64, or each is f32 or bf16. */
static bool floats_mix(const kolo_kernel_spec *spec) {
    kolo_kernel_spec wide = *spec;
    for (int i = 0; i < spec->n_in; i++) {
        if (wide.in[i].dtype == KOLO_DTYPE_BF16) wide.in[i].dtype = KOLO_DTYPE_F32;
    }
    for (int i = 0; i < spec->n_out; i++) {
        if (wide.out[i].dtype == KOLO_DTYPE_BF16) wide.out[i].dtype = KOLO_DTYPE_F32;
    }
    return kolo_spec_floats_are(&wide, KOLO_DTYPE_F32) ||
           kolo_spec_floats_are(&wide, KOLO_DTYPE_F64);
}

double kolo_ref_fit(kolo_kernel_spec *spec) {
    kolo_kernel_spec chosen = *spec;
    for (int i = 0; i < chosen.n_in; i++) {
        kolo_tensor *t = &chosen.in[i];
        if (kolo_layout_is_open(t)) t->layout = kolo_layout_plain(t->shape.rank);
    }
    if (!floats_mix(&chosen) || !kolo_spec_is_plain(&chosen)) return -1;
    *spec = chosen;
    return kolo_ref_seconds(spec);
}

static bool is_narrow(const kolo_tensor *t) {
    return t->dtype == KOLO_DTYPE_F32 || t->dtype == KOLO_DTYPE_BF16;
}

/* Scratch bytes for the f64 copy of an f32 or bf16 tensor. */
static size_t wide_bytes(const kolo_tensor *t) {
    if (!is_narrow(t)) return 0;
    return kolo_round_up((size_t)kolo_shape_count(&t->shape) * sizeof(double), 64);
}

kolo_status kolo_ref_prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    *scratch_bytes = 0;
    for (int i = 0; i < spec->n_in; i++) *scratch_bytes += wide_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) *scratch_bytes += wide_bytes(&spec->out[i]);
    return KOLO_OK;
}

void *kolo_ref_scratch(const kolo_call *call) {
    void *none = NULL;
    size_t offset = 0;
    (void)kolo_ref_prepare(call->spec, &none, &offset); /* cannot fail: it only counts bytes */
    return (char *)call->scratch + offset;
}

void kolo_ref_release(void *state) { KOLO_ASSERT(!state); }

static void widen(const kolo_tensor *t, const void *from, double *to) {
    const float *number = from;
    const uint16_t *bf16 = from;
    bool is_bf16 = t->dtype == KOLO_DTYPE_BF16;
    for (int64_t k = 0, n = kolo_shape_count(&t->shape); k < n; k++) {
        to[k] = (double)(is_bf16 ? kolo_bf16_widen(bf16[k]) : number[k]);
    }
}

static void narrow(const kolo_tensor *t, const double *from, void *to) {
    float *number = to;
    uint16_t *bf16 = to;
    bool is_bf16 = t->dtype == KOLO_DTYPE_BF16;
    for (int64_t k = 0, n = kolo_shape_count(&t->shape); k < n; k++) {
        if (is_bf16) {
            bf16[k] = kolo_bf16_narrow((float)from[k]);
        } else {
            number[k] = (float)from[k];
        }
    }
}

void kolo_ref_run(const kolo_call *call, void (*body)(const kolo_call *call)) {
    const kolo_kernel_spec *spec = call->spec;
    kolo_call wide = *call;
    char *scratch = call->scratch;
    for (int i = 0; i < spec->n_in; i++) {
        if (!is_narrow(&spec->in[i])) continue;
        widen(&spec->in[i], call->in[i], (double *)scratch);
        wide.in[i] = scratch;
        scratch += wide_bytes(&spec->in[i]);
    }
    for (int i = 0; i < spec->n_out; i++) {
        if (!is_narrow(&spec->out[i])) continue;
        wide.out[i] = scratch;
        scratch += wide_bytes(&spec->out[i]);
    }
    body(&wide);
    for (int i = 0; i < spec->n_out; i++) {
        if (is_narrow(&spec->out[i])) narrow(&spec->out[i], wide.out[i], call->out[i]);
    }
}
