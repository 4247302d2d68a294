#pragma once
/* Checkpoints: a safetensors file of the model's parameters in canonical order (convolutions
 * O,I,H,W, linear layers O,I), under the names that they have in the model, so that other
 * frameworks read them. Its metadata says how to build the model again:
 *
 *     format         pt: names and orders are those of PyTorch modules
 *     kolo           the version that wrote it
 *     model, model_options, sample (1x28x28), classes
 *     data, epochs, steps, seed: where the parameters come from
 *
 * One that a run can go on from holds the optimiser's state besides ("optimizer.*"), and in its
 * metadata
 *
 *     training       the version of what follows, 1
 *     options        lines "lr: 0.1": what a job must share that goes on with the run
 *     progress       where it stood (train/progress.h)
 *
 * What reads parameters alone (evaluation, export, --init) passes the optimiser's state over.
 *
 * Writing is atomic: the file has its old contents or the new ones. */

#include "data/safetensors/safetensors.h"
#include "plan/plan.h"

typedef struct kolo_checkpoint_info {
    const char *model, *model_options;
    kolo_shape sample;
    int64_t classes;
    const char *data; /* NULL: unknown */
    int64_t epochs, steps;
    uint64_t seed;
    const char *options, *progress; /* both NULL: the parameters alone */
} kolo_checkpoint_info;

/* Metadata keys that describe the model and the run, NULL-terminated. */
extern const char *const kolo_checkpoint_keys[];

/* Writes the parameters of `store`, with `options` and `progress` the optimiser's state too. IO:
 * the file cannot be written; NOMEM. */
kolo_status kolo_checkpoint_save(const char *path, const kolo_store *store,
                                 const kolo_checkpoint_info *info);

typedef struct kolo_checkpoint {
    kolo_safetensors *file;
    char *path;
    kolo_checkpoint_info info; /* its texts belong to the file */
} kolo_checkpoint;

/* Opens a checkpoint, holds all of it against its hashes and reads its metadata. IO: no such file;
 * FORMAT: no safetensors file, or not one that Kolo wrote, or damaged. */
kolo_status kolo_checkpoint_open(const char *path, kolo_checkpoint *checkpoint);
/* A zeroed or closed checkpoint is allowed. */
void kolo_checkpoint_close(kolo_checkpoint *checkpoint);

/* Copies every parameter into `store`. FORMAT, and the store is as before: a tensor that the model
 * has not, one that it lacks, another shape or type. */
kolo_status kolo_checkpoint_load(const kolo_checkpoint *checkpoint, kolo_store *store);
/* The same with the optimiser's state, all of it, of a checkpoint that a run can go on from. */
kolo_status kolo_checkpoint_load_training(const kolo_checkpoint *checkpoint, kolo_store *store);
