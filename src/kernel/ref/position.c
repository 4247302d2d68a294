/* Rotary embedding, and the mask of keys after a query. */
#include "kernel/ref/ref.h"

#include <math.h>

/* Of each pair (a, b) of a head's halves at position t: a cos - b sin, b cos + a sin. */
static void rotary(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t *dim = call->spec->in[0].shape.dim, half = dim[2] / attr[KOLO_ROTARY_HEADS].i / 2;
    const int32_t *positions = call->spec->n_in > 1 ? call->in[1] : NULL;
    const double *x = call->in[0], sign = attr[KOLO_ROTARY_INVERSE].i ? -1 : 1;
    double *y = call->out[0];
    for (int64_t k = 0; k < dim[0] * dim[1] * dim[2]; k++) {
        const int64_t from_first = kolo_position_of(
            attr[KOLO_ROTARY_FIRST].i, attr[KOLO_ROTARY_LENGTH].i, dim[1], k / dim[2] % dim[1]);
        int64_t t = positions ? positions[k / dim[2]] : from_first, i = k % (2 * half);
        if (i >= half) continue; /* with its pair */
        double angle = (double)t * pow(attr[KOLO_ROTARY_BASE].f, -(double)i / (double)half);
        double a = x[k], b = x[k + half];
        y[k] = a * cos(angle) - sign * b * sin(angle);
        y[k + half] = b * cos(angle) + sign * a * sin(angle);
    }
}

static void causal_mask(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    const int64_t keys = s->dim[s->rank - 1], rows = s->dim[s->rank - 2];
    const int64_t window = call->spec->attr[KOLO_CAUSAL_WINDOW].i;
    const double *x = call->in[0];
    double *y = call->out[0];
    for (int64_t k = 0; k < kolo_shape_count(s); k++) {
        const int64_t last = k / keys % rows + keys - rows, key = k % keys;
        bool seen = key <= last && (window == 0 || key > last - window);
        y[k] = seen ? x[k] : call->spec->attr[KOLO_CAUSAL_FILL].f;
    }
}

static void run_rotary(const kolo_call *call) { kolo_ref_run(call, rotary); }
static void run_causal_mask(const kolo_call *call) { kolo_ref_run(call, causal_mask); }

const kolo_kernel kolo_ref_rotary = KOLO_REF_KERNEL("ref_rotary", &kolo_op_rotary, run_rotary);
const kolo_kernel kolo_ref_causal_mask =
    KOLO_REF_KERNEL("ref_causal_mask", &kolo_op_causal_mask, run_causal_mask);
