/* concat and window, on [outer,length,inner]. */
#include "kernel/ref/ref.h"

/* Copies numbers, or zeros where x is NULL. */
static double *copy(double *y, const double *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) *y++ = x ? x[i] : 0;
    return y;
}

/* The number of elements of dimensions [first, end). */
static int64_t count_of(const kolo_tensor *t, int64_t first, int64_t end) {
    int64_t count = 1;
    for (int64_t d = first; d < end; d++) count *= t->shape.dim[d];
    return count;
}

static void concat(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_tensor *out = &spec->out[0];
    const int64_t axis = spec->attr[KOLO_CONCAT_AXIS].i, outer = count_of(out, 0, axis);
    double *y = call->out[0];
    for (int64_t n = 0; n < outer; n++) {
        for (int i = 0; i < spec->n_in; i++) {
            int64_t size = count_of(&spec->in[i], axis, out->shape.rank);
            y = copy(y, (const double *)call->in[i] + n * size, size);
        }
    }
}

static void window(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_tensor *out = &spec->out[0];
    const int64_t axis = spec->attr[KOLO_WINDOW_AXIS].i, outer = count_of(out, 0, axis);
    const int64_t inner = count_of(out, axis + 1, out->shape.rank);
    const int64_t length = spec->in[0].shape.dim[axis];
    const double *x = call->in[0];
    double *y = call->out[0];
    for (int64_t n = 0; n < outer; n++) {
        for (int64_t i = 0; i < out->shape.dim[axis]; i++) {
            int64_t at = i + spec->attr[KOLO_WINDOW_FIRST].i;
            bool inside = at >= 0 && at < length;
            y = copy(y, inside ? x + (n * length + at) * inner : NULL, inner);
        }
    }
}

static void run_concat(const kolo_call *call) { kolo_ref_run(call, concat); }
static void run_window(const kolo_call *call) { kolo_ref_run(call, window); }

const kolo_kernel kolo_ref_concat = KOLO_REF_KERNEL("ref_concat", &kolo_op_concat, run_concat);
const kolo_kernel kolo_ref_window = KOLO_REF_KERNEL("ref_window", &kolo_op_window, run_window);
