/* Asks the processor what it can do; the compiler's check includes that the system saves the wide
 * registers. */
#include "base/isa.h"

#include <stdio.h>
#include <string.h>

/* From "model name : AMD EPYC ..." of /proc/cpuinfo. */
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

#if KOLO_ISA_X86
#include <cpuid.h>

/* Clang's check does not know F16C: bit 29 of ecx in leaf 1. Not the way where there is another,
 * for in a virtual machine each cpuid is a call of the host, and kernels are asked for this often.
 */
static bool has_f16c(void) {
#if !defined __clang__
    return __builtin_cpu_supports("f16c");
#else
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1);
#endif
}

kolo_isa kolo_isa_best(void) {
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return !avx2 ? KOLO_ISA_BASELINE : avx512 ? KOLO_ISA_AVX512 : KOLO_ISA_AVX2;
}
#else
kolo_isa kolo_isa_best(void) { return KOLO_ISA_BASELINE; }
#endif
