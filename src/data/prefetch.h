#pragma once
/* Batches ahead of their use. A thread walks the sampler and gathers this rank's samples of each
 * step into a ring of slots, while the consumer trains on an earlier one:
 *
 *     kolo_batch batch;
 *     for (;;) {
 *         KOLO_TRY(kolo_loader_next(loader, &batch));
 *         if (batch.global_count == 0) break;                       // the end
 *         kolo_batch_normalize(&batch, KOLO_NHWC, input);           // of the plan, straight
 *         ...
 *     }
 *
 * Samples stay bytes until the consumer normalises them into its own buffer: the one pass over them
 * that a plan's input costs. */

#include "data/augment.h"
#include "kolo/data.h"

typedef struct kolo_loader kolo_loader;

/* Zero means the default. */
typedef struct kolo_loader_opts {
    const kolo_dataset *dataset; /* borrowed until the loader is destroyed */
    int64_t global_batch;        /* samples of a step over all ranks; required */
    uint64_t seed;
    int64_t first, end; /* steps to walk, counted from the start of epoch 0 through all epochs;
                           end is exclusive, 0: to the end of the epoch of `first` */
    int64_t timeout_ms; /* deadline of one kolo_loader_next; default 300000 */
    int rank, world;    /* world 0: alone */
    int slots;          /* batches held at a time, the consumer's included; default 4, at least 2 */
    bool no_shuffle;    /* the data set's order in every epoch: for evaluation */
    kolo_augment augment; /* changes to the images, drawn under `seed` */
} kolo_loader_opts;

/* What the consumer gets. The pointers are valid until the next call for the loader. */
typedef struct kolo_batch {
    int64_t epoch, step;    /* step within the epoch */
    int64_t count;          /* samples of this rank; may be 0 in the last step of an epoch */
    int64_t first;          /* place of its first sample in the global batch */
    int64_t global_count;   /* samples of all ranks; 0: there are no more batches */
    const uint8_t *samples; /* count,C,H,W; of tokens count,T of i32 */
    const int32_t *labels;  /* count, those of a sample each (info->label) */
    const kolo_dataset_info *info;
} kolo_batch;

/* Starts the thread. ARG: contradictory options; NOMEM; IO: no thread to be had. */
kolo_status kolo_loader_create(const kolo_loader_opts *opts, kolo_loader **loader);
/* Ends the thread, waiting for at most the gathering of one batch. NULL is allowed. */
void kolo_loader_destroy(kolo_loader *loader);

/* Steps of an epoch, and the samples of this rank in a full step: the size of its largest batch. */
int64_t kolo_loader_steps(const kolo_loader *loader);
int64_t kolo_loader_largest(const kolo_loader *loader);

/* The next batch; blocks until the thread has it. Batches come in order, none left out; after the
 * last come empty ones. One consumer thread. TIMEOUT; or what the thread met when it gathered this
 * batch, then also at every later call. */
kolo_status kolo_loader_next(kolo_loader *loader, kolo_batch *batch);

/* Labels of the batch that count: those that are not -1. */
int64_t kolo_batch_labels(const kolo_batch *batch);
/* Samples [first, first + count) of a batch. */
kolo_batch kolo_batch_part(const kolo_batch *batch, int64_t first, int64_t count);

/* The order of a batch of images in memory. */
typedef enum kolo_image_order { KOLO_NCHW, KOLO_NHWC } kolo_image_order;

/* Writes the batch's count * C*H*W values (x / 255 - mean_c) / std_c to dst, computed as
 * x * a_c + b_c with a_c = 1 / (255 std_c) and b_c = -mean_c / std_c rounded to f32: the same bits
 * on every machine. */
void kolo_batch_normalize(const kolo_batch *batch, kolo_image_order order, float *dst);
