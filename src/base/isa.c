/* Detects the instruction sets of the processor. The compilers' checks include that the operating
 * system saves the wide registers. */
#include "base/isa.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

#define INFO(constant, isa_name, isa_label, flops) \
    [KOLO_ISA_##constant] = {.name = #isa_name, .label = isa_label, .flops_per_cycle = flops},
static const kolo_isa_info infos[KOLO_ISA_COUNT] = {KOLO_ISA_LIST(INFO)};

#define COPY(constant, isa_name, unused) [KOLO_ISA_##constant] = true,
static const bool has_copy[KOLO_ISA_COUNT] = {KOLO_ISA_COPIES(COPY, )};

#ifdef KOLO_ISA_COPY_COUNT
#define ONE(constant, isa_name, unused) +1
_Static_assert(KOLO_ISA_COPIES(ONE, ) == KOLO_ISA_COPY_COUNT,
               "an instruction set of cmake/KoloCompile.cmake has no row in base/isa.h");
#endif

const kolo_isa_info *kolo_isa_describe(kolo_isa isa) { return &infos[isa]; }

#if defined(__x86_64__)
#include <cpuid.h>

/* Clang's __builtin_cpu_supports does not support F16C: bit 29 of ecx in leaf 1. GCC's does, and
 * costs no cpuid instruction, which in a virtual machine traps to the host. */
static bool has_f16c(void) {
#if !defined __clang__
    return __builtin_cpu_supports("f16c");
#else
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1);
#endif
}

/* The features that the compiler flags of the instruction set enable. */
static bool has_features(kolo_isa isa) {
    if (isa >= KOLO_ISA_AVX2 &&
        !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())) {
        return false;
    }
    if (isa >= KOLO_ISA_AVX512 &&
        !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))) {
        return false;
    }
    return true;
}
#else
static bool has_features(kolo_isa isa) { return isa == KOLO_ISA_BASELINE; }
#endif

/* Zen 4, the processor of this family that has AVX-512, computes 512 bits in two halves. */
static bool halves_512_bits(void) {
#if defined(__x86_64__)
    return __builtin_cpu_is("amdfam19h");
#else
    return false;
#endif
}

double kolo_isa_flops_per_cycle(kolo_isa isa) {
    return infos[isa == KOLO_ISA_AVX512 && halves_512_bits() ? KOLO_ISA_AVX2 : isa].flops_per_cycle;
}

bool kolo_isa_runs(kolo_isa isa) { return has_copy[isa] && has_features(isa); }

kolo_isa kolo_isa_best(void) {
    int best = KOLO_ISA_COUNT - 1;
    while (best > KOLO_ISA_BASELINE && !kolo_isa_runs((kolo_isa)best)) best--;
    return (kolo_isa)best;
}

static _Thread_local int pinned = -1;

void kolo_isa_pin(int isa) {
    KOLO_ASSERT(isa < 0 || kolo_isa_runs((kolo_isa)isa));
    pinned = isa;
}

kolo_isa kolo_isa_now(void) { return pinned >= 0 ? (kolo_isa)pinned : kolo_isa_best(); }

/* From the line "model name : AMD EPYC ..." of /proc/cpuinfo. */
void kolo_processor_name(kolo_text *text) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        kolo_text_add(text, "%s", colon + strspn(colon, ": \t"));
        break;
    }
    if (file) fclose(file);
}
