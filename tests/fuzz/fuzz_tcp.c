/* Input of the transport `tcp` from a peer, while this rank starts collectives, sends, receives and
 * finishes. The input is a list of steps: a byte that selects the operation, and its arguments. The
 * peer sends either arbitrary bytes or a frame with a valid header, which gets further. The rank
 * stops at the first error, as its engine does. */
#include "base/status.h"
#include "comm/transport/tcp/stream.h"
#include "comm/transport/tcp/tcp.h"
#include "fuzz/fuzz.h"
#include "fuzz/script.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STEPS_MAX = 2048,
    HEARTBEAT_MS = 1000000000, /* never expires */
    DATA_MOST = 4096,
    GUARD = 0x5a,
};

typedef struct game {
    fuzz_script in;
    kolo_transport *t;
    int peer; /* its end of the connection */
    uint64_t started, finished;
    char out[DATA_MOST]; /* send buffer: borrowed by the transport */
} game;

/* A number near this rank's current one, or an edge case. */
static uint64_t next_number(fuzz_script *s, uint64_t near) {
    static const uint64_t edges[] = {0, UINT64_MAX, UINT64_MAX - 1, (uint64_t)1 << 32, INT64_MAX};
    uint8_t b = fuzz_next(s);
    return b < 0xf0 ? near + b - 8 : edges[b % KOLO_COUNT(edges)];
}

/* Sends from the peer; bytes for which the socket buffer has no room are lost. */
static void write_peer(const game *g, const void *bytes, size_t n) {
    if (n > 0) (void)send(g->peer, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_bytes(game *g) {
    size_t n = fuzz_next(&g->in);
    const uint8_t *bytes = fuzz_take(&g->in, &n);
    write_peer(g, bytes, n);
}

/* Sends a frame of any kind, with a body of about a valid length. */
static void send_frame(game *g) {
    static char body[KOLO_FRAME_DATA_MAX + 64];
    static const size_t lengths[KOLO_FRAME_KINDS] = {
        [KOLO_FRAME_ANNOUNCE] = sizeof(kolo_frame_call), [KOLO_FRAME_REPORT] = 16};
    kolo_frame f = {.kind = fuzz_next(&g->in) % (KOLO_FRAME_KINDS + 1)};
    size_t n = f.kind < KOLO_FRAME_KINDS ? lengths[f.kind] : 0;
    uint8_t more = fuzz_next(&g->in);
    if (f.kind == KOLO_FRAME_DATA) n = more < 250 ? more : KOLO_FRAME_DATA_MAX;
    if (f.kind == KOLO_FRAME_ANNOUNCE || f.kind == KOLO_FRAME_REPORT) n += more * UINT64_C(5);
    if (f.kind == KOLO_FRAME_HEARTBEAT && more > 250) n = 1;
    f.bytes = (uint32_t)n;
    f.seq = next_number(&g->in, g->started);
    f.value = next_number(&g->in, f.kind == KOLO_FRAME_CREDIT ? 0 : g->finished);
    if (more == 255) f.seq = KOLO_SEQ_P2P;
    memset(body, GUARD, sizeof body);
    for (size_t i = 0; i < 8 && i < n; i++) body[i] = (char)fuzz_next(&g->in);
    write_peer(g, &f, sizeof f);
    write_peer(g, body, n);
}

static void start_one(game *g) {
    void *payload;
    kolo_announcement call = {.request = fuzz_next(&g->in), .count = fuzz_next(&g->in)};
    if (!g->t->ops->start(g->t, g->started, &payload)) return;
    static const uint64_t peer_counts[4] = {1, 2, 2, 1}; /* borrowed: they may be sent later */
    bool counted = fuzz_next(&g->in) % 2;
    g->t->ops->signal(g->t, g->started++, 0, &call, counted ? peer_counts : NULL, "fuzz");
}

/* A collective in flight, or the point-to-point channel. */
static uint64_t any_seq(game *g) {
    uint64_t open = g->started - g->finished;
    uint8_t b = fuzz_next(&g->in);
    return open == 0 || b == 255 ? KOLO_SEQ_P2P : g->finished + b % open;
}

static kolo_status receive_some(game *g) {
    char data[DATA_MOST + 1];
    uint64_t seq = any_seq(g);
    size_t n = fuzz_next(&g->in) * UINT64_C(16), taken = SIZE_MAX;
    bool arrived;
    memset(data, GUARD, sizeof data);
    kolo_status status = g->t->ops->recv(g->t, seq, 1, data, n, &taken, &arrived);
    KOLO_ASSERT(data[n] == GUARD);
    KOLO_ASSERT(status != KOLO_OK || (taken <= n && (n == 0 || arrived == (taken > 0))));
    return status;
}

static kolo_status send_some(game *g) {
    uint64_t seq = any_seq(g);
    size_t n = fuzz_next(&g->in) * UINT64_C(16), taken = SIZE_MAX;
    bool accepted;
    kolo_status status = g->t->ops->send(g->t, seq, 1, g->out, n, &taken, &accepted);
    KOLO_ASSERT(status != KOLO_OK || taken <= n);
    return status;
}

/* Announcements and state of the peer are valid. */
static void query(game *g) {
    kolo_peer_call call;
    kolo_peer_state state;
    for (uint64_t seq = g->finished; seq < g->started; seq++) {
        if (!g->t->ops->query(g->t, seq, 1, &call)) continue;
        volatile char sink = call.title[0];
        (void)sink;
    }
    g->t->ops->peer_state(g->t, 1, &state);
    KOLO_ASSERT(memchr(state.report, '\0', sizeof state.report) != NULL);
    KOLO_ASSERT(state.condition != KOLO_PEER_FAILED || state.status != KOLO_OK);
}

static kolo_status step(game *g) {
    bool moved = false;
    switch (fuzz_next(&g->in) % 9) {
    case 0:
        send_bytes(g);
        return KOLO_OK;
    case 1:
    case 2:
        send_frame(g);
        return KOLO_OK;
    case 3:
        start_one(g);
        return KOLO_OK;
    case 4:
        return receive_some(g);
    case 5:
        return send_some(g);
    case 6:
        if (g->finished < g->started) g->t->ops->finish(g->t, ++g->finished);
        return KOLO_OK;
    case 7:
        query(g);
        return KOLO_OK;
    default:
        return g->t->ops->progress(g->t, &moved);
    }
}

static void drain(int fd) {
    char nowhere[4096];
    while (recv(fd, nowhere, sizeof nowhere, MSG_DONTWAIT) > 0) continue;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static game g;
    int fds[2];
    g = (game){.in = {bytes, length}};
    KOLO_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    KOLO_ASSERT(kolo_tcp_create(0, 2, 1 << 16, HEARTBEAT_MS, &g.t) == KOLO_OK);
    KOLO_ASSERT(kolo_tcp_attach(g.t, 1, fds[0], NULL) == KOLO_OK);
    g.peer = fds[1];
    kolo_status status = KOLO_OK;
    for (int i = 0; i < STEPS_MAX && g.in.left > 0 && status == KOLO_OK; i++) {
        status = step(&g);
        drain(g.peer);
    }
    KOLO_ASSERT(status == KOLO_OK || status == KOLO_ERR_FORMAT);
    KOLO_ASSERT(status == KOLO_OK || kolo_last_error()[0]);
    if (status != KOLO_OK) g.t->ops->report(g.t, status, kolo_last_error());
    close(g.peer);
    g.t->ops->destroy(g.t, NULL);
    return 0;
}
