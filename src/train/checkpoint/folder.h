#pragma once
/* The checkpoints of a run in its folder: checkpoint-STEP.safetensors, and the file "latest", which
 * names the newest. A checkpoint is on disk before "latest" names it, and only then older ones go;
 * so a kill at any instant leaves one that is whole. Rank 0 alone works with them. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The path of the checkpoint of a step, for kolo_free; NULL: no memory. */
char *kolo_checkpoint_folder_path(const char *folder, int64_t step);

/* Makes the checkpoint of `step` the latest and removes all but the newest `keep` (0: none). */
kolo_status kolo_checkpoint_folder_commit(const char *folder, int64_t step, int64_t keep);

/* A run that begins does not throw away the checkpoints of an earlier one: ARG, naming the latest,
 * where a folder has some. */
kolo_status kolo_checkpoint_folder_check_empty(const char *folder);

/* Nor does one that goes on from a file that the user has named: ARG where there are checkpoints of
 * later steps. */
kolo_status kolo_checkpoint_folder_check_latest(const char *folder, int64_t step);

/* Makes a folder ready for a run that begins or goes on behind `step`: removes checkpoints of later
 * steps and what a killed writer left. Nothing to do where there is no such folder. */
kolo_status kolo_checkpoint_folder_begin(const char *folder, int64_t step);

/* The checkpoint that `where` means: a file, or the latest of a folder, which is the newest where
 * "latest" is lost; *path is for kolo_free. IO: there is none; with `if_any`, *path is then NULL
 * for a folder, or none at all. */
kolo_status kolo_checkpoint_folder_find(const char *where, bool if_any, char **path);

/* The next older checkpoint of the same folder, for kolo_free; *older is NULL when there is none.
 * IO, NOMEM. */
kolo_status kolo_checkpoint_folder_older(const char *path, char **older);
