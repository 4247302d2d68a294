/* Pooling loops, on f32 or bf16. A window is walked in row-major order for eight channels at a time
 * where pixels hold whole blocks of them, else channel by channel; both give the same bits. */
#include "kernel/simd/simd.h"
#include "kernel/simd/vector.h"

/* One window, clipped to the image. */
typedef struct window {
    int64_t top, bottom, left, right; /* rows and columns of the big image */
    int64_t corner;                   /* kh * KW + kw of (top, left) */
    int64_t small;                    /* its pixel in the small image */
    float size;                       /* elements that a mean counts */
} window;

/* The windows of an adaptive pool. */
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
    at.corner = (at.top - h) * job->kernel_w + at.left - w;
    at.small = oh * job->small.w + ow;
    int64_t rows = kolo_min_i64(h + job->kernel_h, job->big.h + job->pad_h) - h;
    int64_t columns = kolo_min_i64(w + job->kernel_w, job->big.w + job->pad_w) - w;
    at.size = (float)(job->bare ? (at.bottom - at.top) * (at.right - at.left) : rows * columns);
    return at;
}

INLINE v8i splat8i(int32_t x) { return x - (v8i){0}; }
INLINE v8f positive8(v8f x) { return select8(x > 0, x, (v8f){0}); }

/* Eight places, each below 256, as bytes. (GCC converts such a vector lane by lane.) */
INLINE void store_places(uint8_t *index, v8i place) {
#ifdef __AVX2__
    __m256i all = (__m256i)place;
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storel_epi64((__m128i *)(void *)index, _mm_packus_epi16(words, words));
#else
    v8b bytes = __builtin_convertvector(place, v8b);
    memcpy(index, &bytes, 8);
#endif
}

/* ---- maximum ---- */

/* One window: x and y are the plane's, x_at is where in x the window's first pixel lies, y_at its
 * place in y and index; a pixel is `inner` numbers from the next, a row `row`. */
typedef struct max_job {
    const void *x;
    void *y;
    uint8_t *index;
    int64_t row, inner, kernel_w;
    bool relu, half;
} max_job;

INLINE void max_8(max_job m, int64_t x_at, int64_t rows, int64_t columns, int64_t corner,
                  int64_t y_at) {
    v8f best = load8_at(m.x, x_at, m.half);
    v8i place = splat8i((int32_t)corner);
    for (int64_t h = 0; h < rows; h++) {
        for (int64_t w = h == 0; w < columns; w++) {
            v8f value = load8_at(m.x, x_at + h * m.row + w * m.inner, m.half);
            v8i larger = value > best;
            best = select8(larger, value, best);
            v8i here = splat8i((int32_t)(corner + h * m.kernel_w + w));
            place = (larger & here) | (~larger & place);
        }
    }
    store8_at(m.y, y_at, m.relu ? positive8(best) : best, m.half);
    store_places(m.index + y_at, place);
}

INLINE void max_1(max_job m, int64_t x_at, int64_t rows, int64_t columns, int64_t corner,
                  int64_t y_at) {
    float best = number_at(m.x, x_at, m.half);
    int64_t place = corner;
    for (int64_t h = 0; h < rows; h++) {
        for (int64_t w = h == 0; w < columns; w++) {
            float value = number_at(m.x, x_at + h * m.row + w * m.inner, m.half);
            place = value > best ? corner + h * m.kernel_w + w : place;
            best = value > best ? value : best;
        }
    }
    set_number(m.y, y_at, m.relu && !(best > 0) ? 0 : best, m.half);
    m.index[y_at] = (uint8_t)place;
}

/* One plane whose windows are 2 x 2 tiles. */
INLINE void max_plane_2x2(const kolo_simd_pool_job *job, max_job m, int64_t inner) {
    int64_t y_at = 0;
    m.inner = inner;
    m.row = job->big.w * inner;
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++, y_at += inner) {
            int64_t corner = 2 * oh * m.row + 2 * ow * inner, i = 0;
            for (; i + 8 <= inner; i += 8) max_8(m, corner + i, 2, 2, 0, y_at + i);
            for (; i < inner; i++) max_1(m, corner + i, 2, 2, 0, y_at + i);
        }
    }
}

INLINE void max_plane(const kolo_simd_pool_job *job, max_job m) {
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++) {
            window at = window_at(job, oh, ow);
            int64_t first = at.top * m.row + at.left * m.inner, to = at.small * m.inner, i = 0;
            int64_t rows = at.bottom - at.top, columns = at.right - at.left;
            for (; i + 8 <= m.inner; i += 8) {
                max_8(m, first + i, rows, columns, at.corner, to + i);
            }
            for (; i < m.inner; i++) max_1(m, first + i, rows, columns, at.corner, to + i);
        }
    }
}

/* Windows that begin in the padding name a place even for channels that are padding: clear it. */
static void clear_index(const kolo_simd_pool_job *job, uint8_t *index, int64_t channels) {
    for (int64_t p = 0; p < job->small.h * job->small.w; p++) {
        for (int64_t i = channels; i < job->small.inner; i++) index[p * job->small.inner + i] = 0;
    }
}

INLINE void max_planes(const kolo_simd_pool_job *job, int64_t begin, int64_t end, bool half) {
    int64_t big = kolo_simd_plane_size(&job->big), small = kolo_simd_plane_size(&job->small);
    bool two = job->kernel_h == 2 && job->kernel_w == 2 && job->tiles;
    for (int64_t i = begin; i < end; i++) {
        max_job m = {
            .x = ahead(job->in, i * big, half),
            .y = ahead_to(job->out, i * small, half),
            .index = job->index + i * small,
            .row = job->big.w * job->big.inner,
            .inner = job->big.inner,
            .kernel_w = two ? 2 : job->kernel_w,
            .relu = job->relu,
            .half = half,
        };
        if (two && job->big.inner == 8) {
            max_plane_2x2(job, m, 8);
        } else if (two && job->big.inner == 16) {
            max_plane_2x2(job, m, 16);
        } else if (two && job->big.inner == 1) {
            max_plane_2x2(job, m, 1);
        } else {
            max_plane(job, m);
        }
        int64_t channels = job->big.c - i % job->big.planes * job->big.inner;
        if (channels < job->big.inner) clear_index(job, m.index, channels);
    }
}

static void max(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_pool_job *job = arg;
    if (job->half) {
        max_planes(job, begin, end, true);
    } else {
        max_planes(job, begin, end, false);
    }
}

/* ---- its gradient ---- */

INLINE v8i places_8(const uint8_t *index) {
#ifdef __AVX2__
    return (v8i)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)index));
#else
    v8b bytes;
    memcpy(&bytes, index, 8);
    return __builtin_convertvector(bytes, v8i);
#endif
}

INLINE v8f dy_8(const kolo_simd_pool_job *job, int64_t at, bool half) {
    v8f dy = load8_at(job->in, at, half);
    return job->y ? select8(load8_at(job->y, at, half) > 0, dy, (v8f){0}) : dy;
}

INLINE float dy_1(const kolo_simd_pool_job *job, int64_t at, bool half) {
    return !job->y || number_at(job->y, at, half) > 0 ? number_at(job->in, at, half) : 0;
}

/* Where the floats of plane i of dx are made: of bf16 in scratch memory, since they are sums. */
INLINE float *begin_dx(const kolo_simd_pool_job *job, int part, int64_t i, bool half) {
    return half ? job->scratch + part * kolo_simd_plane_size(&job->big)
                : (float *)job->out + i * kolo_simd_plane_size(&job->big);
}

INLINE void end_dx(const kolo_simd_pool_job *job, const float *dx, int64_t i, bool half) {
    int64_t size = kolo_simd_plane_size(&job->big);
    if (half) write_numbers(dx, size, job->out, i * size, true);
}

/* Windows that tile the image: each pixel is written once. `from` is the plane's offset in dy. */
INLINE void max_bwd_tiles(const kolo_simd_pool_job *job, int64_t from, float *dx, int64_t inner,
                          int64_t kernel_h, int64_t kernel_w, bool half) {
    int64_t row = job->big.w * inner;
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++, from += inner) {
            float *first = dx + oh * kernel_h * row + ow * kernel_w * inner;
            int64_t i = 0;
            for (; i + 8 <= inner; i += 8) {
                v8f dy = dy_8(job, from + i, half);
                v8i place = places_8(job->index + from + i);
                for (int64_t k = 0; k < kernel_h * kernel_w; k++) {
                    v8i here = place == splat8i((int32_t)k);
                    store8(first + k / kernel_w * row + k % kernel_w * inner + i,
                           (v8f)(here & (v8i)dy));
                }
            }
            for (; i < inner; i++) {
                float dy = dy_1(job, from + i, half);
                int64_t place = job->index[from + i];
                for (int64_t k = 0; k < kernel_h * kernel_w; k++) {
                    first[k / kernel_w * row + k % kernel_w * inner + i] = place == k ? dy : 0;
                }
            }
        }
    }
}

/* Windows of any kind; the place that an index names lies offset[index] from the window's first. */
INLINE void max_bwd_plane(const kolo_simd_pool_job *job, int64_t from, const int64_t *offset,
                          float *dx, bool half) {
    int64_t inner = job->big.inner, row = job->big.w * inner;
    memset(dx, 0, sizeof(float) * (size_t)kolo_simd_plane_size(&job->big));
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++, from += inner) {
            int64_t h = oh * job->stride_h - job->pad_h, w = ow * job->stride_w - job->pad_w;
            int64_t first = h * row + w * inner;
            for (int64_t i = 0; i < inner; i++) {
                int64_t place = job->index[from + i];
                if (place == 0 && (h < 0 || w < 0)) continue; /* a channel of padding */
                dx[first + offset[place] + i] += dy_1(job, from + i, half);
            }
        }
    }
}

INLINE void max_bwd_planes(const kolo_simd_pool_job *job, int part, int64_t begin, int64_t end,
                           bool half) {
    int64_t small = kolo_simd_plane_size(&job->small);
    bool two = job->kernel_h == 2 && job->kernel_w == 2;
    int64_t offset[256] = {0}; /* as many places as an index tells apart */
    for (int64_t k = 0; k < job->kernel_h * job->kernel_w; k++) {
        offset[k] = (k / job->kernel_w * job->big.w + k % job->kernel_w) * job->big.inner;
    }
    for (int64_t i = begin; i < end; i++) {
        float *dx = begin_dx(job, part, i, half);
        if (!job->tiles) {
            max_bwd_plane(job, i * small, offset, dx, half);
        } else if (two && job->big.inner == 8) {
            max_bwd_tiles(job, i * small, dx, 8, 2, 2, half);
        } else if (two && job->big.inner == 16) {
            max_bwd_tiles(job, i * small, dx, 16, 2, 2, half);
        } else if (two && job->big.inner == 1) {
            max_bwd_tiles(job, i * small, dx, 1, 2, 2, half);
        } else {
            max_bwd_tiles(job, i * small, dx, job->big.inner, job->kernel_h, job->kernel_w, half);
        }
        end_dx(job, dx, i, half);
    }
}

static void max_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_pool_job *job = arg;
    if (job->half) {
        max_bwd_planes(job, part, begin, end, true);
    } else {
        max_bwd_planes(job, part, begin, end, false);
    }
}

/* ---- mean ---- */

INLINE void avg_plane(const kolo_simd_pool_job *job, const void *x, void *y, bool half) {
    int64_t inner = job->big.inner, row = job->big.w * inner;
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++) {
            window at = job->adaptive ? share_at(job, oh, ow) : window_at(job, oh, ow);
            int64_t to = at.small * inner, i = 0;
            for (; i + 8 <= inner; i += 8) {
                v8f sum = {0};
                for (int64_t h = at.top; h < at.bottom; h++) {
                    for (int64_t w = at.left; w < at.right; w++) {
                        sum += load8_at(x, h * row + w * inner + i, half);
                    }
                }
                store8_at(y, to + i, sum / at.size, half);
            }
            for (; i < inner; i++) {
                float sum = 0;
                for (int64_t h = at.top; h < at.bottom; h++) {
                    for (int64_t w = at.left; w < at.right; w++) {
                        sum += number_at(x, h * row + w * inner + i, half);
                    }
                }
                set_number(y, to + i, sum / at.size, half);
            }
        }
    }
}

static void avg(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_pool_job *job = arg;
    int64_t big = kolo_simd_plane_size(&job->big), small = kolo_simd_plane_size(&job->small);
    for (int64_t i = begin; i < end; i++) {
        const void *x = ahead(job->in, i * big, job->half);
        void *y = ahead_to(job->out, i * small, job->half);
        if (job->half) {
            avg_plane(job, x, y, true);
        } else {
            avg_plane(job, x, y, false);
        }
    }
}

INLINE void avg_bwd_plane(const kolo_simd_pool_job *job, const void *dy, float *dx, bool half) {
    int64_t inner = job->big.inner, row = job->big.w * inner;
    memset(dx, 0, sizeof(float) * (size_t)kolo_simd_plane_size(&job->big));
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++) {
            window at = job->adaptive ? share_at(job, oh, ow) : window_at(job, oh, ow);
            int64_t from = at.small * inner, i = 0;
            for (; i + 8 <= inner; i += 8) {
                v8f share = load8_at(dy, from + i, half) / at.size;
                for (int64_t h = at.top; h < at.bottom; h++) {
                    for (int64_t w = at.left; w < at.right; w++) {
                        float *to = dx + h * row + w * inner + i;
                        store8(to, load8(to) + share);
                    }
                }
            }
            for (; i < inner; i++) {
                float share = number_at(dy, from + i, half) / at.size;
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
        const void *dy = ahead(job->in, i * small, job->half);
        float *dx = begin_dx(job, part, i, job->half);
        if (job->half) {
            avg_bwd_plane(job, dy, dx, true);
        } else {
            avg_bwd_plane(job, dy, dx, false);
        }
        end_dx(job, dx, i, job->half);
    }
}

const kolo_simd_pool_table KOLO_SIMD_TABLE(kolo_simd_pool_) = {
    .max = max,
    .max_bwd = max_bwd,
    .avg = avg,
    .avg_bwd = avg_bwd,
};
