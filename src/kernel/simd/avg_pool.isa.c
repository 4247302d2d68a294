/* Average pooling, on f32 or bf16: eight elements at a time when as many are adjacent, otherwise
 * one by one. Both give the same bits, in every layout. */
#include "base/integer.h"
#include "kernel/simd/pool.h"
#include "kernel/simd/vector.h"

/* One window, clipped to the image. */
typedef struct window {
    int64_t top, bottom, left, right; /* rows and columns of the input image */
    int64_t small;                    /* its pixel in the output image */
    float size;                       /* divisor of the mean */
} window;

/* The windows of adaptive pooling. */
INLINE window share_at(const kolo_simd_pool_job *job, int64_t oh, int64_t ow) {
    window at = {
        .top = oh * job->big.h / job->small.h,
        .bottom = ((oh + 1) * job->big.h + job->small.h - 1) / job->small.h,
        .left = ow * job->big.w / job->small.w,
        .right = ((ow + 1) * job->big.w + job->small.w - 1) / job->small.w,
        .small = oh * job->small.w + ow,
    };
    at.size = (float)((at.bottom - at.top) * (at.right - at.left));
    return at;
}

INLINE window window_at(const kolo_simd_pool_job *job, int64_t oh, int64_t ow) {
    int64_t h = oh * job->stride_h - job->pad_h, w = ow * job->stride_w - job->pad_w;
    window at = {.top = kolo_max_i64(h, 0), .left = kolo_max_i64(w, 0)};
    at.bottom = kolo_min_i64(h + job->kernel_h, job->big.h);
    at.right = kolo_min_i64(w + job->kernel_w, job->big.w);
    at.small = oh * job->small.w + ow;
    int64_t rows = kolo_min_i64(h + job->kernel_h, job->big.h + job->pad_below) - h;
    int64_t columns = kolo_min_i64(w + job->kernel_w, job->big.w + job->pad_w) - w;
    at.size = (float)(job->exclude_padding ? (at.bottom - at.top) * (at.right - at.left)
                                           : rows * columns);
    return at;
}

/* The buffer of plane i of dx: in scratch memory for bf16, because it accumulates in f32. */
INLINE float *begin_dx(const kolo_simd_pool_job *job, int part, int64_t i, bool bf16) {
    return bf16 ? job->scratch + part * job->part_stride
                : (float *)job->out + i * kolo_simd_plane_size(&job->big);
}

INLINE void end_dx(const kolo_simd_pool_job *job, const float *dx, int64_t i, bool bf16) {
    int64_t size = kolo_simd_plane_size(&job->big);
    if (bf16) write_numbers(dx, size, job->out, i * size, true);
}

INLINE void avg_plane(const kolo_simd_pool_job *job, const void *x, void *y, bool bf16) {
    int64_t inner = job->big.inner, row = job->big.w * inner;
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++) {
            window at = job->adaptive ? share_at(job, oh, ow) : window_at(job, oh, ow);
            int64_t to = at.small * inner, i = 0;
            for (; i + 8 <= inner; i += 8) {
                v8f sum = {0};
                for (int64_t h = at.top; h < at.bottom; h++) {
                    for (int64_t w = at.left; w < at.right; w++) {
                        sum += load8_at(x, h * row + w * inner + i, bf16);
                    }
                }
                store8_at(y, to + i, sum / at.size, bf16);
            }
            for (; i < inner; i++) {
                float sum = 0;
                for (int64_t h = at.top; h < at.bottom; h++) {
                    for (int64_t w = at.left; w < at.right; w++) {
                        sum += element_at(x, h * row + w * inner + i, bf16);
                    }
                }
                set_element(y, to + i, sum / at.size, bf16);
            }
        }
    }
}

static void avg(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_pool_job *job = arg;
    int64_t big = kolo_simd_plane_size(&job->big), small = kolo_simd_plane_size(&job->small);
    for (int64_t i = begin; i < end; i++) {
        const void *x = ahead(job->in, i * big, job->bf16);
        void *y = ahead_to(job->out, i * small, job->bf16);
        if (job->bf16) {
            avg_plane(job, x, y, true);
        } else {
            avg_plane(job, x, y, false);
        }
    }
}

INLINE void avg_bwd_plane(const kolo_simd_pool_job *job, const void *dy, float *dx, bool bf16) {
    int64_t inner = job->big.inner, row = job->big.w * inner;
    memset(dx, 0, sizeof(float) * (size_t)kolo_simd_plane_size(&job->big));
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++) {
            window at = job->adaptive ? share_at(job, oh, ow) : window_at(job, oh, ow);
            int64_t from = at.small * inner, i = 0;
            for (; i + 8 <= inner; i += 8) {
                v8f share = load8_at(dy, from + i, bf16) / at.size;
                for (int64_t h = at.top; h < at.bottom; h++) {
                    for (int64_t w = at.left; w < at.right; w++) {
                        float *to = dx + h * row + w * inner + i;
                        store8(to, load8(to) + share);
                    }
                }
            }
            for (; i < inner; i++) {
                float share = element_at(dy, from + i, bf16) / at.size;
                for (int64_t h = at.top; h < at.bottom; h++) {
                    for (int64_t w = at.left; w < at.right; w++)
                        dx[h * row + w * inner + i] += share;
                }
            }
        }
    }
}

static void avg_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_pool_job *job = arg;
    int64_t small = kolo_simd_plane_size(&job->small);
    for (int64_t i = begin; i < end; i++) {
        const void *dy = ahead(job->in, i * small, job->bf16);
        float *dx = begin_dx(job, part, i, job->bf16);
        if (job->bf16) {
            avg_bwd_plane(job, dy, dx, true);
        } else {
            avg_bwd_plane(job, dy, dx, false);
        }
        end_dx(job, dx, i, job->bf16);
    }
}

const kolo_simd_pool_table KOLO_ISA_SYMBOL(kolo_simd_avg_pool) = {.fwd = avg, .bwd = avg_bwd};
