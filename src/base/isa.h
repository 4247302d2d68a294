#pragma once
/* Instruction sets: which copies of an *.isa.c source exist, and which copy runs.
 *
 * cmake/KoloCompile.cmake compiles a source named *.isa.c once per instruction set. Each copy
 * exports one symbol, KOLO_ISA_SYMBOL(stem), a const table of its functions. The header of the
 * source declares all copies with KOLO_ISA_TABLE(type, stem); a caller gets the best one with
 * KOLO_ISA_PICK(stem):
 *
 *     KOLO_ISA_TABLE(kolo_reduce_table, kolo_reduce);                   in reduce.h
 *     const kolo_reduce_table KOLO_ISA_SYMBOL(kolo_reduce) = {...};     in reduce.isa.c
 *     const kolo_reduce_table *table = KOLO_ISA_PICK(kolo_reduce);      anywhere
 *
 * Adding an instruction set: its compiler flags in cmake/KoloCompile.cmake, a row in KOLO_ISA_LIST
 * and KOLO_ISA_COPIES below, and the processor features that it requires in isa.c. */

#include "base/compiler.h"
#include "base/text.h"

/* X(CONSTANT, name, label, flops), weakest first. `name` is the suffix of the copies' symbols and
 * the key of the compiler flags; `label` is for users; `flops` are the f32 operations per cycle
 * and core of a nominal processor, for time estimates. */
#define KOLO_ISA_LIST(X)                 \
    X(BASELINE, baseline, "baseline", 8) \
    X(AVX2, avx2, "AVX2", 32)            \
    X(AVX512, avx512, "AVX-512", 64)

#define KOLO_ISA_CONSTANT(constant, ...) KOLO_ISA_##constant,
typedef enum kolo_isa { KOLO_ISA_LIST(KOLO_ISA_CONSTANT) KOLO_ISA_COUNT } kolo_isa;

/* X(CONSTANT, name, ...) for each instruction set that this build has copies for. The build defines
 * KOLO_ISA_HAS_<CONSTANT>; the baseline is always there. */
#define KOLO_ISA_COPY_BASELINE(X, ...) X(BASELINE, baseline, __VA_ARGS__)
#if KOLO_ISA_HAS_AVX2
#define KOLO_ISA_COPY_AVX2(X, ...) X(AVX2, avx2, __VA_ARGS__)
#else
#define KOLO_ISA_COPY_AVX2(X, ...)
#endif
#if KOLO_ISA_HAS_AVX512
#define KOLO_ISA_COPY_AVX512(X, ...) X(AVX512, avx512, __VA_ARGS__)
#else
#define KOLO_ISA_COPY_AVX512(X, ...)
#endif
#define KOLO_ISA_COPIES(X, ...)            \
    KOLO_ISA_COPY_BASELINE(X, __VA_ARGS__) \
    KOLO_ISA_COPY_AVX2(X, __VA_ARGS__)     \
    KOLO_ISA_COPY_AVX512(X, __VA_ARGS__)

/* In an *.isa.c source: the name of this copy's symbol, for instance kolo_reduce_avx2. */
#define KOLO_ISA_PASTE_(stem, name) stem##_##name
#define KOLO_ISA_PASTE(stem, name) KOLO_ISA_PASTE_(stem, name)
#define KOLO_ISA_SYMBOL(stem) KOLO_ISA_PASTE(stem, KOLO_ISA)

/* In a header: declares the copies of `stem` and stem_copy(isa), which is NULL when the build has
 * no copy for the set. */
#define KOLO_ISA_EXTERN_(constant, name, type, stem) extern const type stem##_##name;
#define KOLO_ISA_ENTRY_(constant, name, type, stem) [KOLO_ISA_##constant] = &stem##_##name,
#define KOLO_ISA_TABLE(type, stem)                          \
    KOLO_ISA_COPIES(KOLO_ISA_EXTERN_, type, stem)           \
    static inline const type *stem##_copy(kolo_isa isa) {   \
        static const type *const copies[KOLO_ISA_COUNT] = { \
            KOLO_ISA_COPIES(KOLO_ISA_ENTRY_, type, stem)};  \
        return copies[isa];                                 \
    }                                                       \
    _Static_assert(sizeof(type) > 0, "a table of functions")

/* The copy of the best instruction set, or of the one that this thread pinned. */
#define KOLO_ISA_PICK(stem) (stem##_copy(kolo_isa_now()))
/* The copy of one instruction set; NULL when the processor or the build lacks it. */
#define KOLO_ISA_COPY(stem, isa) (kolo_isa_runs(isa) ? stem##_copy(isa) : NULL)

/* What is known about an instruction set: one row of KOLO_ISA_LIST. */
typedef struct kolo_isa_info {
    const char *name, *label;
    double flops_per_cycle;
} kolo_isa_info;

KOLO_SHARED const kolo_isa_info *kolo_isa_describe(kolo_isa isa);
/* The f32 operations per cycle and core of this processor with an instruction set that it runs, for
 * time estimates: those of the nominal one, or fewer where its units are narrower. */
KOLO_SHARED double kolo_isa_flops_per_cycle(kolo_isa isa);
/* True when this processor runs the instruction set and the build has copies for it. */
KOLO_SHARED bool kolo_isa_runs(kolo_isa isa);
/* The strongest instruction set that runs. */
KOLO_SHARED kolo_isa kolo_isa_best(void);
/* The instruction set that KOLO_ISA_PICK uses: kolo_isa_best() unless this thread pinned another.
 */
KOLO_SHARED kolo_isa kolo_isa_now(void);
/* Test hook: KOLO_ISA_PICK on this thread uses `isa`, which must run here; -1: the best again. */
KOLO_SHARED void kolo_isa_pin(int isa);

/* Appends the processor's model name ("AMD EPYC 7763"); nothing when the system does not report
 * it. */
KOLO_SHARED void kolo_processor_name(kolo_text *text);
