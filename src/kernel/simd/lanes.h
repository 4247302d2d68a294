#pragma once
/* For *.isa.c sources: reductions of VL vectors at once, and lanes by number. */

#include "kernel/simd/math.h"

/* Which lane of two vectors goes to `lane`: one of the first vector, or of the second if `lane` has
 * `bit`; its number is without `bit`, or with it (`add`: bit). */
#define FROM(lane, bit, add) (((lane) & ~(bit)) + ((lane) & (bit) ? VL : 0) + (add)) % (2 * VL)
#define FROM_4(lane, bit, add)                                                    \
    FROM(lane, bit, add), FROM((lane) + 1, bit, add), FROM((lane) + 2, bit, add), \
        FROM((lane) + 3, bit, add)
#if KOLO_VECTOR_BYTES == 64
#define FROM_ALL(bit, add) \
    FROM_4(0, bit, add), FROM_4(4, bit, add), FROM_4(8, bit, add), FROM_4(12, bit, add)
#elif KOLO_VECTOR_BYTES == 32
#define FROM_ALL(bit, add) FROM_4(0, bit, add), FROM_4(4, bit, add)
#else
#define FROM_ALL(bit, add) FROM_4(0, bit, add)
#endif
#define JOIN_PAIRS(join, v, bit)                                                      \
    UNROLL for (int i = 0; i < ((bit) < VL ? (bit) : 0); i++) {                       \
        v[i] = join(__builtin_shufflevector(v[i], v[i + (bit)], FROM_ALL(bit, 0)),    \
                    __builtin_shufflevector(v[i], v[i + (bit)], FROM_ALL(bit, bit))); \
    }

typedef vf kolo_join(vf a, vf b);
INLINE vf plus(vf a, vf b) { return a + b; }

/* Lane i joins the lanes of v[i], in the order of sum_lanes. Each step joins pairs of vectors, of
 * which the lanes whose numbers have the next bit are then those of the second. */
INLINE vf joined_lanes(kolo_join *join, vf v[VL]) {
    JOIN_PAIRS(join, v, 8)
    JOIN_PAIRS(join, v, 4)
    JOIN_PAIRS(join, v, 2)
    JOIN_PAIRS(join, v, 1)
    return v[0];
}

/* Lane i is lane number[i] of v. */
INLINE vf numbered_lanes(vf v, const uint8_t *number) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)number);
    return (vf)_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(bytes), (__m512)v);
#elif KOLO_VECTOR_BYTES == 32 && defined(__FMA__)
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)number);
    return (vf)_mm256_permutevar8x32_ps((__m256)v, _mm256_cvtepu8_epi32(bytes));
#else
    vf lanes;
    for (int i = 0; i < VL; i++) lanes[i] = v[number[i]];
    return lanes;
#endif
}
