/* dropout of elements that lie as they are drawn, 64 draws at a time. */
#include "kernel/simd/philox.h"
#include "kernel/simd/simd.h"

enum { DRAWS = 4 * KOLO_PHILOX_COUNTERS };

/* All bits where the draws from number `place` on, a multiple of four, keep; none where they drop.
 */
static void draw(const kolo_simd_dropout_job *job, uint64_t place, int32_t keep[DRAWS]) {
    uint32_t c[4][KOLO_PHILOX_COUNTERS];
    philox(job->seed, job->stream, place / 4, c);
    for (int k = 0; k < 4; k++) {
        for (int g = 0; g < KOLO_PHILOX_COUNTERS; g++) {
            keep[4 * g + k] = -(int32_t)(c[k][g] >> 8 >= job->limit);
        }
    }
}

static void dropout(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_dropout_job *job = arg;
    int32_t keep[DRAWS];
    while (begin < end) {
        uint64_t place = job->place + (uint64_t)begin;
        int64_t skip = (int64_t)(place % 4), n = DRAWS - skip, i = 0;
        if (n > end - begin) n = end - begin;
        draw(job, place - (uint64_t)skip, keep);
        const float *x = job->x + begin;
        float *y = job->y + begin;
        for (; i + VL <= n; i += VL) {
            vi kept;
            memcpy(&kept, &keep[skip + i], sizeof kept);
            store(y + i, (vf)(kept & (vi)(load(x + i) * job->scale)));
        }
        for (; i < n; i++) y[i] = keep[skip + i] ? x[i] * job->scale : 0;
        begin += n;
    }
}

const kolo_simd_dropout_table KOLO_SIMD_TABLE(kolo_simd_dropout_) = {.dropout = dropout};
