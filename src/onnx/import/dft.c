/* DFT, of opset 17 on, along one dimension of x [...,1] or, complex numbers, [...,2]: products with
 * matrices of cosines and sines, of as many rows as there are frequencies.
 *
 *     y_k = sum over n of x_n (cos(2 pi k n / N) -+ i sin(2 pi k n / N))
 *
 * Of a real signal the frequencies up to N / 2 suffice (onesided); the inverse takes the others
 * from them, as their conjugates. */
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <math.h>

typedef struct dft {
    int64_t length;     /* N */
    int64_t rows, read; /* of the result, of x */
    bool inverse, real; /* real: the result is */
} dft;

/* A matrix [rows,read] of cosines, or of sines with the sign of this direction. */
static kolo_status matrix(onnx_call *c, const dft *d, bool sines, kolo_value *v) {
    const kolo_shape shape = kolo_shape_2(d->rows, d->read);
    float *f = NULL;
    KOLO_TRY(onnx_floats(c, host_count(&shape, HOST_MOST), &f));
    for (int64_t i = 0; i < d->rows * d->read; i++) {
        const int64_t row = i / d->read, column = i % d->read, turn = row * column % d->length;
        const double angle = 2 * acos(-1) * (double)turn / (double)d->length;
        const bool has_conjugate = d->real && column > 0 && 2 * column != d->length;
        const double share = (has_conjugate ? 2 : 1) / (d->inverse ? (double)d->length : 1);
        f[i] = (float)(share * (!sines ? cos(angle) : d->inverse ? sin(angle) : -sin(angle)));
    }
    return onnx_table(c, c->node->output[0], &shape, f, v);
}

static kolo_status read_length(onnx_call *c, int64_t size, dft *d) {
    const bool onesided = onnx_int(c, "onesided", 0) != 0;
    double length = (double)size;
    d->inverse = onnx_int(c, "inverse", 0) != 0;
    d->real = d->inverse && onesided;
    if (d->real) length = 2 * (length - 1);
    KOLO_TRY(onnx_number(c, 1, length, &length));
    if (!(length >= 1 && length <= HOST_MOST)) {
        return ONNX_FAIL(c, "a length of %g: must be 1 to %d", length, (int)HOST_MOST);
    }
    d->length = (int64_t)length;
    d->rows = onesided && !d->inverse ? d->length / 2 + 1 : d->length;
    const int64_t most = d->real ? d->length / 2 + 1 : d->length;
    d->read = size < most ? size : most; /* the others are zeros */
    return KOLO_OK;
}

/* Part i of the last dimension of x, which goes, with dimension `axis` as the last one. */
static kolo_value part_of(onnx_call *c, kolo_value x, int axis, int64_t read, int i) {
    kolo_shape s = kolo_value_shape(c->g, x);
    const int last = s.rank - 1;
    x = kolo_slice(c->g, x, last, i, 1);
    s.rank = last;
    x = onnx_as(c, x, s);
    if (read < s.dim[axis]) x = kolo_slice(c->g, x, axis, 0, read);
    return axis == last - 1 ? x : kolo_transpose(c->g, x, axis, last - 1);
}

/* The reverse, of a part of the result. */
static kolo_value as_part(onnx_call *c, kolo_value y, int axis) {
    kolo_shape s = kolo_value_shape(c->g, y);
    if (axis != s.rank - 1) y = kolo_transpose(c->g, y, axis, s.rank - 1);
    s = kolo_value_shape(c->g, y);
    s.dim[s.rank++] = 1;
    return onnx_as(c, y, s);
}

kolo_status onnx_map_dft(onnx_call *c) {
    double axis_input = c->opset < 20 ? (double)onnx_int(c, "axis", 1) : -2;
    kolo_value x, cosines = KOLO_NONE, sines = KOLO_NONE, y[2];
    dft d = {0};
    int axis;
    KOLO_TRY(onnx_value(c, 0, &x));
    if (c->opset >= 20) KOLO_TRY(onnx_number(c, 2, -2, &axis_input));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_axis(c, (int64_t)axis_input, s.rank, &axis));
    const int last = s.rank - 1;
    if (s.rank < 3 || axis == last || s.dim[last] > 2) {
        return ONNX_FAIL(c, "x is [N,...,1] or [N,...,2]");
    }
    KOLO_TRY(read_length(c, s.dim[axis], &d));
    KOLO_TRY(matrix(c, &d, false, &cosines));
    KOLO_TRY(matrix(c, &d, true, &sines));
    const kolo_value a = part_of(c, x, axis, d.read, 0);
    y[0] = kolo_linear(c->g, a, cosines);
    y[1] = kolo_linear(c->g, a, sines);
    if (s.dim[last] == 2) {
        const kolo_value b = part_of(c, x, axis, d.read, 1);
        y[0] = kolo_sub(c->g, y[0], kolo_linear(c->g, b, sines));
        y[1] = kolo_add(c->g, y[1], kolo_linear(c->g, b, cosines));
    }
    for (int k = 0; k < 2; k++) y[k] = as_part(c, y[k], axis);
    return onnx_set(c, 0, d.real ? y[0] : kolo_concat_along(c->g, y, 2, last));
}
