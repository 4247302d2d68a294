#pragma once
/* The memory that training takes, checked before it is filled. */

#include "kolo/train.h"
#include "train/session/session.h"

/* Of the plan of the session, and of the rounds of ranks that train on their own. */
kolo_train_memory kolo_session_memory_parts(const kolo_session *session);
/* The parts of every rank, `own` this one's, into rows, one for each rank. Collective; `comm` NULL:
 * a single rank. */
kolo_status kolo_gather_memory(kolo_comm *comm, const kolo_train_memory *own,
                               kolo_train_memory *rows);
/* NOMEM, with the figures, if the ranks of this machine together need more memory than it has, or
 * than the limit of their control group. The memory of a session is reserved at its creation and
 * filled later. `copies`: bytes of this rank's copies for checkpoints, beyond that. Collective:
 * stages of a pipeline need unequal memory, so the ranks exchange what they need. All ranks fail
 * where one does. */
kolo_status kolo_session_check_memory(const kolo_session *session, kolo_comm *comm, size_t copies);
