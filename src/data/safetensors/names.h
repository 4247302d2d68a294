#pragma once
/* Shared by reader and writer: the format's names of element types, and the hashes. */

#include "base/rng.h"
#include "kolo/dtype.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const kolo_safetensors_dtype[] = {
    [KOLO_DTYPE_F32] = "F32",   [KOLO_DTYPE_F64] = "F64", [KOLO_DTYPE_F16] = "F16",
    [KOLO_DTYPE_BF16] = "BF16", [KOLO_DTYPE_I8] = "I8",   [KOLO_DTYPE_U8] = "U8",
    [KOLO_DTYPE_I32] = "I32",   [KOLO_DTYPE_I64] = "I64",
};
_Static_assert(sizeof kolo_safetensors_dtype / sizeof *kolo_safetensors_dtype == KOLO_DTYPE_COUNT,
               "a name for each element type");

/* Metadata key of the hashes, and their number of digits. */
static const char kolo_safetensors_hashes[] = "kolo_xxh3";
enum { KOLO_SAFETENSORS_DIGITS = 16 };

/* The hash of a header without hashes, independent of the order of its keys. False: no memory. */
static inline bool kolo_safetensors_hash_header(const json_t *header, uint64_t *hash) {
    char *text = json_dumps(header, JSON_COMPACT | JSON_SORT_KEYS);
    if (text) *hash = kolo_hash_bytes(text, strlen(text));
    free(text);
    return text != NULL;
}
