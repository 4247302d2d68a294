#pragma once
/* The checkpoints in the folder of a run: checkpoint-STEP.safetensors, and the file "latest", which
 * names the newest. A checkpoint is synced before "latest" names it, and older ones are removed
 * after that, so a kill at any time leaves a complete one. Used by rank 0 only. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The files of the weights at the end of a run, and at its best evaluation. */
#define KOLO_CHECKPOINT_FINAL "checkpoint-final.safetensors"
#define KOLO_CHECKPOINT_BEST "checkpoint-best.safetensors"

/* The path of the checkpoint of a step; free it with kolo_free. NULL: no memory. */
char *kolo_checkpoint_folder_path(const char *folder, int64_t step);

/* The path of the rows of tables beside a checkpoint, which are written before it and removed with
 * it: checkpoint-STEP.tables.safetensors; free it with kolo_free. NULL: no memory. */
char *kolo_checkpoint_tables_path(const char *path);

/* Makes the checkpoint of `step` the latest, removes those of later steps, which were damaged when
 * the run was resumed, and keeps only the newest `keep` (0: all). IO: "latest" cannot be written,
 * and the error names the checkpoint, which is complete; or the folder; NOMEM. */
kolo_status kolo_checkpoint_folder_commit(const char *folder, int64_t step, int64_t keep);

/* How many resumable checkpoints the folder has. IO, NOMEM. */
kolo_status kolo_checkpoint_folder_count(const char *folder, int64_t *n);

/* The bytes of the temporary files that kolo_checkpoint_folder_begin removes. IO, NOMEM. */
kolo_status kolo_checkpoint_folder_remains(const char *folder, uint64_t *bytes);

/* ARG, naming the latest, if the folder holds checkpoints: a new run does not overwrite them. */
kolo_status kolo_checkpoint_folder_check_empty(const char *folder);

/* ARG if the folder holds checkpoints of steps after `step`: a run resumed from a named file does
 * not overwrite them. */
kolo_status kolo_checkpoint_folder_check_latest(const char *folder, int64_t step);

/* Prepares the folder for a run that starts or resumes at `step`: makes its checkpoint the latest
 * and removes temporary files of killed writers. No effect without the folder. */
kolo_status kolo_checkpoint_folder_begin(const char *folder, int64_t step);

/* Finds the checkpoint `where`: a file, or the newest of a folder.
 * Free *path with kolo_free. IO: there is none; with `if_any`, *path is NULL instead if the folder
 * is missing or has none. */
kolo_status kolo_checkpoint_folder_find(const char *where, bool if_any, char **path);

/* The next older checkpoint in the same folder; free it with kolo_free. *older NULL: there is none.
 * IO, NOMEM. */
kolo_status kolo_checkpoint_folder_older(const char *path, char **older);
