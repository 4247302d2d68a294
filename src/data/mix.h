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

/* Mixes `other` into `sample`, the image with index `index` in its data set; both C,H,W bytes of
 * the shape `image`. Returns the weight of the other one, 0 to 1. Any thread. */
float kolo_mix_apply(const kolo_augment *augment, uint64_t seed, int64_t epoch, int64_t index,
                     const kolo_shape *image, const uint8_t *other, uint8_t *sample);
