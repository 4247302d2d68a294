#pragma once
/* What a run measures and writes down: sums over stretches of steps, the times of steps, and the
 * files config.yaml and metrics.jsonl of its folder. */

#include "kolo/train.h"
#include "train/session.h"

/* Sums over a stretch of steps. Zero-initialise. */
typedef struct kolo_tally {
    kolo_sums sums;
    int64_t ns; /* in steps, not between them */
} kolo_tally;

void kolo_tally_add(kolo_tally *tally, const kolo_sums *step, int64_t ns);
/* Means over the labels; 0 when there are none. */
double kolo_tally_loss(const kolo_tally *tally);
double kolo_tally_accuracy(const kolo_tally *tally);
double kolo_tally_next_loss(const kolo_tally *tally);
double kolo_tally_next_accuracy(const kolo_tally *tally);
/* Of tokens: e^loss, without what is of next sentences. */
double kolo_tally_perplexity(const kolo_tally *tally);
/* Samples per second of step time. */
double kolo_tally_rate(const kolo_tally *tally);

/* Times of steps in bounded memory, made beforehand: when the memory is full, every second time is
 * dropped, and from then on only every second one (fourth, eighth, ...) is kept. */
typedef struct kolo_step_times {
    int64_t *ns;
    size_t count, capacity;
    int64_t seen, stride;
} kolo_step_times;

/* For at most `steps` times, or fewer where that would be much. Free with fini. NOMEM. */
kolo_status kolo_step_times_init(kolo_step_times *times, int64_t steps);
void kolo_step_times_add(kolo_step_times *times, int64_t ns);
/* Median in milliseconds; reorders what is kept. 0 when there is none. */
double kolo_step_times_median_ms(kolo_step_times *times);
void kolo_step_times_fini(kolo_step_times *times);

/* The files of a run. Rank 0 alone has them. */
typedef struct kolo_run_files kolo_run_files;

/* Makes the folder and checks that the run's files could be written; leaves what is there. ARG: the
 * run is to begin, at step 0, where an earlier one has checkpoints to go on from; IO, naming what
 * cannot. */
kolo_status kolo_run_files_open(const char *folder, int64_t step, kolo_run_files **files);
/* Writes config.yaml (when `config` is not NULL). Of what an earlier run left, reports and
 * checkpoints up to `step` stay. IO. */
kolo_status kolo_run_files_begin(kolo_run_files *files, const char *config, int64_t step);
/* Finds out whether that would work, but leaves what is there. */
kolo_status kolo_run_files_try(const char *folder);
/* Appends a line to metrics.jsonl, at once visible to readers. */
kolo_status kolo_run_files_report(kolo_run_files *files, const kolo_train_progress *progress);
/* The path of the final checkpoint. */
const char *kolo_run_files_checkpoint(const kolo_run_files *files);
/* NULL is allowed. */
void kolo_run_files_close(kolo_run_files *files);
