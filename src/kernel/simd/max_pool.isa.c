/* Max pooling, on f32 or bf16: the first of the largest elements of a window, or a NaN. The largest
 * of each row of a window first, then the largest of these: windows that overlap share the rows.
 * Eight elements at a time when as many are adjacent, otherwise one by one. Both give the same
 * bits, in every layout. */
#include "base/compiler.h"
#include "base/integer.h"
#include "kernel/simd/pool.h"
#include "kernel/simd/vector.h"

#include <math.h>

INLINE v8i splat8i(int32_t x) { return x - (v8i){0}; }
INLINE v8f positive8(v8f x) { return select8(x < 0, (v8f){0}, x); } /* NaN stays */

INLINE v8i load8i(const int32_t *p) {
    v8i v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store8i(int32_t *p, v8i v) { memcpy(p, &v, sizeof v); }

/* Eight indices below 256, as bytes. (GCC converts such a vector lane by lane.) */
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

enum { MOST_PLACES = 256 }; /* that an index can distinguish */

/* Whether the most frequent shapes have loops of their own, unrolled. Those of the baseline copy
 * take long to compile, and few processors run them. */
#ifdef __AVX2__
enum { UNROLL = 1 };
#else
enum { UNROLL = 0 };
#endif

/* One plane: pixels are `inner` elements apart. */
typedef struct max_job {
    const void *x;
    void *y;
    uint8_t *index;
    int64_t inner;
    bool relu, bf16;
} max_job;

INLINE v8i selecti(v8i mask, v8i a, v8i b) { return (v8i)select8(mask, (v8f)a, (v8f)b); }

/* y and index, from element `to` on. */
INLINE void put_8(max_job m, int64_t to, v8f best, v8i place) {
    store8_at(m.y, to, m.relu ? positive8(best) : best, m.bf16);
    store_places(m.index + to, place);
}
INLINE void put_1(max_job m, int64_t to, float best, int32_t place) {
    set_element(m.y, to, m.relu ? positive_1(best) : best, m.bf16);
    m.index[to] = (uint8_t)place;
}

/* All bits set where a or b is a NaN. */
INLINE v8i unordered8(v8f a, v8f b) {
#ifdef __AVX2__
    return (v8i)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
#else
    const v8f zero = {0};
    return ~((a < zero) | (a >= zero)) | ~((b < zero) | (b >= zero));
#endif
}

/* Whether a value replaces the largest so far: a NaN does, and is not replaced by a number. */
INLINE v8i beats8(v8f value, v8f best) { return (value > best) | unordered8(value, value); }
INLINE bool beats(float value, float best) { return value > best || isnan(value); }

/* The maximum of `columns` pixels from element x_at of x on, and its index; the first is column
 * `first` of the window. */
INLINE void max_across_8(max_job m, int64_t x_at, int64_t columns, int64_t first, v8f *best,
                         v8i *place) {
    *best = load8_at(m.x, x_at, m.bf16);
    *place = splat8i((int32_t)first);
    for (int64_t w = 1; w < columns; w++) {
        v8f value = load8_at(m.x, x_at + w * m.inner, m.bf16);
        v8i larger = beats8(value, *best);
        *best = select8(larger, value, *best);
        *place = selecti(larger, splat8i((int32_t)(first + w)), *place);
    }
}
INLINE void max_across_1(max_job m, int64_t x_at, int64_t columns, int64_t first, float *best,
                         int32_t *place) {
    *best = element_at(m.x, x_at, m.bf16);
    *place = (int32_t)first;
    for (int64_t w = 1; w < columns; w++) {
        float value = element_at(m.x, x_at + w * m.inner, m.bf16);
        bool larger = beats(value, *best);
        *place = larger ? (int32_t)(first + w) : *place;
        *best = larger ? value : *best;
    }
}

/* 2 x 2 windows that partition the plane share no pixels. */
INLINE void max_plane_2x2(const kolo_simd_pool_job *job, max_job m, int64_t inner) {
    int64_t to = 0, row = job->big.w * inner;
    m.inner = inner;
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        for (int64_t ow = 0; ow < job->small.w; ow++, to += inner) {
            int64_t at = 2 * oh * row + 2 * ow * inner, i = 0;
            for (; i + 8 <= inner; i += 8) {
                v8f a = load8_at(m.x, at + i, m.bf16), b = load8_at(m.x, at + inner + i, m.bf16);
                v8f c = load8_at(m.x, at + row + i, m.bf16);
                v8f d = load8_at(m.x, at + row + inner + i, m.bf16);
                v8i nan = unordered8(a, b) | unordered8(c, d); /* all bits set: a NaN */
                v8i right = b > a, right_below = d > c;
                v8f upper = select8(right, b, a), lower = select8(right_below, d, c);
                v8i below = lower > upper;
                v8i first = splat8i(1) & right, second = splat8i(2) + (splat8i(1) & right_below);
                v8f best = select8(below, lower, upper);
                put_8(m, to + i, (v8f)((v8i)best | nan), selecti(below, second, first));
            }
            for (; i < inner; i++) {
                float upper, lower;
                int32_t first, second;
                max_across_1(m, at + i, 2, 0, &upper, &first);
                max_across_1(m, at + row + i, 2, 2, &lower, &second);
                bool larger = beats(lower, upper);
                put_1(m, to + i, larger ? lower : upper, larger ? second : first);
            }
        }
    }
}

/* A row of windows, restricted to one row of pixels: the maximum of each and its column. */
typedef struct row_max {
    float *best;
    int32_t *place;
} row_max;

/* Elements [to, to + length) of the row; the first pixels of their windows are adjacent. */
INLINE void max_run(max_job m, int64_t x_at, int64_t columns, int64_t first, row_max row,
                    int64_t to, int64_t length) {
    int64_t j = 0;
    for (; j + 8 <= length; j += 8) {
        v8f best;
        v8i place;
        max_across_8(m, x_at + j, columns, first, &best, &place);
        store8(row.best + to + j, best);
        store8i(row.place + to + j, place);
    }
    for (; j < length; j++) {
        max_across_1(m, x_at + j, columns, first, row.best + to + j, row.place + to + j);
    }
}

INLINE void max_row(const kolo_simd_pool_job *job, max_job m, int64_t h, int64_t kernel_w,
                    row_max row) {
    int64_t width = job->big.w, stride = job->stride_w, pad = job->pad_w, inner = m.inner;
    int64_t whole = (pad + stride - 1) / stride; /* first window without padding */
    int64_t last = kolo_min_i64((width + pad - kernel_w) / stride, job->small.w - 1);
    for (int64_t ow = 0; ow < job->small.w; ow++) {
        int64_t w = ow * stride - pad, at = (h * width + w) * inner;
        if (ow < whole || ow > last) {
            int64_t first = w < 0 ? -w : 0, columns = kolo_min_i64(kernel_w, width - w) - first;
            max_run(m, at + first * inner, columns, first, row, ow * inner, inner);
        } else if (stride == 1) { /* all at once */
            max_run(m, at, kernel_w, 0, row, ow * inner, (last + 1 - ow) * inner);
            ow = last;
        } else {
            max_run(m, at, kernel_w, 0, row, ow * inner, inner);
        }
    }
}

/* A row of n results: the maximum over `rows` rows of maxima, at offsets at[0], at[1], ... of
 * `best` and `place`; the first is row `first` of the windows. */
INLINE void max_down(max_job m, const float *best, const int32_t *place, const int64_t *at,
                     int64_t rows, int64_t first, int64_t kernel_w, int64_t n, int64_t to) {
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
        v8f most = load8(best + at[0] + j);
        v8i where = load8i(place + at[0] + j) + splat8i((int32_t)(first * kernel_w));
        for (int64_t k = 1; k < rows; k++) {
            v8f value = load8(best + at[k] + j);
            v8i larger = beats8(value, most);
            v8i here = load8i(place + at[k] + j) + splat8i((int32_t)((first + k) * kernel_w));
            most = select8(larger, value, most);
            where = selecti(larger, here, where);
        }
        put_8(m, to + j, most, where);
    }
    for (; j < n; j++) {
        int64_t most = at[0], row = first;
        for (int64_t k = 1; k < rows; k++) {
            bool larger = beats(best[at[k] + j], best[most + j]);
            most = larger ? at[k] : most;
            row = larger ? first + k : row;
        }
        put_1(m, to + j, best[most + j], (int32_t)(place[most + j] + row * kernel_w));
    }
}

/* The maxima of a row are computed once and kept in `best` and `place` while windows need them. */
INLINE void max_plane(const kolo_simd_pool_job *job, max_job m, int part, int64_t kernel_h,
                      int64_t kernel_w) {
    int64_t n = job->small.w * m.inner, found = 0, at[MOST_PLACES];
    float *best = job->scratch + part * job->part_stride;
    int32_t *place = (int32_t *)(void *)(best + kernel_h * n);
    for (int64_t oh = 0; oh < job->small.h; oh++) {
        int64_t h = oh * job->stride_h - job->pad_h, top = kolo_max_i64(h, 0);
        int64_t bottom = kolo_min_i64(h + kernel_h, job->big.h);
        KOLO_ASSERT(top < bottom); /* no window lies entirely in the padding */
        for (found = kolo_max_i64(found, top); found < bottom; found++) {
            int64_t to = found % kernel_h * n;
            max_row(job, m, found, kernel_w, (row_max){best + to, place + to});
        }
        for (int64_t k = top; k < bottom; k++) at[k - top] = k % kernel_h * n;
        if (UNROLL && bottom - top == kernel_h) { /* compile-time constant */
            max_down(m, best, place, at, kernel_h, 0, kernel_w, n, oh * n);
        } else {
            max_down(m, best, place, at, bottom - top, top - h, kernel_w, n, oh * n);
        }
    }
}

/* Windows that start in the padding set indices of padding channels too: clear them. */
static void clear_index(const kolo_simd_pool_job *job, uint8_t *index, int64_t channels) {
    for (int64_t p = 0; p < job->small.h * job->small.w; p++) {
        for (int64_t i = channels; i < job->small.inner; i++) index[p * job->small.inner + i] = 0;
    }
}

INLINE void max_planes(const kolo_simd_pool_job *job, int part, int64_t begin, int64_t end,
                       bool tiles, bool bf16) {
    int64_t big = kolo_simd_plane_size(&job->big), small = kolo_simd_plane_size(&job->small);
    for (int64_t i = begin; i < end; i++) {
        max_job m = {
            .x = ahead(job->in, i * big, bf16),
            .y = ahead_to(job->out, i * small, bf16),
            .index = job->index + i * small,
            .inner = job->big.inner,
            .relu = job->relu,
            .bf16 = bf16,
        };
        if (UNROLL && tiles && m.inner == 8) { /* compile-time constants */
            max_plane_2x2(job, m, 8);
        } else if (UNROLL && tiles && m.inner == 16) {
            max_plane_2x2(job, m, 16);
        } else if (UNROLL && tiles && m.inner == 1) {
            max_plane_2x2(job, m, 1);
        } else if (tiles) {
            max_plane_2x2(job, m, m.inner);
        } else if (UNROLL && job->kernel_h == 3 && job->kernel_w == 3 && m.inner == 8) {
            m.inner = 8;
            max_plane(job, m, part, 3, 3);
        } else {
            max_plane(job, m, part, job->kernel_h, job->kernel_w);
        }
        int64_t channels = job->big.c - i % job->big.planes * job->big.inner;
        if (channels < job->big.inner) clear_index(job, m.index, channels);
    }
}

/* Separate functions keep compile times bounded. Stores do not alias the copy of the job. */
#define LOOP(name, planes, tiles, bf16)                                                    \
    static KOLO_NOINLINE void name(const kolo_simd_pool_job *arg, int part, int64_t begin, \
                                   int64_t end) {                                          \
        const kolo_simd_pool_job job = *arg;                                               \
        planes(&job, part, begin, end, tiles, bf16);                                       \
    }
LOOP(max_tiles_f32, max_planes, true, false)
LOOP(max_tiles_bf16, max_planes, true, true)
LOOP(max_windows_f32, max_planes, false, false)
LOOP(max_windows_bf16, max_planes, false, true)

static void max(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_pool_job *job = arg;
    if (job->tiles) {
        (job->bf16 ? max_tiles_bf16 : max_tiles_f32)(job, part, begin, end);
    } else {
        (job->bf16 ? max_windows_bf16 : max_windows_f32)(job, part, begin, end);
    }
}

/* ---- the gradient ---- */

INLINE v8i places_8(const uint8_t *index) {
#ifdef __AVX2__
    return (v8i)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)index));
#else
    v8b bytes;
    memcpy(&bytes, index, 8);
    return __builtin_convertvector(bytes, v8i);
#endif
}

INLINE v8f dy_8(const kolo_simd_pool_job *job, int64_t at, bool bf16) {
    v8f dy = load8_at(job->in, at, bf16);
    return job->y ? select8(load8_at(job->y, at, bf16) > 0, dy, (v8f){0}) : dy;
}

INLINE float dy_1(const kolo_simd_pool_job *job, int64_t at, bool bf16) {
    return !job->y || element_at(job->y, at, bf16) > 0 ? element_at(job->in, at, bf16) : 0;
}

/* 2 x 2 windows that partition plane i. */
INLINE void max_bwd_2x2(const kolo_simd_pool_job *job, int64_t i, int64_t inner, bool bf16) {
    int64_t from = i * job->small.h * job->small.w * inner, row = job->big.w * inner;
    for (int64_t h = 0; h < job->big.h; h += 2) {
        int64_t to = (i * job->big.h + h) * row;
        for (int64_t ow = 0; ow < job->small.w; ow++, from += inner, to += 2 * inner) {
            int64_t at[] = {to, to + inner, to + row, to + row + inner}, c = 0;
            for (; c + 8 <= inner; c += 8) {
                v8f dy = dy_8(job, from + c, bf16);
                v8i place = places_8(job->index + from + c);
                for (int k = 0; k < 4; k++) {
                    v8i here = place == splat8i(k);
                    store8_at(job->out, at[k] + c, (v8f)(here & (v8i)dy), bf16);
                }
            }
            for (; c < inner; c++) {
                float dy = dy_1(job, from + c, bf16);
                int place = job->index[from + c];
                for (int k = 0; k < 4; k++) {
                    set_element(job->out, at[k] + c, place == k ? dy : 0, bf16);
                }
            }
        }
    }
}

/* General windows: each pixel gathers from the windows that contain it, in row-major order. The
 * rows of windows are first expanded (gradient and chosen index), with margins of windows that
 * chose nothing. */
typedef struct windows {
    float *dy;
    int32_t *place;
    int64_t rows, margin, row; /* number of rows in the buffer; lengths in elements: margin, row
                                * with margins */
} windows;

/* A window that contains a pixel: its offset from the pixel's own window, and the index by which
 * it refers to the pixel. */
typedef struct covering_window {
    int64_t at;
    int32_t place;
} covering_window;

INLINE windows windows_of(const kolo_simd_pool_job *job, int part) {
    windows ws = {.rows = kolo_simd_reach(job->kernel_h, job->stride_h)};
    ws.margin = kolo_simd_reach(job->kernel_w, job->stride_w) * job->small.inner;
    ws.row = job->small.w * job->small.inner + 2 * ws.margin;
    ws.dy = job->scratch + part * job->part_stride;
    ws.place = (int32_t *)(void *)(ws.dy + ws.rows * ws.row);
    for (int64_t k = 0; k < ws.rows * ws.row; k++) ws.dy[k] = 0, ws.place[k] = -1;
    return ws;
}

/* Row oh of windows, the first at `from`. */
INLINE void lay_out(const kolo_simd_pool_job *job, windows ws, int64_t oh, int64_t from,
                    bool bf16) {
    int64_t n = job->small.w * job->small.inner, k = 0;
    float *dy = ws.dy + oh % ws.rows * ws.row + ws.margin;
    int32_t *place = ws.place + oh % ws.rows * ws.row + ws.margin;
    for (; k + 8 <= n; k += 8) {
        store8(dy + k, dy_8(job, from + k, bf16));
        store8i(place + k, places_8(job->index + from + k));
    }
    for (; k < n; k++) {
        dy[k] = dy_1(job, from + k, bf16);
        place[k] = job->index[from + k];
    }
}

/* Elements [to, to + length) of dx, whose own windows start at element `at` of a row. */
INLINE void gather(const kolo_simd_pool_job *job, windows ws, const covering_window *covering,
                   int n, int64_t at, int64_t to, int64_t length, bool bf16) {
    int64_t j = 0;
    for (; j + 8 <= length; j += 8) {
        v8f sum = {0};
        for (int k = 0; k < n; k++) {
            v8i here = load8i(ws.place + covering[k].at + at + j) == splat8i(covering[k].place);
            sum += (v8f)(here & (v8i)load8(ws.dy + covering[k].at + at + j));
        }
        store8_at(job->out, to + j, sum, bf16);
    }
    for (; j < length; j++) {
        float sum = 0;
        for (int k = 0; k < n; k++) {
            int64_t from = covering[k].at + at + j;
            sum += ws.place[from] == covering[k].place ? ws.dy[from] : 0;
        }
        set_element(job->out, to + j, sum, bf16);
    }
}

/* Every stride_w-th pixel of a row of dx: those `phase` after the start of a window. `to` is the
 * row's first element. */
INLINE void gather_phase(const kolo_simd_pool_job *job, windows ws, const covering_window *covering,
                         int n, int64_t phase, int64_t to, int64_t inner, bool bf16) {
    int64_t stride = job->stride_w, pad = job->pad_w;
    int64_t first = phase < pad ? (pad - phase + stride - 1) / stride : 0;
    int64_t end = (job->big.w + pad - phase + stride - 1) / stride;
    to += (phase - pad) * inner;
    if (stride == 1) {
        gather(job, ws, covering, n, first * inner, to + first * inner, (end - first) * inner,
               bf16);
        return;
    }
    for (int64_t m = first; m < end; m++) {
        gather(job, ws, covering, n, m * inner, to + m * stride * inner, inner, bf16);
    }
}

INLINE void max_bwd_plane(const kolo_simd_pool_job *job, windows ws, int64_t i, int64_t inner,
                          bool bf16) {
    int64_t stride = job->stride_w, first = 0, end = 0;
    int64_t small_row = job->small.w * inner, from = i * job->small.h * small_row;
    covering_window covering[MOST_PLACES];
    for (int64_t h = 0; h < job->big.h; h++) {
        int64_t p = h + job->pad_h; /* windows [first, end) contain it */
        while (first * job->stride_h + job->kernel_h <= p) first++;
        for (; end < job->small.h && end * job->stride_h <= p; end++) {
            lay_out(job, ws, end, from + end * small_row, bf16);
        }
        int64_t to = (i * job->big.h + h) * job->big.w * inner;
        for (int64_t phase = 0; phase < stride; phase++) {
            int n = 0;
            for (int64_t oh = first; oh < end; oh++) {
                int64_t row = oh % ws.rows * ws.row + ws.margin;
                int64_t place = (p - oh * job->stride_h) * job->kernel_w + phase;
                for (int64_t back = ws.margin / inner - 1; back >= 0; back--) {
                    if (phase + back * stride >= job->kernel_w) continue;
                    covering[n].at = row - back * inner;
                    covering[n++].place = (int32_t)(place + back * stride);
                }
            }
            if (!UNROLL) {
                gather_phase(job, ws, covering, n, phase, to, inner, bf16);
            } else if (n == 1) { /* compile-time constants */
                gather_phase(job, ws, covering, 1, phase, to, inner, bf16);
            } else if (n == 2) {
                gather_phase(job, ws, covering, 2, phase, to, inner, bf16);
            } else if (n == 4) {
                gather_phase(job, ws, covering, 4, phase, to, inner, bf16);
            } else if (n == 9) {
                gather_phase(job, ws, covering, 9, phase, to, inner, bf16);
            } else {
                gather_phase(job, ws, covering, n, phase, to, inner, bf16);
            }
        }
    }
}

INLINE void max_bwd_planes(const kolo_simd_pool_job *job, int part, int64_t begin, int64_t end,
                           bool tiles, bool bf16) {
    windows ws = {0};
    if (!tiles) ws = windows_of(job, part);
    for (int64_t i = begin; i < end; i++) {
        if (UNROLL && !tiles && job->big.inner == 8) { /* compile-time constants */
            max_bwd_plane(job, ws, i, 8, bf16);
        } else if (!tiles) {
            max_bwd_plane(job, ws, i, job->big.inner, bf16);
        } else if (UNROLL && job->big.inner == 8) {
            max_bwd_2x2(job, i, 8, bf16);
        } else if (UNROLL && job->big.inner == 16) {
            max_bwd_2x2(job, i, 16, bf16);
        } else if (UNROLL && job->big.inner == 1) {
            max_bwd_2x2(job, i, 1, bf16);
        } else {
            max_bwd_2x2(job, i, job->big.inner, bf16);
        }
    }
}

LOOP(max_bwd_tiles_f32, max_bwd_planes, true, false)
LOOP(max_bwd_tiles_bf16, max_bwd_planes, true, true)
LOOP(max_bwd_windows_f32, max_bwd_planes, false, false)
LOOP(max_bwd_windows_bf16, max_bwd_planes, false, true)

static void max_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_pool_job *job = arg;
    if (job->tiles) {
        (job->bf16 ? max_bwd_tiles_bf16 : max_bwd_tiles_f32)(job, part, begin, end);
    } else {
        (job->bf16 ? max_bwd_windows_bf16 : max_bwd_windows_f32)(job, part, begin, end);
    }
}

const kolo_simd_pool_table KOLO_ISA_SYMBOL(kolo_simd_max_pool) = {.fwd = max, .bwd = max_bwd};
