/* Transport `ucx`: data over UCX (ucx/library.h), everything else over the transport `tcp`.
 *
 * Each pair of ranks has an authenticated connection of `tcp`, which carries announcements, error
 * reports and heartbeats. So a killed or stopped peer is detected as with `tcp`, whatever UCX
 * reports. UCX carries the messages of schedules and point-to-point operations, directly from the
 * sender's memory (send.c).
 *
 * A message goes to the memory of its receive if that is posted; else it stays in UCX's buffers or
 * is copied to the unexpected queue (receive.c). As with `tcp`, credits bound the queue: in each
 * collective a sender has at most KOLO_UCX_WINDOW bytes outstanding that the receiver has not
 * consumed; a short message counts as KOLO_UCX_CHARGE_MIN bytes.
 *
 * UCX does not authenticate: any host that reaches its port can send. So each rank draws a token
 * for each peer, sends it over the authenticated connection, and drops messages without it;
 * messages with a valid token are checked against the bounds. Nothing is encrypted.
 *
 * UCX accesses the memory of requests while they are in flight. If the group fails, all operations
 * are aborted and awaited before that memory is released. A rank that leaves in order sends LEAVE
 * over UCX, after all data, and waits for the acknowledgements. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/transport/network.h"
#include "comm/transport/tcp/tcp.h"
#include "comm/transport/ucx/internal.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    LINGER_NS = 2000000000,
    ABORT_NS = 1000000000,
    GRACE_NS = 1000000000, /* for `tcp` to report the cause after UCX has lost a peer */
};

static kolo_ucx_transport *ucx(kolo_transport *t) { return (kolo_ucx_transport *)t; }

/* ---- control path: over tcp ---- */

static bool ucx_start(kolo_transport *base, uint64_t seq, void **payload) {
    kolo_ucx_transport *t = ucx(base);
    if (!t->control->ops->start(t->control, seq, payload)) return false;
    for (int p = 0; p < base->size; p++) {
        if (!t->peers[p]) continue;
        kolo_ucx_channel *c = kolo_ucx_channel_of(t, seq, p);
        KOLO_ASSERT(c->n_sends == 0 && !c->fetching);
        kolo_ucx_close_channel(t, c);
        *c = (kolo_ucx_channel){.seq = seq};
    }
    return true;
}

static void ucx_signal(kolo_transport *base, uint64_t seq, uint32_t phase,
                       const kolo_announcement *call, const uint64_t *peer_counts,
                       const char *title) {
    kolo_transport *control = ucx(base)->control;
    control->ops->signal(control, seq, phase, call, peer_counts, title);
}

static bool ucx_query(kolo_transport *base, uint64_t seq, int peer, kolo_peer_call *peer_call) {
    kolo_transport *control = ucx(base)->control;
    return control->ops->query(control, seq, peer, peer_call);
}

static void ucx_finish(kolo_transport *base, uint64_t finished) {
    kolo_transport *control = ucx(base)->control;
    ucx(base)->finished = finished;
    control->ops->finish(control, finished);
}

static uint64_t ucx_handle(kolo_transport *base, const void *data, size_t bytes) {
    kolo_transport *control = ucx(base)->control;
    return control->ops->handle(control, data, bytes);
}

static void *ucx_window(kolo_transport *base, int peer, uint64_t handle, size_t bytes) {
    kolo_transport *control = ucx(base)->control;
    return control->ops->window(control, peer, handle, bytes);
}

/* ---- progress ---- */

static kolo_status ucx_progress(kolo_transport *base, bool *moved) {
    kolo_ucx_transport *t = ucx(base);
    KOLO_TRY(t->control->ops->progress(t->control, moved));
    if (t->ops->progress(t->ucx)) *moved = true;
    return t->receive_error;
}

static bool ucx_arm(kolo_transport *base) { return ucx(base)->ops->arm(ucx(base)->ucx); }

/* ---- health ---- */

static void ucx_peer_state(kolo_transport *base, int peer, kolo_peer_state *state) {
    kolo_ucx_transport *t = ucx(base);
    const kolo_ucx_peer *p = t->peers[peer];
    t->control->ops->peer_state(t->control, peer, state);
    if (!p || !p->lost_ns || p->left || state->condition != KOLO_PEER_ALIVE ||
        kolo_now_ns() - p->lost_ns < GRACE_NS) {
        return;
    }
    state->condition = KOLO_PEER_LOST;
    snprintf(state->report, sizeof state->report, "UCX: %s", p->why);
}

static void close_all_channels(kolo_ucx_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p]) continue;
        for (int c = 0; c < KOLO_UCX_CHANNELS; c++)
            kolo_ucx_close_channel(t, &t->peers[p]->channels[c]);
    }
}

/* Makes UCX release all memory of requests. */
static void abort_all(kolo_ucx_transport *t) {
    int64_t until_ns = kolo_now_ns() + ABORT_NS;
    t->broken = true;
    t->ops->abort(t->ucx);
    while (t->n_operations > 0 && kolo_now_ns() < until_ns) (void)t->ops->progress(t->ucx);
    close_all_channels(t);
}

static void ucx_report(kolo_transport *base, kolo_status status, const char *text) {
    kolo_ucx_transport *t = ucx(base);
    t->control->ops->report(t->control, status, text);
    if (!t->broken) abort_all(t);
}

/* ---- sub-groups: over tcp only ---- */

static kolo_status ucx_sub(kolo_transport *base, const int *members, int size, int rank,
                           kolo_transport **sub, kolo_subgroup_address *address) {
    kolo_transport *control = ucx(base)->control;
    KOLO_TRY(control->ops->subgroup(control, members, size, rank, sub, address));
    (*sub)->events = base->events; /* a wait there makes progress for all groups of this rank */
    (*sub)->segment.of = &base->segment;
    return KOLO_OK;
}

/* ---- destruction ---- */

/* Whether a peer may still wait for data of this rank. */
static bool may_wait(kolo_ucx_transport *t, int peer) {
    const kolo_ucx_peer *p = t->peers[peer];
    kolo_peer_state state;
    if (!p || p->leave_acked || p->left || p->lost_ns) return false;
    t->control->ops->peer_state(t->control, peer, &state);
    return state.condition == KOLO_PEER_ALIVE;
}

/* Sends LEAVE to all peers, and waits until they have acknowledged it, and thereby all data. */
static void leave_in_order(kolo_ucx_transport *t) {
    int64_t until_ns = kolo_now_ns() + LINGER_NS;
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p] || !may_wait(t, p)) continue;
        t->peers[p]->leave_sent =
            kolo_ucx_post(t, p, KOLO_UCX_LEAVE, 0, 0, NULL, NULL, 0) == KOLO_OK;
    }
    for (bool open = true; open && kolo_now_ns() < until_ns;) {
        bool moved = false;
        open = t->n_operations > 0;
        for (int p = 0; p < t->base.size; p++) open = open || may_wait(t, p);
        if (ucx_progress(&t->base, &moved) != KOLO_OK) return;
        if (open && !moved) kolo_sleep_ns(20000);
    }
}

static void free_blocks(kolo_ucx_block *spare) {
    while (spare) {
        kolo_ucx_block *next = spare->next;
        kolo_free(spare);
        spare = next;
    }
}

static void free_transport(kolo_ucx_transport *t) {
    if (t->ucx) t->ops->close(t->ucx);
    for (int p = 0; p < t->base.size; p++) kolo_free(t->peers[p]);
    free_blocks(t->spare_sends);
    free_blocks(t->spare_messages);
    if (t->base.events >= 0) close(t->base.events);
    kolo_segment_fini(&t->base.segment);
    kolo_free(t->tokens);
    kolo_free(t);
}

/* No receive is posted any more. After a failure no LEAVE is sent. */
static void ucx_destroy(kolo_transport *base, const char *why) {
    kolo_ucx_transport *t = ucx(base);
    kolo_transport *control = t->control;
    for (int p = 0; p < base->size; p++) {
        for (int c = 0; t->peers[p] && c < KOLO_UCX_CHANNELS; c++)
            t->peers[p]->channels[c].posted = NULL;
    }
    if (control && !t->broken) leave_in_order(t);
    if (t->n_operations > 0 && !t->broken) abort_all(t);
    close_all_channels(t);
    free_transport(t);
    if (control) control->ops->destroy(control, why);
}

static const kolo_transport_ops ucx_ops = {
    .start = ucx_start,
    .signal = ucx_signal,
    .query = ucx_query,
    .finish = ucx_finish,
    .send = kolo_ucx_send,
    .sent = kolo_ucx_sent,
    .recv = kolo_ucx_recv,
    .handle = ucx_handle,
    .window = ucx_window,
    .progress = ucx_progress,
    .arm = ucx_arm,
    .peer_state = ucx_peer_state,
    .report = ucx_report,
    .subgroup = ucx_sub,
    .destroy = ucx_destroy,
};

/* Opens UCX; `control` and the segment are added by `create`. */
static kolo_status open_ucx(const kolo_network_opts *opts, kolo_transport **transport) {
    size_t bytes = sizeof(kolo_ucx_transport) + (size_t)opts->size * sizeof(kolo_ucx_peer *);
    const kolo_ucx_ops *ops;
    KOLO_TRY(kolo_ucx_load(&ops));
    kolo_ucx_transport *t = kolo_zalloc(bytes);
    if (!t) return KOLO_NOMEM(bytes);
    t->base = (kolo_transport){.ops = &ucx_ops,
                               .name = "ucx",
                               .multihost_name = "shm+ucx",
                               .rank = opts->rank,
                               .size = opts->size,
                               .events = -1,
                               .segment.fd = -1};
    t->ops = ops;
    t->tokens = kolo_zalloc((size_t)opts->size * sizeof *t->tokens);
    int events = -1;
    kolo_ucx_opts library_opts = {
        .size = opts->size,
        .interface = opts->interface,
        .callbacks = {.arg = t, .arrived = kolo_ucx_arrived, .lost = kolo_ucx_lost}};
    kolo_status status = t->tokens ? ops->open(&library_opts, &t->ucx, &events)
                                   : KOLO_NOMEM((size_t)opts->size * sizeof *t->tokens);
    if (status == KOLO_OK) {
        t->message_bytes = ops->message_bytes(t->ucx);
        t->base.events = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event = {.events = EPOLLIN};
        if (t->base.events < 0 || epoll_ctl(t->base.events, EPOLL_CTL_ADD, events, &event) != 0) {
            status = KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
        }
    }
    if (status != KOLO_OK) {
        free_transport(t);
        return status;
    }
    *transport = &t->base;
    return KOLO_OK;
}

static kolo_status create(const kolo_network_opts *opts, kolo_transport **transport) {
    kolo_ucx_transport *t = ucx(*transport);
    KOLO_TRY(kolo_tcp_create(opts->rank, opts->size, opts->segment_bytes, opts->heartbeat_ms,
                             &t->control));
    KOLO_TRY(kolo_segment_init(&t->base.segment, opts->segment_bytes, false));
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(t->base.events, EPOLL_CTL_ADD, t->control->events, &event) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
    }
    return KOLO_OK;
}

/* Sent to a peer over the authenticated connection. */
typedef struct peer_address {
    unsigned char token[KOLO_UCX_TOKEN_BYTES]; /* to be put on all messages of that peer */
    uint64_t bytes;
    unsigned char worker[KOLO_UCX_ADDRESS_MAX];
} peer_address;

_Static_assert(sizeof(peer_address) <= KOLO_NETWORK_ADDRESS_MAX, "KOLO_NETWORK_ADDRESS_MAX");

static kolo_status get_address(kolo_transport *base, int peer, void *address) {
    kolo_ucx_transport *t = ucx(base);
    peer_address *a = address;
    size_t bytes;
    KOLO_TRY(t->ops->address(t->ucx, a->worker, &bytes));
    a->bytes = bytes;
    randombytes_buf(t->tokens[peer], sizeof t->tokens[peer]);
    memcpy(a->token, t->tokens[peer], sizeof a->token);
    return KOLO_OK;
}

static kolo_status attach(kolo_transport *base, int peer, int fd, const void *address,
                          const kolo_seal_keys *keys) {
    kolo_ucx_transport *t = ucx(base);
    const peer_address *a = address;
    KOLO_ASSERT(peer != base->rank && !t->peers[peer]);
    KOLO_TRY(kolo_tcp_attach(t->control, peer, fd, NULL)); /* `keys` is NULL: encrypts is false */
    if (a->bytes == 0 || a->bytes > sizeof a->worker) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "invalid UCX address of %llu bytes",
                         (unsigned long long)a->bytes);
    }
    kolo_ucx_peer *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    memcpy(p->token, a->token, sizeof p->token);
    for (size_t c = 0; c < KOLO_FLIGHT_MAX; c++) p->channels[c].seq = UINT64_MAX;
    t->peers[peer] = p;
    return t->ops->connect(t->ucx, peer, a->worker);
}

const kolo_network kolo_network_ucx = {.open = open_ucx,
                                       .create = create,
                                       .address_bytes = sizeof(peer_address),
                                       .address = get_address,
                                       .attach = attach};
