#pragma once
/* Groups of workers that exchange data before they push, or after one of them has pulled. */

#include "base/compiler.h"
#include "kolo/parameters.h"

/* Waits of a group of workers go on like those of kolo_parameters_pull: after their timeout, as
 * long as any worker makes progress. Destroy the parameters first. */
KOLO_SHARED void kolo_parameters_extend_waits(kolo_parameters *parameters, kolo_comm *group);
