/* deinterleave and interleave of plain f32 tensors: runs of bytes are copied, in parallel. */
#include "kernel/simd/simd.h"

#include <string.h>

static bool divides(const kolo_kernel_spec *spec) { return spec->op == &kolo_op_deinterleave; }

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_simd_supports(spec) || !kolo_spec_is_plain(spec)) return -1;
    const kolo_tensor *whole = divides(spec) ? &spec->in[0] : &spec->out[0];
    return kolo_kernel_seconds(0, 2 * (double)kolo_tensor_bytes(whole), 1);
}

/* Run i of the whole is run i / parts of part i % parts. */
static void runs(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const kolo_kernel_spec *spec = call->spec;
    const int64_t parts = divides(spec) ? spec->n_out : spec->n_in;
    const kolo_shape *s = &spec->in[0].shape;
    int64_t bytes =
        spec->attr[KOLO_INTERLEAVE_LENGTH].i * (int64_t)kolo_dtype_bytes(spec->in[0].dtype);
    for (int d = (int)spec->attr[KOLO_INTERLEAVE_AXIS].i + 1; d < s->rank; d++) bytes *= s->dim[d];
    for (int64_t i = begin; i < end; i++) {
        const int64_t whole = i * bytes, own = i / parts * bytes;
        if (divides(spec)) {
            memcpy((char *)call->out[i % parts] + own, (const char *)call->in[0] + whole,
                   (size_t)bytes);
        } else {
            memcpy((char *)call->out[0] + whole, (const char *)call->in[i % parts] + own,
                   (size_t)bytes);
        }
    }
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_shape *whole = divides(spec) ? &spec->in[0].shape : &spec->out[0].shape;
    int64_t n =
        whole->dim[spec->attr[KOLO_INTERLEAVE_AXIS].i] / spec->attr[KOLO_INTERLEAVE_LENGTH].i;
    for (int d = 0; d < spec->attr[KOLO_INTERLEAVE_AXIS].i; d++) n *= whole->dim[d];
    kolo_kernel_parallel(spec->threads, n, runs, call);
}

const kolo_kernel kolo_simd_deinterleave = {
    .name = "simd_deinterleave", .op = &kolo_op_deinterleave, .fit = fit, .run = run};
const kolo_kernel kolo_simd_interleave = {
    .name = "simd_interleave", .op = &kolo_op_interleave, .fit = fit, .run = run};
