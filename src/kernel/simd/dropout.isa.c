/* dropout of elements that lie as they are drawn, 64 draws at a time. */
#include "kernel/simd/philox.h"
#include "kernel/simd/simd.h"

enum { DRAWS = 4 * KOLO_PHILOX_COUNTERS };

static void dropout(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_dropout_job *job = arg;
    uint32_t draws[DRAWS];
    while (begin < end) {
        uint64_t place = job->place + (uint64_t)begin;
        int64_t skip = (int64_t)(place % 4), n = DRAWS - skip, i = 0;
        if (n > end - begin) n = end - begin;
        philox(job->seed, job->stream, place / 4, draws);
        const float *x = job->x + begin;
        float *y = job->y + begin;
        for (; i + VL <= n; i += VL) {
            vu drawn;
            memcpy(&drawn, &draws[skip + i], sizeof drawn);
            vi kept = (vi)(drawn >> 8) >= (int32_t)job->limit; /* of 24 bits: no signs */
            store(y + i, (vf)(kept & (vi)(load(x + i) * job->scale)));
        }
        for (; i < n; i++) y[i] = draws[skip + i] >> 8 >= job->limit ? x[i] * job->scale : 0;
        begin += n;
    }
}

const kolo_simd_dropout_table KOLO_SIMD_TABLE(kolo_simd_dropout_) = {.dropout = dropout};
