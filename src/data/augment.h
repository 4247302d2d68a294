#pragma once
/* Augmentation: random changes of training images that leave their labels true, applied to the
 * bytes of a sample after it has been gathered.
 *
 * What is drawn for a sample depends on (seed, epoch, sample) alone, so an epoch sees the same
 * images for any number of ranks, any batch and any number of threads.
 *
 *     flip        mirrors left and right with probability 1/2
 *     crop=P      shifts by up to P pixels each way, uniformly; what comes in is 0, as if the image
 *                 had been padded by P and cropped at random (He et al., 2016, section 4.2)
 *     erase=S     sets an S x S square, centred anywhere in the image, to its channel's mean:
 *                 cutout (DeVries, Taylor, 2017) */

#include "kolo/data.h"

/* All zero: images stay as they are. */
typedef struct kolo_augment {
    bool flip;
    int crop, erase; /* pixels */
} kolo_augment;

/* Reads "flip,crop=2,erase=8", any part of it; NULL or empty: none. ARG, naming the part. */
kolo_status kolo_augment_parse(const char *text, kolo_augment *augment);

/* Changes `sample` (C,H,W bytes of `info`'s shape), which is number `index` of its set, and moves
 * `labels` with it where they are a map of its pixels; what comes in has no label, and what is
 * erased keeps its own. `work` has room for kolo_augment_work bytes. Any thread. */
void kolo_augment_apply(const kolo_augment *augment, uint64_t seed, int64_t epoch, int64_t index,
                        const kolo_dataset_info *info, uint8_t *sample, int32_t *labels,
                        uint8_t *work);
size_t kolo_augment_work(const kolo_dataset_info *info);

/* True when something may change. */
static inline bool kolo_augment_any(const kolo_augment *augment) {
    return augment->flip || augment->crop > 0 || augment->erase > 0;
}
