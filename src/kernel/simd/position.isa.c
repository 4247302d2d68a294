/* Loops of rotary embedding. y may be x. */
#include "kernel/simd/position.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

/* The pairs of a whole vector from element i on. */
INLINE void rotate(const kolo_simd_rotary_job *job, int64_t i, vf c, vf s, bool bf16) {
    vf a = load_at(job->x, i, bf16), b = load_at(job->x, i + job->half, bf16);
    store_at(job->y, i, a * c - b * s, bf16);
    store_at(job->y, i + job->half, b * c + a * s, bf16);
}

INLINE void rotate_tokens(const kolo_simd_rotary_job *job, int64_t begin, int64_t end, bool bf16) {
    for (int64_t token = begin; token < end; token++) {
        const float *cosines = job->cosines + token % job->length * job->half;
        const float *sines = job->sines + token % job->length * job->half;
        for (int64_t h = 0; h < job->heads; h++) {
            const int64_t at = (token * job->heads + h) * 2 * job->half;
            for (int64_t i = 0; i < job->half; i += VL) {
                const int64_t n = kolo_min_i64(VL, job->half - i);
                if (n == VL) {
                    rotate(job, at + i, load(cosines + i), load(sines + i), bf16);
                    continue;
                }
                vf c = load_part(cosines + i, n), s = load_part(sines + i, n);
                vf a = load_part_at(job->x, at + i, n, bf16);
                vf b = load_part_at(job->x, at + job->half + i, n, bf16);
                store_part_at(job->y, at + i, a * c - b * s, n, bf16);
                store_part_at(job->y, at + job->half + i, b * c + a * s, n, bf16);
            }
        }
    }
}

static void rotary(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_rotary_job *job = arg;
    if (job->bf16) {
        rotate_tokens(job, begin, end, true);
    } else {
        rotate_tokens(job, begin, end, false);
    }
}

const kolo_simd_position_table KOLO_ISA_SYMBOL(kolo_simd_position) = {.rotary = rotary};
