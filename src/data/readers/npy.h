#pragma once
/* Headers of NumPy's .npy files: "\x93NUMPY", the version, the length of a Python dictionary, which
 * has the type of the elements, their order and the shape. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether a file that begins with these bytes is one. */
bool kolo_npy_is(const char *bytes, size_t length);
/* Reads the header of a table of little-endian f32 in row-major order. *data: where its elements
 * begin. `where` names the file in errors. FORMAT: it is damaged; UNSUPPORTED: it is no such table.
 */
kolo_status kolo_npy_parse(const char *bytes, size_t length, const char *where, int64_t *rows,
                           int64_t *columns, size_t *data);
