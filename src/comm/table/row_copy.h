#pragma once
/* Copies of rows. Those of usual widths are a few moves, not a call. */

#include <stddef.h>
#include <string.h>

static inline void kolo_row_copy(float *to, const float *from, size_t width) {
    switch (width) {
    case 8:
        memcpy(to, from, 8 * sizeof *to);
        break;
    case 16:
        memcpy(to, from, 16 * sizeof *to);
        break;
    case 32:
        memcpy(to, from, 32 * sizeof *to);
        break;
    default:
        memcpy(to, from, width * sizeof *to);
    }
}
