/* Clients of a service's server, in any order of events. The input is a list of steps: clients send
 * arbitrary bytes, or a head of about valid numbers, or input data, read replies, or close; the
 * program replies to calls that it has kept; the server runs in between. Calls that reach the
 * program have valid memory, and a violation ends only the client that committed it. */
#include "base/status.h"
#include "comm/service/message.h"
#include "comm/service/server.h"
#include "fuzz/fuzz.h"
#include "fuzz/script.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 3, CREDITS = 3, STEPS_MOST = 512, CLIENT_BYTES = 8192, SEGMENT = 4096 };

typedef struct game {
    fuzz_script in;
    kolo_server *server;
    int fds[CLIENTS]; /* the clients' ends; -1: closed */
    uint64_t serial[CLIENTS];
    int calls[CLIENTS], lost[CLIENTS];
    bool violated[CLIENTS]; /* may have violated the protocol, or has ended */
    kolo_service_call *kept[CLIENTS * CREDITS];
    int n_kept;
} game;

static char segment[SEGMENT]; /* the memory of all clients */

/* Maps as the transport shm does. */
static void *window(kolo_transport *t, int peer, uint64_t handle, size_t bytes) {
    size_t first = (size_t)handle - 1;
    if (handle == 0 || first > SEGMENT || bytes > SEGMENT - first) return NULL;
    return segment + first;
}

static const kolo_transport_ops ops = {.window = window};

static void serve(void *arg, kolo_service_call *call) {
    game *g = arg;
    volatile unsigned sum = 0;
    KOLO_ASSERT(++g->calls[call->client] <= CREDITS && !g->lost[call->client]);
    for (size_t i = 0; i < call->input_bytes; i++) sum += ((const uint8_t *)call->input)[i];
    if (call->output) memset(call->output, 1, call->output_bytes);
    g->kept[g->n_kept++] = call;
}

static void lost(void *arg, int client, bool left, const char *reason) {
    game *g = arg;
    KOLO_ASSERT(g->violated[client] && ++g->lost[client] == 1);
    KOLO_ASSERT(left || reason[0]);
}

static void reply(game *g) {
    static const char data[CLIENT_BYTES];
    uint8_t which = fuzz_next(&g->in), how = fuzz_next(&g->in);
    if (g->n_kept == 0) return;
    int i = which % g->n_kept;
    kolo_service_call *call = g->kept[i];
    g->kept[i] = g->kept[--g->n_kept];
    g->calls[call->client]--;
    kolo_status status = how % 8 == 0 ? KOLO_FAIL(KOLO_ERR_ARG, "refused") : KOLO_OK;
    size_t bytes = how % 2 ? call->output_bytes : 0;
    kolo_service_reply(call, status, 0, call->output ? call->output : data, bytes);
}

static void send_to(const game *g, int client, const void *bytes, size_t n) {
    if (n > 0) (void)send(g->fds[client], bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_bytes(game *g, int client) {
    size_t n = fuzz_next(&g->in);
    const uint8_t *bytes = fuzz_take(&g->in, &n);
    g->violated[client] = true;
    send_to(g, client, bytes, n);
}

static uint64_t next_size(game *g) {
    static const uint64_t edges[] = {CLIENT_BYTES, UINT64_MAX, SEGMENT, SEGMENT + 1, INT64_MAX};
    uint8_t b = fuzz_next(&g->in);
    return b < 0xf0 ? b * UINT64_C(5) : edges[b % KOLO_COUNT(edges)];
}

/* A head that is valid, or almost, and its input, all of it or less. */
static void send_call(game *g, int client) {
    static const char input[2048];
    uint8_t how = fuzz_next(&g->in);
    kolo_call_head h = {.type = KOLO_MESSAGE_CALL,
                        .serial = ++g->serial[client],
                        .input_bytes = next_size(g),
                        .output_bytes = next_size(g)};
    if (how & 1) h.input_handle = next_size(g);
    if (how & 2) h.output_handle = next_size(g);
    if (how % 16 == 4) h.serial += fuzz_next(&g->in);
    if (how % 16 == 8) h.type = KOLO_MESSAGE_LEAVE;
    if (how % 16 == 12) h.type ^= fuzz_next(&g->in);
    if (how % 16 == 13) h = (kolo_call_head){.type = KOLO_MESSAGE_PROGRESS, .serial = h.serial};
    size_t n = h.input_handle ? 0 : h.input_bytes;
    if (n > sizeof input) n = sizeof input;
    g->violated[client] = true; /* what it sends later may be taken for input */
    send_to(g, client, &h, sizeof h);
    send_to(g, client, input, n);
}

static void drain(const game *g, int client) {
    char nowhere[4096];
    while (recv(g->fds[client], nowhere, sizeof nowhere, MSG_DONTWAIT) > 0) continue;
}

static void step(game *g) {
    uint8_t what = fuzz_next(&g->in) % 8;
    int client = what < 5 ? fuzz_next(&g->in) % CLIENTS : 0;
    if (what < 5 && g->fds[client] < 0) return;
    switch (what) {
    case 0:
        send_bytes(g, client);
        return;
    case 1:
    case 2:
        send_call(g, client);
        return;
    case 3:
        drain(g, client);
        return;
    case 4:
        if (fuzz_next(&g->in) % 4) return;
        close(g->fds[client]);
        g->fds[client] = -1;
        g->violated[client] = true;
        return;
    case 5:
        reply(g);
        return;
    default:
        kolo_server_poll(g->server, 0);
    }
}

/* A client that has sent nothing is served whatever the others did. */
static void check_silent(game *g) {
    for (int i = 0; i < CLIENTS; i++) {
        if (g->violated[i]) continue;
        kolo_call_head h = {.type = KOLO_MESSAGE_CALL, .serial = 1};
        send_to(g, i, &h, sizeof h);
        for (int k = 0; k < 4; k++) kolo_server_poll(g->server, 0);
        KOLO_ASSERT(g->calls[i] == 1 && !g->lost[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static const bool all[CLIENTS] = {true, true, true};
    static game g;
    kolo_transport transport = {.ops = &ops};
    g = (game){.in = {bytes, length}};
    kolo_service_opts opts = {
        .serve = serve, .lost = lost, .arg = &g, .credits = CREDITS, .client_bytes = CLIENT_BYTES};
    kolo_server_place place = {
        .transport = &transport, .local = all, .mapped = all, .size = CLIENTS};
    KOLO_ASSERT(kolo_server_create(&opts, &place, &g.server) == KOLO_OK);
    for (int i = 0; i < CLIENTS; i++) {
        int fds[2];
        KOLO_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        g.fds[i] = fds[0];
        KOLO_ASSERT(kolo_server_attach(g.server, i, fds[1], NULL) == KOLO_OK);
    }
    for (int i = 0; i < STEPS_MOST && g.in.left > 0; i++) step(&g);
    check_silent(&g);
    while (g.n_kept > 0) reply(&g);
    kolo_server_destroy(g.server);
    for (int i = 0; i < CLIENTS; i++) {
        if (g.fds[i] >= 0) close(g.fds[i]);
    }
    return 0;
}
