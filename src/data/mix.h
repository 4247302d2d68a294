#pragma once
/* Mixing a sample with the one before it in the batch: mixup (Zhang et al., 2018), a weighted mean
 * of both images; and cutmix (Yun et al., 2019), a box of the other image. Both weight the classes
 * of both alike. The weights follow Beta(alpha, alpha); with both, each sample draws one of them.
 *
 * The draws of a sample depend on (seed, epoch, sample) only. */

#include "data/augment.h"

/* The field of a batch that has the weights of the classes, f32 [classes]. */
#define KOLO_MIX_TARGET "target"

static inline bool kolo_augment_mixes(const kolo_augment *augment) {
    return augment->mixup > 0 || augment->cutmix > 0;
}

/* The two ways, without draws. The mean of `n` bytes with the weight of `other`, 0 to 1, in steps
 * of 2^-16; or a box of `other` of that part of the area, C,H,W bytes of the shape `image`, around
 * (cy, cx), parts of height and width, cut off at the edges: as torchvision has both. Return the
 * weight that `other` has then. */
float kolo_mix_images(double weight, int64_t n, const uint8_t *other, uint8_t *sample);
float kolo_mix_box(double weight, double cy, double cx, const kolo_shape *image,
                   const uint8_t *other, uint8_t *sample);

/* Mixes `other` into `sample`, the image with index `index` in its data set; both C,H,W bytes of
 * the shape `image`. Returns the weight of the other one, 0 to 1. Any thread. */
float kolo_mix_apply(const kolo_augment *augment, uint64_t seed, int64_t epoch, int64_t index,
                     const kolo_shape *image, const uint8_t *other, uint8_t *sample);

/* A batch to mix. The arrays have count + 1 samples; where total is count + 1, the last one is that
 * before the first. */
typedef struct kolo_mix_batch {
    const kolo_augment *augment;
    uint64_t seed;
    int64_t epoch, count, total, classes;
    const kolo_shape *image;
    const int64_t *indices; /* of the samples in the data set, by which they draw */
    const int64_t *used;    /* which they are, for errors */
    uint8_t *images;
    int32_t *labels;
    float *targets; /* [count, classes]: becomes the weights of the classes */
} kolo_mix_batch;

/* Mixes each sample with the one before it, the first of a batch that is alone (total is count)
 * with the last. ARG: a label is no class. Any thread. */
kolo_status kolo_mix_apply_batch(const kolo_mix_batch *batch);
