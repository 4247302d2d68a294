/* Bilinear resizing and its gradient, pixel by pixel. */
#include "kernel/ref/ref.h"

#include <string.h>

/* `x` is the input side, in both directions. */
static void resize(const kolo_call *call, const kolo_tensor *in, double *x, const kolo_tensor *out,
                   double *y, bool backwards) {
    const int64_t *xd = in->shape.dim, *yd = out->shape.dim;
    bool align = call->spec->attr[KOLO_SIZE_ALIGN].i;
    for (int64_t p = 0; p < xd[0] * xd[1]; p++, x += xd[2] * xd[3]) {
        for (int64_t i = 0; i < yd[2]; i++) {
            const kolo_between h = kolo_resize_row(call->spec->attr, i, xd[2], yd[2]);
            for (int64_t j = 0; j < yd[3]; j++, y++) {
                const kolo_between w = kolo_resize_between(j, xd[3], yd[3], align);
                double *const at[4] = {&x[h.low * xd[3] + w.low], &x[h.low * xd[3] + w.high],
                                       &x[h.high * xd[3] + w.low], &x[h.high * xd[3] + w.high]};
                const double part[4] = {(1 - h.part) * (1 - w.part), (1 - h.part) * w.part,
                                        h.part * (1 - w.part), h.part * w.part};
                if (!backwards) *y = 0;
                for (int k = 0; k < 4; k++) {
                    if (backwards) {
                        *at[k] += part[k] * *y;
                    } else {
                        *y += part[k] * *at[k];
                    }
                }
            }
        }
    }
}

static void forwards(const kolo_call *call) {
    const kolo_kernel_spec *s = call->spec;
    resize(call, &s->in[0], call->in[0], &s->out[0], call->out[0], false);
}

static void backwards(const kolo_call *call) {
    const kolo_kernel_spec *s = call->spec;
    memset(call->out[0], 0, sizeof(double) * (size_t)kolo_shape_count(&s->out[0].shape));
    resize(call, &s->out[0], call->out[0], &s->in[0], call->in[0], true);
}

static void run_resize(const kolo_call *call) { kolo_ref_run(call, forwards); }
static void run_resize_bwd(const kolo_call *call) { kolo_ref_run(call, backwards); }

const kolo_kernel kolo_ref_resize = KOLO_REF_KERNEL("ref_resize", &kolo_op_resize, run_resize);
const kolo_kernel kolo_ref_resize_bwd =
    KOLO_REF_KERNEL("ref_resize_bwd", &kolo_op_resize_bwd, run_resize_bwd);
