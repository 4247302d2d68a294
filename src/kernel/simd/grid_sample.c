/* Sampling of images at places of a grid, and its gradients, in f32 on plain tensors. The taps of a
 * group of places are found once and used for all channels. Parallel over groups of places; the
 * gradients over samples, whose places add to the same pixels. */
#include "base/integer.h"
#include "kernel/simd/simd.h"

#include <string.h>

enum { GROUP = 128, TAPS = KOLO_GRID_TAPS };

typedef struct taps {
    int n;                   /* of a place, at most */
    int32_t at[TAPS][GROUP]; /* pixels of a plane; -1: none */
    float weight[TAPS][GROUP], by_x[TAPS][GROUP], by_y[TAPS][GROUP];
} taps;

/* Those of n places. */
static void find_taps(const float *grid, int64_t n, int64_t H, int64_t W, const kolo_attr *attr,
                      taps *t) {
    const int64_t mode = attr[KOLO_GRID_MODE].i;
    t->n = mode == KOLO_GRID_BICUBIC ? TAPS : mode == KOLO_GRID_NEAREST ? 1 : 4;
    for (int64_t k = 0; k < n; k++) {
        const kolo_grid_taps found =
            kolo_grid_find((double)grid[2 * k], (double)grid[2 * k + 1], H, W, attr);
        for (int i = 0; i < t->n; i++) {
            const bool there = i < found.n && found.at[i] >= 0;
            t->at[i][k] = there ? (int32_t)found.at[i] : -1;
            t->weight[i][k] = there ? (float)found.weight[i] : 0;
            t->by_x[i][k] = there ? (float)found.by_x[i] : 0;
            t->by_y[i][k] = there ? (float)found.by_y[i] : 0;
        }
    }
}

static double fit(kolo_kernel_spec *spec) {
    const kolo_tensor *x = &spec->in[spec->n_in - 2], *y = spec->n_in == 2 ? spec->out : spec->in;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    if (x->shape.dim[2] * x->shape.dim[3] > INT32_MAX) return -1;
    return kolo_kernel_seconds(8 * (double)kolo_shape_count(&y->shape),
                               (double)kolo_tensor_bytes(x) + (double)kolo_tensor_bytes(y), 0.2);
}

/* ---- forward ---- */

static int64_t groups_of(const int64_t *dim) { return (dim[2] * dim[3] + GROUP - 1) / GROUP; }

static void sample(const float *x, const taps *t, int64_t n, float *y) {
    for (int64_t k = 0; k < n; k++) y[k] = 0;
    for (int i = 0; i < t->n; i++) {
        for (int64_t k = 0; k < n; k++) {
            if (t->at[i][k] >= 0) y[k] += t->weight[i][k] * x[t->at[i][k]];
        }
    }
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const kolo_kernel_spec *s = call->spec;
    const int64_t *xd = s->in[0].shape.dim, *yd = s->out[0].shape.dim;
    const int64_t plane = xd[2] * xd[3], places = yd[2] * yd[3], groups = groups_of(yd);
    taps t;
    for (int64_t k = begin; k < end; k++) {
        const int64_t sample_of = k / groups, first = k % groups * GROUP;
        const int64_t n = kolo_min_i64(GROUP, places - first);
        const float *grid = (const float *)call->in[1] + 2 * (sample_of * places + first);
        find_taps(grid, n, xd[2], xd[3], s->attr, &t);
        for (int64_t image = sample_of * xd[1]; image < (sample_of + 1) * xd[1]; image++) {
            sample((const float *)call->in[0] + image * plane, &t, n,
                   (float *)call->out[0] + image * places + first);
        }
    }
}

static void run(const kolo_call *call) {
    const int64_t *yd = call->spec->out[0].shape.dim;
    kolo_kernel_parallel(call->spec->threads, yd[0] * groups_of(yd), forward, call);
}

/* ---- backward ---- */

/* Of one plane: to dx, and to the gradients of n places. */
static void add_gradients(const float *dy, const float *x, const taps *t, int64_t n, float *dx,
                          float *by_x, float *by_y) {
    for (int i = 0; i < t->n; i++) {
        for (int64_t k = 0; k < n; k++) {
            const int32_t at = t->at[i][k];
            if (at < 0) continue;
            dx[at] += t->weight[i][k] * dy[k];
            by_x[k] += t->by_x[i][k] * dy[k] * x[at];
            by_y[k] += t->by_y[i][k] * dy[k] * x[at];
        }
    }
}

static void backward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const kolo_kernel_spec *s = call->spec;
    const int64_t *xd = s->in[1].shape.dim, *yd = s->in[0].shape.dim;
    const int64_t plane = xd[2] * xd[3], places = yd[2] * yd[3];
    float by_x[GROUP], by_y[GROUP];
    taps t;
    for (int64_t k = begin; k < end; k++) {
        const int64_t images = k * xd[1];
        const float *x = (const float *)call->in[1] + images * plane;
        float *dx = (float *)call->out[0] + images * plane;
        memset(dx, 0, sizeof *dx * (size_t)(xd[1] * plane));
        for (int64_t first = 0; first < places; first += GROUP) {
            const int64_t n = kolo_min_i64(GROUP, places - first), at = k * places + first;
            find_taps((const float *)call->in[2] + 2 * at, n, xd[2], xd[3], s->attr, &t);
            memset(by_x, 0, sizeof by_x);
            memset(by_y, 0, sizeof by_y);
            for (int64_t c = 0; c < xd[1]; c++) {
                const float *dy = (const float *)call->in[0] + (images + c) * places + first;
                add_gradients(dy, x + c * plane, &t, n, dx + c * plane, by_x, by_y);
            }
            float *d_grid = (float *)call->out[1] + 2 * at;
            for (int64_t i = 0; i < n; i++) {
                d_grid[2 * i] = by_x[i];
                d_grid[2 * i + 1] = by_y[i];
            }
        }
    }
}

static void run_bwd(const kolo_call *call) {
    kolo_kernel_parallel(call->spec->threads, call->spec->in[1].shape.dim[0], backward, call);
}

const kolo_kernel kolo_simd_grid_sample = {
    .name = "simd_grid_sample", .op = &kolo_op_grid_sample, .fit = fit, .run = run};
const kolo_kernel kolo_simd_grid_sample_bwd = {
    .name = "simd_grid_sample_bwd", .op = &kolo_op_grid_sample_bwd, .fit = fit, .run = run_bwd};
