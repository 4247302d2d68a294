/* Services: requests from every rank to every server, over all transports, against a model; kept
 * calls, errors of servers, several threads, and a forked child. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "kolo/service.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, KEYS = 4, BYTES_MAX = 150000, OPEN = 3 };
enum { PUSH, PULL, SWAP, REFUSED, MEET }; /* kinds of requests */

/* A server's values: one per client and key. */
typedef struct value {
    size_t bytes;
    uint64_t version;
    char data[BYTES_MAX];
} value;

typedef struct store {
    int rank;
    _Atomic int n_lost, n_left;
    kolo_service_call *waiting[RANKS]; /* MEET */
    int n_waiting;
    value *values; /* [RANKS][KEYS] */
} store;

static void serve(void *arg, kolo_service_call *call) {
    store *s = arg;
    value *v = &s->values[call->client * KEYS + (int)call->key];
    char before[BYTES_MAX];
    size_t bytes = v->bytes;
    switch (call->kind) {
    case SWAP:
        memcpy(before, v->data, bytes);
        /* fall through */
    case PUSH:
        if (call->input_bytes > 0) memcpy(v->data, call->input, call->input_bytes);
        v->bytes = call->input_bytes;
        v->version = call->clock;
        if (call->kind == PUSH) bytes = 0;
        kolo_service_reply(call, KOLO_OK, v->version, before, bytes);
        return;
    case PULL:
        kolo_service_reply(call, KOLO_OK, v->version, v->data, bytes);
        return;
    case MEET:
        s->waiting[s->n_waiting++] = call;
        if (s->n_waiting < RANKS) return;
        for (int i = 0; i < RANKS; i++) kolo_service_reply(s->waiting[i], KOLO_OK, 0, NULL, 0);
        s->n_waiting = 0;
        return;
    default:
        kolo_service_reply(
            call, KOLO_FAIL(KOLO_ERR_ARG, "no kind %u for key %d", call->kind, (int)call->key), 0,
            NULL, 0);
    }
}

static void lost(void *arg, int client, bool left, const char *reason) {
    store *s = arg;
    s->n_lost++;
    s->n_left += left;
}

static kolo_status open_store(store *s, kolo_comm *comm) {
    size_t bytes = RANKS * KEYS * sizeof *s->values;
    *s = (store){.rank = kolo_comm_rank(comm), .values = kolo_zalloc(bytes)};
    return s->values ? KOLO_OK : KOLO_NOMEM(bytes);
}

/* A client's memory, and a model of its values at each server. */
typedef struct client {
    kolo_service *service;
    int rank;
    char *memory; /* [OPEN][2][BYTES_MAX]: inputs and outputs, half of them registered */
    value *model; /* [server][KEYS] */
    kolo_service_request open[OPEN];
    value *expected[OPEN]; /* copies of what a reply must hold; NULL: nothing */
} client;

static char byte_of(uint64_t seed, size_t i) { return (char)(seed * 31 + i * 7 + i / 251); }

static kolo_status check(client *c, int i) {
    kolo_service_request *q = &c->open[i];
    kolo_status status = kolo_service_wait(c->service, q, 0);
    if (q->kind == REFUSED) {
        char want[64];
        snprintf(want, sizeof want, "server rank %d: no kind %d for key %d", q->server, REFUSED,
                 (int)q->key);
        if (status == KOLO_ERR_ARG && strcmp(kolo_last_error(), want) == 0) return KOLO_OK;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "status %d: %s", (int)status, kolo_last_error());
    }
    KOLO_TRY(status);
    const value *v = c->expected[i];
    if (q->kind == PUSH) return KOLO_OK;
    if (q->reply_bytes != v->bytes || memcmp(q->output, v->data, v->bytes) != 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a reply of %zu bytes, expected %zu", q->reply_bytes,
                         v->bytes);
    }
    if (q->kind == PULL && q->reply_clock != v->version) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "version %llu", (unsigned long long)q->reply_clock);
    }
    return KOLO_OK;
}

/* Starts a random request, and changes the model. */
static kolo_status start(client *c, int i, int step) {
    kolo_rng rng = kolo_rng_make(17, KOLO_RNG_TEST, (uint64_t)c->rank);
    uint32_t r[4];
    kolo_rng_draw(&rng, (uint64_t)step, r);
    bool large = r[3] % 8 == 0;
    size_t bytes = r[1] % (large ? BYTES_MAX : 300);
    int server = (int)(r[0] % RANKS), key = (int)(r[2] % KEYS);
    char *in = c->memory + (size_t)(2 * i) * BYTES_MAX, *out = in + BYTES_MAX;
    for (size_t k = 0; k < bytes; k++) in[k] = byte_of(r[0], k);
    c->open[i] = (kolo_service_request){
        .server = server, .kind = (r[2] >> 8) % 4, .key = (uint64_t)key, .clock = (uint64_t)step};
    kolo_service_request *q = &c->open[i];
    if (q->kind == PUSH || q->kind == SWAP) {
        q->input = in;
        q->input_bytes = bytes;
    }
    if (q->kind == PULL || q->kind == SWAP) {
        q->output = out;
        q->output_bytes = BYTES_MAX;
    }
    value *v = &c->model[server * KEYS + key];
    memcpy(c->expected[i], v, offsetof(value, data) + v->bytes);
    if (q->kind == PUSH || q->kind == SWAP) {
        memcpy(v->data, in, bytes);
        v->bytes = bytes;
        v->version = (uint64_t)step;
    }
    return kolo_service_start(c->service, q);
}

static kolo_status play(client *c, int steps) {
    for (int step = 1; step <= steps; step++) {
        if (step > OPEN) KOLO_TRY(check(c, step % OPEN));
        KOLO_TRY(start(c, step % OPEN, step));
    }
    for (int step = steps + 1; step <= steps + OPEN; step++) KOLO_TRY(check(c, step % OPEN));
    return KOLO_OK;
}

static kolo_status play_in(kolo_comm *comm, kolo_service *service, int steps) {
    client c = {.service = service, .rank = kolo_comm_rank(comm)};
    void *memory;
    size_t bytes = (size_t)2 * OPEN * BYTES_MAX;
    KOLO_TRY(kolo_comm_alloc(comm, bytes, &memory));
    char *own = kolo_alloc(bytes);
    value *values = kolo_zalloc((RANKS * KEYS + OPEN) * sizeof *values);
    kolo_status status = own && values ? KOLO_OK : KOLO_NOMEM(bytes);
    c.model = values;
    for (int i = 0; i < OPEN && values; i++) c.expected[i] = &values[RANKS * KEYS + i];
    for (int turn = 0; turn < 2 && status == KOLO_OK; turn++) { /* the second goes on */
        if (turn == 1) memset(values, 0, RANKS * KEYS * sizeof *values);
        c.memory = turn == 0 ? memory : own;
        if (turn == 1) { /* the servers' values are those of the first turn: empty them */
            for (int i = 0; i < RANKS * KEYS && status == KOLO_OK; i++) {
                kolo_service_request q = {.server = i / KEYS, .key = (uint64_t)(i % KEYS)};
                status = kolo_service_run(service, &q, 0);
            }
        }
        if (status == KOLO_OK) status = play(&c, steps);
    }
    kolo_free(own);
    kolo_free(values);
    return status;
}

static kolo_status model_body(kolo_comm *comm, const void *arg, void *result) {
    const int *steps = arg;
    store s;
    kolo_service *service = NULL;
    KOLO_TRY(open_store(&s, comm));
    kolo_service_opts opts = {.serve = serve, .lost = lost, .arg = &s, .credits = 2};
    kolo_status status = kolo_service_create(comm, &opts, &service);
    if (status == KOLO_OK) status = play_in(comm, service, *steps);
    kolo_service_request q = {.server = 1, .kind = MEET};
    if (status == KOLO_OK) status = kolo_service_run(service, &q, 0);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_service_destroy(service);
    kolo_free(s.values);
    return status;
}

static void requests_give_what_a_model_gives(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    int steps = TEST_FEWER(60, 400);
    for (size_t i = 0; i < 4; i++) {
        ASSERT_OK(run_ranks(RANKS, transports[i], model_body, &steps, sizeof steps));
    }
}

/* ---- exposed memory ---- */

enum { SLOT = 300000, TURNS = 12 };

/* Each client has a slot, at which the key is an offset. */
static void serve_slots(void *arg, kolo_service_call *call) {
    char *at = (char *)arg + (size_t)call->client * SLOT + call->key;
    if (call->input_bytes > 0) memcpy(at, call->input, call->input_bytes);
    kolo_service_reply(call, KOLO_OK, call->clock, at, call->output_bytes);
}

/* Pushes a part of a slot to each server, and pulls it back. The server changes it only then. */
static kolo_status push_and_pull(kolo_service *service, int turn, const char *in, char *out) {
    const size_t first = (size_t)turn * 37, bytes = turn % 3 ? (size_t)turn * 1000 : SLOT - first;
    for (int s = 0; s < RANKS; s++) {
        kolo_service_request push = {
            .server = s, .key = first, .input = in + s, .input_bytes = bytes};
        kolo_service_request pull = {.server = s,
                                     .key = first,
                                     .clock = (uint64_t)turn,
                                     .output = out,
                                     .output_bytes = bytes};
        memset(out, 0, bytes);
        KOLO_TRY(kolo_service_run(service, &push, 0));
        KOLO_TRY(kolo_service_run(service, &pull, 0));
        if (pull.reply_bytes == bytes && pull.reply_clock == pull.clock &&
            memcmp(in + s, out, bytes) == 0) {
            continue;
        }
        return KOLO_FAIL(KOLO_ERR_FORMAT, "turn %d, server %d: other data", turn, s);
    }
    return KOLO_OK;
}

static kolo_status exposed_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_service *service;
    void *slots, *memory;
    char *own = kolo_alloc(SLOT);
    if (!own) return KOLO_NOMEM(SLOT);
    KOLO_TRY(kolo_comm_alloc(comm, RANKS * SLOT, &slots));
    KOLO_TRY(kolo_comm_alloc(comm, 3 * SLOT, &memory));
    char *in = (char *)memory + SLOT;
    for (size_t i = 0; i < SLOT + RANKS; i++)
        in[i] = byte_of((uint64_t)kolo_comm_rank(comm) + 3, i);
    const kolo_service_opts opts = {
        .serve = serve_slots, .arg = slots, .exposed = slots, .exposed_bytes = RANKS * SLOT};
    KOLO_TRY(kolo_service_create(comm, &opts, &service));
    kolo_status status = KOLO_OK;
    for (int turn = 0; turn < TURNS && status == KOLO_OK; turn++) {
        status = push_and_pull(service, turn, in, turn % 2 ? own : memory);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_service_destroy(service);
    kolo_free(own);
    return status;
}

static void exposed_memory_gives_the_same_replies(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    for (size_t i = 0; i < 4; i++) {
        ASSERT_OK(run_ranks(RANKS, transports[i], exposed_body, NULL, 0));
    }
}

/* ---- who serves ---- */

static kolo_status one_server_body(kolo_comm *comm, const void *arg, void *result) {
    store s;
    kolo_service *service;
    KOLO_TRY(open_store(&s, comm));
    bool serves = s.rank == 1;
    kolo_service_opts opts = {.serve = serves ? serve : NULL, .lost = lost, .arg = &s};
    KOLO_TRY(kolo_service_create(comm, &opts, &service));
    kolo_service_request q = {.server = 0, .kind = PULL};
    kolo_status status = kolo_service_run(service, &q, 0);
    bool refused = status == KOLO_ERR_ARG && strcmp(kolo_last_error(), "rank 0 is no server") == 0;
    bool listed =
        kolo_service_server_count(service) == 1 && kolo_service_server_rank(service, 0) == 1;
    q.server = 1;
    status = kolo_service_run(service, &q, 0);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    if (!serves) kolo_service_destroy(service);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    if (serves) { /* its own client may leave too */
        int64_t until_ns = kolo_now_ns() + INT64_C(10000000000);
        while (kolo_now_ns() < until_ns && s.n_left < RANKS - 1) kolo_sleep_ns(kolo_ms_to_ns(1));
        kolo_service_destroy(service);
        if (s.n_left < RANKS - 1 || s.n_lost != s.n_left) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "%d of %d left", s.n_left, s.n_lost);
        }
    }
    kolo_free(s.values);
    if (status != KOLO_OK || (refused && listed)) return status;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "refused %d listed %d", refused, listed);
}

static void a_rank_may_serve_or_not(void **state) {
    ASSERT_OK(run_ranks(RANKS, RANKS_SHM, one_server_body, NULL, 0));
    ASSERT_OK(run_ranks(RANKS, RANKS_TCP, one_server_body, NULL, 0));
}

/* The system takes no further descriptor of an epoll instance with that number; -1: all. */
static _Atomic int64_t refused_client = -1;

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event) {
    int (*real)(int, int, int, struct epoll_event *);
    *(void **)&real = dlsym(RTLD_NEXT, "epoll_ctl");
    if (op == EPOLL_CTL_ADD && (int64_t)event->data.u32 == refused_client) {
        errno = ENOSPC;
        return -1;
    }
    return real(epoll, op, fd, event);
}

/* The server, rank 0, cannot attach the client of rank 1. */
static kolo_status refused_body(kolo_comm *comm, const void *arg, void *result) {
    store s;
    kolo_service *service;
    KOLO_TRY(open_store(&s, comm));
    if (s.rank == 0) refused_client = 1;
    kolo_service_opts opts = {.serve = s.rank == 0 ? serve : NULL, .lost = lost, .arg = &s};
    KOLO_TRY(kolo_service_create(comm, &opts, &service));
    kolo_service_request q = {.server = 0, .kind = PULL};
    kolo_status status = kolo_service_run(service, &q, 0);
    if (s.rank == 1) {
        const bool named = strstr(kolo_last_error(), "server rank 0 is gone") != NULL;
        status = status == KOLO_ERR_PEER && named
                     ? KOLO_OK
                     : KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %.200s", status, kolo_last_error());
    }
    if (status == KOLO_OK) status = kolo_barrier(comm);
    if (s.rank == 0 && status == KOLO_OK && (s.n_lost != 1 || s.n_left != 0)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "%d lost, %d left", s.n_lost, s.n_left);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm); /* nobody has left before */
    kolo_service_destroy(service);
    kolo_free(s.values);
    return status;
}

static void a_client_that_is_not_attached_is_lost_alone(void **state) {
    ASSERT_OK(run_ranks(RANKS, RANKS_SHM, refused_body, NULL, 0));
    ASSERT_OK(run_ranks(RANKS, RANKS_TCP, refused_body, NULL, 0));
}

/* Invalid options of one rank fail on all. */
static kolo_status invalid_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_service *service;
    bool wrong = kolo_comm_rank(comm) == 1;
    kolo_service_opts opts = {.serve = serve, .credits = wrong ? -1 : 0};
    kolo_status status = kolo_service_create(comm, &opts, &service);
    const char *want = wrong ? "-1 credits" : "rank 1 cannot create the service";
    if (status != KOLO_ERR_ARG || !strstr(kolo_last_error(), want)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "status %d: %s", (int)status, kolo_last_error());
    }
    status = kolo_service_create(comm, NULL, &service); /* no rank serves */
    if (status != KOLO_ERR_ARG || !strstr(kolo_last_error(), "no rank serves")) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "status %d: %s", (int)status, kolo_last_error());
    }
    return kolo_barrier(comm);
}

static void errors_of_one_rank_are_errors_of_all(void **state) {
    ASSERT_OK(run_ranks(RANKS, RANKS_THREAD, invalid_body, NULL, 0));
    ASSERT_OK(run_ranks(RANKS, RANKS_TCP, invalid_body, NULL, 0));
}

/* ---- threads and processes of a client ---- */

typedef struct worker {
    kolo_service *service;
    int number;
    kolo_status status;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    char in[1000], out[BYTES_MAX];
    for (int i = 0; i < 100 && w->status == KOLO_OK; i++) {
        kolo_service_request push = {.server = i % 2,
                                     .key = (uint64_t)w->number,
                                     .input = in,
                                     .input_bytes = (size_t)i * 10};
        kolo_service_request pull = {.server = i % 2,
                                     .kind = PULL,
                                     .key = (uint64_t)w->number,
                                     .output = out,
                                     .output_bytes = sizeof out};
        memset(in, w->number * 100 + i, sizeof in);
        w->status = kolo_service_run(w->service, &push, 0);
        if (w->status == KOLO_OK) w->status = kolo_service_run(w->service, &pull, 0);
        bool right = pull.reply_bytes == push.input_bytes && memcmp(in, out, pull.reply_bytes) == 0;
        if (w->status == KOLO_OK && !right) w->status = KOLO_ERR_FORMAT;
    }
    return NULL;
}

static kolo_status threads_body(kolo_comm *comm, const void *arg, void *result) {
    store s;
    kolo_service *service;
    pthread_t threads[KEYS];
    worker workers[KEYS];
    KOLO_TRY(open_store(&s, comm));
    kolo_service_opts opts = {.serve = serve, .arg = &s};
    KOLO_TRY(kolo_service_create(comm, &opts, &service));
    for (int i = 0; i < KEYS; i++) {
        workers[i] = (worker){.service = service, .number = i};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    kolo_status status = KOLO_OK;
    float sum = 1; /* collectives go on beside requests */
    for (int i = 0; i < 20 && status == KOLO_OK; i++) {
        status = kolo_allreduce(comm, &sum, 1, KOLO_DTYPE_F32, KOLO_MEAN);
    }
    for (int i = 0; i < KEYS; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].status != KOLO_OK) status = KOLO_FAIL(KOLO_ERR_FORMAT, "thread %d", i);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_service_destroy(service);
    kolo_free(s.values);
    return status;
}

static void threads_of_a_client_share_its_service(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, threads_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, threads_body, NULL, 0));
}

/* A forked child of a client cannot use the service, and does not keep its connections open. */
static kolo_status fork_body(kolo_comm *comm, const void *arg, void *result) {
    store s;
    kolo_service *service;
    KOLO_TRY(open_store(&s, comm));
    kolo_service_opts opts = {.serve = s.rank == 0 ? serve : NULL, .lost = lost, .arg = &s};
    KOLO_TRY(kolo_service_create(comm, &opts, &service));
    kolo_service_request q = {.server = 0, .kind = PULL};
    pid_t child = s.rank == 1 ? fork() : -1;
    if (child == 0) {
        kolo_status status = kolo_service_run(service, &q, 0);
        kolo_service_destroy(service);
        _exit(status == KOLO_ERR_ARG && strstr(kolo_last_error(), "forked child") ? 0 : 1);
    }
    int end = 0;
    if (child > 0) waitpid(child, &end, 0);
    kolo_status status = kolo_service_run(service, &q, 0);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_service_destroy(service);
    kolo_free(s.values);
    if (end != 0) return KOLO_FAIL(KOLO_ERR_FORMAT, "the child ended with %d", end);
    return status;
}

static void a_forked_child_is_no_client(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_SHM, fork_body, NULL, 0));
}

TEST_MAIN(test_comm_service) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_give_what_a_model_gives),
        cmocka_unit_test(exposed_memory_gives_the_same_replies),
        cmocka_unit_test(a_rank_may_serve_or_not),
        cmocka_unit_test(a_client_that_is_not_attached_is_lost_alone),
        cmocka_unit_test(errors_of_one_rank_are_errors_of_all),
        cmocka_unit_test(threads_of_a_client_share_its_service),
        cmocka_unit_test(a_forked_child_is_no_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
