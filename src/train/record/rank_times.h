#pragma once
/* Where the steps of all ranks spend their time.
 *
 * Each rank records its steps. An exchange gives every rank the recorded steps of all; from them
 * follows how long each rank idled in each step, since all wait for the slowest. Windows sum the
 * exchanged steps: the line of metrics.jsonl, the epoch, the run. */

#include "kolo/train.h"

typedef struct kolo_rank_times kolo_rank_times;

typedef enum kolo_times_window {
    KOLO_TIMES_LINE,
    KOLO_TIMES_EPOCH,
    KOLO_TIMES_RUN,
    KOLO_TIMES_WINDOWS
} kolo_times_window;

/* Of the ranks of `comm` (borrowed; NULL: one), with room for at most `steps` steps between two
 * exchanges. NOMEM. */
kolo_status kolo_rank_times_create(kolo_comm *comm, int64_t steps, kolo_rank_times **times);
/* NULL is allowed. */
void kolo_rank_times_destroy(kolo_rank_times *times);

/* Records a step of this rank, by kolo_time in nanoseconds; the idle time follows from the exchange
 * and is not read. There must be room. */
void kolo_rank_times_add(kolo_rank_times *times, const int64_t *ns);
/* Whether there is no room for another step: the same on all ranks. */
bool kolo_rank_times_is_full(const kolo_rank_times *times);
/* Adds the steps recorded since the last exchange to all windows. Collective; blocks. PEER,
 * TIMEOUT. */
kolo_status kolo_rank_times_exchange(kolo_rank_times *times);
/* The steps of a window. by_rank is valid until the next call for the window, or destroy. */
kolo_time_report kolo_rank_times_report(kolo_rank_times *times, kolo_times_window window);
/* Starts the window anew. */
void kolo_rank_times_reset(kolo_rank_times *times, kolo_times_window window);
