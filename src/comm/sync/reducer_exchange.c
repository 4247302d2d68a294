/* After the buckets of each step the ranks allgather a byte, which is 1 on ranks without further
 * data; so all ranks detect in the same step that all have ended. */
#include "base/memory.h"
#include "base/status.h"
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
