/* Offloaded collectives: requests that run in a backend instead of a schedule.
 *
 * A backend runs the collectives of a communicator in the order of their start, so a request waits
 * until all that were started before it have been passed to the backend. */
#include "comm/engine/offload.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/schedule/algorithms.h"

void kolo_offload_close(kolo_comm *comm) {
    kolo_backend *b = comm->backend;
    if (!b) return;
    bool lost = comm->broken == KOLO_ERR_PEER || comm->broken == KOLO_ERR_TIMEOUT;
    b->ops->close(b->state, !lost && comm->n_offloaded == 0);
    kolo_free(b);
}

kolo_status kolo_offload_prepare(kolo_request *q) {
    const kolo_backend *b = q->comm->backend;
    kolo_reduce_op op = q->op == KOLO_MEAN ? KOLO_SUM : q->op;
    const kolo_algorithm_row *row = q->n_parts > 1 ? &kolo_offloaded_packed : &kolo_offloaded;
    q->spec.chunk = q->spec.align = 1; /* the backend chooses */
    KOLO_TRY(kolo_schedule_build(row, &q->spec, &q->schedules[0]));
    q->n_schedules = 1;
    return b->ops->prepare(b->state, &q->spec, q->dtype, op, &q->call);
}

/* Whether all offloaded requests that were started earlier have been passed to the backend. */
static bool is_next(const kolo_request *q) {
    const kolo_comm *comm = q->comm;
    for (int i = 0; i < comm->n_flight && comm->flight[i] != q; i++) {
        if (comm->flight[i]->call && !comm->flight[i]->offloaded) return false;
    }
    return true;
}

/* Address of element `first` of an entry's buffer. */
static void *base_of(const kolo_request *q, kolo_buffer buffer, size_t first) {
    char *base = buffer == KOLO_BUFFER_SCRATCH ? q->scratch
                 : buffer == KOLO_BUFFER_INPUT ? (char *)q->input
                                               : q->parts[0].data;
    return base ? base + first * q->element_bytes : NULL;
}

kolo_status kolo_offload_run(kolo_request *q, const kolo_entry *e, entry_progress *p) {
    static const char empty;
    const kolo_backend_ops *ops = q->comm->backend->ops;
    if (!q->offloaded) {
        if (!is_next(q)) return KOLO_OK;
        const void *input = NULL;
        if (e->from != e->to) input = base_of(q, e->from, e->from_first);
        if (e->from != e->to && !input) input = &empty; /* NULL would mean in place */
        q->offloaded = true;
        q->comm->n_offloaded++;
        p->issued = true;
        KOLO_TRY(ops->start(q->call, input, base_of(q, e->to, e->to_first)));
    }
    KOLO_TRY(ops->test(q->call, &p->done));
    if (p->done) q->comm->n_offloaded--;
    return KOLO_OK;
}
