#pragma once
/* Elementwise functions of two inputs with broadcasting. Parallel over items: pieces of the
 * innermost dimension. */

#include "kernel/simd/nest.h"

enum { KOLO_SIMD_PIECE = 8192 }; /* elements of the innermost dimension in an item */

typedef struct kolo_simd_binary_job {
    const kolo_simd_nest *nest; /* over a, b, out, which is the key */
    const void *a, *b;
    void *out;
    bool bf16_a, bf16_b, bf16_out;
} kolo_simd_binary_job;

static inline int64_t kolo_simd_pieces(const kolo_simd_nest *nest) {
    return (nest->size[nest->n_dims - 1] + KOLO_SIMD_PIECE - 1) / KOLO_SIMD_PIECE;
}
static inline int64_t kolo_simd_binary_items(const kolo_simd_nest *nest) {
    return kolo_simd_nest_rows(nest, nest->n_dims - 1) * kolo_simd_pieces(nest);
}

#define KOLO_SIMD_BINARY_MEMBER(name) kolo_kernel_loop name;
typedef struct kolo_simd_binary_table {
    KOLO_BINARY_LIST(KOLO_BINARY_OP, KOLO_SIMD_BINARY_MEMBER)
} kolo_simd_binary_table;
KOLO_ISA_TABLE(kolo_simd_binary_table, kolo_simd_binary);
