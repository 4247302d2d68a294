/* Values of test data in every element type. */
#include "support/values.h"

#include <math.h>
#include <string.h>

static uint16_t bf16_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16); /* inputs are exact in bf16 */
}

static double bf16_value(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* f16 of a value in [0.25, 65504] that is exact in f16. */
static uint16_t f16_of(double v) {
    int exponent;
    double mantissa = frexp(v, &exponent); /* v = mantissa 2^exponent, mantissa in [0.5, 1) */
    return (uint16_t)((exponent + 14) << 10 | (int)((mantissa * 2 - 1) * 1024));
}

static double f16_value(uint16_t h) { return ldexp(1 + (h & 1023) / 1024.0, (h >> 10 & 31) - 15); }

/* Complex test data is real: other values are tested apart. */
typedef struct complex64 {
    float re, im;
} complex64;
typedef struct complex128 {
    double re, im;
} complex128;

static double c64_value(complex64 z) { return z.im == 0 ? (double)z.re : NAN; }
static double c128_value(complex128 z) { return z.im == 0 ? z.re : NAN; }

/* Element i of rank `rank`: few bits, so that every type holds it exactly. */
double value_input(int rank, size_t i) {
    uint64_t mixed = (i * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1b54a32d192ed03u) >> 40;
    return (double)(1 + mixed % 3);
}

/* By memcpy, as data may be unaligned. */
#define PUT(type, value)                                                        \
    do {                                                                        \
        type element_ = (value);                                                \
        memcpy((char *)data + i * sizeof element_, &element_, sizeof element_); \
        return;                                                                 \
    } while (0)

void value_put(void *data, size_t i, kolo_dtype dtype, double v) {
    switch (dtype) {
    case KOLO_DTYPE_F32:
        PUT(float, (float)v);
    case KOLO_DTYPE_F64:
        PUT(double, v);
    case KOLO_DTYPE_F16:
        PUT(uint16_t, f16_of(v));
    case KOLO_DTYPE_BF16:
        PUT(uint16_t, bf16_of((float)v));
    case KOLO_DTYPE_I8:
        PUT(int8_t, (int8_t)v);
    case KOLO_DTYPE_U8:
        PUT(uint8_t, (uint8_t)v);
    case KOLO_DTYPE_I32:
        PUT(int32_t, (int32_t)v);
    case KOLO_DTYPE_I16:
        PUT(int16_t, (int16_t)v);
    case KOLO_DTYPE_U16:
        PUT(uint16_t, (uint16_t)v);
    case KOLO_DTYPE_U32:
        PUT(uint32_t, (uint32_t)v);
    case KOLO_DTYPE_C64:
        PUT(complex64, ((complex64){(float)v, 0}));
    case KOLO_DTYPE_C128:
        PUT(complex128, ((complex128){v, 0}));
    default:
        PUT(int64_t, (int64_t)v);
    }
}

#define GET(type, convert)                                                            \
    do {                                                                              \
        type element_;                                                                \
        memcpy(&element_, (const char *)data + i * sizeof element_, sizeof element_); \
        return convert(element_);                                                     \
    } while (0)

double value_get(const void *data, size_t i, kolo_dtype dtype) {
    switch (dtype) {
    case KOLO_DTYPE_F32:
        GET(float, (double));
    case KOLO_DTYPE_F64:
        GET(double, (double));
    case KOLO_DTYPE_F16:
        GET(uint16_t, f16_value);
    case KOLO_DTYPE_BF16:
        GET(uint16_t, bf16_value);
    case KOLO_DTYPE_I8:
        GET(int8_t, (double));
    case KOLO_DTYPE_U8:
        GET(uint8_t, (double));
    case KOLO_DTYPE_I32:
        GET(int32_t, (double));
    case KOLO_DTYPE_I16:
        GET(int16_t, (double));
    case KOLO_DTYPE_U16:
        GET(uint16_t, (double));
    case KOLO_DTYPE_U32:
        GET(uint32_t, (double));
    case KOLO_DTYPE_U64:
        GET(uint64_t, (double));
    case KOLO_DTYPE_C64:
        GET(complex64, c64_value);
    case KOLO_DTYPE_C128:
        GET(complex128, c128_value);
    default:
        GET(int64_t, (double));
    }
}

/* A result converted to the type: integers wrap around. */
double value_kept(kolo_dtype dtype, double v) {
    if (dtype == KOLO_DTYPE_I8) return (int8_t)(uint8_t)(int64_t)v;
    if (dtype == KOLO_DTYPE_U8) return (uint8_t)(int64_t)v;
    return v;
}

double value_tolerance(kolo_dtype dtype, int n) {
    if (dtype == KOLO_DTYPE_F16) return n * 0x1p-11;
    if (dtype == KOLO_DTYPE_BF16) return n * 0x1p-8;
    return 0; /* sums and products of small integers are exact in the others */
}

double value_reference(int n, size_t i, kolo_reduce_op op) {
    double v = value_input(0, i);
    for (int r = 1; r < n; r++) {
        double x = value_input(r, i);
        switch (op) {
        case KOLO_SUM:
        case KOLO_MEAN: /* the caller divides */
            v += x;
            break;
        case KOLO_PROD:
            v *= x;
            break;
        case KOLO_MIN:
            v = v < x ? v : x;
            break;
        case KOLO_MAX:
            v = v > x ? v : x;
            break;
        default: /* of bits, which are tested apart */
            break;
        }
    }
    return v;
}
