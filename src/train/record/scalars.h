#pragma once
/* The numbers of a progress report as named scalars, for viewers: event files, the metrics server.
 */

#include "kolo/train.h"

/* "train", "loss". rank: of a number that each rank has; -1: of all. */
typedef void kolo_scalar_fn(void *arg, const char *group, const char *name, int rank, double value);

/* Calls `add` for each number of the report; those of one group and name follow each other. */
void kolo_scalars_of(const kolo_train_progress *progress, kolo_scalar_fn *add, void *arg);
