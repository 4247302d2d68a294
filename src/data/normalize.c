/* Normalization of samples. */
#include "data/normalize.h"

#include "base/integer.h"

/* `n` values of one channel; vectorized by the compiler. */
static void scale(const uint8_t *restrict src, int64_t n, float a, float b, float *restrict dst) {
    for (int64_t i = 0; i < n; i++) dst[i] = (float)src[i] * a + b;
}

/* Three channels, by blocks of pixels that stay in the cache: the first loop is vectorized, the
 * second one only moves. */
static void scale_three(const uint8_t *restrict src, int64_t pixels, const float *a, const float *b,
                        float *restrict dst) {
    enum { BLOCK = 128 };
    float planes[3][BLOCK];
    for (int64_t at = 0; at < pixels; at += BLOCK) {
        const int64_t n = kolo_min_i64(BLOCK, pixels - at);
        for (int c = 0; c < 3; c++) scale(src + c * pixels + at, n, a[c], b[c], planes[c]);
        float *to = dst + 3 * at;
        for (int64_t p = 0; p < n; p++) {
            for (int c = 0; c < 3; c++) to[3 * p + c] = planes[c][p];
        }
    }
}

/* One sample, from C,H,W to H,W,C. */
static void scale_interleaved(const uint8_t *restrict src, int64_t pixels, int64_t channels,
                              const float *a, const float *b, float *restrict dst) {
    if (channels == 3) {
        scale_three(src, pixels, a, b, dst);
        return;
    }
    for (int64_t p = 0; p < pixels; p++) {
        for (int64_t c = 0; c < channels; c++) {
            dst[p * channels + c] = (float)src[c * pixels + p] * a[c] + b[c];
        }
    }
}

void kolo_normalize(const kolo_field *field, const uint8_t *src, int64_t count,
                    kolo_image_order order, float *dst) {
    const bool image = field->shape.rank == 3 && field->shape.dim[0] <= KOLO_MAX_CHANNELS;
    const int64_t elements = kolo_shape_count(&field->shape);
    const int64_t channels = image ? field->shape.dim[0] : 1, pixels = elements / channels;
    float a[KOLO_MAX_CHANNELS], b[KOLO_MAX_CHANNELS];
    for (int64_t c = 0; c < channels; c++) {
        double std = field->std[c] != 0 ? (double)field->std[c] : 1;
        a[c] = (float)(1.0 / (255.0 * std));
        b[c] = (float)(-(double)field->mean[c] / std);
    }
    if (channels == 1) { /* both orders are equal */
        scale(src, count * pixels, a[0], b[0], dst);
        return;
    }
    for (int64_t n = 0; n < count; n++, src += elements, dst += elements) {
        if (order == KOLO_NHWC) {
            scale_interleaved(src, pixels, channels, a, b, dst);
            continue;
        }
        for (int64_t c = 0; c < channels; c++) {
            scale(src + c * pixels, pixels, a[c], b[c], dst + c * pixels);
        }
    }
}

void kolo_interleave(const kolo_field *field, const float *src, int64_t count, float *dst) {
    const int64_t channels = field->shape.dim[0], elements = kolo_shape_count(&field->shape);
    const int64_t pixels = elements / channels;
    for (int64_t n = 0; n < count; n++, src += elements, dst += elements) {
        for (int64_t p = 0; p < pixels; p++) {
            for (int64_t c = 0; c < channels; c++) dst[p * channels + c] = src[c * pixels + p];
        }
    }
}
