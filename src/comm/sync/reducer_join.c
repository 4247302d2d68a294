/* Ranks that have no data left take part in the steps of the others with zeros. Behind the buckets
 * of each step the ranks gather a byte of each, which tells who has none; so all learn in the same
 * step that all have ended. */
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/lock.h"
#include "comm/sync/reducer.h"

#include <string.h>

static kolo_status open_exchange(kolo_reducer *r) {
    size_t n = (size_t)r->comm->size;
    r->ended = kolo_zalloc(n);
    r->ended_before = kolo_zalloc(n);
    if (!r->ended || !r->ended_before) return KOLO_NOMEM(n);
    kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_ALLGATHER,
                              .dtype = KOLO_DTYPE_U8,
                              .input = &r->own_ended,
                              .output = r->ended,
                              .count = 1,
                              .site = "reducer, join"};
    return kolo_request_create(r->comm, &opts, &r->exchange);
}

kolo_status kolo_reducer_open_exchange(kolo_reducer *r) {
    if (!r->opts.join) return KOLO_OK;
    kolo_status status = open_exchange(r);
    return status == KOLO_OK ? status : kolo_reducer_fail(r, status);
}

void kolo_reducer_close_exchange(kolo_reducer *r) {
    kolo_request_destroy(r->exchange);
    kolo_free(r->ended);
    kolo_free(r->ended_before);
}

kolo_status kolo_reducer_start_exchange(kolo_reducer *r) {
    if (!r->exchange) return KOLO_OK;
    memcpy(r->ended_before, r->ended, (size_t)r->comm->size);
    return kolo_request_start(r->exchange);
}

kolo_status kolo_reducer_finish_exchange(kolo_reducer *r) {
    return r->exchange ? kolo_request_wait(r->exchange, 0) : KOLO_OK;
}

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
