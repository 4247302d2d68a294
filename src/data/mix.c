/* mixup and cutmix. Sample `index` has draws 64 index and up of a stream of its own: the first is
 * {choice, centre y, centre x, -}, the others are of the weight. */
#include "data/mix.h"

#include "base/integer.h"
#include "base/rng.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DRAWS = 64, FIRST_GAMMA = 1, GAMMA_TRIES = 31, BITS = 16 };

static double unit(uint32_t draw) { return (draw + 0.5) * 0x1p-32; }

/* The logarithm of a number of the gamma distribution of this shape (Marsaglia, Tsang, "A simple
 * method for generating gamma variables", 2000): small shapes are below the range of a double. Of
 * the tries, each of which succeeds with probability 0.95 at least, the last one is taken. */
static double log_gamma_draw(const kolo_rng *rng, uint64_t first, double shape) {
    const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / sqrt(9 * d);
    double v = 1, below_one = 0;
    for (uint64_t i = 0; i < GAMMA_TRIES; i++) {
        uint32_t draw[4]; /* a normal number by two, acceptance, the factor of a shape below 1 */
        kolo_rng_draw(rng, first + i, draw);
        const double x =
            sqrt(-2 * log(unit(draw[0]))) * cos(2 * 3.14159265358979323846 * unit(draw[1]));
        below_one = shape < 1 ? log(unit(draw[3])) / shape : 0;
        if (1 + c * x <= 0) continue;
        v = (1 + c * x) * (1 + c * x) * (1 + c * x);
        if (log(unit(draw[2])) < x * x / 2 + d - d * v + d * log(v)) break;
    }
    return log(d * v) + below_one;
}

/* A number of Beta(alpha, alpha). */
static double beta_draw(const kolo_rng *rng, uint64_t first, double alpha) {
    const double a = log_gamma_draw(rng, first, alpha);
    const double b = log_gamma_draw(rng, first + GAMMA_TRIES, alpha);
    return 1 / (1 + exp(b - a));
}

float kolo_mix_images(double weight, int64_t n, const uint8_t *restrict other,
                      uint8_t *restrict sample) {
    const uint32_t w = (uint32_t)(weight * (1 << BITS) + 0.5), own = (1U << BITS) - w;
    for (int64_t i = 0; i < n; i++) {
        sample[i] = (uint8_t)((sample[i] * own + other[i] * w + (1U << (BITS - 1))) >> BITS);
    }
    return (float)w / (1 << BITS);
}

float kolo_mix_box(double weight, double cy, double cx, const kolo_shape *image,
                   const uint8_t *other, uint8_t *sample) {
    const int64_t height = image->dim[1], width = image->dim[2];
    const double side = sqrt(weight) / 2;
    const int64_t y = (int64_t)(cy * (double)height), x = (int64_t)(cx * (double)width);
    const int64_t half_y = (int64_t)(side * (double)height);
    const int64_t half_x = (int64_t)(side * (double)width);
    const int64_t top = kolo_max_i64(y - half_y, 0), bottom = kolo_min_i64(y + half_y, height);
    const int64_t left = kolo_max_i64(x - half_x, 0), right = kolo_min_i64(x + half_x, width);
    for (int64_t c = 0; c < image->dim[0]; c++) {
        for (int64_t i = top; i < bottom; i++) {
            const int64_t at = (c * height + i) * width + left;
            memcpy(sample + at, other + at, (size_t)(right - left));
        }
    }
    return (float)((bottom - top) * (right - left)) / (float)(height * width);
}

float kolo_mix_apply(const kolo_augment *augment, uint64_t seed, int64_t epoch, int64_t index,
                     const kolo_shape *image, const uint8_t *other, uint8_t *sample) {
    const uint64_t stream = (uint64_t)epoch | UINT64_C(1) << 49; /* apart from the epochs */
    const kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_AUGMENT, stream);
    const uint64_t first = DRAWS * (uint64_t)index;
    uint32_t draw[4];
    kolo_rng_draw(&rng, first, draw);
    const bool cuts =
        augment->mixup > 0 && augment->cutmix > 0 ? draw[0] >> 31 != 0 : augment->cutmix > 0;
    const double weight =
        beta_draw(&rng, first + FIRST_GAMMA, cuts ? augment->cutmix : augment->mixup);
    if (cuts) return kolo_mix_box(weight, unit(draw[1]), unit(draw[2]), image, other, sample);
    return kolo_mix_images(weight, kolo_shape_count(image), other, sample);
}

static kolo_status check_labels(const kolo_mix_batch *b) {
    for (int64_t i = 0; i < b->total; i++) {
        if (b->labels[i] >= 0 && b->labels[i] < b->classes) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "sample %" PRId64 " has the label %" PRId32 ", and there are %" PRId64
                         " classes, from 0: mixup and cutmix need a class of each sample",
                         b->used[i], b->labels[i], b->classes);
    }
    return KOLO_OK;
}

/* From the last sample to the first: the other one is still as it was read. */
kolo_status kolo_mix_apply_batch(const kolo_mix_batch *b) {
    const int64_t n = b->count, bytes = kolo_shape_count(b->image);
    KOLO_TRY(check_labels(b));
    if (b->total == n && n > 0) {
        memcpy(b->images + n * bytes, b->images + (n - 1) * bytes, (size_t)bytes);
        b->labels[n] = b->labels[n - 1];
    }
    memset(b->targets, 0, (size_t)(n * b->classes) * sizeof *b->targets);
    for (int64_t i = n - 1; i >= 0; i--) {
        const int64_t other = i > 0 ? i - 1 : n;
        const float weight = kolo_mix_apply(b->augment, b->seed, b->epoch, b->indices[i], b->image,
                                            b->images + other * bytes, b->images + i * bytes);
        b->targets[i * b->classes + b->labels[i]] += 1 - weight;
        b->targets[i * b->classes + b->labels[other]] += weight;
    }
    return KOLO_OK;
}
