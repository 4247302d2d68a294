/* Bilinear loops. A row of y comes from one row of x that lies between two others: that row is made
 * first, in whole vectors, then its pixels are mixed. Backwards the same steps are turned round. */
#include "kernel/simd/simd.h"
#include "kernel/simd/vector.h"

/* out = a + part * (b - a), over n floats. */
INLINE void mix(const float *a, const float *b, float part, int64_t n, float *out) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf low = load(a + i);
        store(out + i, mul_add(splat(part), load(b + i) - low, low));
    }
    for (; i < n; i++) out[i] = a[i] + part * (b[i] - a[i]);
}

/* out += part * a. */
INLINE void add_part(const float *a, float part, int64_t n, float *out) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        store(out + i, mul_add(splat(part), load(a + i), load(out + i)));
    }
    for (; i < n; i++) out[i] += part * a[i];
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_resize_job *job = arg;
    int64_t inner = job->x.inner, row = job->x.w * inner;
    float *mixed = job->scratch + part * row;
    for (int64_t p = begin; p < end; p++) {
        const float *x = job->in + p * kolo_simd_plane_size(&job->x);
        float *y = job->out + p * kolo_simd_plane_size(&job->y);
        for (int64_t i = 0; i < job->y.h; i++) {
            kolo_simd_between h = job->rows[i];
            mix(x + h.low * row, x + h.high * row, h.part, row, mixed);
            for (int64_t j = 0; j < job->y.w; j++, y += inner) {
                kolo_simd_between w = job->columns[j];
                mix(mixed + w.low * inner, mixed + w.high * inner, w.part, inner, y);
            }
        }
    }
}

static void backward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_resize_job *job = arg;
    int64_t inner = job->x.inner, row = job->x.w * inner;
    float *gathered = job->scratch + part * row;
    for (int64_t p = begin; p < end; p++) {
        const float *dy = job->in + p * kolo_simd_plane_size(&job->y);
        float *dx = job->out + p * kolo_simd_plane_size(&job->x);
        memset(dx, 0, sizeof(float) * (size_t)kolo_simd_plane_size(&job->x));
        for (int64_t i = 0; i < job->y.h; i++) {
            kolo_simd_between h = job->rows[i];
            memset(gathered, 0, sizeof(float) * (size_t)row);
            for (int64_t j = 0; j < job->y.w; j++, dy += inner) {
                kolo_simd_between w = job->columns[j];
                add_part(dy, 1 - w.part, inner, gathered + w.low * inner);
                add_part(dy, w.part, inner, gathered + w.high * inner);
            }
            add_part(gathered, 1 - h.part, row, dx + h.low * row);
            add_part(gathered, h.part, row, dx + h.high * row);
        }
    }
}

const kolo_simd_resize_table KOLO_SIMD_TABLE(kolo_simd_resize_) = {
    .forward = forward,
    .backward = backward,
};
