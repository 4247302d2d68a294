/* Names of the options in kolo/pass.h, and of outputs. */
#include "base/compiler.h"
#include "pass/pass.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

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

const char *kolo_gradient_name(int32_t id, char name[KOLO_GRADIENT_NAME]) {
    snprintf(name, KOLO_GRADIENT_NAME, "gradient of value %" PRId32, id);
    return name;
}
