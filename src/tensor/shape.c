/* Shapes: number of elements, comparison, text. */
#include "kolo/tensor.h"

#include <inttypes.h>
#include <stdio.h>

int64_t kolo_shape_count(const kolo_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= shape->dim[i];
    return count;
}

bool kolo_shape_equal(const kolo_shape *a, const kolo_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

const char *kolo_shape_text(const kolo_shape *shape, char text[KOLO_SHAPE_TEXT]) {
    int n = snprintf(text, KOLO_SHAPE_TEXT, "[");
    for (int i = 0; i < shape->rank && n < KOLO_SHAPE_TEXT; i++) {
        n += snprintf(text + n, (size_t)(KOLO_SHAPE_TEXT - n), "%s%" PRId64, i ? "," : "",
                      shape->dim[i]);
    }
    if (n < KOLO_SHAPE_TEXT) snprintf(text + n, (size_t)(KOLO_SHAPE_TEXT - n), "]");
    return text;
}
