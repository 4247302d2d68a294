/* bf16 by way of f32: widen the inputs, run, narrow the outputs. All copies lie in scratch memory,
 * so an output may lie on an input. */
#include "kernel/wide.h"

#include "kernel/simd/simd.h"

#include <string.h>

typedef struct wide_state {
    const kolo_kernel *kernel;
    kolo_kernel_spec spec; /* in f32 */
    void *state;
    size_t offset[2 * KOLO_MAX_IO]; /* in scratch: copies of inputs, then of outputs */
    size_t inner;                   /* scratch of the kernel */
    kolo_simd_loop widen, narrow;
} wide_state;

static const kolo_tensor *tensor_of(const kolo_kernel_spec *spec, int i) {
    return i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
}

static bool is_half(const kolo_kernel_spec *spec, int i) {
    return tensor_of(spec, i)->dtype == KOLO_DTYPE_BF16;
}

static kolo_kernel_spec in_f32(const kolo_kernel_spec *spec) {
    kolo_kernel_spec wide = *spec;
    for (int i = 0; i < spec->n_in; i++) {
        if (is_half(spec, i)) wide.in[i].dtype = KOLO_DTYPE_F32;
    }
    for (int i = 0; i < spec->n_out; i++) {
        if (is_half(spec, spec->n_in + i)) wide.out[i].dtype = KOLO_DTYPE_F32;
    }
    return wide;
}

static double fit(kolo_kernel_spec *spec) {
    bool any = false;
    double bytes = 0, seconds;
    const kolo_kernel *kernel;
    kolo_kernel_spec wide = in_f32(spec);
    if (spec->op == &kolo_op_convert || spec->op == &kolo_op_reorder) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) any |= is_half(spec, i);
    if (!any ||
        kolo_kernel_select_tuned(spec->kernels, spec->tuner, &wide, &kernel, &seconds) != KOLO_OK) {
        return -1;
    }
    for (int i = 0; i < spec->n_in; i++) spec->in[i].layout = wide.in[i].layout;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        if (is_half(spec, i)) bytes += 3.0 * (double)kolo_tensor_bytes(tensor_of(spec, i));
    }
    return seconds + kolo_kernel_seconds(0, bytes, 1);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    wide_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    *state = s;
    s->widen = kolo_simd_isa_now()->point->widen;
    s->narrow = kolo_simd_isa_now()->point->narrow;
    s->spec = in_f32(spec);
    KOLO_TRY(kolo_kernel_select_tuned(spec->kernels, spec->tuner, &s->spec, &s->kernel, NULL));
    if (s->kernel->prepare) KOLO_TRY(s->kernel->prepare(&s->spec, &s->state, &s->inner));
    size_t bytes = kolo_round_up(s->inner, 64);
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        if (!is_half(spec, i)) continue;
        s->offset[i] = bytes;
        bytes += kolo_round_up(kolo_tensor_bytes(tensor_of(&s->spec, i)), 64);
    }
    *scratch_bytes = bytes;
    return KOLO_OK;
}

/* The call of the f32 kernel: bf16 tensors are their copies. */
typedef struct wide_bound {
    const kolo_kernel *kernel;
    kolo_call inner;
} wide_bound;

static kolo_status bind(kolo_call *call) {
    const wide_state *s = call->state;
    const kolo_kernel_spec *spec = call->spec;
    wide_bound *bound = kolo_alloc(sizeof *bound);
    if (!bound) return KOLO_NOMEM(sizeof *bound);
    *bound = (wide_bound){s->kernel, *call};
    kolo_call *inner = &bound->inner;
    inner->spec = &s->spec;
    inner->state = s->state;
    inner->bound = NULL;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        void **address = i < spec->n_in ? &inner->in[i] : &inner->out[i - spec->n_in];
        if (is_half(spec, i)) *address = (char *)call->scratch + s->offset[i];
    }
    call->bound = bound; /* unbound by the caller, also on failure */
    return s->kernel->bind ? s->kernel->bind(inner) : KOLO_OK;
}

static void run(const kolo_call *call) {
    const wide_state *s = call->state;
    const kolo_kernel_spec *spec = call->spec;
    const kolo_call *inner = &((const wide_bound *)call->bound)->inner;
    for (int i = 0; i < spec->n_in; i++) {
        if (!is_half(spec, i)) continue;
        kolo_simd_convert_job job = {call->in[i], inner->in[i]};
        kolo_simd_parallel(spec->threads, kolo_tensor_elements(&spec->in[i]), s->widen, &job);
    }
    s->kernel->run(inner);
    for (int i = 0; i < spec->n_out; i++) {
        if (!is_half(spec, spec->n_in + i)) continue;
        kolo_simd_convert_job job = {inner->out[i], call->out[i]};
        kolo_simd_parallel(spec->threads, kolo_tensor_elements(&spec->out[i]), s->narrow, &job);
    }
}

static void unbind(void *bound) {
    wide_bound *b = bound;
    if (b->kernel->unbind && b->inner.bound) b->kernel->unbind(b->inner.bound);
    kolo_free(b);
}

static void release(void *state) {
    wide_state *s = state;
    if (s->kernel && s->kernel->release && s->state) s->kernel->release(s->state);
    kolo_free(s);
}

const kolo_kernel kolo_wide_kernel = {
    .name = "bf16_by_f32",
    .fit = fit,
    .prepare = prepare,
    .bind = bind,
    .run = run,
    .unbind = unbind,
    .release = release,
};
