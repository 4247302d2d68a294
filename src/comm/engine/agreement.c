#include "comm/engine/agreement.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/engine/backoff.h"
#include "comm/engine/engine.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/engine/progress_thread.h"

#include <string.h>

enum {
    POLLS = 200,      /* without progress before the first sleep */
    SLEEP_NS = 50000, /* at least */
};

typedef enum kind { KIND_ROUND, KIND_DECISION, KIND_RECORD, KINDS } kind;

typedef struct message {
    uint32_t kind, round;
    uint64_t instance; /* of decisions, counted; a record belongs to the decision before it */
    uint64_t flags;
    unsigned char record[KOLO_RECORD_BYTES];
    unsigned char gone[]; /* [size]: 0 or 1 */
} message;

/* A message on its way, which the transport reads in place until it is sent; where the ranks are
 * threads, its receiver does, at any time. */
typedef struct outgoing {
    struct outgoing *next;
    size_t bytes;  /* that the transport has accepted */
    message *body; /* in the segment, which stays until all ranks have left */
} outgoing;

/* To and from a rank, in order. */
typedef struct lane {
    outgoing *first;
    message *in;
    size_t in_bytes;
    bool received; /* in this round, or exchange */
    bool decided;  /* it has decided this instance, and takes no more messages of it */
    bool closed;   /* it has been sent a decision by which it is gone, its last message */
} lane;

struct kolo_agreement {
    kolo_comm *comm;
    kolo_transport *transport;
    size_t message_bytes;
    uint64_t instance;
    uint32_t round;
    uint64_t flags, sent_flags;
    unsigned char *gone, *sent_gone; /* [size]; what this round's message held */
    bool same;                       /* all messages of this round are what this rank has sent */
    bool done;                       /* decided */
    bool failed;
    bool busy;       /* a thread is in a call, and releases the lock in its waits */
    uint32_t aborts; /* of the whole group, when the call began */
    int64_t started_ns, watched_ns;
    unsigned polls; /* without progress */
    lane lanes[];   /* [size] */
};

/* ---- creation ---- */

kolo_status kolo_agreement_create(kolo_comm *comm, kolo_transport *transport,
                                  kolo_agreement **agreement) {
    size_t n = (size_t)transport->size, bytes = sizeof(kolo_agreement) + n * sizeof(lane);
    kolo_agreement *a = kolo_zalloc(bytes);
    if (!a) {
        transport->ops->destroy(transport, NULL);
        return KOLO_NOMEM(bytes);
    }
    a->comm = comm;
    a->transport = transport;
    a->message_bytes = sizeof(message) + n;
    a->gone = kolo_zalloc(n);
    a->sent_gone = kolo_zalloc(n);
    bool complete = a->gone && a->sent_gone;
    for (size_t p = 0; p < n; p++) {
        a->lanes[p].in = kolo_zalloc(a->message_bytes);
        complete = complete && a->lanes[p].in;
    }
    if (!complete) {
        bytes = n * a->message_bytes;
        kolo_agreement_destroy(a);
        return KOLO_NOMEM(bytes);
    }
    *agreement = a;
    return KOLO_OK;
}

void kolo_agreement_destroy(kolo_agreement *a) {
    if (!a) return;
    a->transport->ops->destroy(a->transport,
                               NULL); /* which others may read still: not given back */
    for (int p = 0; p < a->comm->size; p++) {
        while (a->lanes[p].first) {
            outgoing *next = a->lanes[p].first->next;
            kolo_free(a->lanes[p].first);
            a->lanes[p].first = next;
        }
        kolo_free(a->lanes[p].in);
    }
    kolo_free(a->gone);
    kolo_free(a->sent_gone);
    kolo_free(a);
}

bool kolo_agreement_gone(const kolo_agreement *a, int rank) { return a->gone[rank]; }

/* ---- messages ---- */

static bool is_other(const kolo_agreement *a, int p) { return p != a->comm->rank; }

/* Sends as much as the transport accepts. */
static kolo_status push(kolo_agreement *a, int p, bool *moved) {
    kolo_transport *t = a->transport;
    lane *l = &a->lanes[p];
    while (l->first) {
        outgoing *o = l->first;
        if (o->bytes == a->message_bytes) {
            if (!t->ops->sent(t, KOLO_SEQ_P2P, p)) return KOLO_OK;
            l->first = o->next;
            kolo_segment_give(&t->segment, o->body, a->message_bytes);
            kolo_free(o);
            continue;
        }
        size_t taken;
        bool accepted;
        KOLO_TRY(t->ops->send(t, KOLO_SEQ_P2P, p, (const char *)o->body + o->bytes,
                              a->message_bytes - o->bytes, &taken, &accepted));
        if (!accepted) return KOLO_OK;
        o->bytes += taken;
        *moved = true;
    }
    return KOLO_OK;
}

/* Whether something is left that the transport has not accepted. */
static bool has_unsent(const kolo_agreement *a, int p) {
    const outgoing *o = a->lanes[p].first;
    return o && (o->next || o->bytes < a->message_bytes);
}

static kolo_status queue(kolo_agreement *a, int p, kind what, const void *record) {
    outgoing *o = kolo_zalloc(sizeof *o), **end = &a->lanes[p].first;
    if (!o) return KOLO_NOMEM(sizeof *o);
    void *block;
    kolo_status status = kolo_segment_take(&a->transport->segment, a->message_bytes, &block);
    if (status != KOLO_OK) {
        kolo_free(o);
        return status;
    }
    message *m = block;
    *m = (message){.kind = what, .round = a->round, .instance = a->instance, .flags = a->flags};
    memcpy(m->gone, a->gone, (size_t)a->comm->size);
    if (record) memcpy(m->record, record, KOLO_RECORD_BYTES);
    o->body = m;
    while (*end) end = &(*end)->next;
    *end = o;
    bool moved;
    return push(a, p, &moved);
}

/* To all ranks that are not gone. The first decision by which a rank is gone is sent to it too,
 * since it may only seem to be. */
static kolo_status queue_all(kolo_agreement *a, kind what, const void *record) {
    for (int p = 0; p < a->comm->size; p++) {
        lane *l = &a->lanes[p];
        l->received = false;
        if (!is_other(a, p) || l->decided) continue;
        if (a->gone[p] && (what != KIND_DECISION || l->closed)) continue;
        l->closed = a->gone[p];
        KOLO_TRY(queue(a, p, what, record));
    }
    return KOLO_OK;
}

/* The other ranks treat this one as lost. */
static kolo_status left_out(const kolo_agreement *a) {
    return KOLO_FAIL(KOLO_ERR_PEER,
                     "the other ranks go on without rank %d, which they had lost: it was stopped, "
                     "or not reachable, for longer than the heartbeat",
                     kolo_comm_whole_rank(a->comm, a->comm->rank));
}

/* Receives; sets `full` if the next message of a rank is there. */
static kolo_status pull(kolo_agreement *a, int p, bool *full, bool *moved) {
    kolo_transport *t = a->transport;
    lane *l = &a->lanes[p];
    bool arrived = true;
    while (arrived && l->in_bytes < a->message_bytes) {
        size_t taken;
        KOLO_TRY(t->ops->recv(t, KOLO_SEQ_P2P, p, (char *)l->in + l->in_bytes,
                              a->message_bytes - l->in_bytes, &taken, &arrived));
        l->in_bytes += taken;
        *moved = *moved || arrived;
    }
    *full = l->in_bytes == a->message_bytes;
    if (!*full) return KOLO_OK;
    bool valid = l->in->kind < KINDS;
    for (int r = 0; r < a->comm->size; r++) valid = valid && l->in->gone[r] <= 1;
    if (valid && l->in->gone[a->comm->rank]) return left_out(a);
    if (valid) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s sent an invalid message", KOLO_RANK(a->comm, p));
}

static void discard(kolo_agreement *a, int p) { a->lanes[p].in_bytes = 0; }

/* ---- waiting ---- */

static kolo_status timed_out(kolo_agreement *a) {
    kolo_text text = {0};
    for (int p = 0; p < a->comm->size; p++) {
        if (!is_other(a, p) || a->gone[p] || a->lanes[p].received) continue;
        kolo_text_add(&text, "%s%s", text.text ? ", " : "", KOLO_RANK(a->comm, p));
    }
    kolo_status status =
        KOLO_FAIL(KOLO_ERR_TIMEOUT, "waited %.1f s for %s, to agree on the ranks that live",
                  (double)(kolo_now_ns() - a->started_ns) * 1e-9, text.text ? text.text : "a rank");
    kolo_text_fini(&text);
    return status;
}

/* After a look at all ranks that did or did not find anything (`moved`). The group may be broken,
 * and what its progress returns is not of interest. */
static kolo_status pause_briefly(kolo_agreement *a, bool moved) {
    kolo_comm *comm = a->comm;
    (void)kolo_engine_progress(comm, &moved);
    a->polls = moved ? 0 : a->polls + 1;
    if (a->polls < POLLS) return KOLO_OK;
    int64_t sleep_ns = kolo_backoff_ns(kolo_now_ns() - a->started_ns, SLEEP_NS);
    if (comm->lock && comm->lock->shared) {
        kolo_progress_let_in(comm, kolo_sleep_ns, sleep_ns);
    } else {
        kolo_sleep_ns(sleep_ns);
    }
    if (kolo_comm_whole(comm)->aborts != a->aborts) {
        return KOLO_FAIL(KOLO_ERR_PEER, "%s", kolo_comm_whole(comm)->broken_text);
    }
    int64_t now_ns = kolo_now_ns();
    KOLO_TRY(kolo_comm_check_interrupted(comm, now_ns));
    return now_ns - a->started_ns > comm->timeout_ns ? timed_out(a) : KOLO_OK;
}

/* Whether the ranks are to be looked at now. */
static bool watches(kolo_agreement *a) {
    int64_t now_ns = kolo_now_ns();
    if (now_ns - a->watched_ns < kolo_comm_watch_interval_ns(a->comm)) return false;
    a->watched_ns = now_ns;
    return true;
}

/* Whether a rank's process has ended, or it has left or given up. What it sent before is received
 * first: so look before the last `pull`. */
static bool has_ended(kolo_agreement *a, int p) {
    kolo_peer_state state;
    a->transport->ops->peer_state(a->transport, p, &state);
    return state.ended || state.condition != KOLO_PEER_ALIVE;
}

/* ---- rounds ---- */

static void take_decision(kolo_agreement *a, const message *m) {
    a->flags = m->flags;
    memcpy(a->gone, m->gone, (size_t)a->comm->size);
    a->done = true;
}

static void take_round(kolo_agreement *a, const message *m) {
    size_t n = (size_t)a->comm->size;
    a->same = a->same && m->flags == a->sent_flags && memcmp(m->gone, a->sent_gone, n) == 0;
    a->flags &= m->flags;
    for (size_t r = 0; r < n; r++) a->gone[r] |= m->gone[r];
}

/* Takes a message of this round; older ones are discarded. */
static kolo_status take(kolo_agreement *a, int p) {
    lane *l = &a->lanes[p];
    const message *m = l->in;
    if (m->instance > a->instance || (m->instance == a->instance && m->kind == KIND_RECORD)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s is ahead of the agreement", KOLO_RANK(a->comm, p));
    }
    if (m->instance == a->instance && m->kind == KIND_DECISION) {
        l->decided = true;
        take_decision(a, m);
    } else if (m->instance == a->instance && m->round == a->round) {
        l->received = true;
        take_round(a, m);
    }
    discard(a, p);
    return KOLO_OK;
}

/* One look at a rank of which this round's message is missing. */
static kolo_status listen(kolo_agreement *a, int p, bool watch, bool *moved) {
    lane *l = &a->lanes[p];
    bool ended = watch && has_ended(a, p), full = true;
    while (full && !l->received && !a->done) {
        KOLO_TRY(pull(a, p, &full, moved));
        if (full) KOLO_TRY(take(a, p));
    }
    if (ended && !l->received && !a->done) {
        a->gone[p] = 1;
        *moved = true;
    }
    return KOLO_OK;
}

/* Ranks that were gone before this round are not waited for. */
static bool is_awaited(const kolo_agreement *a, int p) {
    return is_other(a, p) && !a->sent_gone[p] && !a->lanes[p].received;
}

static kolo_status run_round(kolo_agreement *a) {
    size_t n = (size_t)a->comm->size;
    memcpy(a->sent_gone, a->gone, n);
    a->sent_flags = a->flags;
    a->same = true;
    KOLO_TRY(queue_all(a, KIND_ROUND, NULL));
    for (bool waiting = true; waiting && !a->done;) {
        bool moved = false, watch = watches(a);
        waiting = false;
        for (int p = 0; p < a->comm->size && !a->done; p++) {
            if (!is_other(a, p)) continue;
            KOLO_TRY(push(a, p, &moved));
            if (!is_awaited(a, p)) continue;
            KOLO_TRY(listen(a, p, watch, &moved));
            waiting = waiting || (is_awaited(a, p) && !a->gone[p]);
        }
        if (waiting && !a->done) KOLO_TRY(pause_briefly(a, moved));
    }
    if (!a->done) a->done = a->same && memcmp(a->sent_gone, a->gone, n) == 0;
    return KOLO_OK;
}

/* A rank that has decided too, or gone on since, does not need the decision. */
static kolo_status flush_one(kolo_agreement *a, int p, bool watch, bool *waiting, bool *moved) {
    lane *l = &a->lanes[p];
    bool ended = watch && has_ended(a, p), full = true;
    KOLO_TRY(push(a, p, moved));
    while (full && !l->decided) {
        KOLO_TRY(pull(a, p, &full, moved));
        if (!full) break;
        bool own = l->in->instance == a->instance;
        bool stale = own ? l->in->kind == KIND_ROUND : l->in->instance < a->instance;
        l->decided = !stale;
        if (stale || (own && l->in->kind == KIND_DECISION)) discard(a, p); /* others: for later */
    }
    *waiting = *waiting || (has_unsent(a, p) && !l->decided && !ended);
    return KOLO_OK;
}

/* Sends the decision to the other ranks. */
static kolo_status announce_decision(kolo_agreement *a) {
    KOLO_TRY(queue_all(a, KIND_DECISION, NULL));
    for (bool waiting = true; waiting;) {
        bool moved = false, watch = watches(a);
        waiting = false;
        for (int p = 0; p < a->comm->size; p++) {
            if (is_other(a, p) && !a->gone[p]) {
                KOLO_TRY(flush_one(a, p, watch, &waiting, &moved));
            }
        }
        if (waiting) KOLO_TRY(pause_briefly(a, moved));
    }
    return KOLO_OK;
}

/* ---- the calls ---- */

/* After a failure the others do not wait for this rank. */
static void fail(kolo_agreement *a, kolo_status status, const char *reason) {
    if (a->failed) return;
    a->failed = true;
    a->transport->ops->report(a->transport, status, reason);
}

void kolo_agreement_abort(kolo_agreement *a, const char *reason) { fail(a, KOLO_ERR_PEER, reason); }

static kolo_status end_call(kolo_agreement *a, kolo_status status) {
    a->busy = false;
    if (status != KOLO_OK) fail(a, status, kolo_last_error());
    return status;
}

static kolo_status begin_call(kolo_agreement *a) {
    int rank = kolo_comm_whole_rank(a->comm, a->comm->rank);
    if (a->busy) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "two threads of rank %d agree with the other ranks of one group at once: "
                         "call kolo_comm_shrink and kolo_comm_agree in one thread at a time",
                         rank);
    }
    if (a->failed) {
        return KOLO_FAIL(KOLO_ERR_PEER, "an agreement of this group has failed on rank %d before",
                         rank);
    }
    a->busy = true;
    a->started_ns = kolo_now_ns();
    a->polls = 0;
    a->aborts = kolo_comm_whole(a->comm)->aborts;
    for (int p = 0; p < a->comm->size; p++) {
        if (!a->gone[p]) kolo_transport_need(a->transport, p, true);
    }
    return KOLO_OK;
}

kolo_status kolo_agreement_give_up(kolo_agreement *a, kolo_status status) {
    return a->busy ? status : end_call(a, status);
}

static kolo_status decide(kolo_agreement *a, uint64_t *flags) {
    a->instance++;
    a->flags = *flags;
    a->done = false;
    for (int p = 0; p < a->comm->size; p++) a->lanes[p].decided = false;
    for (a->round = 0; !a->done; a->round++) KOLO_TRY(run_round(a));
    *flags = a->flags;
    return announce_decision(a);
}

kolo_status kolo_agreement_decide(kolo_agreement *a, uint64_t *flags) {
    KOLO_TRY(begin_call(a));
    return end_call(a, decide(a, flags));
}

/* One look at a rank whose record is missing. */
static kolo_status await_record(kolo_agreement *a, int p, bool watch, unsigned char *record,
                                bool *moved) {
    lane *l = &a->lanes[p];
    bool ended = watch && has_ended(a, p), full = true;
    while (full && !l->received) {
        KOLO_TRY(pull(a, p, &full, moved));
        if (!full) break;
        l->received = l->in->instance == a->instance && l->in->kind == KIND_RECORD;
        if (l->received) memcpy(record, l->in->record, KOLO_RECORD_BYTES);
        if (l->in->instance > a->instance) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s is ahead of the agreement",
                             KOLO_RANK(a->comm, p));
        }
        discard(a, p);
    }
    if (ended && !l->received) a->gone[p] = 1;
    return KOLO_OK;
}

static kolo_status exchange(kolo_agreement *a, const void *record,
                            unsigned char (*records)[KOLO_RECORD_BYTES]) {
    int n = a->comm->size;
    memset(records, 0, (size_t)n * sizeof *records);
    memcpy(records[a->comm->rank], record, sizeof *records);
    for (int p = 0; p < n; p++) a->lanes[p].decided = false;
    KOLO_TRY(queue_all(a, KIND_RECORD, record));
    for (bool waiting = true; waiting;) {
        bool moved = false, watch = watches(a);
        waiting = false;
        for (int p = 0; p < n; p++) {
            if (!is_other(a, p)) continue;
            KOLO_TRY(push(a, p, &moved));
            if (a->gone[p] || a->lanes[p].received) continue;
            KOLO_TRY(await_record(a, p, watch, records[p], &moved));
            waiting = waiting || (!a->gone[p] && !a->lanes[p].received);
        }
        if (waiting) KOLO_TRY(pause_briefly(a, moved));
    }
    return KOLO_OK;
}

kolo_status kolo_agreement_exchange(kolo_agreement *a, const void *record,
                                    unsigned char (*records)[KOLO_RECORD_BYTES]) {
    KOLO_TRY(begin_call(a));
    return end_call(a, exchange(a, record, records));
}
