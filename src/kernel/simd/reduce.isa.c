/* Loops of sums, maxima and minima over dimensions. Sums are added in groups, so that rounding
 * errors do not grow with their length. */
#include "kernel/simd/reduce.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

enum { GROUP = 128, SLICE = KOLO_SIMD_REDUCE_SLICE };

typedef vf vector_function(vf a, vf b);

INLINE vf sum_of(vf a, vf b) { return a + b; }
/* NaN where either is NaN. */
INLINE vf max_of(vf a, vf b) { return select(a > b, a, select(b >= a, b, a + b)); }
INLINE vf min_of(vf a, vf b) { return select(a < b, a, select(b <= a, b, a + b)); }

/* All lanes together. */
INLINE float lanes_together(vector_function *f, vf v) {
    float lanes[VL];
    store(lanes, v);
    for (int half = VL / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) lanes[i] = f(splat(lanes[i]), splat(lanes[i + half]))[0];
    }
    return lanes[0];
}

/* n adjacent numbers, combined with `total`. */
INLINE vf along(vector_function *f, const float *x, int64_t n, float empty, vf total) {
    int64_t i = 0;
    while (i + VL <= n) {
        const int64_t end = kolo_min_i64(n, i + (int64_t)GROUP * VL);
        vf group = splat(empty);
        for (; i + VL <= end; i += VL) group = f(group, load(x + i));
        total = f(total, group);
    }
    if (i == n) return total;
    float lanes[VL];
    store(lanes, splat(empty));
    for (int64_t k = 0; i + k < n; k++) lanes[k] = x[i + k];
    return f(total, load(lanes));
}

/* Rows of `n` <= SLICE adjacent numbers, element by element. */
INLINE void across(vector_function *f, const kolo_simd_reduce_job *job, const float *x, int64_t n,
                   float empty, float *total) {
    const kolo_simd_nest *nest = &job->reduced;
    const int64_t rows = kolo_simd_nest_rows(nest, nest->n_dims), whole = (n + VL - 1) / VL * VL;
    float group[SLICE];
    kolo_simd_cursor row;
    kolo_simd_nest_seek(nest, nest->n_dims, 0, &row);
    for (int64_t i = 0; i < whole; i += VL) store(total + i, splat(empty));
    for (int64_t r = 0; r < rows;) {
        const int64_t end = kolo_min_i64(rows, r + GROUP);
        for (int64_t i = 0; i < whole; i += VL) store(group + i, splat(empty));
        for (; r < end; r++) {
            const float *at = x + row.offset[0];
            int64_t i = 0;
            for (; i + VL <= n; i += VL) store(group + i, f(load(group + i), load(at + i)));
            if (i < n) store(group + i, f(load(group + i), load_part(at + i, n - i)));
            kolo_simd_nest_next(nest, nest->n_dims, &row);
        }
        for (int64_t i = 0; i < whole; i += VL) {
            store(total + i, f(load(total + i), load(group + i)));
        }
    }
}

INLINE void reduce_slices(vector_function *f, const kolo_simd_reduce_job *job, int64_t begin,
                          int64_t end, float empty) {
    const int inner = job->kept.n_dims - 1;
    const int64_t slices = kolo_simd_reduce_slices(job), step = job->kept.stride[1][inner];
    float total[SLICE] = {0};
    for (int64_t item = begin; item < end; item++) {
        kolo_simd_cursor at;
        const int64_t first = item % slices * SLICE;
        const int64_t n = kolo_min_i64(SLICE, job->kept.size[inner] - first);
        kolo_simd_nest_seek(&job->kept, inner, item / slices, &at);
        across(f, job, job->x + at.offset[0] + first, n, empty, total);
        float *y = job->y + at.offset[1] + first * step;
        for (int64_t i = 0; i < n; i++) y[i * step] = total[i] * job->factor;
    }
}

INLINE void reduce_rows(vector_function *f, const kolo_simd_reduce_job *job, int64_t begin,
                        int64_t end, float empty) {
    const kolo_simd_nest *nest = &job->reduced;
    const int inner = nest->n_dims - 1;
    const int64_t rows = kolo_simd_nest_rows(nest, inner);
    kolo_simd_cursor at, row;
    kolo_simd_nest_seek(&job->kept, job->kept.n_dims, begin, &at);
    for (int64_t item = begin; item < end; item++) {
        vf total = splat(empty);
        kolo_simd_nest_seek(nest, inner, 0, &row);
        for (int64_t r = 0; r < rows; r++) {
            total =
                along(f, job->x + at.offset[0] + row.offset[0], nest->size[inner], empty, total);
            kolo_simd_nest_next(nest, inner, &row);
        }
        job->y[at.offset[1]] = lanes_together(f, total) * job->factor;
        kolo_simd_nest_next(&job->kept, job->kept.n_dims, &at);
    }
}

#define REDUCE(name, empty)                                                   \
    static void name(const void *arg, int part, int64_t begin, int64_t end) { \
        const kolo_simd_reduce_job *job = arg;                                \
        if (job->kept_inside) {                                               \
            reduce_slices(name##_of, job, begin, end, empty);                 \
        } else {                                                              \
            reduce_rows(name##_of, job, begin, end, empty);                   \
        }                                                                     \
    }
REDUCE(sum, 0)
REDUCE(max, -__builtin_inff())
REDUCE(min, __builtin_inff())

const kolo_simd_reduce_table KOLO_ISA_SYMBOL(kolo_simd_reduce) = {
    .sum = sum, .max = max, .min = min};
