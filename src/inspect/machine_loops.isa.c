/* Multiply-adds in registers, and the triad of McCalpin's STREAM, compiled once per instruction
 * set. Twelve independent chains hide the latency of two FMA units. */
#include "inspect/machine_loops.h"

#include <stddef.h>

#ifdef __FMA__
#include <immintrin.h>
#endif

enum { LANES = KOLO_VECTOR_BYTES / 4, CHAINS = 12 };

typedef float vf __attribute__((vector_size(KOLO_VECTOR_BYTES)));
typedef float vf_any __attribute__((vector_size(KOLO_VECTOR_BYTES), aligned(4), may_alias));

static inline __attribute__((always_inline)) vf mul_add(vf a, vf b, vf c) {
#if KOLO_VECTOR_BYTES == 64
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif KOLO_VECTOR_BYTES == 32
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* Each chain is a separate variable, which the compiler keeps in a register; an array would be
 * spilled. */
#define EACH_CHAIN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define MAKE(i) vf chain##i = (vf){0} + (float)i;
#define STEP(i) chain##i = mul_add(chain##i, factor, term);
#define SUM(i) sum += chain##i;

static void fma_rounds(const void *job, int part, int64_t begin, int64_t end) {
    vf factor = (vf){0} + 0.999F, term = (vf){0} + 0.001F, sum = {0};
    EACH_CHAIN(MAKE)
    for (int64_t round = begin; round < end; round++) {
        EACH_CHAIN(STEP)
    }
    EACH_CHAIN(SUM)
    float *sums = *(float *const *)job;
    sums[part] = sum[0];
}

static void triad(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_perf_triad *job = arg;
    float *a = job->a;
    const float *b = job->b, *c = job->c;
    vf factor = (vf){0} + job->factor;
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) {
        *(vf_any *)(a + i) = mul_add(factor, *(const vf_any *)(c + i), *(const vf_any *)(b + i));
    }
    for (; i < end; i++) a[i] = b[i] + job->factor * c[i];
}

const kolo_perf_table KOLO_ISA_SYMBOL(kolo_perf) = {
    .flops = 2 * LANES * CHAINS, .fma = fma_rounds, .triad = triad};
