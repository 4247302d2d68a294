/* The engine: runs the schedules of the requests in flight over any transport, without blocking.
 *
 * A started request is queued until the transport has a slot for its number. Then the engine
 * allocates SCRATCH, runs the prologue and announces the request. It checks each peer's
 * announcement against the request; a mismatch breaks the communicator. A schedule that uses
 * windows waits for all announcements, which also decide between its two schedules: the second one
 * runs if some rank's data is private. A schedule of messages matches a peer before the first
 * message to or from it. Then the rounds run in order; an entry that cannot complete is polled
 * again in the next call.
 */
#include "comm/engine/engine.h"

#include "base/status.h"
#include "comm/engine/combine.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/flight.h"
#include "comm/engine/lock.h"
#include "comm/engine/offload.h"
#include "comm/engine/p2p.h"
#include "comm/engine/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- addresses ---- */

/* The part that holds element `first` of DATA. */
static int part_of(const kolo_request *q, size_t first) {
    int low = 0, high = q->n_parts - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (q->firsts[middle] <= first) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Address of element `first` of a buffer of `rank`; reduces `*run` to the elements that are
 * contiguous there. */
static char *locate(const kolo_request *q, int rank, kolo_buffer buffer, size_t first,
                    size_t *run) {
    bool own = rank == q->comm->rank;
    if (buffer == KOLO_BUFFER_SCRATCH) {
        char *base = own ? q->scratch : q->peer_scratch[rank];
        return base + first * q->element_bytes;
    }
    if (buffer == KOLO_BUFFER_INPUT && q->nodes) {
        size_t left = q->count - first % q->count;
        if (left < *run) *run = left;
        const char *node =
            own ? q->nodes[first / q->count].data
                : q->peer_data[(size_t)(rank * q->exposed_most) + 1 + first / q->count];
        return (char *)node + first % q->count * q->element_bytes;
    }
    if (buffer == KOLO_BUFFER_INPUT && own) return (char *)q->input + first * q->element_bytes;
    if (q->n_parts == 1) { /* of a peer: the address that it exposes */
        char *base = own ? q->parts[0].data : q->peer_data[rank * q->exposed_most];
        return base + first * q->element_bytes;
    }
    int part = part_of(q, first);
    size_t left = q->firsts[part + 1] - first;
    if (left < *run) *run = left;
    char *base = own ? q->parts[part].data : q->peer_data[rank * q->exposed_most + part];
    return base + (first - q->firsts[part]) * q->element_bytes;
}

/* ---- matching the peers ---- */

enum { NUMBER_TEXT = 24 };

static const char *number_text(uint32_t number, char text[NUMBER_TEXT]) {
    text[0] = '\0';
    if (number != KOLO_REQUEST_ONE_SHOT) snprintf(text, NUMBER_TEXT, " as request %u", number);
    return text;
}

/* A collective that is started once on one rank may be a request on another. */
static bool same_number(uint32_t a, uint32_t b) {
    return a == b || a == KOLO_REQUEST_ONE_SHOT || b == KOLO_REQUEST_ONE_SHOT;
}

static kolo_status mismatch(kolo_request *q, int peer, const kolo_peer_call *other) {
    char own[NUMBER_TEXT], theirs[NUMBER_TEXT];
    char title[KOLO_TITLE_BYTES];
    memcpy(title, other->title, sizeof title);
    title[sizeof title - 1] = '\0';
    bool alike = strcmp(title, q->title) == 0 && same_number(other->call->request, q->number);
    return kolo_comm_break(
        q->comm, KOLO_ERR_ARG,
        "ranks disagree on collective %llu: rank %d started %s%s, rank %d %s%s%s; all ranks must "
        "create and start the same collectives in the same order",
        (unsigned long long)q->seq, kolo_comm_whole_rank(q->comm, q->comm->rank), q->title,
        number_text(q->number, own), kolo_comm_whole_rank(q->comm, peer), title,
        number_text(other->call->request, theirs),
        alike ? ", with other parts, counts of ranks, root, shards, scales, tuning or hosts" : "");
}

/* An all-to-all in which `from` sends another number of elements than `to` expects. */
static kolo_status uneven(kolo_request *q, int from, int to, uint64_t sent, uint64_t expected) {
    return kolo_comm_break(q->comm, KOLO_ERR_ARG,
                           "ranks disagree on collective %llu: in %s rank %d expects %llu elements "
                           "from rank %d, which sends %llu; the output_count of the receiver must "
                           "equal the count of the sender",
                           (unsigned long long)q->seq, q->title, kolo_comm_whole_rank(q->comm, to),
                           (unsigned long long)expected, kolo_comm_whole_rank(q->comm, from),
                           (unsigned long long)sent);
}

/* Compares what this rank and a peer send to each other in an uneven all-to-all. */
static kolo_status match_counts(kolo_request *q, int peer, const kolo_peer_call *other) {
    const int own = q->comm->rank;
    const uint64_t sends = q->peer_counts[peer], expects = q->peer_counts[q->comm->size + peer];
    if (other->peer_count && *other->peer_count != expects) {
        return uneven(q, peer, own, *other->peer_count, expects);
    }
    if (other->peer_expects && *other->peer_expects != sends) {
        return uneven(q, own, peer, sends, *other->peer_expects);
    }
    return KOLO_OK;
}

/* In an uneven all-to-all a peer without elements for this rank may have gone on, if it is not
 * connected to this rank. One that shares memory has not: both match each other first, and it may
 * have announced the collective since the query. */
static kolo_status await_announcement(kolo_request *q, int peer) {
    kolo_transport *t = q->comm->transport;
    kolo_peer_state state;
    kolo_transport_need(t, peer, true);
    if (!q->peer_counts || !t->sparse || kolo_comm_maps(q->comm, peer)) return KOLO_OK;
    t->ops->peer_state(t, peer, &state);
    if (state.condition == KOLO_PEER_LOST || state.finished <= q->seq) return KOLO_OK;
    const uint64_t sends = q->peer_counts[peer], expects = q->peer_counts[q->comm->size + peer];
    return sends > 0 ? uneven(q, q->comm->rank, peer, sends, 0)
                     : uneven(q, peer, q->comm->rank, 0, expects);
}

static kolo_status bad_handle(kolo_request *q, int peer) {
    return kolo_comm_break(q->comm, KOLO_ERR_FORMAT,
                           "rank %d announced an invalid memory handle in %s",
                           kolo_comm_whole_rank(q->comm, peer), q->title);
}

/* Maps a peer's DATA and nodes, once: the memory of a request never changes. */
static kolo_status open_data(kolo_request *q, int peer, uint64_t handle) {
    kolo_transport *t = q->comm->transport;
    void **data = &q->peer_data[peer * q->exposed_most];
    if (data[0] || handle == 0) return KOLO_OK;
    const uint64_t *handles = &handle;
    int n = kolo_request_exposed(q, peer);
    if (n > 1) {
        handles = t->ops->window(t, peer, handle, (size_t)n * sizeof *handles);
        if (!handles) return bad_handle(q, peer);
    }
    for (int i = 0; i < n; i++) {
        size_t count = q->n_parts == 1 ? q->count : q->parts[i].count;
        data[i] = t->ops->window(t, peer, handles[i], count * q->element_bytes);
        if (!data[i] && count > 0) return bad_handle(q, peer);
    }
    return KOLO_OK;
}

/* Checks the announcement of a peer against the request; `ready` is false if there is none yet. */
static kolo_status match_peer(kolo_request *q, int peer, bool *ready) {
    kolo_transport *t = q->comm->transport;
    *ready = true;
    if (q->matched_seq[peer] == q->seq + 1) return KOLO_OK;
    kolo_peer_call other;
    if (!t->ops->query(t, q->seq, peer, &other)) {
        *ready = false;
        return await_announcement(q, peer);
    }
    const kolo_announcement *call = other.call;
    if (!same_number(call->request, q->number) || call->kind != q->kind ||
        call->dtype != q->dtype || call->op != q->op || call->count != q->agreed ||
        call->shape != q->shape) {
        return mismatch(q, peer, &other);
    }
    if (q->peer_counts) KOLO_TRY(match_counts(q, peer, &other));
    if (call->staged && q->n_schedules > 1) q->schedule = &q->schedules[1];
    if (q->schedules[0].windows) {
        bool opened = q->eager || q->peer_data[peer * q->exposed_most];
        if (!opened && !call->staged && kolo_request_reads_from(q, q->comm->rank, peer))
            KOLO_TRY(open_data(q, peer, call->data));
        if (call->scratch) {
            q->peer_scratch[peer] = t->ops->window(t, peer, call->scratch, q->scratch_need);
            if (!q->peer_scratch[peer]) return bad_handle(q, peer);
        }
    }
    q->matched_seq[peer] = q->seq + 1;
    return KOLO_OK;
}

/* An uneven all-to-all needs no connection to a rank with which it exchanges nothing. */
static bool matches_first(const kolo_request *q, int peer) {
    if (peer == q->comm->rank) return false;
    return !q->peer_counts || !q->comm->transport->sparse || kolo_comm_maps(q->comm, peer);
}

/* Matches all peers, which decides which schedule runs. */
static kolo_status match_all(kolo_request *q, bool *ready) {
    *ready = true;
    while (q->matched < q->comm->size && *ready) {
        if (matches_first(q, q->matched)) KOLO_TRY(match_peer(q, q->matched, ready));
        if (*ready) q->matched++;
    }
    return KOLO_OK;
}

/* ---- entries ---- */

/* Copies the range of an entry from one rank's memory to another's. */
static void copy_range(kolo_request *q, const kolo_entry *e, int to_rank, int from_rank) {
    for (size_t done = 0, run; done < e->count; done += run) {
        run = e->count - done;
        char *to = locate(q, to_rank, e->to, e->to_first + done, &run);
        const char *from = locate(q, from_rank, e->from, e->from_first + done, &run);
        memcpy(to, from, run * q->element_bytes);
    }
}

static kolo_status reduce_range(kolo_request *q, const kolo_entry *e, int from_rank) {
    for (size_t done = 0, run; done < e->count; done += run) {
        run = e->count - done;
        void *to = locate(q, q->comm->rank, e->to, e->to_first + done, &run);
        const void *from[2] = {to, locate(q, from_rank, e->from, e->from_first + done, &run)};
        KOLO_TRY(kolo_request_combine(q, &to, 1, from, 2, run));
    }
    return KOLO_OK;
}

static void scale_range(kolo_request *q, const kolo_entry *e, double factor) {
    for (size_t done = 0, run; done < e->count; done += run) {
        run = e->count - done;
        void *to = locate(q, q->comm->rank, e->to, e->to_first + done, &run);
        q->comm->reduce->scale[q->dtype](to, run, factor);
    }
}

/* Runs entries into SUM and the following ones out of it in one pass: combines all sources, stores
 * to all destinations. `n` is the number of entries. */
static kolo_status sweep(kolo_request *q, const kolo_entry *e, size_t left, size_t *n) {
    size_t n_from = 0, n_to = 0;
    while (n_from < left && e[n_from].to == KOLO_BUFFER_SUM) n_from++;
    while (n_from + n_to < left && e[n_from + n_to].kind == KOLO_ENTRY_COPY_TO) n_to++;
    for (size_t done = 0, run; done < e->count && n_from > 0; done += run) {
        run = e->count - done;
        for (size_t i = 0; i < n_from; i++) {
            q->from[i] = locate(q, e[i].peer, e[i].from, e[i].from_first + done, &run);
        }
        for (size_t i = 0; i < n_to; i++) {
            const kolo_entry *to = &e[n_from + i];
            q->to[i] = locate(q, to->peer, to->to, to->to_first + done, &run);
        }
        KOLO_TRY(kolo_request_combine(q, q->to, (int)n_to, q->from, (int)n_from, run));
    }
    *n = n_from + n_to;
    return KOLO_OK;
}

/* Counts bytes sent or received. */
static void add_bytes(const kolo_request *q, entry_progress *p, size_t bytes) {
    p->partial_bytes += bytes;
    p->moved += p->partial_bytes / q->element_bytes;
    p->partial_bytes %= q->element_bytes;
}

static kolo_status run_send(kolo_request *q, const kolo_entry *e, entry_progress *p) {
    kolo_transport *t = q->comm->transport;
    bool ready, accepted = true;
    KOLO_TRY(match_peer(q, e->peer, &ready));
    if (!ready) return KOLO_OK;
    while (accepted && (p->moved < e->count || !p->issued)) {
        size_t run = e->count - p->moved, taken;
        const char *from =
            e->count ? locate(q, q->comm->rank, e->from, e->from_first + p->moved, &run) : NULL;
        size_t bytes = run * q->element_bytes - p->partial_bytes;
        if (from) from += p->partial_bytes;
        KOLO_TRY(t->ops->send(t, q->seq, e->peer, from, bytes, &taken, &accepted));
        add_bytes(q, p, taken);
        p->issued = p->issued || accepted;
    }
    p->done = p->issued && p->moved == e->count && t->ops->sent(t, q->seq, e->peer);
    return KOLO_OK;
}

static kolo_status run_recv(kolo_request *q, const kolo_entry *e, entry_progress *p) {
    kolo_transport *t = q->comm->transport;
    bool ready, arrived = true;
    KOLO_TRY(match_peer(q, e->peer, &ready));
    if (!ready) return KOLO_OK;
    while (arrived && !p->done) {
        size_t run = e->count - p->moved, taken;
        char *to = e->count ? locate(q, q->comm->rank, e->to, e->to_first + p->moved, &run) : NULL;
        size_t bytes = run * q->element_bytes - p->partial_bytes;
        if (to) to += p->partial_bytes;
        KOLO_TRY(t->ops->recv(t, q->seq, e->peer, to, bytes, &taken, &arrived));
        add_bytes(q, p, taken);
        p->issued = p->issued || arrived;
        p->done = p->issued && p->moved == e->count;
    }
    return KOLO_OK;
}

static void run_barrier(kolo_request *q, entry_progress *p) {
    kolo_transport *t = q->comm->transport;
    if (!p->issued) {
        p->issued = true;
        t->ops->signal(t, q->seq, ++q->phase, NULL, NULL, NULL);
    }
    for (; (int)p->moved < q->comm->size;
         p->moved++) { /* `moved` counts the ranks that have arrived */
        int peer = (int)p->moved;
        kolo_peer_call other;
        if (peer == q->comm->rank) continue;
        if (!t->ops->query(t, q->seq, peer, &other) || other.phase < q->phase) return;
    }
    p->done = true;
}

/* Runs one entry of the current round; `*n` is the number of entries processed (several in a
 * sweep).
 */
static kolo_status run_entry(kolo_request *q, size_t i, size_t end, entry_progress *p, size_t *n) {
    const kolo_entry *e = &q->schedule->entries[i];
    int rank = q->comm->rank;
    *n = 1;
    switch (e->kind) {
    case KOLO_ENTRY_SEND:
        KOLO_TRY(run_send(q, e, p));
        break;
    case KOLO_ENTRY_RECV:
        KOLO_TRY(run_recv(q, e, p));
        break;
    case KOLO_ENTRY_BARRIER:
        run_barrier(q, p);
        break;
    case KOLO_ENTRY_REDUCE:
        KOLO_TRY(reduce_range(q, e, rank));
        break;
    case KOLO_ENTRY_COPY:
        copy_range(q, e, rank, rank);
        break;
    case KOLO_ENTRY_REDUCE_FROM:
    case KOLO_ENTRY_COPY_FROM:
        if (e->to == KOLO_BUFFER_SUM) {
            KOLO_TRY(sweep(q, e, end - i, n));
        } else if (e->kind == KOLO_ENTRY_COPY_FROM) {
            copy_range(q, e, rank, e->peer);
        } else {
            KOLO_TRY(reduce_range(q, e, e->peer));
        }
        break;
    case KOLO_ENTRY_PRESCALE:
        scale_range(q, e, q->prescale);
        break;
    case KOLO_ENTRY_POSTSCALE:
        scale_range(q, e, q->postscale);
        break;
    case KOLO_ENTRY_COPY_TO:
        if (e->from != KOLO_BUFFER_SUM) copy_range(q, e, e->peer, rank);
        break;
    case KOLO_ENTRY_OFFLOADED:
        KOLO_TRY(kolo_offload_run(q, e, p));
        break;
    }
    bool later = e->kind == KOLO_ENTRY_SEND || e->kind == KOLO_ENTRY_RECV ||
                 e->kind == KOLO_ENTRY_BARRIER || e->kind == KOLO_ENTRY_OFFLOADED;
    if (!later) {
        for (size_t k = 0; k < *n; k++) p[k].done = true;
    }
    return KOLO_OK;
}

/* ---- rounds and stages ---- */

/* Whether a send of the next round may start while this round, [first, end), still receives: it
 * must read nothing that is still to be received, and all earlier sends must be complete. An empty
 * message, of a barrier, depends on all that this round receives. */
static bool may_go_ahead(const kolo_request *q, const kolo_entry *send, size_t first, size_t end) {
    if (send->count == 0) return false;
    for (size_t i = first; i < end; i++) {
        const kolo_entry *e = &q->schedule->entries[i];
        if (q->entries[i - first].done) continue;
        bool apart = e->to != send->from || e->to_first + e->count <= send->from_first ||
                     send->from_first + send->count <= e->to_first;
        if (e->kind != KOLO_ENTRY_RECV || !apart) return false;
    }
    return true;
}

/* Posts the sends at the start of the next round early, so that the link is not idle until this
 * rank has detected the end of the round. */
static kolo_status send_ahead(kolo_request *q, size_t first, size_t end, bool *moved) {
    const kolo_schedule *s = q->schedule;
    if (q->round + 1 == s->n_rounds) return KOLO_OK;
    size_t next_end = kolo_schedule_round_end(s, q->round + 1);
    for (size_t i = end; i < next_end && s->entries[i].kind == KOLO_ENTRY_SEND; i++) {
        entry_progress *p = &q->ahead[i - end];
        size_t before = p->moved, n;
        if (p->done) continue;
        if (!may_go_ahead(q, &s->entries[i], first, end)) return KOLO_OK;
        KOLO_TRY(run_entry(q, i, next_end, p, &n));
        *moved = *moved || p->done || p->moved != before;
    }
    return KOLO_OK;
}

/* Advances to the next round, some sends of which may have been posted. */
static void end_round(kolo_request *q, size_t n) {
    entry_progress *through = q->entries;
    memset(through, 0, n * sizeof *through);
    q->entries = q->ahead;
    q->ahead = through;
    q->round++;
}

/* Runs the current round; sets `complete` if all its entries are complete. */
static kolo_status run_round(kolo_request *q, bool *complete, bool *moved) {
    size_t first = q->schedule->rounds[q->round];
    size_t end = kolo_schedule_round_end(q->schedule, q->round);
    *complete = true;
    for (size_t i = first, n; i < end; i += n) {
        entry_progress *p = &q->entries[i - first];
        n = 1;
        if (p->done) continue;
        size_t before = p->moved;
        KOLO_TRY(run_entry(q, i, end, p, &n));
        *moved = *moved || p->done || p->moved != before;
        *complete = *complete && p->done;
    }
    if (!*complete) return send_ahead(q, first, end, moved);
    end_round(q, end - first);
    return KOLO_OK;
}

/* Allocates SCRATCH: the payload of an eager request, else a block of the segment. */
static kolo_status take_scratch(kolo_request *q, void *payload) {
    q->scratch = payload;
    q->scratch_bytes = 0;
    if (q->eager || q->scratch_need == 0) return KOLO_OK;
    KOLO_TRY(kolo_segment_take(&q->comm->transport->segment, q->scratch_need, &q->scratch));
    q->scratch_bytes = q->scratch_need;
    return KOLO_OK;
}

/* Announces a queued request, if the transport has a slot. */
static kolo_status announce(kolo_request *q, bool *moved) {
    kolo_transport *t = q->comm->transport;
    void *payload;
    if (!t->ops->start(t, q->seq, &payload)) return KOLO_OK;
    KOLO_TRY(take_scratch(q, payload));
    const kolo_schedule *first = &q->schedules[0], *last = &q->schedules[q->n_schedules - 1];
    q->schedule = q->private_data ? last : first;
    while (q->round < first->prologue) {
        bool complete;
        KOLO_TRY(run_round(q, &complete, moved));
        KOLO_ASSERT(complete);
    }
    kolo_announcement call = {
        .request = q->number,
        .kind = (uint8_t)q->kind,
        .dtype = (uint8_t)q->dtype,
        .op = (uint8_t)q->op,
        .staged = q->private_data,
        .count = q->agreed,
        .shape = q->shape,
    };
    if (first->windows) {
        if (!q->private_data && q->n_exposed == 1) {
            call.data = q->handle;
        } else if (!q->private_data) {
            call.data = t->ops->handle(t, q->handles, (size_t)q->n_exposed * sizeof *q->handles);
        }
        if (q->scratch_need > 0) call.scratch = t->ops->handle(t, q->scratch, q->scratch_need);
    }
    t->ops->signal(t, q->seq, 0, &call, q->peer_counts, q->title);
    q->state = REQUEST_RUNNING;
    *moved = true;
    return KOLO_OK;
}

static kolo_status run_rounds(kolo_request *q, bool *complete, bool *moved) {
    *complete = true;
    while (q->round < q->schedule->n_rounds && *complete) KOLO_TRY(run_round(q, complete, moved));
    return KOLO_OK;
}

/* The same for rounds that access the memory of peers. Those that have left the collective after a
 * failure may use it for others, or free it. The failure breaks the communicator after the
 * accesses, for whose end this rank's peers wait too. */
static kolo_status run_windows(kolo_request *q, bool *complete, bool *moved) {
    kolo_status status = KOLO_OK;
    *complete = false;
    kolo_transport_begin_access(q->comm->transport);
    bool may = kolo_comm_may_complete(q->comm, q->seq);
    if (may) status = run_rounds(q, complete, moved);
    kolo_transport_end_access(q->comm->transport);
    return may ? status : kolo_comm_watch_completion(q->comm, q->seq);
}

/* Advances one request as far as possible. */
static kolo_status advance(kolo_request *q, bool *moved) {
    if (q->state == REQUEST_QUEUED) KOLO_TRY(announce(q, moved));
    if (q->state != REQUEST_RUNNING) return KOLO_OK;
    if (q->schedules[0].windows || q->schedules[0].offloaded || q->peer_counts) {
        bool ready;
        KOLO_TRY(match_all(q, &ready));
        if (!ready) return KOLO_OK;
    }
    bool complete;
    KOLO_TRY(q->schedules[0].windows ? run_windows(q, &complete, moved)
                                     : run_rounds(q, &complete, moved));
    if (!complete) return KOLO_OK;
    KOLO_TRY(kolo_comm_watch_completion(q->comm, q->seq));
    q->state = REQUEST_IDLE;
    q->completed[q->schedule - q->schedules]++;
    return KOLO_OK;
}

/* ---- all requests ---- */

/* Advances every request of one communicator as far as possible. */
static kolo_status progress_one(kolo_comm *comm, bool *moved) {
    bool completed = false;
    kolo_transport *t = comm->transport;
    if (t->ops->progress) { /* of a broken whole group too: its sub-groups may continue */
        kolo_status status = t->ops->progress(t, moved);
        if (status != KOLO_OK) return kolo_comm_break(comm, status, "%s", kolo_last_error());
    }
    if (comm->serve && comm->agreement) comm->serve(comm->agreement);
    if (comm->broken != KOLO_OK) return comm->broken;
    for (int i = 0; i < comm->n_flight; i++) {
        kolo_request *q = comm->by_priority[i];
        if (comm->gate && !comm->gate(comm->gate_arg, q)) continue;
        kolo_status status = advance(q, moved);
        if (status != KOLO_OK) {
            return comm->broken
                       ? comm->broken
                       : kolo_comm_break(comm, status, "%s: %s", q->title, kolo_last_error());
        }
        completed = completed || q->state == REQUEST_IDLE;
    }
    if (completed) {
        *moved = true;
        kolo_flight_retire(comm);
    }
    if (!comm->p2p) return KOLO_OK;
    kolo_status status = kolo_p2p_progress(comm, moved);
    return status == KOLO_OK ? status : kolo_comm_break(comm, status, "%s", kolo_last_error());
}

/* A failure stays in the communicators that it has broken. */
static void progress_below(kolo_comm *comm, bool *moved) {
    for (kolo_comm *child = comm->children; child; child = child->sibling) {
        (void)progress_one(child, moved);
        progress_below(child, moved);
    }
}

kolo_status kolo_engine_progress(kolo_comm *comm, bool *moved) {
    kolo_comm *whole = kolo_comm_whole(comm);
    *moved = false;
    if (whole->inherited) return kolo_comm_check(comm);
    uintptr_t own = (uintptr_t)pthread_self();
    atomic_store_explicit(&whole->progressing, own, memory_order_relaxed);
    (void)progress_one(whole, moved);
    if (whole->children) progress_below(whole, moved);
    atomic_store_explicit(&whole->progressing, 0, memory_order_relaxed);
    if (*moved && whole->lock) kolo_comm_wake_followers(whole);
    return kolo_comm_check(comm);
}
