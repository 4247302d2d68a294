/* Names of the options in kolo/pass.h. */
#include "base/compiler.h"
#include "kolo/pass.h"

#include <stddef.h>

#define NAME(code, name, help) name,

const char *kolo_optimizer_name(kolo_optimizer optimizer) {
    static const char *const names[] = {KOLO_OPTIMIZER_LIST(NAME)};
    return (size_t)optimizer < KOLO_COUNT(names) ? names[optimizer] : "unknown";
}

const char *kolo_recompute_name(kolo_recompute recompute) {
    static const char *const names[] = {KOLO_RECOMPUTE_LIST(NAME)};
    return (size_t)recompute < KOLO_COUNT(names) ? names[recompute] : "unknown";
}

const char *kolo_precision_name(kolo_precision precision) {
    static const char *const names[] = {KOLO_PRECISION_LIST(NAME)};
    return (size_t)precision < KOLO_COUNT(names) ? names[precision] : "unknown";
}
