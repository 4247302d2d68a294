#pragma once
/* The files of a run in its folder: config.yaml, metrics.jsonl and the path of the final
 * checkpoint. Rank 0 alone has them. */

#include "kolo/train.h"

typedef struct kolo_run_files kolo_run_files;

/* Creates the folder and checks that every file can be written; existing files stay. ARG: the run
 * starts at step 0 and the folder holds a checkpoint of an earlier run; `again`: the best weights
 * may be there, as the run may have been started before; or `config` (as kolo_run_files_begin has
 * it) begins with a comment, and config.yaml is not empty and begins otherwise. IO, naming the
 * path. */
kolo_status kolo_run_files_open(const char *folder, const char *config, int64_t step, bool again,
                                kolo_run_files **files);
/* Writes config.yaml (unless `config` is NULL) and removes the lines of metrics.jsonl after `step`.
 * Checkpoints of an earlier run stay until newer ones replace them. IO. */
kolo_status kolo_run_files_begin(kolo_run_files *files, const char *config, int64_t step);
/* Checks that kolo_run_files_open would succeed for a new run, or for one that resumes; changes no
 * file. */
kolo_status kolo_run_files_try(const char *folder, const char *config, bool resumes);
/* Appends a line to metrics.jsonl and flushes it. */
kolo_status kolo_run_files_report(kolo_run_files *files, const kolo_train_progress *progress);
/* Draws the losses in metrics.jsonl as loss.svg. IO, NOMEM. */
kolo_status kolo_run_files_draw(const kolo_run_files *files);
/* Paths of the final checkpoint and of the best weights. */
const char *kolo_run_files_checkpoint(const kolo_run_files *files);
const char *kolo_run_files_best(const kolo_run_files *files);
/* NULL is allowed. */
void kolo_run_files_close(kolo_run_files *files);
