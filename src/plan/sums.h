#pragma once
/* What the ranks of a training plan sum once per step, by name: where a rank puts its summand, and
 * where the update reads the sum. For exchanges that the plan does not make itself, such as those
 * with parameter servers: a plan without a communicator, whose mesh has several ranks, computes
 * with kolo_plan_gradients on one rank what it completes with kolo_plan_update on another. */

#include "plan/plan.h"

typedef enum kolo_sum_kind {
    KOLO_SUM_GRADIENT,  /* of a parameter */
    KOLO_SUM_STATISTIC, /* of a state that is not the optimizer's */
    KOLO_SUM_METRIC,    /* an output */
} kolo_sum_kind;

typedef struct kolo_plan_sum {
    kolo_sum_kind kind;
    const char *name;           /* of the parameter, state or output; the plan's */
    kolo_value posted, arrived; /* see kolo_plan_data */
    int32_t post;               /* node of the POST */
    int64_t posts, arrives;     /* elements: all, and of the range that this rank updates */
} kolo_plan_sum;

/* Lists the sums in the order of their exchange, without those of kolo_plan_find_norms; `sums` is
 * freed with kolo_free. UNSUPPORTED: the plan exchanges something else; NOMEM. */
kolo_status kolo_plan_find_sums(const kolo_plan *plan, kolo_plan_sum **sums, int *count);

/* The squares of a range, which become those of the whole tensor by a sum over the ranks: what an
 * update needs of other ranges. */
typedef struct kolo_plan_norm {
    int step; /* of the plan: the first behind their WAIT, see kolo_plan_update */
    kolo_value posted, arrived;
    int64_t count;
} kolo_plan_norm;

/* Lists them in the order of their steps; `norms` is freed with kolo_free. NOMEM. */
kolo_status kolo_plan_find_norms(const kolo_plan *plan, kolo_plan_norm **norms, int *count);

/* Finds the group of each step of the updates: that of the sum which it follows from, group[i] of
 * sums[i]; -1: none, it runs with all. Fills groups[steps of the plan]. UNSUPPORTED: an update
 * follows from sums of several groups, or of none; NOMEM. */
kolo_status kolo_plan_group_updates(const kolo_plan *plan, const kolo_plan_sum *sums, int n_sums,
                                    const int *group, int *groups);
