/* Loops of resizing. A row of y is interpolated in two steps: vertically between two rows of x, in
 * whole vectors, then horizontally. The backward pass is the transpose. */
#include "kernel/simd/resize.h"

#include "kernel/simd/vector.h"

/* out = a + part * (b - a), over n elements of x at a and b, to y from `to` on; with a = b those of
 * a, also where they are infinite. */
INLINE void mix(const void *x, int64_t a, int64_t b, float part, int64_t n, bool bf16_x, void *y,
                int64_t to, bool bf16_y) {
    int64_t i = 0;
    if (a == b) {
        for (; i + VL <= n; i += VL) store_at(y, to + i, load_at(x, a + i, bf16_x), bf16_y);
        for (; i < n; i++) set_element(y, to + i, element_at(x, a + i, bf16_x), bf16_y);
        return;
    }
    for (; i + VL <= n; i += VL) {
        vf low = load_at(x, a + i, bf16_x), high = load_at(x, b + i, bf16_x);
        store_at(y, to + i, mul_add(splat(part), high - low, low), bf16_y);
    }
    for (; i < n; i++) {
        float low = element_at(x, a + i, bf16_x), high = element_at(x, b + i, bf16_x);
        set_element(y, to + i, low + part * (high - low), bf16_y);
    }
}

/* out += part * a, where a is n elements of dy from `from` on. */
INLINE void add_part(const void *dy, int64_t from, float part, int64_t n, float *out, bool bf16) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        store(out + i, mul_add(splat(part), load_at(dy, from + i, bf16), load(out + i)));
    }
    for (; i < n; i++) out[i] += part * element_at(dy, from + i, bf16);
}

/* The same to both places that `w` lies between, n elements of each. */
INLINE void add_parts(const void *dy, int64_t from, kolo_simd_between w, int64_t n, float *out,
                      bool bf16) {
    if (w.low == w.high) {
        add_part(dy, from, 1, n, out + w.low * n, bf16);
        return;
    }
    add_part(dy, from, 1 - w.part, n, out + w.low * n, bf16);
    add_part(dy, from, w.part, n, out + w.high * n, bf16);
}

INLINE void enlarge(const kolo_simd_resize_job *job, int part, int64_t begin, int64_t end,
                    bool bf16) {
    int64_t inner = job->x.inner, row = job->x.w * inner;
    float *mixed = job->scratch + part * job->part_stride;
    for (int64_t p = begin; p < end; p++) {
        int64_t x = p * kolo_simd_plane_size(&job->x), y = p * kolo_simd_plane_size(&job->y);
        for (int64_t i = 0; i < job->y.h; i++) {
            kolo_simd_between h = job->rows[i];
            mix(job->in, x + h.low * row, x + h.high * row, h.part, row, bf16, mixed, 0, false);
            for (int64_t j = 0; j < job->y.w; j++, y += inner) {
                kolo_simd_between w = job->columns[j];
                mix(mixed, w.low * inner, w.high * inner, w.part, inner, false, job->out, y, bf16);
            }
        }
    }
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_resize_job *job = arg;
    if (job->bf16) {
        enlarge(job, part, begin, end, true);
    } else {
        enlarge(job, part, begin, end, false);
    }
}

/* dx accumulates: for bf16 in scratch memory. */
INLINE void gather(const kolo_simd_resize_job *job, int part, int64_t begin, int64_t end,
                   bool bf16) {
    int64_t inner = job->x.inner, row = job->x.w * inner, size = kolo_simd_plane_size(&job->x);
    float *gathered = job->scratch + part * job->part_stride;
    for (int64_t p = begin; p < end; p++) {
        int64_t dy = p * kolo_simd_plane_size(&job->y);
        float *dx = bf16 ? gathered + row : (float *)job->out + p * size;
        memset(dx, 0, sizeof(float) * (size_t)size);
        for (int64_t i = 0; i < job->y.h; i++) {
            memset(gathered, 0, sizeof(float) * (size_t)row);
            for (int64_t j = 0; j < job->y.w; j++, dy += inner) {
                add_parts(job->in, dy, job->columns[j], inner, gathered, bf16);
            }
            add_parts(gathered, 0, job->rows[i], row, dx, false);
        }
        if (bf16) write_numbers(dx, size, job->out, p * size, true);
    }
}

static void backward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_resize_job *job = arg;
    if (job->bf16) {
        gather(job, part, begin, end, true);
    } else {
        gather(job, part, begin, end, false);
    }
}

const kolo_simd_resize_table KOLO_ISA_SYMBOL(kolo_simd_resize) = {
    .forward = forward,
    .backward = backward,
};
