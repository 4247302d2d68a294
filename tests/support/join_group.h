#pragma once
/* Ranks that join a group by themselves, for tests of joining. */

#include "kolo/comm.h"
#include "support/ranks.h"

enum { SOON_MS = 1500 }; /* a deadline that passes in a test */

/* Joins the group of the environment. */
kolo_status join_group(int64_t timeout_ms, kolo_comm **comm);
/* Joins, runs an allreduce, leaves. FORMAT: the sum is wrong. */
kolo_status join_and_add(int64_t timeout_ms);
/* Runs n processes that join in `body`, which gets no communicator. */
kolo_status join_run(int n, rank_body body, rank_outcome *outcomes);
/* Fails the test unless a rank has ended with this status and an error of one line with `text`. */
void join_expect(const rank_outcome *outcome, kolo_status status, const char *text);
