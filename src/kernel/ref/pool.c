/* Max and average pooling and their gradients: one loop over the windows of all planes, with a
 * callback per window. */
#include "base/integer.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

/* One window: its rectangle within a plane of x (clipped to the image) and the index of its
 * result. */
typedef struct window {
    int64_t top, bottom, left, right; /* rows [top, bottom), columns [left, right) */
    int64_t first_h, first_w;         /* unclipped corner, possibly in the padding */
    int64_t size;                     /* divisor of the mean */
    int64_t width;                    /* of the plane */
    int64_t plane, out;               /* offsets of the plane in x and of the result in y */
} window;

/* The geometry of the windows. */
static void pool_window(const kolo_attr *attr, const int64_t *xd, const int64_t *yd, int64_t h,
                        int64_t w, window *at) {
    (void)yd;
    int64_t pad_h = attr[KOLO_POOL_PAD_H].i, pad_w = attr[KOLO_POOL_PAD_W].i;
    at->first_h = h * attr[KOLO_POOL_STRIDE_H].i - pad_h;
    at->first_w = w * attr[KOLO_POOL_STRIDE_W].i - pad_w;
    int64_t last_h = at->first_h + attr[KOLO_POOL_KERNEL_H].i;
    int64_t last_w = at->first_w + attr[KOLO_POOL_KERNEL_W].i;
    at->top = kolo_max_i64(at->first_h, 0);
    at->left = kolo_max_i64(at->first_w, 0);
    at->bottom = kolo_min_i64(last_h, xd[2]);
    at->right = kolo_min_i64(last_w, xd[3]);
    const int64_t end = xd[2] + pad_h + attr[KOLO_POOL_MORE_H].i; /* of the padding */
    at->size = (kolo_min_i64(last_h, end) - at->first_h) *
               (kolo_min_i64(last_w, xd[3] + pad_w) - at->first_w);
    if (attr[KOLO_POOL_EXCLUDE_PADDING].i)
        at->size = (at->bottom - at->top) * (at->right - at->left);
}

static void adaptive_window(const kolo_attr *attr, const int64_t *xd, const int64_t *yd, int64_t h,
                            int64_t w, window *at) {
    (void)attr;
    at->top = h * xd[2] / yd[2];
    at->bottom = ((h + 1) * xd[2] + yd[2] - 1) / yd[2];
    at->left = w * xd[3] / yd[3];
    at->right = ((w + 1) * xd[3] + yd[3] - 1) / yd[3];
    at->size = (at->bottom - at->top) * (at->right - at->left);
}

static void each_window(const kolo_call *call, const kolo_tensor *x, const kolo_tensor *y,
                        void (*visit)(const kolo_call *call, const window *at)) {
    const kolo_op *op = call->spec->op;
    bool adaptive = op == &kolo_op_adaptive_avg_pool2d || op == &kolo_op_adaptive_avg_pool2d_bwd;
    const int64_t *xd = x->shape.dim, *yd = y->shape.dim;
    for (int64_t p = 0; p < xd[0] * xd[1]; p++) {
        for (int64_t h = 0; h < yd[2]; h++) {
            for (int64_t w = 0; w < yd[3]; w++) {
                window at = {.width = xd[3], .plane = p * xd[2] * xd[3]};
                at.out = (p * yd[2] + h) * yd[3] + w;
                (adaptive ? adaptive_window : pool_window)(call->spec->attr, xd, yd, h, w, &at);
                visit(call, &at);
            }
        }
    }
}

static void zero(const kolo_tensor *t, double *data) {
    memset(data, 0, sizeof(double) * (size_t)kolo_shape_count(&t->shape));
}

static void max_of(const kolo_call *call, const window *at) {
    const double *x = (const double *)call->in[0] + at->plane;
    int64_t best_h = at->top, best_w = at->left;
    for (int64_t h = at->top; h < at->bottom; h++) {
        for (int64_t w = at->left; w < at->right; w++) {
            double value = x[h * at->width + w];
            bool larger = value > x[best_h * at->width + best_w] || isnan(value);
            if (larger) best_h = h, best_w = w;
        }
    }
    double best = x[best_h * at->width + best_w];
    bool relu = call->spec->attr[KOLO_POOL_RELU].i;
    ((double *)call->out[0])[at->out] = relu && best < 0 ? 0 : best;
    ((uint8_t *)call->out[1])[at->out] =
        (uint8_t)((best_h - at->first_h) * call->spec->attr[KOLO_POOL_KERNEL_W].i + best_w -
                  at->first_w);
}

static void max_pool(const kolo_call *call) {
    each_window(call, &call->spec->in[0], &call->spec->out[0], max_of);
}

static void max_back(const kolo_call *call, const window *at) {
    const double *dy = call->in[0];
    const double *y = call->spec->n_in == 3 ? call->in[2] : NULL;
    if (y && !(y[at->out] > 0)) return;
    int64_t index = ((const uint8_t *)call->in[1])[at->out];
    int64_t kernel_w = call->spec->attr[KOLO_POOL_KERNEL_W].i;
    int64_t h = at->first_h + index / kernel_w, w = at->first_w + index % kernel_w;
    ((double *)call->out[0])[at->plane + h * at->width + w] += dy[at->out];
}

static void max_pool_bwd(const kolo_call *call) {
    zero(&call->spec->out[0], call->out[0]);
    each_window(call, &call->spec->out[0], &call->spec->in[0], max_back);
}

static void mean_of(const kolo_call *call, const window *at) {
    const double *x = (const double *)call->in[0] + at->plane;
    double sum = 0;
    for (int64_t h = at->top; h < at->bottom; h++) {
        for (int64_t w = at->left; w < at->right; w++) sum += x[h * at->width + w];
    }
    ((double *)call->out[0])[at->out] = sum / (double)at->size;
}

static void avg_pool(const kolo_call *call) {
    each_window(call, &call->spec->in[0], &call->spec->out[0], mean_of);
}

static void mean_back(const kolo_call *call, const window *at) {
    double share = ((const double *)call->in[0])[at->out] / (double)at->size;
    double *dx = (double *)call->out[0] + at->plane;
    for (int64_t h = at->top; h < at->bottom; h++) {
        for (int64_t w = at->left; w < at->right; w++) dx[h * at->width + w] += share;
    }
}

static void avg_pool_bwd(const kolo_call *call) {
    zero(&call->spec->out[0], call->out[0]);
    each_window(call, &call->spec->out[0], &call->spec->in[0], mean_back);
}

static void run_max_pool(const kolo_call *call) { kolo_ref_run(call, max_pool); }
static void run_max_pool_bwd(const kolo_call *call) { kolo_ref_run(call, max_pool_bwd); }
static void run_avg_pool(const kolo_call *call) { kolo_ref_run(call, avg_pool); }
static void run_avg_pool_bwd(const kolo_call *call) { kolo_ref_run(call, avg_pool_bwd); }

const kolo_kernel kolo_ref_max_pool2d =
    KOLO_REF_KERNEL("ref_max_pool2d", &kolo_op_max_pool2d, run_max_pool);
const kolo_kernel kolo_ref_max_pool2d_bwd =
    KOLO_REF_KERNEL("ref_max_pool2d_bwd", &kolo_op_max_pool2d_bwd, run_max_pool_bwd);
const kolo_kernel kolo_ref_avg_pool2d =
    KOLO_REF_KERNEL("ref_avg_pool2d", &kolo_op_avg_pool2d, run_avg_pool);
const kolo_kernel kolo_ref_avg_pool2d_bwd =
    KOLO_REF_KERNEL("ref_avg_pool2d_bwd", &kolo_op_avg_pool2d_bwd, run_avg_pool_bwd);
const kolo_kernel kolo_ref_adaptive_avg_pool2d =
    KOLO_REF_KERNEL("ref_adaptive_avg_pool2d", &kolo_op_adaptive_avg_pool2d, run_avg_pool);
const kolo_kernel kolo_ref_adaptive_avg_pool2d_bwd = KOLO_REF_KERNEL(
    "ref_adaptive_avg_pool2d_bwd", &kolo_op_adaptive_avg_pool2d_bwd, run_avg_pool_bwd);
