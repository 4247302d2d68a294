/* Winograd convolution, F(4x4, 3x3) and F(2x2, 5x5): conv2d and its gradients (loops:
 * winograd.isa.c).
 *
 * Requires channels in whole vectors: blocked, or NHWC with a suitable number of channels.
 * Weights may have any layout: every run transforms them through tables of offsets built in
 * `prepare`. Open layouts become the one that oneDNN prefers for such images, so that both
 * families can share the weights.
 *
 * In forward and data gradient each thread processes a range of tiles, in blocks that fit its
 * cache. In the weight gradient all threads work on one block at a time: transforms in parallel
 * over tiles, then products in parallel over points. Results do not depend on the thread count.
 *
 * Scratch memory: filters, bias, then windows and tiles of a block, per thread or shared. */
#include "kernel/simd/winograd.h"

#include "base/integer.h"
#include "kernel/simd/pointwise.h"

#include <string.h>

enum { WINDOW = KOLO_SIMD_WINO_WINDOW, POINTS = WINDOW * WINDOW, MOST_TAPS = 5 };

typedef struct wino_state {
    const kolo_simd_wino_table *table;
    kolo_kernel_loop bias_bwd;
    kolo_simd_wino_job job; /* without the addresses */
    int64_t tiles;          /* over all images */
    int64_t filters;        /* floats of transformed filters */
    bool padded;            /* the weights' layout has padding, which must be zero in the
                             * gradient */
    int32_t tap_at[MOST_TAPS * MOST_TAPS];
    int32_t *offsets; /* for rows, then for lanes */
} wino_state;

/* The roles of a spec's tensors; x is the one read in windows. */
typedef struct wino_roles {
    const kolo_tensor *x, *y, *w;
    int row_dim; /* of w: the dimension of x's channels */
} wino_roles;

static wino_roles roles_of(const kolo_kernel_spec *spec) {
    if (spec->op == &kolo_op_conv2d_bwd_weights) {
        return (wino_roles){&spec->in[1], &spec->in[0], &spec->out[0], 1};
    }
    int row_dim = spec->op == &kolo_op_conv2d_bwd_data ? 0 : 1;
    return (wino_roles){&spec->in[0], &spec->out[0], &spec->in[1], row_dim};
}

/* Filter size; 0 when it is not supported. */
static int64_t taps_of(const wino_roles *role) {
    int64_t taps = role->w->shape.dim[2];
    return (taps == 3 || taps == 5) && role->w->shape.dim[3] == taps ? taps : 0;
}

static int64_t tiles_of(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

static int64_t round_up_to(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Floats between points: an odd number of cache lines, so that the 36 lines that a transform
 * writes map to different cache sets. */
static int64_t point_stride(int64_t floats) { return ((floats + 15) / 16 | 1) * 16; }

/* ---- fit ---- */

/* The estimate: products at most of the peak rate, plus memory traffic of windows and tile
 * products (mostly in cache), images and filters. */
static double seconds(const kolo_kernel_spec *spec, const kolo_simd_image *x,
                      const kolo_simd_image *y) {
    wino_roles role = roles_of(spec);
    int64_t tile = WINDOW + 1 - taps_of(&role);
    double tiles = (double)(y->n * tiles_of(y->h, tile) * tiles_of(y->w, tile));
    double rows = (double)x->c, lanes = (double)(y->planes * y->inner);
    double transforms = 4.0 * POINTS * (rows + lanes) * tiles;
    double filters = 4.0 * POINTS * rows * lanes;
    double images = (double)(kolo_tensor_bytes(role.x) + kolo_tensor_bytes(role.y));
    return kolo_kernel_seconds(2.0 * POINTS * rows * lanes * tiles, 0, 0.9) +
           kolo_kernel_seconds(0, transforms, 1.6) + kolo_kernel_seconds(0, filters, 1.2) +
           kolo_kernel_seconds(0, images, 3);
}

static double fit(kolo_kernel_spec *spec) {
    const kolo_attr *attr = spec->attr;
    wino_roles role = roles_of(spec);
    kolo_simd_image x, y;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    if (!kolo_simd_image_of(role.x, &x) || !kolo_simd_image_of(role.y, &y)) return -1;
    int vector = KOLO_ISA_PICK(kolo_simd_wino)->vector;
    if (x.inner % vector || y.inner % vector) return -1;
    int64_t taps = taps_of(&role);
    if (taps == 0) return -1;
    if (attr[KOLO_CONV_STRIDE_H].i != 1 || attr[KOLO_CONV_STRIDE_W].i != 1) return -1;
    if (attr[KOLO_CONV_DILATION_H].i != 1 || attr[KOLO_CONV_DILATION_W].i != 1) return -1;
    if (attr[KOLO_CONV_GROUPS].i != 1) return -1;
    if (attr[KOLO_CONV_PAD_H].i >= taps || attr[KOLO_CONV_PAD_W].i >= taps) return -1;
    if (kolo_layout_is_open(role.w)) {
        const char *blocks = vector == 16 ? "ABcd16b16a" : "ABcd8b8a";
        const char *last = vector == 16 ? "Acdb16a" : "Acdb8a";
        bool nhwc = role.x->layout.n_blocks == 0;
        if (kolo_layout_parse(nhwc ? last : blocks, &spec->in[1].layout) != KOLO_OK) return -1;
    }
    return seconds(spec, &x, &y);
}

/* ---- prepare ---- */

/* Offsets are separable: in every layout each dimension's index contributes its own term. */
static int32_t offset_of(const kolo_tensor *w, int dim, int64_t i) {
    int64_t index[4] = {0};
    index[dim] = i;
    return (int32_t)kolo_layout_offset(&w->layout, &w->shape, index);
}

static kolo_status make_offsets(wino_state *s, const wino_roles *role) {
    kolo_simd_wino_job *job = &s->job;
    size_t bytes = sizeof *s->offsets * (size_t)(job->rows + job->lanes);
    s->offsets = kolo_alloc(bytes);
    if (!s->offsets) return KOLO_NOMEM(bytes);
    for (int64_t i = 0; i < job->rows; i++) s->offsets[i] = offset_of(role->w, role->row_dim, i);
    for (int64_t i = 0; i < job->lanes; i++) {
        s->offsets[job->rows + i] = offset_of(role->w, !role->row_dim, i);
    }
    int64_t taps = taps_of(role), last = taps * taps - 1;
    for (int64_t i = 0; i <= last; i++) {
        int64_t tap = role->row_dim == 0 ? last - i : i; /* the data gradient rotates the filters */
        s->tap_at[i] = offset_of(role->w, 2, tap / taps) + offset_of(role->w, 3, tap % taps);
    }
    job->row_at = s->offsets;
    job->lane_at = s->offsets + job->rows;
    job->tap_at = s->tap_at;
    return KOLO_OK;
}

static void release(void *state) {
    wino_state *s = state;
    kolo_free(s->offsets);
    kolo_free(s);
}

/* Transformed filters above this size are not kept: a part has some rows of a panel at a time, in
 * its cache, and transforms them again for each block. */
enum { KEPT_BYTES = 16 << 20, FILTER_ROWS = 128 };

/* Tiles per block: few enough that windows and products stay in cache, but with large filters
 * enough to amortize their transforms. The weight gradient accumulates into all filters once per
 * block. Calibrated by measurements on shapes from resnet20 to vgg16. */
static int64_t block_of(const wino_state *s, bool weights) {
    enum { LEAST = 24, MOST = 96, CACHE = 384 << 10, LARGE = 8 << 20 };
    const kolo_simd_wino_job *job = &s->job;
    int64_t rows = job->x.planes * job->x.inner, lanes = job->y.planes * job->y.inner;
    int64_t block = CACHE / (4 * POINTS * (rows + lanes));
    if (weights || 4 * POINTS * rows * lanes > LARGE) block = MOST;
    block = kolo_min_i64(kolo_max_i64(LEAST, kolo_min_i64(block, MOST)), s->tiles);
    const int64_t parts = (s->tiles + block - 1) / block;
    return (s->tiles + parts - 1) / parts;
}

static int64_t filter_rows_of(const wino_state *s, bool weights) {
    const kolo_simd_wino_job *job = &s->job;
    const int64_t bytes = 4 * POINTS * job->rows * job->y.planes * job->y.inner;
    return (weights ? job->block == s->tiles : bytes > KEPT_BYTES) ? FILTER_ROWS : 0;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    wino_roles role = roles_of(spec);
    const kolo_attr *attr = spec->attr;
    bool weights = spec->op == &kolo_op_conv2d_bwd_weights;
    wino_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->table = KOLO_ISA_PICK(kolo_simd_wino);
    s->bias_bwd = KOLO_ISA_PICK(kolo_simd_point)->bias_bwd;
    kolo_simd_wino_job *job = &s->job;
    KOLO_ASSERT(kolo_simd_image_of(role.x, &job->x) && kolo_simd_image_of(role.y, &job->y));
    bool data = spec->op == &kolo_op_conv2d_bwd_data;
    int64_t taps = taps_of(&role);
    job->pad_h = data ? taps - 1 - attr[KOLO_CONV_PAD_H].i : attr[KOLO_CONV_PAD_H].i;
    job->pad_w = data ? taps - 1 - attr[KOLO_CONV_PAD_W].i : attr[KOLO_CONV_PAD_W].i;
    job->relu = spec->op == &kolo_op_conv2d && attr[KOLO_CONV_RELU].i;
    job->tile = (int)(WINDOW + 1 - taps);
    job->tiles_h = tiles_of(job->y.h, job->tile);
    job->tiles_w = tiles_of(job->y.w, job->tile);
    s->tiles = job->y.n * job->tiles_h * job->tiles_w;
    job->block = block_of(s, weights);
    job->rows = job->x.c;
    job->lanes = job->y.c;
    int64_t lanes = 2 * s->table->vector; /* per panel */
    job->panels = (job->y.planes * job->y.inner + lanes - 1) / lanes;
    job->x_stride = point_stride(round_up_to(job->x.planes * job->x.inner, lanes) * job->block);
    job->y_stride = point_stride(job->panels * lanes * job->block);
    job->filter_rows = filter_rows_of(s, weights);
    const int64_t kept = job->filter_rows ? lanes * kolo_min_i64(job->filter_rows, job->rows)
                                          : job->panels * lanes * job->rows;
    job->filter_stride = point_stride(kept);
    job->part_stride = POINTS * (job->x_stride + job->y_stride);
    s->padded =
        kolo_tensor_bytes(role.w) != sizeof(float) * (size_t)kolo_shape_count(&role.w->shape);
    kolo_status status = make_offsets(s, &role);
    if (status != KOLO_OK) {
        release(s);
        return status;
    }
    const bool shared = weights || job->filter_rows;
    s->filters = POINTS * job->filter_stride * (job->filter_rows ? spec->threads : 1);
    int64_t floats = s->filters + round_up_to(job->panels * lanes, 16) +
                     job->part_stride * (shared ? 1 : spec->threads);
    *scratch_bytes = sizeof(float) * (size_t)floats;
    *state = s;
    return KOLO_OK;
}

/* ---- run ---- */

/* Transforms filters once for each block of tiles, which all threads work on. */
static void run_blocks(const wino_state *s, kolo_simd_wino_job *job, int threads) {
    for (; job->first < s->tiles; job->first += job->block) {
        job->count = kolo_min_i64(job->block, s->tiles - job->first);
        kolo_kernel_parallel(threads, job->count, s->table->read_block, job);
        kolo_kernel_parallel(threads, job->panels, s->table->multiply_tiles, job);
        kolo_kernel_parallel(threads, job->count, s->table->write_block, job);
    }
}

static void run(const kolo_call *call) {
    const wino_state *s = call->state;
    int threads = call->spec->threads;
    kolo_simd_wino_job job = s->job;
    int64_t lanes = job.panels * 2 * s->table->vector;
    float *bias = (float *)call->scratch + s->filters;
    memset(bias, 0, sizeof(float) * (size_t)lanes);
    if (call->spec->n_in > 2) memcpy(bias, call->in[2], sizeof(float) * (size_t)job.lanes);
    job.weights = call->in[1];
    job.filters = call->scratch;
    job.in_x = call->in[0];
    job.bias = bias;
    job.scratch = bias + round_up_to(lanes, 16);
    job.out = call->out[0];
    if (job.filter_rows) {
        run_blocks(s, &job, threads);
        return;
    }
    kolo_kernel_parallel(threads, job.panels * job.rows, s->table->read_filters, &job);
    kolo_kernel_parallel(threads, s->tiles, s->table->forward, &job);
}

static void run_bwd_weights(const kolo_call *call) {
    const wino_state *s = call->state;
    int threads = call->spec->threads;
    kolo_simd_wino_job job = s->job;
    job.in_y = call->in[0];
    job.in_x = call->in[1];
    job.out = call->out[0];
    job.filters = call->scratch;
    job.scratch = job.filters + s->filters + round_up_to(job.panels * 2 * s->table->vector, 16);
    if (s->padded) memset(job.out, 0, kolo_tensor_bytes(&call->spec->out[0]));
    for (; job.first < s->tiles; job.first += job.block) {
        job.count = kolo_min_i64(job.block, s->tiles - job.first);
        kolo_kernel_parallel(threads, job.count, s->table->read_block, &job);
        if (job.filter_rows) {
            kolo_kernel_parallel(threads, job.panels, s->table->multiply_filters, &job);
        } else {
            kolo_kernel_parallel(threads, POINTS * job.panels, s->table->multiply_block, &job);
        }
    }
    if (!job.filter_rows) {
        kolo_kernel_parallel(threads, job.panels * job.rows, s->table->write_filters, &job);
    }
    if (call->spec->n_out == 1) return;
    kolo_simd_bias_job bias = {.image = job.y, .x = job.in_y, .out = call->out[1]};
    kolo_kernel_parallel(threads, kolo_simd_slices(&job.y), s->bias_bwd, &bias);
}

const kolo_kernel kolo_simd_wino = {
    .name = "simd_wino",
    .op = &kolo_op_conv2d,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = release,
    .winograd = true,
};
const kolo_kernel kolo_simd_wino_bwd_data = {
    .name = "simd_wino_bwd_data",
    .op = &kolo_op_conv2d_bwd_data,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = release,
    .winograd = true,
};
const kolo_kernel kolo_simd_wino_bwd_weights = {
    .name = "simd_wino_bwd_weights",
    .op = &kolo_op_conv2d_bwd_weights,
    .fit = fit,
    .prepare = prepare,
    .run = run_bwd_weights,
    .release = release,
    .winograd = true,
};
