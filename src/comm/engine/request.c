/* Queries on a request. */
#include "comm/engine/request.h"

#include "comm/engine/lock.h"

/* The schedule of the latest start; before the first one, the one that this rank expects to run. */
static const kolo_schedule *latest(const kolo_request *q) {
    return q->schedule ? q->schedule : &q->schedules[q->private_data ? q->n_schedules - 1 : 0];
}

kolo_algorithm kolo_request_algorithm(const kolo_request *q) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    const kolo_algorithm_row *row = latest(q)->row; /* NULL: a send or receive */
    return row && row->algorithm < KOLO_ALGORITHM_COUNT ? row->algorithm : KOLO_ALGORITHM_AUTO;
}

int kolo_request_source(const kolo_request *q) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    return q->kind == KOLO_COLLECTIVE_RECV ? q->root : KOLO_ANY_RANK;
}

uint64_t kolo_request_sequence(const kolo_request *q) { return q->seq; }
const char *kolo_request_site(const kolo_request *q) { return q->site; }
bool kolo_request_in_flight(const kolo_request *q) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    return q->state != REQUEST_IDLE;
}
void kolo_request_measure(kolo_request *q) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    q->timed = true;
}
void kolo_request_interval(const kolo_request *q, int64_t *start_ns, int64_t *end_ns) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    *start_ns = q->started_ns;
    *end_ns = q->ended_ns;
}

kolo_schedule *kolo_request_schedule(kolo_request *q) {
    return &q->schedules[q->private_data ? q->n_schedules - 1 : 0];
}

const char *kolo_request_schedule_name(const kolo_request *q) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    return latest(q)->row->name;
}

const kolo_schedule_spec *kolo_request_spec(const kolo_request *q) { return &q->spec; }
kolo_dtype kolo_request_dtype(const kolo_request *q) { return q->dtype; }

int kolo_request_exposed(const kolo_request *q, int rank) {
    return q->spec.shards > 0 ? 1 + kolo_spec_nodes(&q->spec, rank, NULL) : q->n_parts;
}

const void *kolo_request_summand(const kolo_request *q, int rank) {
    KOLO_ASSERT(q->spec.summands);
    return rank == q->comm->rank ? q->parts[0].data : q->peer_data[rank * q->exposed_most];
}

bool kolo_request_reads_from(const kolo_request *q, int rank, int owner) {
    if (q->kind == KOLO_COLLECTIVE_BROADCAST) return owner == q->root;
    if (!kolo_algorithm_spans_hosts(q->algorithm)) return true;
    return kolo_comm_host(q->comm, rank) == kolo_comm_host(q->comm, owner);
}
