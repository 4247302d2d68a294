#pragma once
/* Independent nodes that run at the same time on threads of a rank. */

#include "pass/pass.h"

/* Lanes of a region, at most: each has one thread. */
enum { KOLO_LANES_MOST = 4 };

typedef struct kolo_lanes_opts {
    kolo_lanes which; /* not OFF */
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner; /* may be NULL with KOLO_LANES_ALL */
    struct kolo_selections *selections;
    int threads; /* at least 2 */
} kolo_lanes_opts;

/* Gives the nodes of regions their numbers and lanes; the order of the nodes stays. Runs last, as
 * it needs the final nodes and layouts. No bit of a result depends on it. NOMEM. */
kolo_status kolo_pass_lanes(kolo_graph *g, const kolo_lanes_opts *opts);
