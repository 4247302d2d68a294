/* Normalization of images. */
#include "data/normalize.h"

/* `n` values of one channel; vectorized by the compiler. */
static void scale(const uint8_t *restrict src, int64_t n, float a, float b, float *restrict dst) {
    for (int64_t i = 0; i < n; i++) dst[i] = (float)src[i] * a + b;
}

/* One sample, from C,H,W to H,W,C. */
static void scale_interleaved(const uint8_t *restrict src, int64_t pixels, int64_t channels,
                              const float *a, const float *b, float *restrict dst) {
    for (int64_t p = 0; p < pixels; p++) {
        for (int64_t c = 0; c < channels; c++) {
            dst[p * channels + c] = (float)src[c * pixels + p] * a[c] + b[c];
        }
    }
}

void kolo_batch_normalize(const kolo_batch *batch, kolo_image_order order, float *dst) {
    const kolo_dataset_info *info = batch->info;
    int64_t channels = info->sample.dim[0], pixels = info->sample.dim[1] * info->sample.dim[2];
    float a[KOLO_MAX_CHANNELS], b[KOLO_MAX_CHANNELS];
    for (int64_t c = 0; c < channels; c++) {
        a[c] = (float)(1.0 / (255.0 * (double)info->std[c]));
        b[c] = (float)(-(double)info->mean[c] / (double)info->std[c]);
    }
    if (channels == 1) { /* both orders are equal */
        scale(batch->samples, batch->count * pixels, a[0], b[0], dst);
        return;
    }
    for (int64_t n = 0; n < batch->count; n++) {
        const uint8_t *src = batch->samples + n * channels * pixels;
        float *to = dst + n * channels * pixels;
        if (order == KOLO_NHWC) {
            scale_interleaved(src, pixels, channels, a, b, to);
            continue;
        }
        for (int64_t c = 0; c < channels; c++) {
            scale(src + c * pixels, pixels, a[c], b[c], to + c * pixels);
        }
    }
}
