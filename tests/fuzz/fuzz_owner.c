/* Requests to an owner of parameters, in any order. The input is a list of steps: a worker, one
 * that may join, or another owner, sends a request that is valid or almost, of numbers
 * from the input; changes what it has pushed, as in memory that the owner maps; or is lost. Each
 * request gets one reply, and what was summed over is a number. */
#include "base/status.h"
#include "comm/sync/parameters_owner.h"
#include "comm/sync/summed.h"
#include "fuzz/calls.h"
#include "fuzz/fuzz.h"
#include "fuzz/script.h"

#include <string.h>

enum { WORKERS = 3, SERVERS = 2, JOINS = 1, CLIENTS = WORKERS + SERVERS + JOINS };
enum { HEAD = 2 * KOLO_SUMMED_FLOATS, VALUES = 3, GRADIENT = HEAD + VALUES, STATE = 2 };
enum { STEPS_MOST = 400, BYTES = 256, SUMS = 2, EXCHANGED = 3 };

typedef struct game {
    fuzz_script in;
    kolo_parameters_owner *owner;
    kolo_parameters_opts opts;
    uint64_t clock[CLIENTS];
    size_t staged[CLIENTS]; /* numbers of its next push */
    bool gone[CLIENTS];
    fuzz_call calls[CLIENTS][FUZZ_CALLS];
    int64_t now_ns;
} game;

static game g;

static uint8_t next(void) { return fuzz_next(&g.in); }

static int64_t now_ns(void) { return g.now_ns += 1000000; }

static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    const bool took = status == KOLO_OK;
    if (took && call->kind == KOLO_OWNER_PUSH) g.clock[call->client]++;
    if (took && call->kind == KOLO_OWNER_PART) {
        g.staged[call->client] += call->input_bytes / sizeof(float);
    }
    fuzz_end_call(call, status, data, bytes);
}

/* ---- the program of the owner ---- */

static kolo_status check(void *arg, const float *pushed) { return kolo_summed_check(pushed, 2); }

static void update(void *arg, const kolo_parameters_update *u) {
    KOLO_ASSERT(u->count == VALUES && u->workers > 0);
    for (int i = 0; i < HEAD; i += KOLO_SUMMED_FLOATS) {
        const int64_t number = kolo_summed_get(u->gradient + i);
        KOLO_ASSERT(number >= 0 && number <= INT64_C(1) << 50);
    }
    for (size_t i = 0; i < u->count; i++) u->values[i] -= u->gradient[HEAD + i];
}

static kolo_status configure(void *arg, const void *settings, size_t bytes) {
    const uint8_t first = *(const uint8_t *)settings;
    return first % 2 ? KOLO_FAIL(KOLO_ERR_ARG, "settings of %zu bytes", bytes) : KOLO_OK;
}

static void save(void *arg, float *state) { memset(state, 0, STATE * sizeof *state); }

static void progress(void *arg, double *samples, double *loss) {
    *samples = *loss = (double)g.now_ns;
}

static size_t exchange(void *arg, const kolo_parameters_update *u, int k, float *numbers) {
    for (int i = 0; i < EXCHANGED; i++) numbers[i] = (float)k + u->gradient[HEAD + i];
    return k < SUMS ? EXCHANGED : 0;
}

static kolo_status start(void *arg, kolo_service_request *request) { return KOLO_OK; }
static kolo_status wait(void *arg, kolo_service_request *request) { return KOLO_OK; }

/* ---- steps ---- */

/* A number that is right, or at an edge. */
static uint64_t about(uint64_t right) {
    static const uint64_t edges[] = {0, 1, 2, INT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 1};
    return fuzz_about(&g.in, right, edges, KOLO_COUNT(edges));
}

static size_t least(uint64_t bytes) { return bytes > BYTES ? BYTES : (size_t)bytes; }

static void write_number(float *to) {
    static const float edges[] = {0,
                                  1,
                                  4095,
                                  4096,
                                  0x1p24F,
                                  -1,
                                  0.25F,
                                  1e30F,
                                  -0.F,
                                  0x1p25F,
                                  __builtin_nanf(""),
                                  -__builtin_inff()};
    const uint8_t what = next();
    *to = what < 0xe0 ? (float)(what % 8) : edges[what % KOLO_COUNT(edges)];
}

static void send(int client) {
    fuzz_call *m = fuzz_find_free(g.calls[client]);
    const uint8_t how = next();
    if (!m) return; /* no credit */
    kolo_service_call *q = &m->call;
    const uint32_t kind = next() % (KOLO_OWNER_KINDS + 1);
    const bool pushes = kind == KOLO_OWNER_PUSH, part = kind == KOLO_OWNER_PART;
    const size_t rest = GRADIENT - g.staged[client] % (GRADIENT + 1);
    *q = (kolo_service_call){.client = client, .kind = kind};
    q->key = about(kind == KOLO_OWNER_STOP ? next() % 3 : part ? g.staged[client] : 0);
    if (kind == KOLO_OWNER_SUMMANDS) q->key = next() % 8;
    q->clock = about(kind == KOLO_OWNER_LEASE ? 20 : g.clock[client] + (how / 4 % 2));
    q->input_bytes = least(about(pushes ? rest * sizeof(float) : 0));
    if (kind == KOLO_OWNER_ASSIGN) q->input_bytes = least(about((VALUES + STATE) * sizeof(float)));
    if (kind == KOLO_OWNER_CONFIGURE) q->input_bytes = least(about(KOLO_SETTINGS_MOST));
    if (part) q->input_bytes = next() % GRADIENT * sizeof(float);
    if (kind == KOLO_OWNER_SUMMANDS) q->input_bytes = next() % (EXCHANGED + 2) * sizeof(float);
    if (kind == KOLO_OWNER_BARRIER && how / 8 % 2) q->input_bytes = GRADIENT * sizeof(float);
    if (pushes) g.staged[client] = 0;
    q->output_bytes = least(about(kolo_parameters_owner_room(g.owner, kind)));
    for (size_t i = 0; i < BYTES / sizeof(float) && i * sizeof(float) < q->input_bytes; i++) {
        write_number((float *)(void *)m->input + i);
    }
    q->input = q->input_bytes > 0 ? m->input + (how % 32 == 1) : NULL; /* not aligned */
    if (q->input_bytes == BYTES && how % 32 == 1) q->input_bytes--;
    if (how % 2 && q->output_bytes > 0) q->output = m->output;
    m->open = true;
    kolo_parameters_owner_serve(g.owner, q);
}

/* What a worker has pushed changes before the update that reads it. */
static void change(int client) {
    fuzz_call *m = &g.calls[client][next() % FUZZ_CALLS];
    if (m->open && m->call.kind == KOLO_OWNER_PUSH) {
        write_number((float *)(void *)m->input + next() % GRADIENT);
    }
}

static void lose(int client, bool left) {
    if (g.gone[client]) return;
    g.gone[client] = true;
    kolo_parameters_owner_lost(g.owner, client, left, "lost");
}

static void step(void) {
    const uint8_t what = next();
    const int client = next() % CLIENTS;
    if (what == 0xff) {
        lose(client, next() % 2);
    } else if (what >= 0xf0) {
        change(client);
    } else if (what >= 0xe8) {
        (void)kolo_parameters_owner_due(g.owner);
    } else if (!g.gone[client]) {
        send(client);
    }
}

static void choose(uint8_t how) {
    static const int staleness[] = {0, 0, 2, KOLO_STALENESS_ANY};
    const bool bsp = staleness[how % 4] == 0;
    g.opts = (kolo_parameters_opts){
        .servers = SERVERS,
        .needs_all = how / 4 % 2,
        .spared = how / 8 % 2,
        .staleness = staleness[how % 4],
        .drop = bsp && how / 16 % 4 == 1,
        .quorum = bsp && how / 16 % 4 == 2 ? 2 : 0,
        .adapts = bsp && how / 16 % 4 == 3,
        .discard = bsp && how / 16 % 4 == 1 && how / 64 % 2,
        .leases = !bsp && how / 16 % 2,
        .sums = how / 128 % 2,
        .joins = JOINS,
        .check = check,
        .update = update,
        .configure = configure,
        .save = save,
        .progress = progress,
    };
    if (g.opts.quorum > 0 && how / 64 % 2) g.opts.grace_ms = 3;
    if (!bsp || how / 16 % 4 != 0 || !g.opts.needs_all || g.opts.spared) return;
    g.opts.exchange = exchange;
    g.opts.exchanged = EXCHANGED;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    const float initial[VALUES + STATE] = {1, 2, 3};
    const kolo_owned has = {{0, VALUES}, {0, GRADIENT}, {0, STATE}, {0, GRADIENT}};
    memset(&g, 0, sizeof g);
    g.in = (fuzz_script){bytes, length};
    choose(next());
    KOLO_ASSERT(kolo_parameters_owner_create(&g.opts, &has, WORKERS, reply, &g.owner) == KOLO_OK);
    kolo_parameters_owner_set_clock(g.owner, now_ns);
    for (int w = 0; w < WORKERS + JOINS; w++) {
        KOLO_ASSERT(kolo_parameters_owner_stage(g.owner, w) == KOLO_OK);
    }
    if (g.opts.exchange) {
        const kolo_owner_channel channel = {.start = start, .wait = wait};
        KOLO_ASSERT(kolo_parameters_owner_exchange(g.owner, 0, SERVERS, WORKERS, &channel) ==
                    KOLO_OK);
    }
    kolo_parameters_owner_load(g.owner, initial);
    for (int i = 0; i < STEPS_MOST && g.in.left > 0; i++) step();
    for (int c = 0; c < CLIENTS; c++) lose(c, true);
    for (int c = 0; c < CLIENTS; c++) {
        for (int i = 0; i < FUZZ_CALLS; i++) KOLO_ASSERT(!g.calls[c][i].open);
    }
    (void)kolo_parameters_owner_wait(g.owner);
    kolo_parameters_owner_destroy(g.owner);
    return 0;
}
