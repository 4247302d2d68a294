#pragma once
/* Augmentation: random transforms of training images that keep their labels valid, applied to the
 * bytes of a gathered sample.
 *
 * The draws of a sample depend on (seed, epoch, sample) only, so an epoch has the same images for
 * any number of ranks and threads and any batch size.
 *
 *     resized-crop[=A]  a part of A (default 0.08) to 1 of the area of an image, of a random aspect
 *                 ratio of 3/4 to 4/3, resized to the sample (Szegedy et al., 2015, section 6); for
 *                 data sets of images of their own sizes, whose readers do it
 *     scale=A:B   resizes the image by a factor of A to B, uniformly, relative to its size in
 *                 evaluation, and takes a random part of it, or places it at random in black; for
 *                 the same data sets
 *     flip        mirrors left and right with probability 1/2
 *     crop=P      shifts by up to P pixels each way, uniformly, and fills with 0: padding by P and
 *                 random cropping (He et al., 2016, section 4.2)
 *     jitter=B[:C[:S[:H]]]
 *                 changes brightness, contrast and saturation by factors of 1-B to 1+B (at least
 *                 0), ..., and the hue by up to H of the circle each way, all uniform, in random
 *                 order: ColorJitter of torchvision, whose bytes each change has
 *     randaugment[=N:M]
 *                 N operations (default 2) of the 14 of RandAugment (Cubuk et al., 2020), each
 *                 drawn at random, with strength M (9) of 30 and a random sign; the bytes of
 *                 torchvision
 *     mixup=A, cutmix=A
 *                 mixes an image with the one before it in the batch (data/mix.h), which the loader
 *                 does after all others
 *     erase=S     sets an S x S square, centred anywhere in the image, to the channel means:
 *                 cutout (DeVries, Taylor, 2017) */

#include "data/images/image.h"
#include "kolo/data.h"

/* What jitter changes. */
enum { KOLO_BRIGHTNESS, KOLO_CONTRAST, KOLO_SATURATION, KOLO_HUE, KOLO_COLOUR_CHANGES };

/* Zero: no augmentation. */
typedef struct kolo_augment {
    bool flip;
    int crop, erase;   /* pixels */
    double least_area; /* of resized-crop */
    double scale[2];   /* least and largest; 0: none */
    double jitter[KOLO_COLOUR_CHANGES];
    int operations, strength; /* of randaugment; no operations: none */
    double mixup, cutmix;     /* alpha of each (data/mix.h) */
} kolo_augment;

/* What the random transforms of a training sample depend on, with its index. */
typedef struct kolo_draw {
    const kolo_augment *augment;
    uint64_t seed;
    int64_t epoch;
    bool whole;        /* decodes all of an image, not just what its sample needs: to verify it */
    int64_t *damaged;  /* counts the samples whose place others take; NULL: they are not counted */
    int64_t *used;     /* [n]: becomes the sample that takes the place of one; NULL: not needed */
    int64_t *stage_ns; /* adds the times of stages, by kolo_loader_stage; NULL: they are not kept */
} kolo_draw;

/* The part of an image of height x width that is the resized crop of sample `index`. */
kolo_box kolo_augment_box(const kolo_draw *by, int64_t index, int64_t height, int64_t width);

/* The random scale of sample `index`: `image`, height and width of the resized image, is multiplied
 * by it. at[2]: where its first pixel lies in a sample of the size `sample`; negative: outside. */
void kolo_augment_scale(const kolo_draw *by, int64_t index, const int64_t *sample, int64_t *image,
                        int64_t *at);

/* Parses a list such as "flip,crop=2,erase=8"; NULL or empty: none. ARG, naming the item. */
kolo_status kolo_augment_parse(const char *text, kolo_augment *augment);

/* Augments `sample` (C,H,W bytes) and its `labels`, described by two fields. The sample has index
 * `index` in its data set. Per-pixel `labels` are shifted with it; pixels shifted in get no label,
 * erased pixels keep theirs. `work` is scratch memory of kolo_augment_work bytes. Any thread. */
void kolo_augment_apply(const kolo_augment *augment, uint64_t seed, int64_t epoch, int64_t index,
                        const kolo_field *fields, uint8_t *sample, int32_t *labels, uint8_t *work);
size_t kolo_augment_work(const kolo_field *fields);

/* True if colours change. */
static inline bool kolo_augment_jitters(const kolo_augment *augment) {
    for (int i = 0; i < KOLO_COLOUR_CHANGES; i++) {
        if (augment->jitter[i] > 0) return true;
    }
    return false;
}
/* True if any transform is enabled. */
static inline bool kolo_augment_any(const kolo_augment *augment) {
    return augment->flip || augment->crop > 0 || augment->erase > 0 || augment->least_area > 0 ||
           augment->scale[1] > 0 || augment->operations > 0 || augment->mixup > 0 ||
           augment->cutmix > 0 || kolo_augment_jitters(augment);
}
