#pragma once
/* Times of the stages of a loader: processor time of the calling thread, so that waits for the disk
 * and other threads on its processor do not count. */

#include "kolo/data.h"

#include <stdint.h>

/* stage_ns: by stage, and after them what one reading of the clock takes, which does not count. */
enum { KOLO_STAGE_TIMES = KOLO_LOADER_STAGES + 1 };

/* Adds the processor time since *since to a stage of stage_ns, and sets *since to now; a *since of
 * 0 begins. stage_ns NULL: does nothing. */
void kolo_stage_time_add(int64_t *stage_ns, kolo_loader_stage stage, int64_t *since);
/* Clears the times, and measures what a reading takes. */
void kolo_stage_time_init(int64_t *stage_ns);
