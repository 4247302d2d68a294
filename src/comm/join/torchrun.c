/* Client of torchrun's key-value store.
 *
 * With TORCHELASTIC_USE_AGENT_STORE=True the agent of torchrun serves a TCPStore at
 * MASTER_ADDR:MASTER_PORT, so rank 0 cannot listen there. Rank 0 publishes its text in that store
 * instead. Supported is the protocol of PyTorch 2.1 and later (torch/csrc/distributed/c10d). A
 * connection begins with a check: a byte 0 and a magic number. A request is a byte and its
 * arguments; numbers are in host order, a text is preceded by its length in 64 bits:
 *
 *     set     key, value     no answer
 *     get     key            value
 *     add     key, number    the sum, 64 bits
 *     wait    count, keys    a byte 0 once all keys exist
 *
 * The store authenticates no client. Answers are thus checked, and the last reader overwrites the
 * text, which holds the job's secret. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/join/manager.h"
#include "comm/transport/socket.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEY_BYTES = 256,
    REQUEST_BYTES = 1024,
    PORT_MOST = 65535,
    RETRY_NS = 50000000,
};

/* The store runs before its workers: it answers soon, or it speaks another protocol. */
static const int64_t first_answer_ns = INT64_C(15000000000);

enum { CHECK = 0, SET = 1, GET = 3, ADD = 4, WAIT = 6 };
static const uint32_t check_magic = 0x3C85F7CE;

typedef struct torchrun_manager {
    kolo_manager base;
    int fd; /* -1: not connected */
    int port;
    char group[KEY_BYTES / 2]; /* prefix of the keys of this group */
} torchrun_manager;

/* ---- protocol ---- */

typedef struct request {
    unsigned char bytes[REQUEST_BYTES];
    size_t n;
} request;

static void put(request *r, const void *data, size_t bytes) {
    KOLO_ASSERT(bytes <= sizeof r->bytes - r->n);
    memcpy(r->bytes + r->n, data, bytes);
    r->n += bytes;
}

static void put_byte(request *r, unsigned char byte) { put(r, &byte, 1); }
static void put_number(request *r, uint64_t number) { put(r, &number, sizeof number); }

static void put_text(request *r, const char *text) {
    put_number(r, strlen(text));
    put(r, text, strlen(text));
}

static kolo_status send_request(const torchrun_manager *m, request *r, int64_t deadline_ns) {
    kolo_status status = kolo_socket_send(m->fd, r->bytes, r->n, NULL, deadline_ns);
    sodium_memzero(r, sizeof *r); /* it may hold the secret */
    return status;
}

static kolo_status set(const torchrun_manager *m, const char *key, const char *value,
                       int64_t deadline_ns) {
    request r = {.n = 0};
    put_byte(&r, SET);
    put_text(&r, key);
    put_text(&r, value);
    return send_request(m, &r, deadline_ns);
}

/* Appends an addition of 1; the answer is the number of additions so far, at most `most`. */
static kolo_status count(const torchrun_manager *m, request *r, const char *key, int64_t most,
                         int64_t *sum, int64_t deadline_ns) {
    put_byte(r, ADD);
    put_text(r, key);
    put_number(r, 1);
    KOLO_TRY(send_request(m, r, deadline_ns));
    KOLO_TRY(kolo_socket_recv(m->fd, sum, sizeof *sum, NULL, deadline_ns));
    if (*sum >= 1 && *sum <= most) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "an invalid count (%lld)", (long long)*sum);
}

/* Waits for a key and gets its value. */
static kolo_status get(const torchrun_manager *m, const char *key,
                       char text[KOLO_MANAGER_TEXT_BYTES], int64_t deadline_ns) {
    request r = {.n = 0};
    unsigned char byte = 0;
    uint64_t bytes = 0;
    put_byte(&r, WAIT);
    put_number(&r, 1);
    put_text(&r, key);
    KOLO_TRY(send_request(m, &r, deadline_ns));
    KOLO_TRY(kolo_socket_recv(m->fd, &byte, 1, NULL, deadline_ns));
    if (byte != 0) return KOLO_FAIL(KOLO_ERR_FORMAT, "an invalid answer to 'wait' (%d)", byte);
    put_byte(&r, GET);
    put_text(&r, key);
    KOLO_TRY(send_request(m, &r, deadline_ns));
    KOLO_TRY(kolo_socket_recv(m->fd, &bytes, sizeof bytes, NULL, deadline_ns));
    if (bytes >= KOLO_MANAGER_TEXT_BYTES) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a value of %llu bytes", (unsigned long long)bytes);
    }
    text[bytes] = '\0';
    return kolo_socket_recv(m->fd, text, (size_t)bytes, NULL, deadline_ns);
}

/* ---- the exchange ---- */

static kolo_status fail_at_store(const torchrun_manager *m, kolo_status status) {
    return kolo_fail_in(status, "torchrun's store at %s:%d", m->base.address, m->port);
}

/* Connects, and counts the groups that this rank has joined: the first answer shows whether the
 * protocol is the expected one. */
static kolo_status enter(torchrun_manager *m, int64_t *joined, int64_t deadline_ns) {
    int64_t until_ns = kolo_min_i64(deadline_ns, kolo_now_ns() + first_answer_ns);
    kolo_status status = KOLO_OK;
    while (m->fd < 0) {
        status = kolo_socket_connect_tcp(m->base.address, m->port, until_ns, &m->fd);
        if (status == KOLO_OK) break;
        if (status != KOLO_ERR_PEER || kolo_now_ns() + RETRY_NS > until_ns) return status;
        kolo_sleep_ns(RETRY_NS);
    }
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s/joined/%d", m->group, m->base.rank);
    request r = {.n = 0};
    put_byte(&r, CHECK);
    put(&r, &check_magic, sizeof check_magic);
    status = count(m, &r, key, INT32_MAX, joined, until_ns);
    if (status == KOLO_OK) return KOLO_OK;
    char reason[160];
    snprintf(reason, sizeof reason, "%s", kolo_last_error());
    return KOLO_FAIL(status,
                     "it does not answer as that of PyTorch 2.1 or later (%s): set "
                     "KOLO_MASTER_PORT to a free port of rank 0's host, and KOLO_SECRET_FILE, on "
                     "all ranks",
                     reason);
}

/* Overwrites the text once all other ranks have read it. */
static kolo_status count_reader(const torchrun_manager *m, const char *key, int64_t deadline_ns) {
    char readers[KEY_BYTES + 8];
    int64_t n = 0;
    request r = {.n = 0};
    snprintf(readers, sizeof readers, "%s/read", key);
    KOLO_TRY(count(m, &r, readers, INT32_MAX, &n, deadline_ns));
    return n == m->base.world - 1 ? set(m, key, "read", deadline_ns) : KOLO_OK;
}

static kolo_status share(kolo_manager *base, char text[KOLO_MANAGER_TEXT_BYTES],
                         int64_t deadline_ns) {
    torchrun_manager *m = (torchrun_manager *)base;
    int64_t joined = 0;
    kolo_status status = enter(m, &joined, deadline_ns);
    if (status != KOLO_OK) return fail_at_store(m, status);
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s/rank0/%lld", m->group, (long long)joined);
    if (base->rank == 0) {
        status = set(m, key, text, deadline_ns);
        return status == KOLO_OK ? status : fail_at_store(m, status);
    }
    status = get(m, key, text, deadline_ns);
    if (status == KOLO_ERR_TIMEOUT) {
        return KOLO_FAIL(status,
                         "rank %d: rank 0 has not published its address in torchrun's store at "
                         "%s:%d in time: it has not joined",
                         base->rank, base->address, m->port);
    }
    if (status == KOLO_OK) status = count_reader(m, key, deadline_ns);
    return status == KOLO_OK ? status : fail_at_store(m, status);
}

static void torchrun_close(kolo_manager *base) {
    torchrun_manager *m = (torchrun_manager *)base;
    if (m->fd >= 0) close(m->fd);
    kolo_free(m);
}

static const kolo_manager_ops ops = {.name = "torchrun", .share = share, .close = torchrun_close};

/* A restart of all workers forms a group of its own, and so do workers of another number. Several
 * jobs may share a store. */
static void name_group(torchrun_manager *m) {
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT");
    snprintf(m->group, sizeof m->group, "kolo/%016llx/%.16s/%d",
             (unsigned long long)kolo_hash_text(run ? run : ""), restarts ? restarts : "0",
             m->base.world);
}

static kolo_status read_env(torchrun_manager *m) {
    KOLO_TRY(kolo_manager_number("WORLD_SIZE", 1, INT32_MAX, &m->base.world));
    KOLO_TRY(kolo_manager_number("RANK", 0, m->base.world - 1, &m->base.rank));
    KOLO_TRY(kolo_manager_number("MASTER_PORT", 1, PORT_MOST, &m->port));
    int local_world = 0;
    const char *local = getenv("LOCAL_WORLD_SIZE");
    if (local) KOLO_TRY(kolo_manager_number("LOCAL_WORLD_SIZE", 1, m->base.world, &local_world));
    m->base.one_host = local_world == m->base.world;
    const char *address = getenv("MASTER_ADDR");
    m->base.address = address ? address : "127.0.0.1";
    name_group(m);
    return KOLO_OK;
}

kolo_status kolo_torchrun_open(int64_t deadline_ns, kolo_manager **manager) {
    (void)deadline_ns; /* connects when it is needed */
    torchrun_manager *m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    m->base.ops = &ops;
    m->fd = -1;
    kolo_status status = read_env(m);
    if (status != KOLO_OK) {
        kolo_free(m);
        return status;
    }
    *manager = &m->base;
    return KOLO_OK;
}
