/* The run-time choice between the copies of reduce.isa.c. */
#include "comm/reduce.h"

#include "base/isa.h"

extern const kolo_reduce_table kolo_reduce_baseline;
#if KOLO_ISA_X86
extern const kolo_reduce_table kolo_reduce_avx2, kolo_reduce_avx512;
#endif

static const kolo_reduce_table *const tables[] = {
    [KOLO_ISA_BASELINE] = &kolo_reduce_baseline,
#if KOLO_ISA_X86
    [KOLO_ISA_AVX2] = &kolo_reduce_avx2,
    [KOLO_ISA_AVX512] = &kolo_reduce_avx512,
#endif
};

const kolo_reduce_table *kolo_reduce_of(kolo_isa isa) {
    return isa <= kolo_isa_best() ? tables[isa] : NULL;
}

const kolo_reduce_table *kolo_reduce_best(void) { return tables[kolo_isa_best()]; }
