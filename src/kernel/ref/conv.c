/* conv2d and its gradients. All three are one loop nest over rows: forward adds w x to y, the
 * data gradient adds w dy to dx, the weight gradient adds dy x to dw. Only the innermost loop,
 * along a row of the output, differs. */
#include "kernel/ref/ref.h"

#include <string.h>

/* Shapes and strides; y is the output side (dy in the gradients). */
typedef struct conv {
    int64_t batch, groups;
    int64_t c, o;             /* channels of x and y in each group */
    int64_t x[2], w[2], y[2]; /* heights and widths */
    const kolo_attr *attr;
} conv;

/* One row: y[i] and x[i * step] for i in [0, n), and the weight that connects them. */
typedef void row_fn(double *y, double *x, double *w, int64_t n, int64_t step);

static void row_forward(double *y, double *x, double *w, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) y[i] += *w * x[i * step];
}
static void row_bwd_data(double *y, double *x, double *w, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) x[i * step] += *w * y[i];
}
static void row_bwd_weights(double *y, double *x, double *w, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) *w += y[i] * x[i * step];
}

static conv conv_of(const kolo_kernel_spec *s, const kolo_tensor *x, const kolo_tensor *w,
                    const kolo_tensor *y) {
    int64_t groups = s->attr[KOLO_CONV_GROUPS].i;
    const int64_t *xd = x->shape.dim, *wd = w->shape.dim, *yd = y->shape.dim;
    return (conv){
        .batch = xd[0],
        .groups = groups,
        .c = wd[1],
        .o = wd[0] / groups,
        .x = {xd[2], xd[3]},
        .w = {wd[2], wd[3]},
        .y = {yd[2], yd[3]},
        .attr = s->attr,
    };
}

/* The column of x under kernel column kw at output column `at`. */
static int64_t column(const conv *s, int64_t at, int64_t kw) {
    return at * s->attr[KOLO_CONV_STRIDE_W].i + kw * s->attr[KOLO_CONV_DILATION_W].i -
           s->attr[KOLO_CONV_PAD_W].i;
}

/* All rows of one plane of x, one plane of y and one kernel. */
static void plane(const conv *s, row_fn *row, double *x, double *w, double *y) {
    int64_t step = s->attr[KOLO_CONV_STRIDE_W].i;
    for (int64_t kh = 0; kh < s->w[0]; kh++) {
        for (int64_t kw = 0; kw < s->w[1]; kw++) {
            int64_t first = 0, end = s->y[1]; /* output columns whose x is not padding */
            while (first < end && column(s, first, kw) < 0) first++;
            while (end > first && column(s, end - 1, kw) >= s->x[1]) end--;
            if (first == end) continue;
            for (int64_t yh = 0; yh < s->y[0]; yh++) {
                int64_t xh = yh * s->attr[KOLO_CONV_STRIDE_H].i +
                             kh * s->attr[KOLO_CONV_DILATION_H].i - s->attr[KOLO_CONV_PAD_H].i;
                if (xh < 0 || xh >= s->x[0]) continue;
                row(y + yh * s->y[1] + first, x + xh * s->x[1] + column(s, first, kw),
                    w + kh * s->w[1] + kw, end - first, step);
            }
        }
    }
}

static void each_plane(const conv *s, row_fn *row, double *x, double *w, double *y) {
    int64_t x_plane = s->x[0] * s->x[1], y_plane = s->y[0] * s->y[1], kernel = s->w[0] * s->w[1];
    for (int64_t n = 0; n < s->batch; n++) {
        for (int64_t g = 0; g < s->groups; g++) {
            for (int64_t o = g * s->o; o < (g + 1) * s->o; o++) {
                for (int64_t c = 0; c < s->c; c++) {
                    plane(s, row, x + ((n * s->groups + g) * s->c + c) * x_plane,
                          w + (o * s->c + c) * kernel, y + (n * s->groups * s->o + o) * y_plane);
                }
            }
        }
    }
}

static void zero(const kolo_tensor *t, double *data) {
    memset(data, 0, sizeof(double) * (size_t)kolo_shape_count(&t->shape));
}

static void conv2d(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    conv s = conv_of(spec, &spec->in[0], &spec->in[1], &spec->out[0]);
    double *y = call->out[0];
    const double *b = spec->n_in == 3 ? call->in[2] : NULL;
    int64_t count = kolo_shape_count(&spec->out[0].shape), channels = s.groups * s.o;
    int64_t y_plane = s.y[0] * s.y[1];
    for (int64_t i = 0; i < count; i++) y[i] = b ? b[i / y_plane % channels] : 0;
    each_plane(&s, row_forward, call->in[0], call->in[1], y);
    if (!spec->attr[KOLO_CONV_RELU].i) return;
    for (int64_t i = 0; i < count; i++) y[i] = y[i] < 0 ? 0 : y[i];
}

static void bwd_data(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    conv s = conv_of(spec, &spec->out[0], &spec->in[1], &spec->in[0]);
    zero(&spec->out[0], call->out[0]);
    each_plane(&s, row_bwd_data, call->out[0], call->in[1], call->in[0]);
}

static void bwd_weights(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    conv s = conv_of(spec, &spec->in[1], &spec->out[0], &spec->in[0]);
    zero(&spec->out[0], call->out[0]);
    each_plane(&s, row_bwd_weights, call->in[1], call->out[0], call->in[0]);
    if (spec->n_out == 1) return;
    const double *dy = call->in[0];
    double *db = call->out[1];
    int64_t count = kolo_shape_count(&spec->in[0].shape), channels = s.groups * s.o;
    zero(&spec->out[1], db);
    for (int64_t i = 0; i < count; i++) db[i / (s.y[0] * s.y[1]) % channels] += dy[i];
}

static void run_conv2d(const kolo_call *call) { kolo_ref_run(call, conv2d); }
static void run_bwd_data(const kolo_call *call) { kolo_ref_run(call, bwd_data); }
static void run_bwd_weights(const kolo_call *call) { kolo_ref_run(call, bwd_weights); }

const kolo_kernel kolo_ref_conv2d = KOLO_REF_KERNEL("ref_conv2d", &kolo_op_conv2d, run_conv2d);
const kolo_kernel kolo_ref_conv2d_bwd_data =
    KOLO_REF_KERNEL("ref_conv2d_bwd_data", &kolo_op_conv2d_bwd_data, run_bwd_data);
const kolo_kernel kolo_ref_conv2d_bwd_weights =
    KOLO_REF_KERNEL("ref_conv2d_bwd_weights", &kolo_op_conv2d_bwd_weights, run_bwd_weights);
