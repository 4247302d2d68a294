/* Element-wise loops. Contraction is off, so all instruction sets, and the body and remainder of
 * a loop, give the same bits. Sums use a fixed number of lanes for the same reason. */
#include "kernel/simd/pointwise.h"

#include "base/bf16.h"
#include "base/integer.h"
#include "kernel/simd/math.h"

#include <math.h>

/* An output may alias an input, which prevents auto-vectorization: one explicit vector at a
 * time. */
typedef enum pair_kind { RELU, RELU_BWD, RELU_BWD_OF_TWO, ADD, ADD_RELU } pair_kind;

INLINE vf pair_vector(pair_kind kind, vf a, vf b, vf c) {
    switch (kind) {
    case RELU:
        return positive(a);
    case RELU_BWD:
        return (vf)((b > 0) & (vi)a);
    case RELU_BWD_OF_TWO:
        return (vf)((b > 0) & (vi)(a + c));
    case ADD:
        return a + b;
    case ADD_RELU:
        return positive(a + b);
    }
    return a;
}

INLINE void pair_range(pair_kind kind, const kolo_simd_pair_job *job, int64_t begin, int64_t end,
                       bool bf16) {
    bool two = kind != RELU, three = kind == RELU_BWD_OF_TWO;
    const void *in_a = job->a, *in_b = job->b, *in_c = job->c;
    void *out = job->out;
    const vf none = {0};
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        vf b = two ? load_at(in_b, i, bf16) : none, c = three ? load_at(in_c, i, bf16) : none;
        store_at(out, i, pair_vector(kind, load_at(in_a, i, bf16), b, c), bf16);
    }
    int64_t n = end - i;
    vf b = two ? load_part_at(in_b, i, n, bf16) : none;
    vf c = three ? load_part_at(in_c, i, n, bf16) : none;
    store_part_at(out, i, pair_vector(kind, load_part_at(in_a, i, n, bf16), b, c), n, bf16);
}

INLINE void pair(pair_kind kind, const kolo_simd_pair_job *job, int64_t begin, int64_t end) {
    if (job->bf16) {
        pair_range(kind, job, begin, end, true);
    } else {
        pair_range(kind, job, begin, end, false);
    }
}

static void relu(const void *job, int part, int64_t begin, int64_t end) {
    pair(RELU, job, begin, end);
}

static void relu_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_pair_job *job = arg;
    if (job->c) {
        pair(RELU_BWD_OF_TWO, job, begin, end);
    } else {
        pair(RELU_BWD, job, begin, end);
    }
}

static void add(const void *job, int part, int64_t begin, int64_t end) {
    pair(ADD, job, begin, end);
}

static void add_relu(const void *job, int part, int64_t begin, int64_t end) {
    pair(ADD_RELU, job, begin, end);
}

/* ---- gradients as summands ---- */

/* Elements of the sum of n gradients, in their order: the bits of a reduction. */
INLINE float sum_single(const void *const *from, int n, int64_t i) {
    float x = ((const float *)from[0])[i];
    for (int r = 1; r < n; r++) x = x + ((const float *)from[r])[i];
    return x;
}

INLINE vf sum_vector(const void *const *from, int n, int64_t i) {
    vf x = load((const float *)from[0] + i);
    for (int r = 1; r < n; r++) x = x + load((const float *)from[r] + i);
    return x;
}

INLINE vf sum_part(const void *const *from, int n, int64_t i, int64_t count) {
    vf x = load_part((const float *)from[0] + i, count);
    for (int r = 1; r < n; r++) x = x + load_part((const float *)from[r] + i, count);
    return x;
}

/* Calls `loop` with the number of gradients, which is a constant where it is 1 or 2: their
 * addresses stay in registers. */
#define WITH_GRADIENTS(loop, g, ...)                                     \
    do {                                                                 \
        const void *const first_[] = {(g).from[0], (g).from[(g).n > 1]}; \
        if ((g).n == 1) {                                                \
            loop(__VA_ARGS__, first_, 1);                                \
        } else if ((g).n == 2) {                                         \
            loop(__VA_ARGS__, first_, 2);                                \
        } else {                                                         \
            loop(__VA_ARGS__, (g).from, (g).n);                          \
        }                                                                \
    } while (0)

/* ---- stochastic gradient descent ---- */

/* The update of one element and of one vector: the same operations in the same order. */
#define SGD_STEP(w, g, v, speed, next)                                                         \
    do {                                                                                       \
        (speed) = momentum * (v) + ((g) + decay * (w));                                        \
        (next) =                                                                               \
            nesterov ? (w)-lr * (((g) + decay * (w)) + momentum * (speed)) : (w)-lr * (speed); \
    } while (0)

/* Elements [begin, end), scalar. */
INLINE void sgd_single(const kolo_simd_sgd_job *job, bool nesterov, int64_t begin, int64_t end,
                       const void *const *from, int n) {
    const float lr = job->lr, momentum = job->momentum, decay = job->weight_decay;
    for (int64_t i = begin; i < end; i++) {
        const float g = sum_single(from, n, i);
        float speed, next;
        SGD_STEP(job->w[i], g, job->v[i], speed, next);
        job->w_next[i] = next;
        job->v_next[i] = speed;
    }
}

/* Whole vectors from `begin`, where the results are aligned; returns the first remaining
 * element. Large results in other places than their inputs bypass the caches with non-temporal
 * stores: they are read again only in the next step, and this saves the read for ownership. */
INLINE int64_t sgd_vectors(const kolo_simd_sgd_job *job, bool nesterov, int64_t begin, int64_t end,
                           const void *const *from, int n) {
    const vf lr = splat(job->lr), momentum = splat(job->momentum);
    const vf decay = splat(job->weight_decay);
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        vf w = load(job->w + i), g = sum_vector(from, n, i), v = load(job->v + i), speed, next;
        SGD_STEP(w, g, v, speed, next);
        if (job->streams_w) {
            stream(job->w_next + i, next);
        } else {
            store(job->w_next + i, next);
        }
        if (job->streams_v) {
            stream(job->v_next + i, speed);
        } else {
            store(job->v_next + i, speed);
        }
    }
    return i;
}

INLINE void sgd_range(const kolo_simd_sgd_job *job, bool nesterov, int64_t begin, int64_t end,
                      const void *const *from, int n) {
    /* Tensors are 64-byte aligned; parts of them need not be. */
    int64_t aligned = kolo_min_i64((begin + VL - 1) / VL * VL, end);
    sgd_single(job, nesterov, begin, aligned, from, n);
    sgd_single(job, nesterov, sgd_vectors(job, nesterov, aligned, end, from, n), end, from, n);
}

static void sgd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_sgd_job job = *(const kolo_simd_sgd_job *)arg;
    if (job.nesterov) {
        WITH_GRADIENTS(sgd_range, job.g, &job, true, begin, end);
    } else {
        WITH_GRADIENTS(sgd_range, job.g, &job, false, begin, end);
    }
    if (job.streams_w || job.streams_v) stream_end();
}

INLINE void sgd_plain_range(const kolo_simd_sgd_job *job, int64_t begin, int64_t end,
                            const void *const *from, int n) {
    const float *w = job->w;
    float *w_next = job->w_next;
    const float lr = job->lr, decay = job->weight_decay;
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        const vf x = load(w + i);
        store(w_next + i, x - splat(lr) * (sum_vector(from, n, i) + splat(decay) * x));
    }
    for (; i < end; i++) w_next[i] = w[i] - lr * (sum_single(from, n, i) + decay * w[i]);
}

static void sgd_plain(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_sgd_job job = *(const kolo_simd_sgd_job *)arg;
    WITH_GRADIENTS(sgd_plain_range, job.g, &job, begin, end);
}

typedef struct delayed_state {
    vf w, v, s;
} delayed_state;

INLINE delayed_state delayed_step(const kolo_simd_delayed_sgd_job *job, delayed_state x, vf g,
                                  bool due) {
    const vf d = g + job->weight_decay * x.w;
    x.s = x.s + d;
    if (due) x.v = job->momentum * x.v + job->share * x.s;
    if (due) x.s = (vf){0};
    x.w = x.w - job->lr * (job->share * d + job->ahead * x.v);
    return x;
}

INLINE void delayed_range(const kolo_simd_delayed_sgd_job job, int64_t begin, int64_t end,
                          bool due) {
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        delayed_state x = {load(job.w + i), load(job.v + i), load(job.s + i)};
        x = delayed_step(&job, x, load(job.g + i), due);
        store(job.v_next + i, x.v);
        store(job.s_next + i, x.s);
        store(job.w_next + i, x.w);
    }
    const int64_t n = end - i;
    delayed_state x = {load_part(job.w + i, n), load_part(job.v + i, n), load_part(job.s + i, n)};
    x = delayed_step(&job, x, load_part(job.g + i, n), due);
    store_part(job.v_next + i, x.v, n);
    store_part(job.s_next + i, x.s, n);
    store_part(job.w_next + i, x.w, n);
}

static void delayed_sgd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_delayed_sgd_job *job = arg;
    if (job->due) {
        delayed_range(*job, begin, end, true);
    } else {
        delayed_range(*job, begin, end, false);
    }
}

static void accumulate(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_accumulate_job *job = arg;
    const float *x = job->x;
    float *sum = job->sum, keep = job->keep;
    if (job->fresh) {
        memcpy(sum + begin, x + begin, sizeof(float) * (size_t)(end - begin));
        return;
    }
    for (int64_t i = begin; i < end; i++) sum[i] = keep * sum[i] + x[i];
}

/* ---- Adam ---- */

typedef struct adam_state {
    vf w, m, v;
} adam_state;

INLINE adam_state adam_step(const kolo_simd_adam_job *job, adam_state s, vf g, bool frozen) {
    vf d = g + job->decay * s.w;
    const vi trained = s.v > (vf){0};
    s.m = frozen ? (vf)((vi)g & trained) : job->beta1 * s.m + (1 - job->beta1) * d;
    s.v = frozen ? s.v : job->beta2 * s.v + (1 - job->beta2) * d * d;
    s.w = job->keep * s.w - job->step * s.m / (square_root(s.v) * job->narrow + job->eps);
    return s;
}

/* Outputs may alias inputs, which prevents auto-vectorization. */
INLINE void adam_range(const kolo_simd_adam_job job, bool frozen, int64_t begin, int64_t end,
                       const void *const *from, int n) {
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        adam_state s = {load(job.w + i), load(job.m + i), load(job.v + i)};
        s = adam_step(&job, s, sum_vector(from, n, i), frozen);
        store(job.m_next + i, s.m);
        store(job.v_next + i, s.v);
        store(job.w_next + i, s.w);
    }
    const int64_t rest = end - i;
    adam_state s = {load_part(job.w + i, rest), load_part(job.m + i, rest),
                    load_part(job.v + i, rest)};
    s = adam_step(&job, s, sum_part(from, n, i, rest), frozen);
    store_part(job.m_next + i, s.m, rest);
    store_part(job.v_next + i, s.v, rest);
    store_part(job.w_next + i, s.w, rest);
}

static void adam(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_adam_job job = *(const kolo_simd_adam_job *)arg;
    if (job.frozen) {
        WITH_GRADIENTS(adam_range, job.g, job, true, begin, end);
    } else {
        WITH_GRADIENTS(adam_range, job.g, job, false, begin, end);
    }
}

INLINE vf momentum_of(const kolo_simd_momentum_job *job, vf g, vf m) {
    return job->of_momentum * m + job->of_gradient * g;
}

static void momentum_part(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_momentum_job job = *(const kolo_simd_momentum_job *)arg;
    const float *w = job.w ? job.w : job.m; /* times 0 */
    const float of_weight = job.w ? job.of_weight : 0;
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        vf sum = momentum_of(&job, load(job.g + i), load(job.m + i));
        store(job.part + i, sum + of_weight * load(w + i));
    }
    const int64_t n = end - i;
    vf sum = momentum_of(&job, load_part(job.g + i, n), load_part(job.m + i, n));
    store_part(job.part + i, sum + of_weight * load_part(w + i, n), n);
}

/* ---- LARS, LAMB ---- */

INLINE vf lars_speed(const kolo_simd_lars_job *job, vf w, vf g, vf v) {
    return job->momentum * v + job->rate * (g + job->decay * w);
}

static void lars(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lars_job job = *(const kolo_simd_lars_job *)arg;
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        vf w = load(job.w + i), v = lars_speed(&job, w, load(job.g + i), load(job.v + i));
        store(job.v_next + i, v);
        store(job.w_next + i, w - v);
    }
    int64_t n = end - i;
    vf w = load_part(job.w + i, n);
    vf v = lars_speed(&job, w, load_part(job.g + i, n), load_part(job.v + i, n));
    store_part(job.v_next + i, v, n);
    store_part(job.w_next + i, w - v, n);
}

/* Sets w to the direction of the update. */
INLINE adam_state lamb_step(const kolo_simd_lamb_job *job, adam_state s, vf g) {
    s.m = job->beta1 * s.m + (1 - job->beta1) * g;
    s.v = job->beta2 * s.v + (1 - job->beta2) * g * g;
    s.w = job->widen * s.m / (square_root(s.v) * job->narrow + job->eps) + job->decay * s.w;
    return s;
}

static void lamb(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lamb_job job = *(const kolo_simd_lamb_job *)arg;
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        adam_state s = {load(job.w + i), load(job.m + i), load(job.v + i)};
        s = lamb_step(&job, s, load(job.g + i));
        store(job.m_next + i, s.m);
        store(job.v_next + i, s.v);
        store(job.u + i, s.w);
    }
    int64_t n = end - i;
    adam_state s = {load_part(job.w + i, n), load_part(job.m + i, n), load_part(job.v + i, n)};
    s = lamb_step(&job, s, load_part(job.g + i, n));
    store_part(job.m_next + i, s.m, n);
    store_part(job.v_next + i, s.v, n);
    store_part(job.u + i, s.w, n);
}

/* ---- sums of blocks ---- */

/* Element i of a block in row-major order, which follows `at` elements. */
static void gather(const kolo_simd_block_job *job, int64_t at, int64_t count, float *to) {
    int64_t row = at / job->width, column = at % job->width;
    for (int64_t i = 0; i < count; row++, column = 0) {
        int64_t n = kolo_min_i64(job->width - column, count - i);
        const float *restrict x = job->x + job->rows[row];
        const int32_t *restrict at_column = job->columns + column;
        float *restrict out = to + i;
        for (int64_t k = 0; k < n; k++) out[k] = x[at_column[k]];
        i += n;
    }
}

/* Each block is summed in 16 lanes; the reader of the sums adds them in order. */
static inline float block_sum(const float *x, int64_t count, bool squares) {
    float lane[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (int k = 0; k < 16; k++) lane[k] += squares ? x[i + k] * x[i + k] : x[i + k];
    }
    for (int k = 0; i < count; i++, k++) lane[k] += squares ? x[i] * x[i] : x[i];
    for (int half = 8; half > 0; half /= 2) {
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    }
    return lane[0];
}

static void square_blocks(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_block_job *job = arg;
    float ordered[KOLO_SQUARE_BLOCK];
    for (int64_t block = begin; block < end; block++) {
        int64_t first = block * KOLO_SQUARE_BLOCK;
        int64_t count = kolo_min_i64(KOLO_SQUARE_BLOCK, job->count - first);
        if (job->rows) gather(job, first, count, ordered);
        job->sums[block] = block_sum(job->rows ? ordered : job->x + first, count, true);
    }
}

static void sum(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_block_job *job = arg;
    for (int64_t block = begin; block < end; block++) {
        int64_t first = block * KOLO_SQUARE_BLOCK;
        int64_t count = kolo_min_i64(KOLO_SQUARE_BLOCK, job->count - first);
        job->sums[block] = block_sum(job->x + first, count, false);
    }
}

static void fill(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_fill_job *job = arg;
    for (int64_t i = begin; i < end; i++) job->to[i] = job->number;
}

static void widen(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_convert_job *job = arg;
    const uint16_t *from = job->from;
    float *to = job->to;
    for (int64_t i = begin; i < end; i++) to[i] = kolo_bf16_widen(from[i]);
}

static void narrow(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_convert_job *job = arg;
    const float *from = job->from;
    uint16_t *to = job->to;
    for (int64_t i = begin; i < end; i++) to[i] = kolo_bf16_narrow(from[i]);
}

/* ---- bias ---- */

/* Elements from `at` on: `pixels` pixels of `inner` channels each. */
INLINE void bias_plane(const kolo_simd_bias_job *job, int64_t at, const float *b, int64_t pixels,
                       int64_t inner, bool bf16) {
    const void *x = ahead(job->x, at, bf16);
    void *y = ahead_to(job->out, at, bf16);
    for (int64_t p = 0; p < pixels; p++) {
        for (int64_t k = 0, i = p * inner; k < inner; k++, i++) {
            set_element(y, i, element_at(x, i, bf16) + b[k], bf16);
        }
    }
}

INLINE void bias_planes(const kolo_simd_bias_job *job, int64_t begin, int64_t end, bool bf16) {
    const kolo_simd_image *v = &job->image;
    int64_t size = kolo_simd_plane_size(v), pixels = v->h * v->w;
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % v->planes * v->inner, here = kolo_min_i64(v->inner, v->c - c);
        float padded[256] = {0};
        const float *b = job->b + c;
        if (here < v->inner) b = memcpy(padded, b, sizeof(float) * (size_t)here);
        if (v->inner == 1) {
            bias_plane(job, i * size, b, pixels, 1, bf16);
        } else if (v->inner == 8) {
            bias_plane(job, i * size, b, pixels, 8, bf16);
        } else if (v->inner == 16) {
            bias_plane(job, i * size, b, pixels, 16, bf16);
        } else {
            bias_plane(job, i * size, b, pixels, v->inner, bf16);
        }
    }
}

static void bias(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_bias_job *job = arg;
    if (job->bf16) {
        bias_planes(job, begin, end, true);
    } else {
        bias_planes(job, begin, end, false);
    }
}

/* sum[i] += the sum over pixels of lane i, of one lane or of eight: every fourth pixel is added to
 * the same of four sums, since one sum would wait for each addition. */
INLINE void sum_lane(const void *dy, int64_t pixels, int64_t stride, float *sum, bool bf16) {
    float part[4] = {0};
    for (int64_t p = 0; p < pixels; p++) part[p % 4] += element_at(dy, p * stride, bf16);
    *sum += (part[0] + part[1]) + (part[2] + part[3]);
}

INLINE void sum_eight(const void *dy, int64_t pixels, int64_t stride, float *sum, bool bf16) {
    v8f part[4] = {0};
    int64_t p = 0;
    for (; p + 4 <= pixels; p += 4) {
        for (int i = 0; i < 4; i++) part[i] += load8_at(dy, (p + i) * stride, bf16);
    }
    for (int i = 0; p < pixels; p++, i++) part[i] += load8_at(dy, p * stride, bf16);
    store8(sum, load8(sum) + ((part[0] + part[1]) + (part[2] + part[3])));
}

INLINE void sum_pixels(const void *dy, int64_t pixels, int64_t stride, int64_t lanes, float *sum,
                       bool bf16) {
    int64_t i = 0;
    for (; i + 8 <= lanes; i += 8) sum_eight(ahead(dy, i, bf16), pixels, stride, sum + i, bf16);
    for (; i < lanes; i++) sum_lane(ahead(dy, i, bf16), pixels, stride, sum + i, bf16);
}

/* As above for planes of one channel: pixels are distributed over 16 lanes, which are then
 * added. */
INLINE float sum_plane(const void *dy, int64_t pixels, bool bf16) {
    float lane[16] = {0};
    int64_t p = 0;
    for (; p + 16 <= pixels; p += 16) {
        for (int i = 0; i < 16; i++) lane[i] += element_at(dy, p + i, bf16);
    }
    for (int i = 0; p < pixels; p++, i++) lane[i] += element_at(dy, p, bf16);
    for (int middle = 8; middle > 0; middle /= 2) {
        for (int i = 0; i < middle; i++) lane[i] += lane[i + middle];
    }
    return lane[0];
}

INLINE void bias_sums(const kolo_simd_bias_job *job, int64_t begin, int64_t end, bool bf16) {
    const kolo_simd_image *v = &job->image;
    int64_t slices = kolo_simd_slices(v) / v->planes, pixels = v->h * v->w;
    for (int64_t i = begin; i < end; i++) {
        int64_t plane = i / slices, first = i % slices * KOLO_SIMD_SLICE;
        int64_t lanes = kolo_min_i64(KOLO_SIMD_SLICE, v->inner - first);
        int64_t c = plane * v->inner + first;
        float sum[KOLO_SIMD_SLICE] = {0}, *db = job->out;
        for (int64_t n = 0; n < v->n; n++) {
            int64_t at = n * kolo_simd_image_size(v) + plane * kolo_simd_plane_size(v) + first;
            const void *dy = ahead(job->x, at, bf16);
            if (v->inner == 1) {
                sum[0] += sum_plane(dy, pixels, bf16);
            } else {
                sum_pixels(dy, pixels, v->inner, lanes, sum, bf16);
            }
        }
        memcpy(db + c, sum, sizeof(float) * (size_t)kolo_min_i64(lanes, v->c - c));
    }
}

static void bias_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_bias_job *job = arg;
    if (job->bf16) {
        bias_sums(job, begin, end, true);
    } else {
        bias_sums(job, begin, end, false);
    }
}

const kolo_simd_point_table KOLO_ISA_SYMBOL(kolo_simd_point) = {
    .relu = relu,
    .relu_bwd = relu_bwd,
    .add = add,
    .add_relu = add_relu,
    .sgd = sgd,
    .sgd_plain = sgd_plain,
    .adam = adam,
    .lars = lars,
    .delayed_sgd = delayed_sgd,
    .lamb = lamb,
    .square_blocks = square_blocks,
    .sum = sum,
    .fill = fill,
    .accumulate = accumulate,
    .momentum_part = momentum_part,
    .widen = widen,
    .narrow = narrow,
    .bias = bias,
    .bias_bwd = bias_bwd,
};
