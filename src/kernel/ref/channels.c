/* concat and channel_window. */
#include "kernel/ref/ref.h"

/* Copies `count` channels of one image, or zeros where x is NULL. */
static double *copy(double *y, const double *x, int64_t count, int64_t plane) {
    for (int64_t i = 0; i < count * plane; i++) *y++ = x ? x[i] : 0;
    return y;
}

static int64_t plane_of(const kolo_tensor *t) {
    return kolo_shape_count(&t->shape) / (t->shape.dim[0] * t->shape.dim[1]);
}

static void concat(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    int64_t plane = plane_of(&spec->out[0]);
    double *y = call->out[0];
    for (int64_t n = 0; n < spec->out[0].shape.dim[0]; n++) {
        for (int i = 0; i < spec->n_in; i++) {
            int64_t channels = spec->in[i].shape.dim[1];
            y = copy(y, (const double *)call->in[i] + n * channels * plane, channels, plane);
        }
    }
}

static void channel_window(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    int64_t plane = plane_of(&spec->out[0]), channels = spec->in[0].shape.dim[1];
    const double *x = call->in[0];
    double *y = call->out[0];
    for (int64_t n = 0; n < spec->out[0].shape.dim[0]; n++) {
        for (int64_t i = 0; i < spec->out[0].shape.dim[1]; i++) {
            int64_t c = i + spec->attr[KOLO_WINDOW_FIRST].i;
            bool inside = c >= 0 && c < channels;
            y = copy(y, inside ? x + (n * channels + c) * plane : NULL, 1, plane);
        }
    }
}

static void run_concat(const kolo_call *call) { kolo_ref_run(call, concat); }
static void run_window(const kolo_call *call) { kolo_ref_run(call, channel_window); }

const kolo_kernel kolo_ref_concat = KOLO_REF_KERNEL("ref_concat", &kolo_op_concat, run_concat);
const kolo_kernel kolo_ref_channel_window =
    KOLO_REF_KERNEL("ref_channel_window", &kolo_op_channel_window, run_window);
