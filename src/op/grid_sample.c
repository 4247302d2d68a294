/* Sampling of images at places that a tensor states, and its gradients (Jaderberg et al., "Spatial
 * transformer networks", 2015); conventions of PyTorch's grid_sample. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

static const char *const grid_attrs[] = {"mode", "padding", "corners", NULL};

/* ---- places ---- */

/* A coordinate in pixels, and its derivative by that of the grid. */
typedef struct place {
    double at, slope;
} place;

/* Reflects a coordinate at the borders of [low, low + span] until it is inside. */
static place reflect(place p, double low, double span) {
    double from = p.at - low;
    if (!(span > 0)) return (place){0, 0};
    if (from < 0) {
        from = -from;
        p.slope = -p.slope;
    }
    const double rest = fmod(from, span);
    const bool turned = fmod(floor(from / span), 2) != 0;
    p.at = low + (turned ? span - rest : rest);
    if (turned) p.slope = -p.slope;
    return p;
}

/* A coordinate from -1 to 1, in pixels. */
static place in_pixels(double coordinate, int64_t size, bool corners) {
    const double span = (double)(corners ? size - 1 : size);
    return (place){(coordinate + 1) * span / 2 + (corners ? 0 : -0.5), span / 2};
}

/* Moved into the image, but for zeros. */
static place padded(place p, int64_t size, const kolo_attr *attr) {
    const bool corners = attr[KOLO_GRID_CORNERS].i;
    const double last = (double)(size - 1), span = corners ? last : (double)size;
    if (attr[KOLO_GRID_PADDING].i == KOLO_GRID_ZEROS) return p;
    if (attr[KOLO_GRID_PADDING].i == KOLO_GRID_REFLECTION) p = reflect(p, corners ? 0 : -0.5, span);
    if (!(p.at > 0)) return (place){0, 0}; /* NaN too */
    return p.at >= last ? (place){last, 0} : p;
}

/* Pixels along one dimension (-1: outside), their weights, and the derivatives of these by the
 * coordinate of the grid. */
typedef struct line {
    int n;
    int64_t at[4];
    double weight[4], by[4];
} line;

/* The cubic convolution of Keys, 1981, with a = -3/4, at a distance d below 1, and from 1 to 2. */
static const double keys = -0.75;
static double near_weight(double d) { return ((keys + 2) * d - (keys + 3)) * d * d + 1; }
static double near_slope(double d) { return (3 * (keys + 2) * d - 2 * (keys + 3)) * d; }
static double far_weight(double d) { return ((keys * d - 5 * keys) * d + 8 * keys) * d - 4 * keys; }
static double far_slope(double d) { return (3 * keys * d - 10 * keys) * d + 8 * keys; }

static int64_t pixel_at(double at, int64_t size) {
    return at >= 0 && at < (double)size ? (int64_t)at : -1;
}

/* Each of the pixels is padded by itself. */
static line cubic(place p, int64_t size, const kolo_attr *attr) {
    const double first = floor(p.at), d = p.at - first;
    if (!isfinite(p.at)) return (line){0};
    line l = {.n = 4,
              .weight = {far_weight(1 + d), near_weight(d), near_weight(1 - d), far_weight(2 - d)},
              .by = {far_slope(1 + d), near_slope(d), -near_slope(1 - d), -far_slope(2 - d)}};
    for (int k = 0; k < l.n; k++) {
        l.at[k] = pixel_at(padded((place){first + k - 1, 0}, size, attr).at, size);
        l.by[k] *= p.slope;
    }
    return l;
}

static line find(double coordinate, int64_t size, const kolo_attr *attr) {
    place p = in_pixels(coordinate, size, attr[KOLO_GRID_CORNERS].i);
    if (attr[KOLO_GRID_MODE].i == KOLO_GRID_BICUBIC) return cubic(p, size, attr);
    p = padded(p, size, attr);
    const bool nearest = attr[KOLO_GRID_MODE].i == KOLO_GRID_NEAREST;
    if (nearest) p = (place){nearbyint(p.at), 0};
    if (!(p.at > -1 && p.at < (double)size)) return (line){0};
    const double first = floor(p.at), d = p.at - first;
    return (line){.n = nearest ? 1 : 2,
                  .at = {pixel_at(first, size), pixel_at(first + 1, size)},
                  .weight = {1 - d, d},
                  .by = {-p.slope, p.slope}};
}

kolo_grid_taps kolo_grid_find(double x, double y, int64_t H, int64_t W, const kolo_attr *attr) {
    const line row = find(y, H, attr), column = find(x, W, attr);
    kolo_grid_taps t = {.n = row.n * column.n};
    for (int k = 0; k < t.n; k++) {
        const int r = k / column.n, c = k % column.n;
        t.at[k] = row.at[r] >= 0 && column.at[c] >= 0 ? row.at[r] * W + column.at[c] : -1;
        t.weight[k] = row.weight[r] * column.weight[c];
        t.by_y[k] = row.by[r] * column.weight[c];
        t.by_x[k] = column.by[c] * row.weight[r];
    }
    return t;
}

/* ---- rules ---- */

/* Images [N,C,H,W], input i, and a grid [N,h,w,2] behind it. */
static kolo_status check(kolo_shape_query *q, int i) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(kolo_rule_rank(q, i, 4, "N,C,H,W"));
    KOLO_TRY(kolo_rule_rank(q, i + 1, 4, "N,h,w,2"));
    const int64_t *x = q->in[i].shape.dim, *grid = q->in[i + 1].shape.dim;
    if (grid[3] != 2) return KOLO_RULE_FAIL(q, "the grid must be [N,h,w,2]: x and y of each place");
    if (grid[0] != x[0]) return KOLO_RULE_FAIL(q, "the grid must have a row for each sample");
    return KOLO_OK;
}

static kolo_shape sampled(const kolo_shape *x, const kolo_shape *grid) {
    return kolo_shape_4(x->dim[0], x->dim[1], grid->dim[1], grid->dim[2]);
}

static kolo_status grid_sample_shape(kolo_shape_query *q) {
    KOLO_TRY(check(q, 0));
    return kolo_rule_out(q, 0, q->in[0].dtype, sampled(&q->in[0].shape, &q->in[1].shape));
}

static kolo_status grid_sample_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(check(q, 1));
    const kolo_shape want = sampled(&q->in[1].shape, &q->in[2].shape);
    char text[KOLO_SHAPE_TEXT];
    if (!kolo_shape_equal(&q->in[0].shape, &want)) {
        return KOLO_RULE_FAIL(q, "dy must be %s", kolo_shape_text(&want, text));
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[1].dtype, q->in[1].shape));
    return kolo_rule_out(q, 1, q->in[2].dtype, q->in[2].shape);
}

static void grid_sample_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                             const bool *wants, kolo_value *d_in) {
    kolo_value out[KOLO_MAX_IO];
    const kolo_value in[] = {d_out[0], n->in[0], n->in[1]};
    kolo_graph_add(g, &kolo_op_grid_sample_bwd, in, 3, n->attr, out);
    for (int k = 0; k < 2; k++) {
        if (wants[k]) d_in[k] = out[k];
    }
}

/* A multiply-add for each pixel of an element of y, and places. */
static kolo_cost grid_sample_cost(const kolo_shape_query *q) {
    const bool backwards = q->n_in == 3;
    const double pixels = q->attr[KOLO_GRID_MODE].i == KOLO_GRID_BICUBIC ? 16 : 4;
    const kolo_tensor *y = backwards ? &q->in[0] : &q->out[0];
    const double count = (double)kolo_shape_count(&y->shape);
    return (kolo_cost){(backwards ? 6 : 2) * pixels * count, kolo_query_bytes(q)};
}

const kolo_op kolo_op_grid_sample = {
    .name = "grid_sample",
    .index = "ncHW,nhwP->nchw",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pp", .out = "p"},
    .attrs = grid_attrs,
    .shape = grid_sample_shape,
    .grad = grid_sample_grad,
    .cost = grid_sample_cost,
    .bf16 = 1u << 0, /* the grid stays f32: bf16 has too few digits for places of large images */
    .samples = {.in = 0x3u, .out = 0x1u},
};
const kolo_op kolo_op_grid_sample_bwd = {
    .name = "grid_sample_bwd",
    .index = "nchw,ncHW,nhwP->ncHW,nhwP",
    .linear = 0x1u,
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "pp"},
    .attrs = grid_attrs,
    .shape = grid_sample_bwd_shape,
    .cost = grid_sample_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x7u, .out = 0x3u},
};

kolo_value kolo_grid_sample(kolo_graph *g, kolo_value x, kolo_value grid,
                            const kolo_grid_sample_opts *opts) {
    const kolo_grid_sample_opts o = opts ? *opts : (kolo_grid_sample_opts){0};
    if ((unsigned)o.padding > KOLO_GRID_REFLECTION || (unsigned)o.mode > KOLO_GRID_BICUBIC) {
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG,
                                           "grid_sample: no such mode or padding: %d, %d",
                                           (int)o.mode, (int)o.padding));
        return KOLO_NONE;
    }
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_GRID_MODE].i = o.mode,
                                            [KOLO_GRID_PADDING].i = o.padding,
                                            [KOLO_GRID_CORNERS].i = o.align_corners};
    return kolo_graph_add1(g, &kolo_op_grid_sample, (kolo_value[]){x, grid}, 2, attr);
}

/* ---- reference ---- */

static void forwards(const kolo_call *call) {
    const kolo_kernel_spec *s = call->spec;
    const int64_t *xd = s->in[0].shape.dim, *yd = s->out[0].shape.dim;
    const int64_t plane = xd[2] * xd[3], places = yd[2] * yd[3];
    const double *x = call->in[0], *grid = call->in[1];
    double *y = call->out[0];
    for (int64_t k = 0; k < yd[0] * places; k++) {
        const kolo_grid_taps t =
            kolo_grid_find(grid[2 * k], grid[2 * k + 1], xd[2], xd[3], s->attr);
        for (int64_t c = 0; c < yd[1]; c++) {
            const int64_t image = k / places * yd[1] + c;
            double sum = 0;
            for (int i = 0; i < t.n; i++) {
                if (t.at[i] >= 0) sum += t.weight[i] * x[image * plane + t.at[i]];
            }
            y[image * places + k % places] = sum;
        }
    }
}

static void backwards(const kolo_call *call) {
    const kolo_kernel_spec *s = call->spec;
    const int64_t *xd = s->in[1].shape.dim, *yd = s->in[0].shape.dim;
    const int64_t plane = xd[2] * xd[3], places = yd[2] * yd[3];
    const double *dy = call->in[0], *x = call->in[1], *grid = call->in[2];
    double *dx = call->out[0], *d_grid = call->out[1];
    memset(dx, 0, sizeof *dx * (size_t)kolo_shape_count(&s->out[0].shape));
    for (int64_t k = 0; k < yd[0] * places; k++) {
        const kolo_grid_taps t =
            kolo_grid_find(grid[2 * k], grid[2 * k + 1], xd[2], xd[3], s->attr);
        double by_x = 0, by_y = 0;
        for (int64_t c = 0; c < yd[1]; c++) {
            const int64_t image = k / places * yd[1] + c;
            const double d = dy[image * places + k % places];
            for (int i = 0; i < t.n; i++) {
                if (t.at[i] < 0) continue;
                dx[image * plane + t.at[i]] += t.weight[i] * d;
                by_x += t.by_x[i] * d * x[image * plane + t.at[i]];
                by_y += t.by_y[i] * d * x[image * plane + t.at[i]];
            }
        }
        d_grid[2 * k] = by_x;
        d_grid[2 * k + 1] = by_y;
    }
}

static void run_grid_sample(const kolo_call *call) { kolo_ref_run(call, forwards); }
static void run_grid_sample_bwd(const kolo_call *call) { kolo_ref_run(call, backwards); }

const kolo_kernel kolo_ops_grid_sample[] = {
    KOLO_REF_KERNEL("ref_grid_sample", &kolo_op_grid_sample, run_grid_sample),
    KOLO_REF_KERNEL("ref_grid_sample_bwd", &kolo_op_grid_sample_bwd, run_grid_sample_bwd),
    {0},
};
