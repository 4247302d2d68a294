/* dropout of elements stored in the order of their random numbers, 64 at a time. */
#include "kernel/simd/dropout.h"

#include "kernel/simd/philox.h"

enum { DRAWS = 4 * KOLO_PHILOX_COUNTERS };

INLINE void drop(const kolo_simd_dropout_job *job, int64_t begin, int64_t end, bool bf16) {
    uint32_t draws[DRAWS];
    while (begin < end) {
        uint64_t place = job->place + (uint64_t)begin;
        int64_t skip = (int64_t)(place % 4), n = DRAWS - skip, i = 0;
        if (n > end - begin) n = end - begin;
        philox(job->seed, job->stream, place / 4, draws);
        const void *x = ahead(job->x, begin, bf16);
        void *y = ahead_to(job->y, begin, bf16);
        for (; i + VL <= n; i += VL) {
            vu drawn;
            memcpy(&drawn, &draws[skip + i], sizeof drawn);
            vi kept = (vi)(drawn >> 8) >= (int32_t)job->limit; /* 24 bits: signed comparison is
                                                                * safe */
            store_at(y, i, (vf)(kept & (vi)(load_at(x, i, bf16) * job->scale)), bf16);
        }
        for (; i < n; i++) {
            bool kept = draws[skip + i] >> 8 >= job->limit;
            set_element(y, i, kept ? element_at(x, i, bf16) * job->scale : 0, bf16);
        }
        begin += n;
    }
}

static void dropout(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_dropout_job *job = arg;
    if (job->bf16) {
        drop(job, begin, end, true);
    } else {
        drop(job, begin, end, false);
    }
}

const kolo_simd_dropout_table KOLO_ISA_SYMBOL(kolo_simd_dropout) = {.dropout = dropout};
