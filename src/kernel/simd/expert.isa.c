/* Loops of mixtures of experts. Each row of a result is the work of one thread, in the order of
 * tokens or experts. */
#include "kernel/simd/expert.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

enum { ROWS = 64 }; /* that are summed before they are rounded */

typedef struct rows {
    int n;
    int64_t from[ROWS];
    float factor[ROWS];
} rows;

/* n of the elements from c on: whole vectors, and a part of one. */
INLINE vf read_part(const void *p, int64_t i, int64_t n, bool bf16) {
    return n == VL ? load_at(p, i, bf16) : load_part_at(p, i, n, bf16);
}

/* y[to ..] += the sum of factor * x[from ..] over the rows, of `width` elements. */
INLINE void add_rows(void *y, int64_t to, const void *x, rows *r, int64_t width, bool bf16) {
    for (int64_t c = 0; c < width; c += VL) {
        const int64_t n = kolo_min_i64(VL, width - c);
        vf sum = read_part(y, to + c, n, bf16);
        for (int k = 0; k < r->n; k++) {
            sum = mul_add(splat(r->factor[k]), read_part(x, r->from[k] + c, n, bf16), sum);
        }
        if (n == VL) {
            store_at(y, to + c, sum, bf16);
        } else {
            store_part_at(y, to + c, sum, n, bf16);
        }
    }
    r->n = 0;
}

INLINE float factor_of(const kolo_simd_expert_job *job, int64_t i) {
    return job->gates ? job->gates[i] : 1;
}

/* Whether the token of place i has one, and where that is. */
INLINE bool find(const kolo_simd_expert_job *job, int64_t n, int64_t e, int64_t i, int64_t *row) {
    *row = ((e * job->samples + n) * job->room + job->places[i]) * job->width;
    return job->places[i] >= 0 && job->places[i] < job->room;
}

INLINE void dispatch_slabs(const kolo_simd_expert_job *job, int64_t begin, int64_t end, bool bf16) {
    const int64_t slab = job->room * job->width;
    for (int64_t k = begin; k < end; k++) {
        const int64_t e = k / job->samples, n = k % job->samples;
        memset(ahead_to(job->to, k * slab, bf16), 0, (size_t)(slab * (bf16 ? 2 : 4)));
        for (int64_t t = n * job->tokens; t < (n + 1) * job->tokens; t++) {
            const int64_t i = t * job->experts + e;
            int64_t row;
            if (!find(job, n, e, i, &row)) continue;
            rows r = {1, {t * job->width}, {factor_of(job, i)}};
            add_rows(job->to, row, job->from, &r, job->width, bf16);
        }
    }
}

INLINE void combine_tokens(const kolo_simd_expert_job *job, int64_t begin, int64_t end, bool bf16) {
    for (int64_t t = begin; t < end; t++) {
        rows r = {.n = 0};
        memset(ahead_to(job->to, t * job->width, bf16), 0, (size_t)(job->width * (bf16 ? 2 : 4)));
        for (int64_t e = 0; e < job->experts; e++) {
            const int64_t i = t * job->experts + e;
            if (!find(job, t / job->tokens, e, i, &r.from[r.n])) continue;
            r.factor[r.n++] = factor_of(job, i);
            if (r.n == ROWS) add_rows(job->to, t * job->width, job->from, &r, job->width, bf16);
        }
        if (r.n > 0) add_rows(job->to, t * job->width, job->from, &r, job->width, bf16);
    }
}

INLINE void multiply_tokens(const kolo_simd_expert_job *job, int64_t begin, int64_t end,
                            bool bf16) {
    float *d = job->to;
    for (int64_t t = begin; t < end; t++) {
        for (int64_t e = 0; e < job->experts; e++) {
            const int64_t i = t * job->experts + e, at = t * job->width;
            int64_t row;
            vf sum = {0};
            const bool has = find(job, t / job->tokens, e, i, &row);
            for (int64_t c = 0; c < job->width && has; c += VL) {
                const int64_t k = kolo_min_i64(VL, job->width - c);
                sum = mul_add(read_part(job->from, at + c, k, bf16),
                              read_part(job->with, row + c, k, bf16), sum);
            }
            d[i] = sum_lanes(sum);
        }
    }
}

#define LOOP(name, body)                                                      \
    static void name(const void *arg, int part, int64_t begin, int64_t end) { \
        const kolo_simd_expert_job *job = arg;                                \
        if (job->bf16) {                                                      \
            body(job, begin, end, true);                                      \
        } else {                                                              \
            body(job, begin, end, false);                                     \
        }                                                                     \
    }
LOOP(dispatch, dispatch_slabs)
LOOP(combine, combine_tokens)
LOOP(products, multiply_tokens)

const kolo_simd_expert_table KOLO_ISA_SYMBOL(kolo_simd_expert) = {
    .dispatch = dispatch, .combine = combine, .products = products};
