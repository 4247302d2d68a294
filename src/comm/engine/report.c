/* Which ranks wait for which: the text of TIMEOUT errors, of lost ranks and of reports on request.
 *
 * A report uses local state only: the oldest request in flight, on which all others depend, the
 * peers' announcements and their published progress. The signal that requests a report is read from
 * a descriptor, each time that a wait checks its peers, so no code runs in a signal handler. */
#include "comm/engine/report.h"

#include "base/text.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/engine/p2p.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAMED = 3 }; /* ranks that a report names, the first with what it finished last */

/* Whether a request waits for a peer, for one of several reasons. */
typedef bool (*waits_for)(const kolo_request *q, int peer);

static bool not_announced(const kolo_request *q, int peer) {
    return peer != q->comm->rank && !kolo_transport_started(q->comm->transport, q->seq, peer);
}

static bool behind(const kolo_request *q, int peer) {
    kolo_peer_call other;
    kolo_transport *t = q->comm->transport;
    if (peer == q->comm->rank) return false;
    return !t->ops->query(t, q->seq, peer, &other) || other.phase < q->phase;
}

static bool message_open(const kolo_request *q, int peer) {
    if (!q->schedule || q->round >= q->schedule->n_rounds) return false;
    size_t first = q->schedule->rounds[q->round];
    size_t end = kolo_schedule_round_end(q->schedule, q->round);
    for (size_t i = first; i < end; i++) {
        const kolo_entry *e = &q->schedule->entries[i];
        bool message = e->kind == KOLO_ENTRY_SEND || e->kind == KOLO_ENTRY_RECV;
        if (message && e->peer == peer && !q->entries[i - first].done) return true;
    }
    return false;
}

/* "2 collectives, last barrier 'x'"; `title` may be "". */
static void add_finished(kolo_text *text, uint64_t finished, const char *title) {
    kolo_text_add(text, "%llu collective%s%s%s", (unsigned long long)finished,
                  finished == 1 ? "" : "s", title[0] ? ", last " : "", title);
}

/* The title of the collective that this rank finished last; "": none. */
static const char *own_last(const kolo_comm *comm) {
    return comm->last ? comm->last->title : comm->last_title;
}

/* The title of the collective that a peer finished last, if its slot still holds it. */
static void last_of(const kolo_comm *comm, int peer, uint64_t finished,
                    char title[KOLO_TITLE_BYTES]) {
    kolo_peer_call call;
    title[0] = '\0';
    if (finished == 0 || !comm->transport->ops->query(comm->transport, finished - 1, peer, &call)) {
        return;
    }
    memcpy(title, call.title, KOLO_TITLE_BYTES);
    title[KOLO_TITLE_BYTES - 1] = '\0';
}

static bool add_ranks(kolo_text *text, const kolo_request *q, waits_for waits, const char *what) {
    int n = 0;
    for (int p = 0; p < q->comm->size; p++) {
        if (!waits(q, p)) continue;
        kolo_peer_state peer;
        char title[KOLO_TITLE_BYTES] = "";
        q->comm->transport->ops->peer_state(q->comm->transport, p, &peer);
        if (n == 0) {
            kolo_text_add(text, ": %s ", what);
            last_of(q->comm, p, peer.finished, title);
        }
        if (n < NAMED) {
            kolo_text_add(text, "%srank %d (finished ", n ? ", " : "",
                          kolo_comm_whole_rank(q->comm, p));
            add_finished(text, peer.finished, title);
            kolo_text_add(text, ")");
        }
        n++;
    }
    if (n > NAMED) kolo_text_add(text, " and %d more", n - NAMED);
    return n > 0;
}

/* Which ranks a request waits for, and for what. */
static void add_reason(kolo_text *text, const kolo_request *q) {
    if (q->comm->gate && !q->comm->gate(q->comm->gate_arg, q)) {
        kolo_text_add(text, ": its gate is closed");
    } else if (q->state == REQUEST_QUEUED) {
        kolo_text_add(text, ": the peers are still in collectives that started %d earlier",
                      KOLO_FLIGHT_MAX);
    } else if (q->offloaded) {
        kolo_text_add(text, ": started by all ranks, not finished by %s",
                      kolo_comm_transport(q->comm));
    } else if (!add_ranks(text, q, not_announced, "not started by")) {
        if (!add_ranks(text, q, message_open, "messages in transfer with")) {
            add_ranks(text, q, behind, "at a barrier, waits for");
        }
    }
}

/* What a send or receive waits for. */
static void add_message_reason(kolo_text *text, const kolo_request *q) {
    bool send = q->kind == KOLO_COLLECTIVE_SEND, any = q->root == KOLO_ANY_RANK;
    int peer = any ? KOLO_ANY_RANK : kolo_comm_whole_rank(q->comm, q->root);
    if (q->comm->gate && !q->comm->gate(q->comm->gate_arg, q)) {
        kolo_text_add(text, ": its gate is closed");
    } else if (send ? q->granted : q->state == REQUEST_RUNNING) {
        kolo_text_add(text, ": rank %d stopped in the middle of the transfer", peer);
    } else if (any) {
        kolo_text_add(text, ": no send with tag %d was started by any rank", q->tag);
    } else {
        kolo_text_add(text, ": no %s with tag %d was started by rank %d", send ? "receive" : "send",
                      q->tag, peer);
    }
}

const kolo_request *kolo_comm_oldest(const kolo_comm *comm) {
    return comm->n_flight > 0 ? comm->flight[0] : kolo_p2p_open_with(comm, -1);
}

void kolo_comm_describe(const kolo_comm *comm, kolo_text *text) {
    const kolo_request *q = kolo_comm_oldest(comm);
    kolo_text_add(text, "%s", q->title);
    if (comm->n_flight > 0) {
        kolo_text_add(text, ", sequence %llu", (unsigned long long)q->seq);
        add_reason(text, q);
    } else {
        add_message_reason(text, q);
    }
    kolo_text_add(text, "; this rank finished ");
    add_finished(text, comm->n_flight > 0 ? q->seq : comm->next_seq, own_last(comm));
}

/* The newest collective that a peer has announced, among those whose slots are kept. */
static bool find_last(const kolo_comm *comm, int peer, uint64_t *seq, kolo_peer_call *call) {
    kolo_transport *t = comm->transport;
    const uint64_t end = comm->next_seq + KOLO_FLIGHT_MAX;
    for (*seq = end; *seq > 0 && *seq + 2 * KOLO_FLIGHT_MAX > end;) {
        if (t->ops->query(t, --*seq, peer, call)) return true;
    }
    return false;
}

/* The request that needs a rank of the whole group: the oldest of this group, or of one below. */
static const kolo_request *find_waiting(const kolo_comm *comm, int whole_rank) {
    if (kolo_comm_member(comm, whole_rank) < 0) return NULL;
    const kolo_request *q = kolo_comm_oldest(comm);
    for (const kolo_comm *c = comm->children; c && !q; c = c->sibling) {
        q = find_waiting(c, whole_rank);
    }
    return q;
}

static void add_last(kolo_text *text, const kolo_comm *comm, int peer, const kolo_request *q) {
    kolo_peer_call call;
    uint64_t last;
    const int rank = kolo_comm_whole_rank(comm, peer);
    if (!find_last(comm, peer, &last, &call)) return;
    if (q && last == q->seq) {
        kolo_text_add(text, ", which rank %d had started", rank);
    } else {
        kolo_text_add(text, "; the last collective of rank %d was %.*s, sequence %llu", rank,
                      KOLO_TITLE_BYTES - 1, call.title, (unsigned long long)last);
    }
}

void kolo_comm_describe_loss(const kolo_comm *comm, int peer, kolo_text *text) {
    const int whole_rank = kolo_comm_whole_rank(comm, peer);
    const kolo_request *q = find_waiting(comm, whole_rank);
    for (const kolo_comm *c = comm->parent; c && !q; c = c->parent) q = find_waiting(c, whole_rank);
    if (q) kolo_text_add(text, " while waiting in %s", q->title);
    if (q && q->comm->n_flight == 0) {
        add_message_reason(text, q);
    } else if (q) {
        kolo_text_add(text, ", sequence %llu", (unsigned long long)q->seq);
        add_last(text, q->comm, kolo_comm_member(q->comm, whole_rank), q);
    } else {
        add_last(text, comm, peer, NULL);
    }
}

void kolo_comm_report(kolo_comm *comm, char *text, size_t bytes) {
    KOLO_COMM_LOCK_SCOPE(comm);
    kolo_text line = {0};
    kolo_text_add(&line, "%s of %d ", KOLO_RANK(comm, comm->rank), kolo_comm_whole(comm)->size);
    if (comm->broken != KOLO_OK) {
        kolo_text_add(&line, "has failed: %s", comm->broken_text);
    } else if (kolo_comm_oldest(comm)) {
        kolo_text_add(&line, "waits in ");
        kolo_comm_describe(comm, &line);
    } else {
        kolo_text_add(&line, "waits for no rank; it finished ");
        add_finished(&line, comm->next_seq, own_last(comm));
    }
    snprintf(text, bytes, "%s", line.failed ? "no memory for a report" : line.text);
    kolo_text_fini(&line);
}

kolo_status kolo_report_open(const kolo_comm_opts *opts, kolo_signals *signals) {
    *signals = (kolo_signals){.fd = -1};
    return opts->report_signal ? kolo_signals_open(&opts->report_signal, 1, signals) : KOLO_OK;
}

void kolo_report_if_signalled(kolo_comm *comm) {
    kolo_comm *whole = kolo_comm_whole(comm);
    if (whole->report_signal.fd < 0 || kolo_signals_next(&whole->report_signal) == 0) return;
    char text[2 * KOLO_REPORT_BYTES];
    size_t n = (size_t)snprintf(text, sizeof text, "kolo: ");
    kolo_comm_report(comm, text + n, sizeof text - n - 1);
    n = strlen(text);
    text[n++] = '\n';
    ssize_t written; /* an error loses the report */
    do {
        written = write(whole->report_fd, text, n);
    } while (written < 0 && errno == EINTR);
}
