/* Bilinear resizing and its gradient. It is linear in x, so that the gradient does not read x. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

static const char *const resize_attrs[] = {"h",    "w",          "mode",      "first",
                                           "rows", "from_first", "from_rows", NULL};

static void resize_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    if (wants[0]) d_in[0] = kolo_rule_resized_grad(g, n, &kolo_op_resize_bwd, d_out[0]);
}

/* Four multiply-adds per element of the larger tensor. */
static kolo_cost resize_cost(const kolo_shape_query *q) {
    double in = (double)kolo_shape_count(&q->in[0].shape);
    double out = (double)kolo_shape_count(&q->out[0].shape);
    return (kolo_cost){8 * (in > out ? in : out), kolo_query_bytes(q)};
}

/* ---- some of the rows ---- */

/* The rows that an output row lies between, as the kernels compute them; the last one is read too
 * where its weight is 0. */
static bool resize_window(const kolo_window_query *q, kolo_interval *rows) {
    const kolo_resize_mode mode = (kolo_resize_mode)q->attr[KOLO_SIZE_MODE].i;
    const kolo_between first = kolo_resize_between(q->places.first, q->length, q->all, mode);
    const kolo_between last = kolo_resize_between(q->places.end - 1, q->length, q->all, mode);
    *rows = (kolo_interval){first.low, last.high + 1};
    return true;
}

static void divide_resize(const kolo_window_query *q, kolo_interval rows, kolo_attr *attr) {
    attr[KOLO_SIZE_H].i = q->places.end - q->places.first;
    attr[KOLO_RESIZE_FIRST].i = q->places.first;
    attr[KOLO_RESIZE_ROWS].i = q->all;
    attr[KOLO_RESIZE_FROM_FIRST].i = rows.first;
    attr[KOLO_RESIZE_FROM_ROWS].i = q->length;
}

/* The place of output pixel i among the input pixels. */
static double place_of(int64_t i, int64_t from, int64_t to, kolo_resize_mode mode) {
    switch (mode) {
    case KOLO_RESIZE_CORNERS:
        return to > 1 ? (double)i * (double)(from - 1) / (double)(to - 1) : 0;
    case KOLO_RESIZE_NEAREST:
        return (double)(i * from / to);
    case KOLO_RESIZE_ASYMMETRIC:
        return (double)i * (double)from / (double)to;
    default:
        return fmax(((double)i + 0.5) * (double)from / (double)to - 0.5, 0);
    }
}

kolo_between kolo_resize_between(int64_t i, int64_t from, int64_t to, kolo_resize_mode mode) {
    const double at = place_of(i, from, to, mode);
    kolo_between b = {.low = kolo_min_i64((int64_t)at, from - 1)};
    b.high = mode == KOLO_RESIZE_NEAREST ? b.low : kolo_min_i64(b.low + 1, from - 1);
    b.part = at - (double)b.low;
    return b;
}

kolo_between kolo_resize_row(const kolo_attr *attr, int64_t i, int64_t from, int64_t to) {
    const kolo_resize_mode mode = (kolo_resize_mode)attr[KOLO_SIZE_MODE].i;
    if (attr[KOLO_RESIZE_ROWS].i == 0) return kolo_resize_between(i, from, to, mode);
    kolo_between b =
        kolo_resize_between(i + attr[KOLO_RESIZE_FIRST].i, attr[KOLO_RESIZE_FROM_ROWS].i,
                            attr[KOLO_RESIZE_ROWS].i, mode);
    b.low -= attr[KOLO_RESIZE_FROM_FIRST].i;
    b.high -= attr[KOLO_RESIZE_FROM_FIRST].i;
    return b;
}

const kolo_op kolo_op_resize = {
    .name = "resize",
    .index = "nc~hW->nchQ",
    .window = resize_window,
    .divide_window = divide_resize,
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = resize_attrs,
    .shape = kolo_rule_resized,
    .grad = resize_grad,
    .cost = resize_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_resize_bwd = {
    .name = "resize_bwd",
    .index = "nchQ->nc~hW",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = resize_attrs,
    .shape = kolo_rule_resized,
    .cost = resize_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};

/* ---- builder ---- */

static kolo_value add_resize(kolo_graph *g, kolo_value x, int64_t h, int64_t w,
                             kolo_resize_mode mode) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SIZE_H].i = h, [KOLO_SIZE_W].i = w, [KOLO_SIZE_MODE].i = mode};
    return kolo_graph_add1(g, &kolo_op_resize, &x, 1, attr);
}

kolo_value kolo_resize(kolo_graph *g, kolo_value x, int64_t h, int64_t w, bool align_corners) {
    return add_resize(g, x, h, w, align_corners ? KOLO_RESIZE_CORNERS : KOLO_RESIZE_BORDERS);
}

kolo_value kolo_resize_nearest(kolo_graph *g, kolo_value x, int64_t h, int64_t w) {
    return add_resize(g, x, h, w, KOLO_RESIZE_NEAREST);
}

/* ---- reference ---- */

/* `x` is the input side, in both directions. */
static void resize(const kolo_call *call, const kolo_tensor *in, double *x, const kolo_tensor *out,
                   double *y, bool backwards) {
    const int64_t *xd = in->shape.dim, *yd = out->shape.dim;
    const kolo_resize_mode mode = (kolo_resize_mode)call->spec->attr[KOLO_SIZE_MODE].i;
    for (int64_t p = 0; p < xd[0] * xd[1]; p++, x += xd[2] * xd[3]) {
        for (int64_t i = 0; i < yd[2]; i++) {
            const kolo_between h = kolo_resize_row(call->spec->attr, i, xd[2], yd[2]);
            for (int64_t j = 0; j < yd[3]; j++, y++) {
                const kolo_between w = kolo_resize_between(j, xd[3], yd[3], mode);
                double *const at[4] = {&x[h.low * xd[3] + w.low], &x[h.low * xd[3] + w.high],
                                       &x[h.high * xd[3] + w.low], &x[h.high * xd[3] + w.high]};
                const double part[4] = {(1 - h.part) * (1 - w.part), (1 - h.part) * w.part,
                                        h.part * (1 - w.part), h.part * w.part};
                const int pixels = at[0] == at[3] ? 1 : 4; /* of one also what is infinite */
                if (!backwards) *y = 0;
                for (int k = 0; k < pixels; k++) {
                    const double weight = pixels == 1 ? 1 : part[k];
                    if (backwards) {
                        *at[k] += weight * *y;
                    } else {
                        *y += weight * *at[k];
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

const kolo_kernel kolo_ops_resize[] = {
    KOLO_REF_KERNEL("ref_resize", &kolo_op_resize, run_resize),
    KOLO_REF_KERNEL("ref_resize_bwd", &kolo_op_resize_bwd, run_resize_bwd),
    {0},
};
