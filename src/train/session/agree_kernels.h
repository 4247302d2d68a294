#pragma once
/* Reproducible results need equal kernels: other implementations round differently. */

#include "train/session/session.h"

/* Fails on all ranks unless the steps of the first plan run the same kernels on all that have the
 * same stage of a pipeline, and all have the same instruction set; with `ranges`, but for kernels
 * of updates and ranges. The message names the first that differs. Collective. */
kolo_status kolo_session_agree_kernels(const kolo_session *session, bool ranges);
