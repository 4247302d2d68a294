#pragma once
/* The ledger of a run: which samples each worker has used, by epoch and step.
 *
 * A worker appends lines to a file of its own, one when the run starts and one for each step:
 *
 *     kolo ledger 1
 *     run 1700000000123456789 from step 0 after run 0, rank 1 of 2, 50 samples, 5 steps, lag 0
 *     epoch 0 step 3 of 10: 17 4 23 8 41
 *     lost 2 after 113 steps
 *
 * The number of a run is the time of its start, the same on all workers; checkpoints have it, and
 * `after` names the run that wrote the one from which this run resumed, 0 if none did or that had
 * no ledger. `50 samples` and `5 steps` are those of an epoch, `of 10` the samples of the step over
 * all workers. In a run that survives the loss of a worker, the line of a step is written before
 * the step, and worker 0 records how many steps of the lost worker count. A resumed run appends to
 * the files. kolo_ledger_check reads the last run that made steps and the runs that it continues,
 * each up to the step from which the next one resumed: later steps of a run are not in the final
 * parameters. With a lag of S steps neither are the gradients of the last S steps of the last
 * run. */

#include "kolo/data.h"

typedef struct kolo_ledger kolo_ledger;

static const char kolo_ledger_head[] = "kolo ledger 1\n";

typedef struct kolo_ledger_run {
    int64_t number;         /* of the run */
    int64_t after;          /* of the run that it goes on after; 0: none */
    int64_t first;          /* steps made before, from the start of epoch 0 */
    int rank, ranks;        /* workers with different samples */
    int64_t samples, steps; /* of an epoch */
    int64_t lag;            /* steps after which a gradient is used */
} kolo_ledger_run;

/* Opens the file PATH.RANK, and appends the line of a run. An incomplete line at its end is
 * removed. ARG: the file is a ledger, and the run does not resume one; FORMAT: it is not a ledger;
 * IO: it cannot be written, or another process does; NOMEM. */
kolo_status kolo_ledger_open(const char *path, const kolo_ledger_run *run, bool resumes,
                             kolo_ledger **ledger);
/* Appends the samples of a batch of a loader. IO, NOMEM. */
kolo_status kolo_ledger_add(const kolo_ledger *ledger, const kolo_batch *batch);
/* Appends that a worker is lost, which has made `steps` in this run: its later lines do not count.
 * Of worker 0. IO. */
kolo_status kolo_ledger_add_loss(const kolo_ledger *ledger, int rank, int64_t steps);
/* Makes all lines durable: before a checkpoint. NULL is allowed. IO. */
kolo_status kolo_ledger_sync(const kolo_ledger *ledger);
/* NULL is allowed. */
void kolo_ledger_close(kolo_ledger *ledger);
