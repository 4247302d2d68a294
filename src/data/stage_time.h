#pragma once
/* Times of the stages of a loader: processor time of the calling thread, so that waits for the disk
 * and other threads on its processor do not count. */

#include "kolo/data.h"

#include <stdint.h>

/* Adds the processor time since *since to a stage of stage_ns, and sets *since to now; a *since of
 * 0 begins. stage_ns NULL: does nothing. */
void kolo_stage_time_add(int64_t *stage_ns, kolo_loader_stage stage, int64_t *since);
