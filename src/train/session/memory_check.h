#pragma once
/* The memory that the ranks of a machine need, checked before it is filled. */

#include "kolo/comm.h"
#include "kolo/train.h"

/* The parts of every rank, `own` this one's, into rows, one for each rank. Collective; `comm` NULL:
 * a single rank. */
kolo_status kolo_gather_memory(kolo_comm *comm, const kolo_train_memory *own,
                               kolo_train_memory *rows);
/* What a rank needs, in bytes. */
typedef struct kolo_memory_need {
    kolo_train_memory memory; /* of its session; zeros on a server */
    int64_t copies;           /* for checkpoints */
    int64_t served;           /* to exchange gradients with owners of parameters, and as an owner */
    int64_t tables;           /* the same for the rows of tables */
} kolo_memory_need;

/* NOMEM, with the figures, if the ranks of this machine together need more memory than it has, or
 * than the limit of their control group. Collective: ranks need unequal memory, as stages of a
 * pipeline and servers do, so they exchange what they need. All ranks fail where one does. */
kolo_status kolo_check_memory(kolo_comm *comm, const kolo_memory_need *own);
