/* Normalization of samples. */
#include "data/normalize.h"

#include "data/normalize_loops.h"

enum { PAST_BYTES = 1 << 24 }; /* batches of more are written past the cache */

/* One sample, from C,H,W to H,W,C. */
static void scale_interleaved(const uint8_t *restrict src, int64_t pixels, int64_t channels,
                              const float *a, const float *b, float *restrict dst, bool past) {
    if (channels == 3) {
        KOLO_ISA_PICK(kolo_normalize)->three(src, pixels, a, b, dst, past);
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
    const bool past = count * elements * (int64_t)sizeof *dst > PAST_BYTES;
    const kolo_normalize_loops *loops = KOLO_ISA_PICK(kolo_normalize);
    float a[KOLO_MAX_CHANNELS], b[KOLO_MAX_CHANNELS];
    for (int64_t c = 0; c < channels; c++) {
        double std = field->std[c] != 0 ? (double)field->std[c] : 1;
        a[c] = (float)(1.0 / (255.0 * std));
        b[c] = (float)(-(double)field->mean[c] / std);
    }
    if (channels == 1) { /* both orders are equal */
        loops->one(src, count * pixels, a[0], b[0], dst, past);
        return;
    }
    for (int64_t n = 0; n < count; n++, src += elements, dst += elements) {
        if (order == KOLO_NHWC) {
            scale_interleaved(src, pixels, channels, a, b, dst, past);
            continue;
        }
        for (int64_t c = 0; c < channels; c++) {
            loops->one(src + c * pixels, pixels, a[c], b[c], dst + c * pixels, past);
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
