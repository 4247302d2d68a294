#pragma once
/* Updates of a parameter in pieces, where the sums of its gradient arrive so. Updates of ranges are
 * by element (pass/zero.c), so that the kernel of the plan runs on each piece as on the range. */

#include "plan/plan.h"

typedef struct kolo_plan_pieces kolo_plan_pieces;

/* Of the one step of a group (kolo_plan_group_updates) that updates a range of cuts[n] elements:
 * piece k is [cuts[k], cuts[k + 1]). UNSUPPORTED: the group has not one step, or its kernel does
 * not take ranges; NOMEM. */
kolo_status kolo_plan_pieces_create(const kolo_plan *plan, const int *groups, int group,
                                    const int64_t *cuts, int n, kolo_plan_pieces **made);
/* Updates a piece, after the steps without a group (kolo_plan_update_group with -1). */
void kolo_plan_pieces_update(const kolo_plan *plan, const kolo_plan_pieces *pieces, int k);
/* NULL is allowed. */
void kolo_plan_pieces_destroy(kolo_plan_pieces *pieces);
