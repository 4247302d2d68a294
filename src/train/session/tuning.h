#pragma once
/* Autotuning of a job. Rank 0 reads the file of measured times, measures the missing ones if
 * requested, updates the file, and broadcasts the times, so that all ranks select the same kernels
 * and layouts. */

#include "train/session/setup.h"

/* Creates setup->tuner for the plans of the session; no effect with KOLO_AUTOTUNE_OFF or reference
 * kernels. Collective. A file that cannot be read or written causes a notice, not an error. */
kolo_status kolo_tuning_begin(kolo_setup *setup, kolo_comm *comm);

/* Writes the times that were used to folder/tuning.txt; no effect without a tuner. */
kolo_status kolo_tuning_record(const kolo_setup *setup, const char *folder);
