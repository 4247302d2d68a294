/* splitmix64 from the FNV-1a hash of a name. */
#include "support/formula.h"

#include <math.h>
#include <string.h>

uint64_t formula_hash(const char *prefix, const char *name) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const char *c = prefix; *c; c++) h = (h ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    for (const char *c = name; *c; c++) h = (h ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t formula_bits(uint64_t hash, int64_t i) {
    uint64_t z = hash + (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double formula_uniform(uint64_t hash, int64_t i) {
    return (double)(formula_bits(hash, i) >> 40) * 0x1p-24;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

float formula_start(const char *name, const kolo_shape *s, int64_t i) {
    double v = 2 * formula_uniform(formula_hash("", name), i) - 1;
    if (s->rank > 1) {
        return (float)(sqrt(6.0 / (double)(kolo_shape_count(s) / s->dim[0])) * v);
    }
    if (ends_with(name, "running_var")) return (float)(1 + 0.25 * v);
    if (!ends_with(name, ".weight")) return (float)(0.125 * v);
    bool in_block = strstr(name, "layer") && !strstr(name, "downsample");
    return (float)((in_block ? 0.125 : 0.75) * (1 + 0.25 * v));
}
