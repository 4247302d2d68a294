#include "cli/options/sizes.h"

#include "base/option.h"

#include <stdio.h>
#include <string.h>

kolo_status sizes_parse(const char *list, kolo_dtype dtype, size_t sizes[MAX_SIZES], int *n) {
    *n = 0;
    for (const char *at = list;; at++) {
        char word[32];
        int64_t bytes;
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        bool good = length < sizeof word && kolo_parse_bytes(word, &bytes) && bytes > 0;
        if (!good || (size_t)bytes % kolo_dtype_bytes(dtype) != 0) {
            return KOLO_FAIL(
                KOLO_ERR_ARG,
                "--sizes %s: '%s' must be a number of bytes, such as 8 or 64K (K, M, G: "
                "powers of 1024), and a multiple of the %s size, %zu",
                list, word, kolo_dtype_name(dtype), kolo_dtype_bytes(dtype));
        }
        if (*n == MAX_SIZES) return KOLO_FAIL(KOLO_ERR_ARG, "--sizes: at most %d", MAX_SIZES);
        sizes[(*n)++] = (size_t)bytes;
        at += length;
        if (!*at) return KOLO_OK;
    }
}
