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

static const int64_t stall_ns = 1000000000; /* without progress, before ranks connect directly */
static const int64_t serve_ns = 10000000;   /* between looks for messages outside of calls */

/* What a rank sends: its state, which takes the place of its earlier messages. Instances of
 * decisions are counted from 1. */
typedef struct message {
    uint64_t instance; /* that it takes part in, or has decided */
    uint64_t flags;    /* its proposal */
    uint64_t decided;  /* the latest decision; 0: none */
    uint64_t decided_flags;
    uint64_t exchange;    /* the decision after which records were exchanged last; 0: none */
    unsigned char sets[]; /* [SETS][size], each 0 or 1; then the records: [size][RECORD_BYTES] */
} message;

typedef enum set {
    GONE,         /* the proposal: ranks that are lost */
    AGREE,        /* ranks that have this same proposal, as far as known */
    DECIDED_GONE, /* the decision */
    RECORDED,     /* ranks whose records are there */
    SETS
} set;

/* To and from a rank. */
typedef struct lane {
    bool linked;  /* states are exchanged with this rank */
    bool due;     /* the state has changed since it was sent */
    message *out; /* being sent, if `sending`; in the segment, which stays until all have left:
                     a receiver may read it in place */
    bool sending;
    size_t out_bytes; /* that the transport has accepted */
    message *in;      /* being received; NULL: nothing has come */
    size_t in_bytes;
    message *last; /* NULL: none */
    bool ended;    /* at the last look; what it sent before is in `last` */
} lane;

struct kolo_agreement {
    kolo_comm *comm;
    kolo_transport *transport;
    size_t message_bytes;
    message *own;
    message *unexpected; /* the beginning of a message from a rank without `in` */
    bool done;           /* decided */
    bool failed;
    bool busy;       /* a thread is in a call, and releases the lock in its waits */
    uint32_t aborts; /* of the whole group, when the call began */
    int64_t started_ns, watched_ns, moved_ns, served_ns;
    unsigned polls; /* without progress */
    lane lanes[];   /* [size] */
};

/* ---- states ---- */

static bool is_other(const kolo_agreement *a, int p) { return p != a->comm->rank; }

static unsigned char *set_of(const kolo_agreement *a, message *m, set s) {
    return m->sets + (size_t)s * (size_t)a->comm->size;
}

static unsigned char *own_set(const kolo_agreement *a, set s) { return set_of(a, a->own, s); }

static unsigned char *records_of(const kolo_agreement *a, message *m) { return set_of(a, m, SETS); }

bool kolo_agreement_gone(const kolo_agreement *a, int rank) { return own_set(a, GONE)[rank]; }

/* Whether ranks pass on the states of others: not all pairs are connected. */
static bool passes_on(const kolo_agreement *a) { return a->transport->sparse; }

static void mark_due(kolo_agreement *a) {
    for (int p = 0; p < a->comm->size; p++) a->lanes[p].due = true;
}

/* ---- who exchanges states with whom ---- */

static void link_to(kolo_agreement *a, int p) {
    lane *l = &a->lanes[p];
    if (!l->linked) l->due = true;
    l->linked = true;
    kolo_transport_need(a->transport, p, true);
}

static bool is_power_of_2(int n) { return (n & (n - 1)) == 0; }

/* The next rank in that direction that is not gone. */
static void link_next(kolo_agreement *a, int step) {
    const int size = a->comm->size;
    for (int d = 1; d < size; d++) {
        int p = (a->comm->rank + size + step * d) % size;
        if (kolo_agreement_gone(a, p)) continue;
        link_to(a, p);
        return;
    }
}

/* All others; or if ranks connect on demand, those at distances of powers of two, which are
 * connected, and both neighbours in the ring of all that are not gone, which joins these. */
static void link_peers(kolo_agreement *a) {
    const int size = a->comm->size;
    for (int p = 0; p < size; p++) {
        int up = (p + size - a->comm->rank) % size;
        bool near = is_power_of_2(up) || is_power_of_2(size - up);
        if (!is_other(a, p) || (passes_on(a) && !near)) continue;
        if (!kolo_agreement_gone(a, p)) link_to(a, p);
    }
    link_next(a, 1);
    link_next(a, -1);
}

/* ---- creation ---- */

static void serve(kolo_agreement *a);

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
    a->message_bytes = sizeof(message) + n * (SETS + KOLO_RECORD_BYTES);
    a->own = kolo_zalloc(a->message_bytes);
    a->unexpected = kolo_zalloc(a->message_bytes);
    if (!a->own || !a->unexpected) {
        bytes = a->message_bytes;
        kolo_agreement_destroy(a);
        return KOLO_NOMEM(bytes);
    }
    if (passes_on(a)) comm->serve = serve;
    *agreement = a;
    return KOLO_OK;
}

/* Not given back: what others may still read. */
static void give_back(kolo_agreement *a, int p) {
    lane *l = &a->lanes[p];
    kolo_transport *t = a->transport;
    bool idle =
        !l->sending || (l->out_bytes == a->message_bytes && t->ops->sent(t, KOLO_SEQ_P2P, p));
    if (l->out && idle) kolo_segment_give(&t->segment, l->out, a->message_bytes);
}

void kolo_agreement_destroy(kolo_agreement *a) {
    if (!a) return;
    for (int p = 0; p < a->comm->size; p++) give_back(a, p);
    a->transport->ops->destroy(a->transport, NULL);
    for (int p = 0; p < a->comm->size; p++) {
        kolo_free(a->lanes[p].in);
        kolo_free(a->lanes[p].last);
    }
    kolo_free(a->own);
    kolo_free(a->unexpected);
    kolo_free(a);
}

/* ---- messages ---- */

/* The state that is sent next. */
static kolo_status begin_send(kolo_agreement *a, lane *l) {
    if (!l->out) {
        void *block;
        KOLO_TRY(kolo_segment_take(&a->transport->segment, a->message_bytes, &block));
        l->out = block;
    }
    memcpy(l->out, a->own, a->message_bytes);
    l->sending = true;
    l->due = false;
    l->out_bytes = 0;
    return KOLO_OK;
}

/* Sends as much as the transport accepts. */
static kolo_status push(kolo_agreement *a, int p, bool *moved) {
    kolo_transport *t = a->transport;
    lane *l = &a->lanes[p];
    for (;;) {
        if (l->sending && l->out_bytes == a->message_bytes) {
            if (!t->ops->sent(t, KOLO_SEQ_P2P, p)) return KOLO_OK;
            l->sending = false;
        }
        if (!l->sending && (!l->due || !l->linked)) return KOLO_OK;
        if (!l->sending) KOLO_TRY(begin_send(a, l));
        size_t taken;
        bool accepted;
        KOLO_TRY(t->ops->send(t, KOLO_SEQ_P2P, p, (const char *)l->out + l->out_bytes,
                              a->message_bytes - l->out_bytes, &taken, &accepted));
        if (!accepted) return KOLO_OK;
        l->out_bytes += taken;
        *moved = true;
    }
}

/* Whether something of the state is left that the transport has not accepted. */
static bool has_unsent(const kolo_agreement *a, int p) {
    const lane *l = &a->lanes[p];
    return l->linked && (l->due || (l->sending && l->out_bytes < a->message_bytes));
}

/* A rank decides only after all that are not gone have come, so it is one decision ahead at most.
 */
static kolo_status check_message(kolo_agreement *a, int p, message *m) {
    bool valid = true;
    for (size_t i = 0; i < (size_t)SETS * (size_t)a->comm->size; i++) {
        valid = valid && m->sets[i] <= 1;
    }
    if (!valid)
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s sent an invalid message", KOLO_RANK(a->comm, p));
    bool left_out = set_of(a, m, GONE)[a->comm->rank] || set_of(a, m, DECIDED_GONE)[a->comm->rank];
    if (left_out || m->instance <= a->own->instance + 1) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s is ahead of the agreement", KOLO_RANK(a->comm, p));
}

/* A rank from which nothing is expected may send its state: it needs this one's. */
static kolo_status receive_some(kolo_agreement *a, int p, bool *arrived) {
    kolo_transport *t = a->transport;
    lane *l = &a->lanes[p];
    size_t taken;
    message *to = l->in ? l->in : a->unexpected;
    KOLO_TRY(t->ops->recv(t, KOLO_SEQ_P2P, p, (char *)to + l->in_bytes,
                          a->message_bytes - l->in_bytes, &taken, arrived));
    if (!*arrived) return KOLO_OK;
    if (!l->in) {
        l->in = kolo_zalloc(a->message_bytes);
        if (!l->in) return KOLO_NOMEM(a->message_bytes);
        memcpy(l->in, to, taken);
        link_to(a, p);
    }
    l->in_bytes += taken;
    return KOLO_OK;
}

/* Receives the latest state of a rank. */
static kolo_status pull(kolo_agreement *a, int p, bool *moved) {
    lane *l = &a->lanes[p];
    for (bool arrived = true; arrived;) {
        KOLO_TRY(receive_some(a, p, &arrived));
        *moved = *moved || arrived;
        if (!l->in || l->in_bytes < a->message_bytes) continue;
        KOLO_TRY(check_message(a, p, l->in));
        if (!l->last) l->last = kolo_zalloc(a->message_bytes);
        if (!l->last) return KOLO_NOMEM(a->message_bytes);
        memcpy(l->last, l->in, a->message_bytes);
        l->in_bytes = 0;
    }
    return KOLO_OK;
}

/* Whether a rank's process has ended, or it has left or given up. */
static bool has_ended(kolo_agreement *a, int p) {
    kolo_peer_state state;
    a->transport->ops->peer_state(a->transport, p, &state);
    return state.ended || state.condition != KOLO_PEER_ALIVE;
}

/* A look at all ranks; from time to time also at who has ended, before what it sent is received. */
static kolo_status look(kolo_agreement *a, bool *moved) {
    int64_t now_ns = kolo_now_ns();
    bool watch = now_ns - a->watched_ns >= kolo_comm_watch_interval_ns(a->comm);
    if (watch) a->watched_ns = now_ns;
    for (int p = 0; p < a->comm->size; p++) {
        if (!is_other(a, p)) continue;
        a->lanes[p].ended = watch && has_ended(a, p);
        KOLO_TRY(push(a, p, moved));
        KOLO_TRY(pull(a, p, moved));
    }
    return KOLO_OK;
}

/* Outside of calls: gives what this rank has decided to ranks that have sent their state, because
 * those between them have ended, and keeps what comes for the next call. An error is found again
 * there. */
static void serve(kolo_agreement *a) {
    int64_t now_ns = kolo_now_ns();
    bool moved = false;
    if (a->busy || a->failed || now_ns - a->served_ns < serve_ns) return;
    a->served_ns = now_ns;
    for (int p = 0; p < a->comm->size; p++) {
        if (!is_other(a, p)) continue;
        if (pull(a, p, &moved) == KOLO_OK) (void)push(a, p, &moved);
    }
}

/* ---- waiting ---- */

/* Whether a call waits for a rank: that it comes, or has the same state. */
static bool is_awaited(const kolo_agreement *a, int p, set s) {
    return is_other(a, p) && !kolo_agreement_gone(a, p) && !own_set(a, s)[p];
}

static kolo_status timed_out(kolo_agreement *a, set s) {
    kolo_text text = {0};
    for (int p = 0; p < a->comm->size; p++) {
        if (!is_awaited(a, p, s)) continue;
        kolo_text_add(&text, "%s%s", text.text ? ", " : "", KOLO_RANK(a->comm, p));
    }
    kolo_status status =
        KOLO_FAIL(KOLO_ERR_TIMEOUT, "waited %.1f s for %s, to agree on the ranks that live",
                  (double)(kolo_now_ns() - a->started_ns) * 1e-9, text.text ? text.text : "a rank");
    kolo_text_fini(&text);
    return status;
}

/* What is between this rank and those that it waits for does not answer: it may have ended, or gone
 * on. */
static void link_awaited(kolo_agreement *a, set s, int64_t now_ns) {
    if (now_ns - a->moved_ns < stall_ns) return;
    a->moved_ns = now_ns;
    for (int p = 0; p < a->comm->size; p++) {
        if (is_awaited(a, p, s)) link_to(a, p);
    }
}

/* After a look at all ranks that did or did not find anything (`moved`). The group may be broken,
 * and what its progress returns is not of interest. */
static kolo_status pause_briefly(kolo_agreement *a, set s, bool moved) {
    kolo_comm *comm = a->comm;
    bool found = moved;
    (void)kolo_engine_progress(comm, &moved);
    a->polls = moved || found ? 0 : a->polls + 1;
    if (found) a->moved_ns = kolo_now_ns();
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
    link_awaited(a, s, now_ns);
    return now_ns - a->started_ns > comm->timeout_ns ? timed_out(a, s) : KOLO_OK;
}

/* ---- the protocol ---- */

/* The other ranks treat this one as lost. */
static kolo_status check_left_out(kolo_agreement *a) {
    const int own = a->comm->rank;
    for (int p = 0; p < a->comm->size; p++) {
        message *m = a->lanes[p].last;
        if (!m || (!set_of(a, m, GONE)[own] && !set_of(a, m, DECIDED_GONE)[own])) continue;
        return KOLO_FAIL(KOLO_ERR_PEER,
                         "the other ranks go on without rank %d, which they had lost: it was "
                         "stopped, or not reachable, for longer than the heartbeat",
                         kolo_comm_whole_rank(a->comm, own));
    }
    return KOLO_OK;
}

static void set_decision(kolo_agreement *a, uint64_t flags, const unsigned char *gone) {
    const size_t n = (size_t)a->comm->size;
    a->own->decided = a->own->instance;
    a->own->decided_flags = a->own->flags = flags;
    memmove(own_set(a, DECIDED_GONE), gone, n);
    memmove(own_set(a, GONE), gone, n);
    mark_due(a);
    a->done = true;
}

/* Adopts the decision of a rank that is not gone. */
static void adopt(kolo_agreement *a) {
    for (int p = 0; p < a->comm->size && !a->done; p++) {
        message *m = a->lanes[p].last;
        if (!m || kolo_agreement_gone(a, p) || m->decided != a->own->instance) continue;
        set_decision(a, m->decided_flags, set_of(a, m, DECIDED_GONE));
    }
}

/* The ranks that have the same proposal as this one, which has just changed. */
static void propose(kolo_agreement *a) {
    memset(own_set(a, AGREE), 0, (size_t)a->comm->size);
    own_set(a, AGREE)[a->comm->rank] = 1;
    link_peers(a);
    mark_due(a);
}

/* Adds a set to one of this rank; whether that has changed it. */
static bool add_set(kolo_agreement *a, set s, const unsigned char *other) {
    bool changed = false;
    for (int r = 0; r < a->comm->size; r++) {
        changed = changed || (other[r] && !own_set(a, s)[r]);
        own_set(a, s)[r] |= other[r];
    }
    return changed;
}

/* The proposal of a rank for this decision; NULL: none, or the rank is gone. */
static message *proposal_of(const kolo_agreement *a, int p) {
    message *m = a->lanes[p].last;
    return m && !kolo_agreement_gone(a, p) && m->instance == a->own->instance ? m : NULL;
}

/* Joins the proposals of all: the union of the lost ranks, the intersection of the flags. */
static bool join_proposals(kolo_agreement *a) {
    bool changed = false;
    for (int p = 0; p < a->comm->size; p++) {
        message *m = proposal_of(a, p);
        if (!m) continue;
        changed = changed || (a->own->flags & ~m->flags);
        a->own->flags &= m->flags;
        changed = add_set(a, GONE, set_of(a, m, GONE)) || changed;
    }
    return changed;
}

/* Finds out who has the same proposal. */
static void compare_proposals(kolo_agreement *a) {
    bool changed = false;
    for (int p = 0; p < a->comm->size; p++) {
        message *m = proposal_of(a, p);
        bool same = m && m->flags == a->own->flags &&
                    memcmp(set_of(a, m, GONE), own_set(a, GONE), (size_t)a->comm->size) == 0;
        if (same) changed = add_set(a, AGREE, set_of(a, m, AGREE)) || changed;
    }
    if (changed && passes_on(a)) mark_due(a);
}

/* Ranks that have ended, and will not agree. */
static bool lose_ended(kolo_agreement *a, set s) {
    bool changed = false;
    for (int p = 0; p < a->comm->size; p++) {
        if (!a->lanes[p].ended || !is_awaited(a, p, s)) continue;
        own_set(a, GONE)[p] = 1;
        changed = true;
    }
    return changed;
}

static bool all_are_in(const kolo_agreement *a, set s) {
    for (int p = 0; p < a->comm->size; p++) {
        if (is_awaited(a, p, s)) return false;
    }
    return true;
}

static kolo_status step(kolo_agreement *a) {
    KOLO_TRY(check_left_out(a));
    adopt(a);
    if (a->done) return KOLO_OK;
    if (join_proposals(a)) propose(a);
    compare_proposals(a);
    if (lose_ended(a, AGREE)) {
        propose(a);
        compare_proposals(a);
    }
    if (all_are_in(a, AGREE)) set_decision(a, a->own->flags, own_set(a, GONE));
    return KOLO_OK;
}

/* Sends the decision to the ranks with which states are exchanged, unless they have it. */
static kolo_status announce_decision(kolo_agreement *a) {
    for (bool waiting = true; waiting;) {
        bool moved = false;
        waiting = false;
        KOLO_TRY(look(a, &moved));
        for (int p = 0; p < a->comm->size; p++) {
            const lane *l = &a->lanes[p];
            bool has = l->last && l->last->decided >= a->own->decided;
            bool needs = is_other(a, p) && !kolo_agreement_gone(a, p) && !has && !l->ended;
            waiting = waiting || (needs && has_unsent(a, p));
        }
        if (waiting) KOLO_TRY(pause_briefly(a, AGREE, moved));
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
    a->started_ns = a->moved_ns = kolo_now_ns();
    a->polls = 0;
    a->aborts = kolo_comm_whole(a->comm)->aborts;
    return KOLO_OK;
}

kolo_status kolo_agreement_give_up(kolo_agreement *a, kolo_status status) {
    return a->busy ? status : end_call(a, status);
}

static kolo_status decide(kolo_agreement *a, uint64_t *flags) {
    a->own->instance++;
    a->own->flags = *flags;
    a->done = false;
    propose(a);
    while (!a->done) {
        bool moved = false;
        KOLO_TRY(look(a, &moved));
        KOLO_TRY(step(a));
        if (!a->done) KOLO_TRY(pause_briefly(a, AGREE, moved));
    }
    *flags = a->own->decided_flags;
    return announce_decision(a);
}

kolo_status kolo_agreement_decide(kolo_agreement *a, uint64_t *flags) {
    KOLO_TRY(begin_call(a));
    return end_call(a, decide(a, flags));
}

/* Takes the records that a rank has. */
static void take_records(kolo_agreement *a, int p) {
    message *m = a->lanes[p].last;
    if (!m || m->exchange != a->own->exchange) return;
    for (int r = 0; r < a->comm->size; r++) {
        if (!set_of(a, m, RECORDED)[r] || own_set(a, RECORDED)[r]) continue;
        size_t at = (size_t)r * KOLO_RECORD_BYTES;
        own_set(a, RECORDED)[r] = 1;
        memcpy(records_of(a, a->own) + at, records_of(a, m) + at, KOLO_RECORD_BYTES);
        if (passes_on(a)) mark_due(a);
    }
}

static kolo_status exchange(kolo_agreement *a, const void *record) {
    const size_t n = (size_t)a->comm->size, own = (size_t)a->comm->rank;
    a->own->exchange = a->own->decided;
    memset(own_set(a, RECORDED), 0, n);
    own_set(a, RECORDED)[own] = 1;
    memset(records_of(a, a->own), 0, n * KOLO_RECORD_BYTES);
    memcpy(records_of(a, a->own) + own * KOLO_RECORD_BYTES, record, KOLO_RECORD_BYTES);
    link_peers(a);
    mark_due(a);
    for (;;) {
        bool moved = false;
        KOLO_TRY(look(a, &moved));
        KOLO_TRY(check_left_out(a));
        for (int p = 0; p < a->comm->size; p++) take_records(a, p);
        if (lose_ended(a, RECORDED)) link_peers(a);
        if (all_are_in(a, RECORDED)) return KOLO_OK;
        KOLO_TRY(pause_briefly(a, RECORDED, moved));
    }
}

kolo_status kolo_agreement_exchange(kolo_agreement *a, const void *record,
                                    unsigned char (*records)[KOLO_RECORD_BYTES]) {
    KOLO_TRY(begin_call(a));
    kolo_status status = exchange(a, record);
    memcpy(records, records_of(a, a->own), (size_t)a->comm->size * sizeof *records);
    return end_call(a, status);
}
