#pragma once
/* The list of sizes of --sizes. */

#include "kolo/dtype.h"

enum { MAX_SIZES = 64 };

/* Parses "8,1K,1M", in bytes. ARG: a size is not a multiple of the element size. */
kolo_status sizes_parse(const char *list, kolo_dtype dtype, size_t sizes[MAX_SIZES], int *n);
