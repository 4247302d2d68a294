#pragma once
/* Lossy gradient compression with error feedback; usable without a communicator.
 *
 * A codec encodes a vector of floats into a code of exactly known size. The compression error is
 * kept in a residual that the caller provides, one float per element, zeroed before the first
 * use. Each encoding adds the residual to the values and stores the new error, so that the sum
 * of all decoded vectors stays within one residual of the sum of all vectors (Seide, Fu, Droppo,
 * Li, Yu, "1-bit stochastic gradient descent", Interspeech 2014; Karimireddy et al., "Error
 * feedback fixes SignSGD", ICML 2019).
 *
 *     kolo_codec codec = {.kind = KOLO_CODEC_INT8};
 *     size_t bytes = kolo_codec_bytes(&codec, n);
 *     KOLO_TRY(kolo_codec_encode(&codec, gradient, n, residual, code, bytes));
 *     KOLO_TRY(kolo_codec_add(&codec, code, bytes, sum, n, 1));
 *
 * Codes are in native byte order. Codes and residuals are bitwise equal with every instruction
 * set. All functions are thread-safe and non-blocking. */

#include "kolo/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The list of codecs: constant, name. The code of n elements is
 *
 *     NONE    n floats
 *     F16     n IEEE half floats, rounded to nearest even; finite overflows saturate at +-65504
 *     BF16    n floats without their lower 16 bits, rounded to nearest even
 *     INT8    a scale per 256 elements, max |v| / 127; then n integers,
 *             v / scale rounded to nearest even
 *     ONEBIT  two floats per 2048 elements, the mean of the elements >= 0 and the mean
 *             of those below; then one bit per element, set for those below
 *     TOPK    k ascending 32-bit indices, then k floats: the k = ceil(ratio n) elements
 *             with the largest magnitude, the first of equals
 *
 * Infinities and NaN are never lost: the element (in INT8 and ONEBIT its block, or the sign's
 * half of the block) decodes to NaN or infinity, and the residual of such elements becomes 0. */
#define KOLO_CODEC_LIST(X)         \
    X(KOLO_CODEC_NONE, "none")     \
    X(KOLO_CODEC_F16, "f16")       \
    X(KOLO_CODEC_BF16, "bf16")     \
    X(KOLO_CODEC_INT8, "int8")     \
    X(KOLO_CODEC_ONEBIT, "onebit") \
    X(KOLO_CODEC_TOPK, "topk")

typedef enum kolo_codec_kind {
#define KOLO_CODEC_ENUM(code, name) code,
    KOLO_CODEC_LIST(KOLO_CODEC_ENUM)
#undef KOLO_CODEC_ENUM
        KOLO_CODEC_COUNT
} kolo_codec_kind;

/* A codec with its parameter; a plain value. */
typedef struct kolo_codec {
    kolo_codec_kind kind;
    double ratio; /* TOPK: the fraction of elements to keep, in (0, 1]; 0 means 0.01 */
} kolo_codec;

/* Parses "none", "f16", "bf16", "int8", "onebit", "topk" or "topk:0.001". ARG, with a
 * suggestion, for other names. */
KOLO_API kolo_status kolo_codec_parse(const char *text, kolo_codec *codec);
/* The name, for instance "int8"; static storage. */
KOLO_API const char *kolo_codec_name(kolo_codec_kind kind);

/* The exact size in bytes of the code of `count` elements. */
KOLO_API size_t kolo_codec_bytes(const kolo_codec *codec, size_t count);

/* Encodes values[0..count) + residual[0..count) and stores the error in `residual`. NULL
 * `residual`: no error feedback. `bytes` is the size of `code` and must equal kolo_codec_bytes.
 * `values` and `residual` must not overlap. ARG: wrong size, ratio outside (0, 1], more than
 * 2^32 - 1 elements for TOPK. */
KOLO_API kolo_status kolo_codec_encode(const kolo_codec *codec, const float *values, size_t count,
                                       float *residual, void *code, size_t bytes);

/* Decodes to values[0..count). Accepts untrusted codes: FORMAT, with `values` unchanged, when
 * the size or an index is wrong. */
KOLO_API kolo_status kolo_codec_decode(const kolo_codec *codec, const void *code, size_t bytes,
                                       float *values, size_t count);
/* sum[0..count) += scale * decoded values; otherwise as kolo_codec_decode. */
KOLO_API kolo_status kolo_codec_add(const kolo_codec *codec, const void *code, size_t bytes,
                                    float *sum, size_t count, float scale);

#ifdef __cplusplus
}
#endif
