/* Counts the entries of schedules that have completed. */
#include "comm/engine/traffic.h"

#include "comm/engine/lock.h"

/* Whether the start in flight has completed entry `i` of its schedule. */
static bool is_done(const kolo_request *q, size_t i) {
    const kolo_schedule *s = q->schedule;
    if (q->round >= s->n_rounds) return true;
    size_t first = s->rounds[q->round], end = kolo_schedule_round_end(s, q->round);
    if (i < end) return i < first || q->entries[i - first].done;
    if (q->round + 1 == s->n_rounds) return false;
    return i < kolo_schedule_round_end(s, q->round + 1) && q->ahead[i - end].done;
}

/* How often entry `i` of a schedule has completed since they were collected. */
static uint64_t completions(const kolo_request *q, int schedule, size_t i) {
    bool runs = q->state == REQUEST_RUNNING && q->schedule == &q->schedules[schedule];
    return q->completed[schedule] + (runs && is_done(q, i));
}

/* Adds the traffic of an entry with its peer. */
static void add_peer(const kolo_request *q, const kolo_entry *e, uint64_t times,
                     kolo_peer_traffic *traffic) {
    uint64_t bytes = times * e->count * q->element_bytes;
    if (e->peer == q->comm->rank) return;
    switch (e->kind) {
    case KOLO_ENTRY_SEND:
    case KOLO_ENTRY_COPY_TO:
        traffic->sent_bytes += bytes;
        traffic->sends += times;
        return;
    case KOLO_ENTRY_RECV:
    case KOLO_ENTRY_COPY_FROM:
    case KOLO_ENTRY_REDUCE_FROM:
        traffic->received_bytes += bytes;
        traffic->receives += times;
        return;
    default:
        return;
    }
}

void kolo_traffic_collect(kolo_request *q) {
    for (int s = 0; s < q->n_schedules; s++) {
        for (size_t i = 0; i < q->schedules[s].n_entries; i++) {
            const kolo_entry *e = &q->schedules[s].entries[i];
            uint64_t n = completions(q, s, i);
            kolo_traffic_add(&q->traffic, e->kind, n * e->count);
            add_peer(q, e, n, &q->comm->traffic[e->peer]);
        }
        q->completed[s] = 0;
    }
}

kolo_peer_traffic kolo_traffic_with(const kolo_comm *comm, int peer) {
    kolo_peer_traffic traffic = comm->traffic[peer];
    for (const kolo_request *q = comm->requests; q; q = q->next) {
        for (int s = 0; s < q->n_schedules; s++) {
            for (size_t i = 0; i < q->schedules[s].n_entries; i++) {
                const kolo_entry *e = &q->schedules[s].entries[i];
                if (e->peer == peer) add_peer(q, e, completions(q, s, i), &traffic);
            }
        }
    }
    return traffic;
}

kolo_traffic kolo_request_traffic(const kolo_request *q) {
    KOLO_COMM_LOCK_SCOPE(q->comm);
    kolo_traffic traffic = q->traffic;
    for (int s = 0; s < q->n_schedules; s++) {
        for (size_t i = 0; i < q->schedules[s].n_entries; i++) {
            const kolo_entry *e = &q->schedules[s].entries[i];
            kolo_traffic_add(&traffic, e->kind, completions(q, s, i) * e->count);
        }
    }
    return traffic;
}
