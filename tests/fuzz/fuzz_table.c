/* Requests to an owner of a table, in any order. The input is a list of steps: a worker, or a rank
 * that only serves, sends a request that is valid or almost, of ids and numbers from the input; or
 * it is lost. Each request gets one reply, and no row more than there is room for. */
#include "base/memory.h"
#include "base/status.h"
#include "comm/table/table_owner.h"
#include "fuzz/calls.h"
#include "fuzz/fuzz.h"
#include "fuzz/script.h"

#include <string.h>

enum { CLIENTS = 4, WORKERS = 3, BATCH = 6, WIDTH = 3, STEPS_MOST = 400, BYTES = 2048 };

typedef struct game {
    fuzz_script in;
    kolo_table_owner *owner;
    kolo_table_opts opts;
    uint64_t clock[CLIENTS];
    bool gone[CLIENTS];
    fuzz_call calls[CLIENTS][FUZZ_CALLS];
} game;

static game g;

static uint8_t next(void) { return fuzz_next(&g.in); }

static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    if (status == KOLO_OK && call->kind == KOLO_TABLE_PUSH) g.clock[call->client]++;
    fuzz_end_call(call, status, data, bytes);
}

static void update(void *arg, const kolo_table_update *u) {
    KOLO_ASSERT(u->n > 0 && u->n <= KOLO_TABLE_CHUNK && u->width == WIDTH);
    for (size_t i = 0; i < u->n; i++) {
        for (size_t c = 0; c < WIDTH; c++) {
            u->values[(size_t)u->slots[i] * WIDTH + c] += u->gradients[i * WIDTH + c];
            u->state[0][(size_t)u->slots[i] * WIDTH + c] += 1;
        }
    }
}

/* A number that is right, or at an edge. */
static uint64_t about(uint64_t right) {
    static const uint64_t edges[] = {0, 1, BATCH + 1, INT32_MAX, INT64_MAX, UINT64_MAX};
    return fuzz_about(&g.in, right, edges, KOLO_COUNT(edges));
}

static size_t least(uint64_t bytes) { return bytes > BYTES ? BYTES : (size_t)bytes; }

/* The sizes of a request that is right. */
static void size_request(kolo_service_call *q, size_t n) {
    const size_t row = WIDTH * sizeof(float), page = kolo_table_page_bytes(&g.opts, n ? n : 1);
    switch (q->kind) {
    case KOLO_TABLE_PULL:
    case KOLO_TABLE_READ:
        q->input_bytes = n * sizeof(uint64_t);
        q->output_bytes = n * row;
        break;
    case KOLO_TABLE_PUSH:
        q->input_bytes = n * (sizeof(uint64_t) + row);
        break;
    case KOLO_TABLE_MARK:
    case KOLO_TABLE_STATS:
        q->output_bytes = sizeof(kolo_table_stats);
        break;
    case KOLO_TABLE_SAVE:
        q->output_bytes = page;
        break;
    case KOLO_TABLE_LOAD:
        q->input_bytes = page;
        break;
    default:
        break;
    }
}

static void send(int client) {
    fuzz_call *m = fuzz_find_free(g.calls[client]);
    const size_t n = next() % (BATCH + 1);
    const uint8_t how = next();
    if (!m) return; /* no credit */
    kolo_service_call *q = &m->call;
    *q = (kolo_service_call){.client = client, .kind = next() % (KOLO_TABLE_KINDS + 1)};
    size_request(q, n);
    q->key = about(n);
    q->clock = about(g.clock[client]);
    q->input_bytes = least(about(q->input_bytes));
    q->output_bytes = least(about(q->output_bytes));
    for (size_t i = 0; i < q->input_bytes; i++) m->input[i] = (char)(i % 8 == 0 ? next() % 16 : 0);
    q->input = q->input_bytes > 0 ? m->input + (how % 16 == 1) : NULL; /* not aligned */
    if (q->input_bytes == BYTES && how % 16 == 1) q->input_bytes--;
    if (how % 2 && q->output_bytes > 0) q->output = m->output;
    m->open = true;
    kolo_table_owner_serve(g.owner, q);
}

static void lose(int client, bool left) {
    if (g.gone[client]) return;
    g.gone[client] = true;
    kolo_table_owner_lost(g.owner, client, left, "lost");
}

static void step(void) {
    const uint8_t what = next();
    const int client = next() % CLIENTS;
    if (what == 0xff) {
        lose(client, next() % 2);
    } else if (!g.gone[client]) {
        send(client);
    }
}

static void check_room(void) {
    fuzz_call *m = &g.calls[0][0];
    kolo_table_stats stats;
    m->call = (kolo_service_call){
        .kind = KOLO_TABLE_STATS, .output = m->output, .output_bytes = sizeof stats};
    m->open = true;
    kolo_table_owner_serve(g.owner, &m->call);
    KOLO_ASSERT(!m->open);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static const int staleness[] = {0, 0, 2, KOLO_STALENESS_ANY};
    memset(&g, 0, sizeof g);
    g.in = (fuzz_script){bytes, length};
    const uint8_t how = next();
    g.opts = (kolo_table_opts){.name = "table",
                               .width = WIDTH,
                               .states = 1,
                               .initial = KOLO_TABLE_UNIFORM,
                               .scale = 1,
                               .bytes = 600,
                               .admit = 1 + how / 4 % 2,
                               .expire = how / 8 % 2 ? 3 : 0,
                               .refuse = how / 16 % 2,
                               .needs_all = how / 32 % 2,
                               .batch = BATCH,
                               .staleness = staleness[how % 4],
                               .update = update};
    KOLO_ASSERT(kolo_table_owner_create(&g.opts, WORKERS, 7, reply, &g.owner) == KOLO_OK);
    for (int i = 0; i < STEPS_MOST && g.in.left > 0; i++) step();
    for (int c = 0; c < CLIENTS; c++) lose(c, true);
    for (int c = 0; c < CLIENTS; c++) {
        for (int i = 0; i < FUZZ_CALLS; i++) KOLO_ASSERT(!g.calls[c][i].open);
    }
    check_room();
    kolo_table_owner_wait(g.owner);
    kolo_table_owner_destroy(g.owner);
    return 0;
}
