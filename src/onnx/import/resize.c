/* Resize and Upsample. Copies of pixels and bilinear images of [N,C,H,W] are ops of the graph;
 * otherwise each dimension that changes is multiplied by a matrix of the weights with which its
 * elements are read, a frozen parameter. */
#include "graph/ops/ops.h"
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One dimension; by default it stays. */
typedef struct resize_dim {
    int64_t from, to;
    double scale;       /* which need not be their ratio */
    double first, last; /* of the part that tf_crop_and_resize takes, in [0, 1] */
} resize_dim;

typedef struct resize {
    int rank;
    resize_dim dim[KOLO_MAX_RANK];
    bool whole; /* all scales are the ratios of the sizes */
} resize;

static bool is_upsample(const onnx_call *c) { return c->node->op_type[0] == 'U'; }

/* Whether the scale is the ratio of the sizes, up to the rounding of either. */
static bool is_ratio(const resize_dim *d) {
    return fabs(d->scale * (double)d->from - (double)d->to) < 1e-6 * (double)d->to;
}

/* ---- sizes ---- */

/* The dimensions that sizes, scales and roi are of. */
static kolo_status read_axes(onnx_call *c, int rank, int *axes, int *n) {
    int64_t list[KOLO_MAX_RANK];
    KOLO_TRY(onnx_ints(c, "axes", list, KOLO_MAX_RANK, n));
    const bool all = *n < 0;
    if (all) *n = rank;
    for (int k = 0; k < *n; k++) KOLO_TRY(onnx_axis(c, all ? k : list[k], rank, &axes[k]));
    return KOLO_OK;
}

static kolo_status set_size(const onnx_call *c, resize_dim *d, double size, double scale) {
    if (!(size >= 1 && size < INT32_MAX && scale > 0)) return ONNX_FAIL(c, "a size of %g", size);
    d->to = (int64_t)size;
    d->scale = scale;
    return KOLO_OK;
}

/* One scale for all: that of the dimension which it changes least or most. */
static kolo_status keep_aspect_ratio(const onnx_call *c, resize *r, const int *axes, int n,
                                     bool larger) {
    double scale = larger ? 0 : INFINITY;
    for (int k = 0; k < n; k++) {
        const double of = r->dim[axes[k]].scale;
        scale = larger ? fmax(scale, of) : fmin(scale, of);
    }
    for (int k = 0; k < n; k++) {
        resize_dim *d = &r->dim[axes[k]];
        KOLO_TRY(set_size(c, d, floor(scale * (double)d->from + 0.5), scale));
    }
    return KOLO_OK;
}

static kolo_status read_sizes(onnx_call *c, resize *r, const int *axes, int n) {
    int64_t sizes[KOLO_MAX_RANK];
    int given;
    KOLO_TRY(onnx_list(c, 3, sizes, KOLO_MAX_RANK, &given));
    if (given != n) return ONNX_FAIL(c, "%d sizes of %d dimensions", given, n);
    for (int k = 0; k < n; k++) {
        resize_dim *d = &r->dim[axes[k]];
        KOLO_TRY(set_size(c, d, (double)sizes[k], (double)sizes[k] / (double)d->from));
    }
    if (onnx_text_is(c, "keep_aspect_ratio_policy", "stretch", true)) return KOLO_OK;
    return keep_aspect_ratio(c, r, axes, n,
                             onnx_text_is(c, "keep_aspect_ratio_policy", "not_smaller", false));
}

static kolo_status read_scales(onnx_call *c, resize *r, const int *axes, int n) {
    const host_tensor *scales = NULL;
    KOLO_TRY(onnx_constant(c, is_upsample(c) || c->opset < 11 ? 1 : 2, &scales));
    if (scales->integer || scales->count != n) return ONNX_FAIL(c, "scales do not fit");
    for (int k = 0; k < n; k++) {
        resize_dim *d = &r->dim[axes[k]];
        const double scale = (double)scales->f[k];
        KOLO_TRY(set_size(c, d, floor((double)d->from * scale), scale));
    }
    return KOLO_OK;
}

/* The part of the input that is taken, as all first and all last ends. */
static kolo_status read_part(onnx_call *c, resize *r, const int *axes, int n) {
    const host_tensor *part = NULL;
    if (!onnx_text_is(c, "coordinate_transformation_mode", "tf_crop_and_resize", false)) {
        return KOLO_OK;
    }
    KOLO_TRY(onnx_constant(c, 1, &part));
    if (part->integer || part->count != 2 * (int64_t)n) return ONNX_FAIL(c, "roi does not fit");
    for (int k = 0; k < n; k++) {
        r->dim[axes[k]].first = (double)part->f[k];
        r->dim[axes[k]].last = (double)part->f[n + k];
    }
    return KOLO_OK;
}

static kolo_status read_resize(onnx_call *c, const kolo_shape *x, resize *r) {
    int n, axes[KOLO_MAX_RANK];
    *r = (resize){.rank = x->rank, .whole = true};
    for (int d = 0; d < x->rank; d++) {
        r->dim[d] = (resize_dim){x->dim[d], x->dim[d], 1, 0, 1};
    }
    KOLO_TRY(read_axes(c, x->rank, axes, &n));
    const bool sizes = !is_upsample(c) && onnx_has(c, 3);
    KOLO_TRY(sizes ? read_sizes(c, r, axes, n) : read_scales(c, r, axes, n));
    KOLO_TRY(read_part(c, r, axes, n));
    resize_dim *batch = &r->dim[0]; /* sizes state that of the file */
    if (x->dim[0] == c->m->samples && batch->to == c->m->stated) {
        batch->to = batch->from;
        batch->scale = 1;
    }
    if (batch->to != batch->from) return ONNX_FAIL(c, "the first dimension keeps its size");
    for (int d = 0; d < x->rank; d++) {
        r->whole &= is_ratio(&r->dim[d]);
    }
    return KOLO_OK;
}

/* ---- places ---- */

/* Whether the attribute places the pixels of the large image so. Operators older than the attribute
 * have one place. */
static bool is_placed(const onnx_call *c, const char *place) {
    const bool old = is_upsample(c) || c->opset < 11;
    const bool preset = strcmp(place, old ? "asymmetric" : "half_pixel") == 0;
    return onnx_text_is(c, "coordinate_transformation_mode", place, preset);
}

static bool is_half_pixel(const onnx_call *c) {
    return is_placed(c, "half_pixel") || is_placed(c, "pytorch_half_pixel") ||
           is_placed(c, "half_pixel_symmetric"); /* of whole sizes */
}

static kolo_status check_place(const onnx_call *c) {
    if (is_half_pixel(c) || is_placed(c, "asymmetric") || is_placed(c, "align_corners") ||
        is_placed(c, "tf_crop_and_resize")) {
        return KOLO_OK;
    }
    return ONNX_FAIL(c, "attribute coordinate_transformation_mode");
}

/* Where element k of a dimension is in the input. */
static double place_of(const onnx_call *c, const resize_dim *d, int64_t k) {
    const double from = (double)d->from, at = (double)k;
    const double to = is_ratio(d) ? (double)d->to : d->scale * from;
    if (is_placed(c, "asymmetric")) return at * from / to;
    if (is_placed(c, "align_corners")) return to == 1 ? 0 : at * (from - 1) / (to - 1);
    if (is_placed(c, "tf_crop_and_resize")) {
        const double part = (d->last - d->first) * (from - 1);
        return d->first * (from - 1) + (to == 1 ? part / 2 : at * part / (to - 1));
    }
    if (is_placed(c, "pytorch_half_pixel") && to == 1) return -0.5;
    const double shift =
        is_placed(c, "half_pixel_symmetric") ? from / 2 * (1 - (double)d->to / to) : 0;
    return shift + (at + 0.5) * from / to - 0.5;
}

/* ---- weights ---- */

/* The cubic convolution kernel (Keys, 1981). */
static double cubic(double x, double a) {
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* Of the elements before and after a place, `ratio` behind the former. */
static double nearest_weight(const onnx_call *c, double ratio, bool after) {
    const bool old = is_upsample(c) || c->opset < 11;
    bool second = ratio > 0.5;
    if (onnx_text_is(c, "nearest_mode", "floor", old)) {
        second = ratio == 1;
    } else if (onnx_text_is(c, "nearest_mode", "ceil", false)) {
        second = true;
    } else if (onnx_text_is(c, "nearest_mode", "round_prefer_ceil", false)) {
        second = ratio >= 0.5;
    }
    return second == after;
}

/* How an element is read: by which function of its distance, and how far. */
typedef struct reader {
    bool nearest, is_cubic;
    double a;     /* of cubic */
    double scale; /* of distances: below 1 with antialiasing */
} reader;

static reader reader_of(const onnx_call *c, const resize_dim *d) {
    const bool smooth = onnx_int(c, "antialias", 0) != 0 && d->scale < 1;
    return (reader){.nearest = onnx_text_is(c, "mode", "nearest", true),
                    .is_cubic = onnx_text_is(c, "mode", "cubic", false),
                    .a = onnx_float(c, "cubic_coeff_a", -0.75),
                    .scale = smooth ? d->scale : 1};
}

static double weight_of(const onnx_call *c, const reader *r, double ratio, int64_t tap) {
    const double distance = ((double)tap - ratio) * r->scale;
    if (r->nearest) return nearest_weight(c, ratio, tap == 1);
    return r->is_cubic ? cubic(distance, r->a) : fmax(0, 1 - fabs(distance));
}

/* Adds the weights of one element of the result to row[from]. False: it is outside the input, and
 * has the number of extrapolation. */
static bool add_weights(const onnx_call *c, const resize_dim *d, int64_t k, float *row) {
    const reader r = reader_of(c, d);
    const double at = place_of(c, d, k), before = ceil(at) - 1, ratio = at - before;
    const int64_t reach = (int64_t)ceil((r.is_cubic ? 2 : 1) / r.scale);
    const bool exclude = onnx_int(c, "exclude_outside", 0) != 0;
    double sum = 0;
    if (is_placed(c, "tf_crop_and_resize") && !(at >= 0 && at <= (double)(d->from - 1))) {
        return false;
    }
    for (int pass = 0; pass < 2; pass++) { /* the sum of the weights, then those */
        for (int64_t tap = 1 - reach; tap <= reach; tap++) {
            const double place = before + (double)tap, last = (double)(d->from - 1);
            const bool outside = place < 0 || place > last;
            const double w = exclude && outside && !r.nearest ? 0 : weight_of(c, &r, ratio, tap);
            if (pass == 0) sum += w;
            if (pass == 1) row[(int64_t)fmin(fmax(place, 0), last)] += (float)(w / sum);
        }
    }
    return true;
}

/* Multiplies dimension `axis` of x by its matrix [to,from]. */
static kolo_status multiply(onnx_call *c, const resize_dim *d, int axis, kolo_value *x) {
    const kolo_shape matrix = kolo_shape_2(d->to, d->from), column = kolo_shape_1(d->to);
    const int last = kolo_value_shape(c->g, *x).rank - 1;
    float *weights = NULL, *more = NULL;
    bool extrapolates = false;
    kolo_value w, number;
    KOLO_TRY(onnx_floats(c, host_count(&matrix, HOST_MOST), &weights));
    KOLO_TRY(onnx_floats(c, d->to, &more));
    memset(weights, 0, (size_t)(d->to * d->from) * sizeof *weights);
    for (int64_t k = 0; k < d->to; k++) {
        const bool inside = add_weights(c, d, k, weights + k * d->from);
        more[k] = inside ? 0 : (float)onnx_float(c, "extrapolation_value", 0);
        extrapolates = extrapolates || more[k] != 0;
    }
    KOLO_TRY(onnx_table(c, c->node->output[0], &matrix, weights, &w));
    if (axis != last) *x = kolo_transpose(c->g, *x, axis, last);
    *x = kolo_linear(c->g, *x, w);
    if (extrapolates) {
        KOLO_TRY(onnx_table(c, c->node->output[0], &column, more, &number));
        *x = kolo_add(c->g, *x, number);
    }
    if (axis != last) *x = kolo_transpose(c->g, *x, axis, last);
    return kolo_graph_check(c->g);
}

static kolo_status by_matrices(onnx_call *c, const resize *r, kolo_value x) {
    for (int d = r->rank - 1; d > 0; d--) {
        const resize_dim *of = &r->dim[d];
        const bool stays = of->to == of->from && of->scale == 1 && of->first == 0 && of->last == 1;
        if (!stays) KOLO_TRY(multiply(c, of, d, &x));
    }
    return onnx_set(c, 0, x);
}

/* ---- ops of the graph ---- */

/* Whether the op of bilinear images has these places. */
static bool find_linear(const onnx_call *c, const resize *r, kolo_resize_mode *mode) {
    for (int d = 2; d < 4; d++) {
        const bool one = r->dim[d].to == 1 && r->dim[d].from > 1;
        if (onnx_int(c, "antialias", 0) && r->dim[d].to < r->dim[d].from) return false;
        if (is_placed(c, "pytorch_half_pixel") && one) return false;
    }
    *mode = is_half_pixel(c) ? KOLO_RESIZE_BORDERS : KOLO_RESIZE_CORNERS;
    if (is_placed(c, "asymmetric")) *mode = KOLO_RESIZE_ASYMMETRIC;
    return !is_placed(c, "tf_crop_and_resize");
}

/* The pixel that is the nearest to element k. */
static int64_t nearest(const onnx_call *c, const resize_dim *d, int64_t k) {
    const double at = place_of(c, d, k), before = ceil(at) - 1;
    const double place = before + nearest_weight(c, at - before, true);
    return (int64_t)fmin(fmax(place, 0), (double)(d->from - 1));
}

enum { MOST_PICKED = 1024 };

/* Copies of pixels: by the op where it takes the same ones. */
static kolo_status copy_pixels(onnx_call *c, const resize *r, kolo_value x) {
    int64_t *index[2];
    bool same = true;
    for (int i = 0; i < 2; i++) {
        const resize_dim *d = &r->dim[2 + i];
        KOLO_TRY(onnx_indices(c, d->to, &index[i]));
        for (int64_t k = 0; k < d->to; k++) {
            index[i][k] = nearest(c, d, k);
            same = same && index[i][k] == k * d->from / d->to;
        }
    }
    if (same) return onnx_set(c, 0, kolo_resize_nearest(c->g, x, r->dim[2].to, r->dim[3].to));
    if (r->dim[2].to > MOST_PICKED || r->dim[3].to > MOST_PICKED) return by_matrices(c, r, x);
    for (int i = 0; i < 2; i++) KOLO_TRY(onnx_pick(c, x, 2 + i, index[i], r->dim[2 + i].to, &x));
    return onnx_set(c, 0, x);
}

kolo_status onnx_map_resize(onnx_call *c) {
    kolo_value x;
    resize r;
    kolo_resize_mode mode = KOLO_RESIZE_BORDERS;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    const bool linear = onnx_text_is(c, "mode", "linear", false);
    if (s.rank < 2) return ONNX_FAIL(c, "an input of %d dimensions", s.rank);
    KOLO_TRY(check_place(c));
    KOLO_TRY(read_resize(c, &s, &r));
    const bool image = s.rank == 4 && r.dim[1].to == s.dim[1];
    if (image && onnx_text_is(c, "mode", "nearest", true) && !is_placed(c, "tf_crop_and_resize")) {
        return copy_pixels(c, &r, x);
    }
    if (!(image && linear && r.whole && find_linear(c, &r, &mode))) return by_matrices(c, &r, x);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SIZE_H].i = r.dim[2].to, [KOLO_SIZE_W].i = r.dim[3].to, [KOLO_SIZE_MODE].i = mode};
    return onnx_set(c, 0, kolo_graph_add1(c->g, &kolo_op_resize, &x, 1, attr));
}

kolo_status onnx_map_grid_sample(onnx_call *c) {
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    static const struct {
        const char *name;
        kolo_grid_mode mode;
    } modes[] = {{"linear", KOLO_GRID_BILINEAR},
                 {"bilinear", KOLO_GRID_BILINEAR},
                 {"nearest", KOLO_GRID_NEAREST},
                 {"cubic", KOLO_GRID_BICUBIC},
                 {"bicubic", KOLO_GRID_BICUBIC}};
    kolo_grid_sample_opts opts = {.align_corners = onnx_int(c, "align_corners", 0) != 0};
    kolo_value x, grid;
    size_t padding = 0, mode = 0;
    while (padding < KOLO_COUNT(paddings) &&
           !onnx_text_is(c, "padding_mode", paddings[padding], padding == 0)) {
        padding++;
    }
    if (padding == KOLO_COUNT(paddings)) return ONNX_FAIL(c, "attribute padding_mode");
    opts.padding = (kolo_grid_padding)padding;
    while (mode < KOLO_COUNT(modes) && !onnx_text_is(c, "mode", modes[mode].name, mode == 0))
        mode++;
    if (mode == KOLO_COUNT(modes)) return ONNX_FAIL(c, "attribute mode");
    opts.mode = modes[mode].mode;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_value(c, 1, &grid));
    if (kolo_value_shape(c->g, x).rank != 4) return ONNX_FAIL(c, "images [N,C,H,W] are supported");
    return onnx_set(c, 0, kolo_grid_sample(c->g, x, grid, &opts));
}
