#pragma once
/* Shared by reader and writer: the format's names of element types, and the hashes. */

#include "base/rng.h"
#include "data/safetensors/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const kolo_safetensors_dtype[] = {
    [KOLO_DTYPE_F32] = "F32",   [KOLO_DTYPE_F64] = "F64", [KOLO_DTYPE_F16] = "F16",
    [KOLO_DTYPE_BF16] = "BF16", [KOLO_DTYPE_I8] = "I8",   [KOLO_DTYPE_U8] = "U8",
    [KOLO_DTYPE_I32] = "I32",   [KOLO_DTYPE_I64] = "I64",
};
_Static_assert(sizeof kolo_safetensors_dtype / sizeof *kolo_safetensors_dtype ==
                   KOLO_TENSOR_DTYPE_COUNT,
               "a name for each element type of tensors");

/* Metadata keys of the hashes, now and in earlier files, and their number of digits. */
static const char kolo_safetensors_hashes[] = "kolo_xxh3_blocks";
static const char kolo_safetensors_whole_hashes[] = "kolo_xxh3";
enum { KOLO_SAFETENSORS_DIGITS = 16 };

/* The blocks of a tensor of n elements. */
static inline size_t kolo_safetensors_blocks_of(int64_t n) {
    return (size_t)((n + KOLO_SAFETENSORS_BLOCK - 1) / KOLO_SAFETENSORS_BLOCK);
}

/* The hashes of the blocks of `bytes` bytes, of elements of `size` bytes. */
static inline void kolo_safetensors_hash_blocks(const char *data, size_t bytes, size_t size,
                                                uint64_t *hashes) {
    const size_t block = KOLO_SAFETENSORS_BLOCK * size;
    for (size_t at = 0; at < bytes; at += block) {
        *hashes++ = kolo_hash_bytes(data + at, bytes - at < block ? bytes - at : block);
    }
}

/* Makes a header one without hashes. */
static inline void kolo_safetensors_drop_hashes(json_t *header) {
    json_t *metadata = json_object_get(header, "__metadata__");
    json_object_del(metadata, kolo_safetensors_hashes);
    json_object_del(metadata, kolo_safetensors_whole_hashes);
    if (json_object_size(metadata) == 0) json_object_del(header, "__metadata__");
}

/* The hash of a header without hashes, independent of the order of its keys. False: no memory. */
static inline bool kolo_safetensors_hash_header(const json_t *header, uint64_t *hash) {
    char *text = json_dumps(header, JSON_COMPACT | JSON_SORT_KEYS);
    if (text) *hash = kolo_hash_bytes(text, strlen(text));
    free(text);
    return text != NULL;
}
