#pragma once
/* The memory that a session takes. */

#include "train/session/memory_check.h"
#include "train/session/session.h"

/* Of the plan of the session, and of the rounds of ranks that train on their own. */
kolo_train_memory kolo_session_memory_parts(const kolo_session *session);
/* kolo_check_memory of sessions alone, whose memory is reserved at their creation and filled later.
 * `copies`: see kolo_memory_need. */
kolo_status kolo_session_check_memory(const kolo_session *session, kolo_comm *comm, size_t copies);
