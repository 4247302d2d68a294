#pragma once
/* Comparison of the replicas of a store. */

#include "plan/plan.h"

/* Fails on all ranks, in the same way, unless parameters and optimizer state are bitwise equal on
 * all; `own_state`: each rank has optimizer state of its own, which is not compared. The message
 * starts with `when` ("after step 40") and names the rank that differs from most others, and its
 * first tensor that does. Collective; `comm` NULL: a single rank. PEER. */
kolo_status kolo_compare_replicas(kolo_comm *comm, const kolo_store *store, bool own_state,
                                  const char *when);
