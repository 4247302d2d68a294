#pragma once
/* Element types of tensors and collectives. */

#include "kolo/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The element types of graphs, data sets and files: code, name (as in safetensors files, in lower
 * case), bytes. */
#define KOLO_TENSOR_DTYPE_LIST(X) \
    X(KOLO_DTYPE_F32, "f32", 4)   \
    X(KOLO_DTYPE_F64, "f64", 8)   \
    X(KOLO_DTYPE_F16, "f16", 2)   \
    X(KOLO_DTYPE_BF16, "bf16", 2) \
    X(KOLO_DTYPE_I8, "i8", 1)     \
    X(KOLO_DTYPE_U8, "u8", 1)     \
    X(KOLO_DTYPE_I32, "i32", 4)   \
    X(KOLO_DTYPE_I64, "i64", 8)

/* All element types: the others are of communication only. c64 and c128 are complex numbers, as
 * `float complex` and `double complex` of C. */
#define KOLO_DTYPE_LIST(X)      \
    KOLO_TENSOR_DTYPE_LIST(X)   \
    X(KOLO_DTYPE_I16, "i16", 2) \
    X(KOLO_DTYPE_U16, "u16", 2) \
    X(KOLO_DTYPE_U32, "u32", 4) \
    X(KOLO_DTYPE_U64, "u64", 8) \
    X(KOLO_DTYPE_C64, "c64", 8) \
    X(KOLO_DTYPE_C128, "c128", 16)

typedef enum kolo_dtype {
#define KOLO_DTYPE_ENUM(code, name, bytes) code,
    KOLO_DTYPE_LIST(KOLO_DTYPE_ENUM)
#undef KOLO_DTYPE_ENUM
        KOLO_DTYPE_COUNT,
    KOLO_TENSOR_DTYPE_COUNT = KOLO_DTYPE_I64 + 1
} kolo_dtype;

/* Bytes of one element. */
KOLO_API size_t kolo_dtype_bytes(kolo_dtype dtype);
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_dtype_name(kolo_dtype dtype);

#ifdef __cplusplus
}
#endif
