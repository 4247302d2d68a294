/* Loops of the elementwise functions of two inputs: the formulas of graph/ops/binary.h on vectors.
 * Remainders use the same vector arithmetic as whole vectors. */
#include "kernel/simd/binary.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

#define N(number) splat((float)(number))
#define IF select

typedef vf vector_function(vf a, vf b);

/* n elements from element i on, `stride` apart: one vector, n <= VL. */
INLINE vf load_strided(const void *p, int64_t i, int64_t stride, int64_t n, bool bf16) {
    float lanes[VL] = {0};
    if (stride == 0) return splat(element_at(p, i, bf16));
    if (stride == 1 && n == VL) return load_at(p, i, bf16);
    if (stride == 1) return load_part_at(p, i, n, bf16);
    for (int64_t k = 0; k < n; k++) lanes[k] = element_at(p, i + k * stride, bf16);
    return load(lanes);
}

/* n elements of the innermost dimension from `at` on. */
INLINE void map(vector_function *function, const kolo_simd_binary_job *job, const int64_t *at,
                int64_t n, int64_t step_a, int64_t step_b, bool bf16_a, bool bf16_b,
                bool bf16_out) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf a = load_strided(job->a, at[0] + i * step_a, step_a, VL, bf16_a);
        vf b = load_strided(job->b, at[1] + i * step_b, step_b, VL, bf16_b);
        store_at(job->out, at[2] + i, function(a, b), bf16_out);
    }
    if (i == n) return;
    vf a = load_strided(job->a, at[0] + i * step_a, step_a, n - i, bf16_a);
    vf b = load_strided(job->b, at[1] + i * step_b, step_b, n - i, bf16_b);
    store_part_at(job->out, at[2] + i, function(a, b), n - i, bf16_out);
}

/* With the strides and types that are frequent as constants. */
INLINE void map_row(vector_function *function, const kolo_simd_binary_job *job, const int64_t *at,
                    int64_t n) {
    const kolo_simd_nest *nest = job->nest;
    const int64_t a = nest->stride[0][nest->n_dims - 1], b = nest->stride[1][nest->n_dims - 1];
    const bool one_type = job->bf16_a == job->bf16_out && job->bf16_b == job->bf16_out;
    if (!one_type || a > 1 || b > 1 || a + b == 0) {
        map(function, job, at, n, a, b, job->bf16_a, job->bf16_b, job->bf16_out);
    } else if (job->bf16_out) {
        if (a == 0) {
            map(function, job, at, n, 0, 1, true, true, true);
        } else if (b == 0) {
            map(function, job, at, n, 1, 0, true, true, true);
        } else {
            map(function, job, at, n, 1, 1, true, true, true);
        }
    } else if (a == 0) {
        map(function, job, at, n, 0, 1, false, false, false);
    } else if (b == 0) {
        map(function, job, at, n, 1, 0, false, false, false);
    } else {
        map(function, job, at, n, 1, 1, false, false, false);
    }
}

INLINE void map_items(vector_function *function, const kolo_simd_binary_job *job, int64_t begin,
                      int64_t end) {
    const kolo_simd_nest *nest = job->nest;
    const int inner = nest->n_dims - 1;
    const int64_t pieces = kolo_simd_pieces(nest), size = nest->size[inner];
    kolo_simd_cursor row;
    kolo_simd_nest_seek(nest, inner, begin / pieces, &row);
    for (int64_t item = begin; item < end; item++) {
        const int64_t piece = item % pieces, first = piece * KOLO_SIMD_PIECE;
        int64_t at[3];
        for (int k = 0; k < 3; k++) at[k] = row.offset[k] + first * nest->stride[k][inner];
        map_row(function, job, at, kolo_min_i64(KOLO_SIMD_PIECE, size - first));
        if (piece == pieces - 1) kolo_simd_nest_next(nest, inner, &row);
    }
}

#define BINARY(X, name, join, linear, forward)                                       \
    INLINE vf name##_of(vf a, vf b) { return forward; }                              \
    static void name##_loop(const void *arg, int part, int64_t begin, int64_t end) { \
        map_items(name##_of, arg, begin, end);                                       \
    }
KOLO_BINARY_LIST(BINARY, )

#define ENTRY(name) .name = name##_loop,
const kolo_simd_binary_table KOLO_ISA_SYMBOL(kolo_simd_binary) = {
    KOLO_BINARY_LIST(KOLO_BINARY_OP, ENTRY)};
