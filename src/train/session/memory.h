#pragma once
/* The memory that training takes, checked before it is filled. */

#include "train/session/session.h"

/* Of the plan of the session, and of the rounds of ranks that train on their own. */
kolo_plan_memory kolo_session_memory(const kolo_session *session);
/* NOMEM, with the figures, if the ranks of this machine together need more memory than it has, or
 * than the limit of their control group. The memory of a session is reserved at its creation and
 * filled later. The check assumes that every local rank needs as much as this one. `copies`: bytes
 * on this machine of copies for checkpoints, beyond that. */
kolo_status kolo_session_check_memory(const kolo_session *session, kolo_comm *comm, size_t copies);
