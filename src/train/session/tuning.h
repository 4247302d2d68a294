#pragma once
/* Autotuning of a job: rank 0 reads the file of measured times, measures what is missing where that
 * is asked for, writes the file again, and gives every rank the times that it has: so all choose
 * the same kernels and layouts. */

#include "train/session/setup.h"

/* Makes setup->tuner and gives it to the session's plans; does nothing with KOLO_AUTOTUNE_OFF or
 * reference kernels. Collective. A file that cannot be read or written is told to the notice of the
 * options and is no failure. */
kolo_status kolo_tuning_begin(kolo_setup *setup, kolo_comm *comm);

/* Writes the times that were asked for into folder/tuning.txt; nothing without a tuner. */
kolo_status kolo_tuning_record(const kolo_setup *setup, const char *folder);
