#pragma once
/* One copy of the parameters per host. */

#include "train/session/session.h"

/* Why the ranks of a session cannot share their parameters with equal bits, as the end of a
 * sentence; NULL: they can. The same on all ranks. */
const char *kolo_session_unshared(const kolo_session_config *config, const kolo_comm *comm);

/* Builds the graph of the model for the samples of a rank. */
typedef kolo_status kolo_share_build(const void *arg, kolo_graph **graph);

/* Sets *copies: whether ranks that can share the parameters make faster steps with a copy each.
 * Sharing saves each rank the updates of the others; but all wait at the end of a step until the
 * slowest one has written its part. With copies some updates run in the next step
 * (pass/cross_step.c), so that ranks wait only if they are further apart (pass/late_weights.c). The
 * choice follows from the operations of a step and the size of the parameters; large models are
 * shared whatever it is, for their memory. The same on all ranks. The errors of
 * `build`. */
kolo_status kolo_prefers_copies(const kolo_plan_opts *plan, int ranks, kolo_share_build *build,
                                const void *arg, bool *copies);
/* The same of a session. The errors of kolo_session_build. */
kolo_status kolo_session_prefers_copies(const kolo_session_config *config, int ranks, bool *copies);
