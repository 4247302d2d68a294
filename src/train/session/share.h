#pragma once
/* One copy of the parameters per host. */

#include "train/session/session.h"

/* Why the ranks of a session cannot share their parameters with equal bits, as the end of a
 * sentence; NULL: they can. The same on all ranks. */
const char *kolo_session_unshared(const kolo_session_config *config, const kolo_comm *comm);
