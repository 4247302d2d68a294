#pragma once
/* Lossy compression of gradients, with error feedback; usable without a communicator.
 *
 * A codec makes a code of an exactly known size of a vector of floats. What the code does not hold
 * stays in a residual that the caller keeps, one float per element, zeroed before the first use:
 * each encoding takes it in and leaves the new one, so that the sum of all decoded vectors stays
 * within one residual of the sum of all vectors (Seide, Fu, Droppo, Li, Yu, "1-bit stochastic
 * gradient descent", Interspeech 2014; Karimireddy et al., "Error feedback fixes SignSGD", ICML
 * 2019).
 *
 *     kolo_codec codec = {.kind = KOLO_CODEC_INT8};
 *     size_t bytes = kolo_codec_bytes(&codec, n);
 *     KOLO_TRY(kolo_codec_encode(&codec, gradient, n, residual, code, bytes));
 *     KOLO_TRY(kolo_codec_add(&codec, code, bytes, sum, n, 1));
 *
 * Codes are for processors of one byte order. They and the residuals are the same, to the bit, with
 * every instruction set. All functions are thread-safe and never block. */

#include "kolo/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The one list of codecs: code, name. The code of n elements is
 *     NONE    n floats
 *     F16     n IEEE half floats, to nearest even; what is finite but too large becomes +-65504
 *     BF16    n floats without their lower 16 bits, to nearest even
 *     INT8    a scale for each 256 elements, max |v| / 127; then n integers, v / scale to nearest
 *             even
 *     ONEBIT  two floats for each 2048 elements: the mean of those that are >= 0 and of those below
 *             it; then one bit per element, set when it is below
 *     TOPK    the k = ceil(ratio n) elements of the largest magnitude, of equals the first: k
 *             indices, ascending, as 32-bit integers, then k floats
 * An infinity or NaN is never lost: its element, in INT8 and ONEBIT its block or its half of it, is
 * decoded as NaN or infinite; the residual of such elements becomes 0. */
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

/* Which code; a plain value. */
typedef struct kolo_codec {
    kolo_codec_kind kind;
    double ratio; /* TOPK: the part of the elements that is kept, in (0, 1]; 0 means 0.01 */
} kolo_codec;

/* The codec of "none", "f16", "bf16", "int8", "onebit", "topk" or "topk:0.001"; ARG with a
 * suggestion for another. */
KOLO_API kolo_status kolo_codec_parse(const char *text, kolo_codec *codec);
/* "int8" and so on; static storage. */
KOLO_API const char *kolo_codec_name(kolo_codec_kind kind);

/* Bytes of the code of `count` elements; exact. */
KOLO_API size_t kolo_codec_bytes(const kolo_codec *codec, size_t count);

/* Writes the code of values[0..count) + residual[0..count) and leaves in `residual` what the code
 * does not hold. A NULL residual is no error feedback. `bytes` is the room at `code` and must be
 * kolo_codec_bytes. `values` and `residual` are two arrays. ARG: a wrong size, a ratio outside
 * (0, 1], more than 2^32 - 1 elements for TOPK. */
KOLO_API kolo_status kolo_codec_encode(const kolo_codec *codec, const float *values, size_t count,
                                       float *residual, void *code, size_t bytes);

/* values[0..count) = what the code holds. The code may come from anywhere: FORMAT, with `values` as
 * they were, when its size or an index in it is wrong. */
KOLO_API kolo_status kolo_codec_decode(const kolo_codec *codec, const void *code, size_t bytes,
                                       float *values, size_t count);
/* sum[0..count) += scale * what the code holds; as kolo_codec_decode. */
KOLO_API kolo_status kolo_codec_add(const kolo_codec *codec, const void *code, size_t bytes,
                                    float *sum, size_t count, float scale);

#ifdef __cplusplus
}
#endif
