#pragma once
/* Checkpoints: safetensors files of the parameters in canonical order (convolutions O,I,H,W, linear
 * layers O,I), under the names of the model, readable by other frameworks. The metadata describe
 * the model and the run:
 *
 *     format         pt: names and orders of PyTorch modules
 *     kolo           version that wrote the file
 *     model, model_options, sample (1x28x28), classes
 *     data, epochs, steps, seed
 *     best           of the weights of --keep-best: metric and value
 *     table          tensors of the model whose rows are in a file of their own, "A,B"
 *
 * A resumable checkpoint also holds the optimizer state ("optimizer.*") and the metadata
 *
 *     training       version of the following, 2; 1 has no `order`
 *     order          version of the order of samples (data/sampler.h); with training 1: 1
 *     options        lines "lr: 0.1": the options that a resumed job must have
 *     progress       the state of the run (train/session/run_state.h)
 *     compressed     with --compress auto, once it is chosen: the parameters whose gradients are
 *                    compressed, "A,B"
 *
 * Readers of parameters alone (evaluation, export, --init) skip the optimizer state.
 *
 * Writing is atomic: the file has its old contents or the new ones. */

#include "data/safetensors/safetensors.h"
#include "kolo/train.h"
#include "plan/plan.h"
#include "train/session/tables.h"

typedef struct kolo_checkpoint_info {
    const char *model, *model_options;
    kolo_shape sample;
    int64_t classes;
    const char *data; /* NULL: unknown */
    int64_t epochs, steps;
    uint64_t seed;
    int order;                      /* of a resumable one: version of the order of samples */
    const char *best;               /* "accuracy 0.9": the best metric so far, of these weights */
    const char *options, *progress; /* both NULL: parameters only */
    const char *compressed;         /* NULL: not chosen */
    const char *table;              /* NULL: the file has all tensors */
} kolo_checkpoint_info;

/* The version of the state of training that is written. */
extern const uint64_t kolo_checkpoint_training_version;

/* Metadata keys that describe the model and the run, NULL-terminated. */
extern const char *const kolo_checkpoint_keys[];

/* Writes the parameters of `store`, and with `options` and `progress` the optimizer state. If parts
 * of the store are sharded, all ranks call it and write: rank 0 gives the path and what `info`
 * states, the others the same `options` or none. The file does not depend on the number of ranks.
 * It takes no memory but a hash of 8 bytes for 4,096 elements and a copy of the largest tensor that
 * is not in row-major order, two copies if that is sharded. IO: the file cannot be written, or a
 * rank cannot see it; NOMEM; PEER, TIMEOUT. The old file is kept then. */
kolo_status kolo_checkpoint_save(const char *path, const kolo_store *store,
                                 const kolo_checkpoint_info *info);
/* Writes resumable checkpoints of a run, one after the other, while it goes on: from a copy of what
 * this rank writes, which it keeps room for. */
typedef struct kolo_checkpoint_saver kolo_checkpoint_saver;
kolo_status kolo_checkpoint_saver_create(kolo_checkpoint_saver **saver);
/* Copies what kolo_checkpoint_save would write and starts to write it, then makes the checkpoint
 * the latest of the folder (kolo_checkpoint_folder_commit). `rows`, on rank 0: the file of the rows
 * of tables, which is written and completed before, and belongs to the saver, also on failure; or
 * NULL. Called like kolo_checkpoint_save; rank 0 gives the folder. Waits for the last one, if that
 * is not done, and removes it unless it is complete. IO, NOMEM, PEER, TIMEOUT: as
 * kolo_checkpoint_save.
 */
kolo_status kolo_checkpoint_saver_start(kolo_checkpoint_saver *saver, const char *folder,
                                        int64_t step, int64_t keep, const kolo_store *store,
                                        const kolo_checkpoint_info *info, kolo_tables_copy *rows);
/* Waits for the last one, if that is not done, and removes it unless it is complete. NULL is
 * allowed. */
void kolo_checkpoint_saver_leave(kolo_checkpoint_saver *saver);
/* Whether kolo_checkpoint_saver_advance would wait. */
bool kolo_checkpoint_saver_is_busy(const kolo_checkpoint_saver *saver);
/* Waits, and goes on. *done: the checkpoint is complete, or the saver has none; else call it again,
 * some time later. Collective as kolo_checkpoint_saver_start. Its errors, on all ranks that write:
 * nothing is left of the checkpoint. */
kolo_status kolo_checkpoint_saver_advance(kolo_checkpoint_saver *saver, bool *done);
/* The memory of the copy that saves of a rank that writes will need. */
size_t kolo_checkpoint_saver_needs(const kolo_store *store);
/* The memory of the copy; 0 for NULL. */
size_t kolo_checkpoint_saver_bytes(const kolo_checkpoint_saver *saver);
/* Waits for the thread and removes an incomplete checkpoint. NULL is allowed. */
void kolo_checkpoint_saver_destroy(kolo_checkpoint_saver *saver);
/* The bytes of the tensors of a checkpoint; `training`: of a resumable one. */
uint64_t kolo_checkpoint_bytes(const kolo_store *store, bool training);
/* Whether all ranks can write to the folder of `path`, which rank 0 gives. Collective. IO, naming
 * the rank that cannot. */
kolo_status kolo_checkpoint_try_folder(const char *path, kolo_comm *comm);

typedef struct kolo_checkpoint {
    kolo_safetensors *file;
    char *path;
    kolo_checkpoint_info info; /* strings belong to the file */
} kolo_checkpoint;

/* Opens a checkpoint, verifies its hashes and reads its metadata. IO: no such file; FORMAT: not a
 * safetensors file, not written by Kolo, or damaged. */
kolo_status kolo_checkpoint_open(const char *path, kolo_checkpoint *checkpoint);
/* Whether a checkpoint's model is a shared object, code that a file of weights does not choose. */
bool kolo_checkpoint_model_is_code(const char *model);
/* The model that it names. ARG: it names none, or a shared object, which the caller must name: a
 * file of weights does not decide which code is executed. Errors of kolo_model_find. */
kolo_status kolo_checkpoint_model(const kolo_checkpoint *checkpoint, const kolo_model **model);
/* Zeroed or closed is allowed. */
void kolo_checkpoint_close(kolo_checkpoint *checkpoint);

/* Copies all parameters into `store`. FORMAT, with `store` unchanged: a tensor is missing,
 * unexpected, or of another shape or type. */
kolo_status kolo_checkpoint_load(const kolo_checkpoint *checkpoint, kolo_store *store);
/* The same with the optimizer state, from a resumable checkpoint. */
kolo_status kolo_checkpoint_load_training(const kolo_checkpoint *checkpoint, kolo_store *store);

/* Writes the network of a checkpoint with its parameters as an ONNX file. ARG: it names no model;
 * UNSUPPORTED, with the op: ONNX cannot express it; IO, NOMEM. */
kolo_status kolo_checkpoint_export_onnx(kolo_checkpoint *checkpoint, const char *to);
