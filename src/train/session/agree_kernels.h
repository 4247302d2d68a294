#pragma once
/* Reproducible results need equal kernels: other implementations round differently. */

#include "plan/plan.h"

/* Fails on all ranks unless the steps of `plan` run the same kernels on all, with the same
 * instruction set; with `shards`, but for those of updates and ranges. The message names
 * the first that differs. Collective; `comm` NULL: a single rank.
 */
kolo_status kolo_agree_kernels(kolo_comm *comm, const kolo_plan *plan, bool shards);
