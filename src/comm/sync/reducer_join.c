/* Ranks that have no data left take part in the steps of the others with zeros. */
#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/lock.h"
#include "comm/sync/reducer.h"

#include <string.h>

/* Whether all ranks have ended, in the latest step; then `*last` is one that ended in it. */
static bool all_ended(kolo_reducer *r, int *last) {
    for (int p = 0; p < r->comm->size; p++) {
        if (!r->ended[p]) return false;
        if (!r->ended_before[p]) *last = p;
    }
    memset(r->ended, 0, (size_t)r->comm->size); /* they begin anew */
    return true;
}

static kolo_status step_of_zeros(kolo_reducer *r) {
    for (int i = 0; i < r->n; i++) {
        if (r->buffers[i].count == 0) continue;
        memset(r->buffers[i].data, 0, r->buffers[i].count * r->element_bytes);
    }
    KOLO_TRY(kolo_reducer_ready_range(r, 0, r->n));
    return kolo_reducer_wait(r);
}

kolo_status kolo_reducer_join(kolo_reducer *r, int *last) {
    KOLO_COMM_CLAIM(r->comm);
    KOLO_TRY(kolo_comm_check(r->comm));
    if (!r->opts.join) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "kolo_reducer_join: create the reducer with the option join");
    }
    if (r->n_arrived > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "kolo_reducer_join within a step: buffer %d is ready; wait first",
                         r->arrived[0]);
    }
    r->own_ended = 1;
    kolo_status status = KOLO_OK;
    do {
        status = step_of_zeros(r);
    } while (status == KOLO_OK && !all_ended(r, last));
    r->own_ended = 0;
    return status;
}
