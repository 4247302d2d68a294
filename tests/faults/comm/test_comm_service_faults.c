/* Services whose members die or stand still: only the connections of these members fail. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "kolo/service.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, SERVER = 0, OTHER_SERVER = 1, VICTIM = 2, BYTES = 100000 };

static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP, RANKS_HOSTS};

typedef struct server {
    int served;
    _Atomic int lost; /* rank + 1 of the client that is lost */
    _Atomic int left;
    kolo_service_call *kept; /* of the victim */
    kolo_service_call *meeting[RANKS];
    int n_meeting;
} server;

enum { ECHO, KEEP, MEET }; /* MEET: replied when all ranks have sent it */

static void serve(void *arg, kolo_service_call *call) {
    server *s = arg;
    s->served++;
    if (call->kind == KEEP) {
        s->kept = call;
        return;
    }
    if (call->kind == MEET) {
        s->meeting[s->n_meeting++] = call;
        for (int i = 0; i < RANKS && s->n_meeting == RANKS; i++) {
            kolo_service_reply(s->meeting[i], KOLO_OK, 0, NULL, 0);
        }
        return;
    }
    kolo_service_reply(call, KOLO_OK, 0, call->input, call->input_bytes);
}

static void lost(void *arg, int client, bool left, const char *reason) {
    server *s = arg;
    if (client == VICTIM && s->kept) kolo_service_reply(s->kept, KOLO_OK, 0, NULL, 0);
    if (left) {
        atomic_fetch_add(&s->left, 1);
    } else {
        atomic_store(&s->lost, client + 1);
    }
}

static kolo_status echo(kolo_service *service, int rank, int64_t timeout_ms) {
    static _Thread_local char in[BYTES], out[BYTES];
    kolo_service_request q = {
        .server = rank, .input = in, .input_bytes = BYTES, .output = out, .output_bytes = BYTES};
    return kolo_service_run(service, &q, timeout_ms);
}

static kolo_status create(kolo_comm *comm, server *s, kolo_service **service) {
    int rank = kolo_comm_rank(comm);
    bool serves = rank == SERVER || rank == OTHER_SERVER;
    kolo_service_opts opts = {.serve = serves ? serve : NULL, .lost = lost, .arg = s};
    KOLO_TRY(kolo_service_create(comm, &opts, service));
    kolo_service_request q = {.server = OTHER_SERVER, .kind = MEET};
    return kolo_service_run(*service, &q, 0); /* no rank is in a collective any more */
}

static bool wait_until(const _Atomic int *value, int wanted) {
    int64_t until_ns = kolo_now_ns() + INT64_C(15000000000);
    while (atomic_load(value) != wanted && kolo_now_ns() < until_ns)
        kolo_sleep_ns(kolo_ms_to_ns(2));
    return atomic_load(value) == wanted;
}

/* The victim dies with a request that the server keeps and a large one that is under way. */
static kolo_status killed_client_body(kolo_comm *comm, const void *arg, void *result) {
    static server s;
    kolo_service *service;
    int rank = kolo_comm_rank(comm);
    s = (server){0};
    KOLO_TRY(create(comm, &s, &service));
    if (rank == VICTIM) {
        kolo_service_request kept = {.server = SERVER, .kind = KEEP};
        KOLO_TRY(kolo_service_start(service, &kept));
        KOLO_TRY(echo(service, SERVER, 0));
        raise(SIGKILL);
    }
    kolo_status status = KOLO_OK;
    for (int i = 0; i < 50 && status == KOLO_OK; i++) status = echo(service, i % 2, 0);
    if (status == KOLO_OK && rank <= OTHER_SERVER && !wait_until(&s.lost, VICTIM + 1)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d is lost", atomic_load(&s.lost) - 1);
    }
    for (int i = 0; i < 10 && status == KOLO_OK; i++) status = echo(service, i % 2, 0);
    if (status == KOLO_OK && rank > OTHER_SERVER) kolo_service_destroy(service);
    if (status == KOLO_OK && rank <= OTHER_SERVER) { /* the communicator is of no use any more */
        if (!wait_until(&s.left, 1)) status = KOLO_FAIL(KOLO_ERR_FORMAT, "%d left", s.left);
        kolo_sleep_ns(kolo_ms_to_ns(200));
        kolo_service_destroy(service);
    }
    return status;
}

static void check(rank_body body) {
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        rank_outcome outcomes[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = transports[i],
                        .body = body,
                        .outcomes = outcomes,
                        .timeout_ms = 20000};
        (void)run_rank_job(&job);
        for (int r = 0; r < RANKS; r++) {
            if (outcomes[r].signal == SIGKILL) continue;
            if (outcomes[r].status != KOLO_OK) {
                fail_msg("transport %d, rank %d: %s", (int)transports[i], r, outcomes[r].error);
            }
        }
    }
}

static void a_killed_client_is_an_event(void **state) { check(killed_client_body); }

/* All requests to a killed server fail and name it; the other server is not concerned. */
static kolo_status killed_server_body(kolo_comm *comm, const void *arg, void *result) {
    static server s;
    kolo_service *service;
    int rank = kolo_comm_rank(comm);
    s = (server){0};
    KOLO_TRY(create(comm, &s, &service));
    if (rank == SERVER) {
        kolo_sleep_ns(kolo_ms_to_ns(100));
        raise(SIGKILL);
    }
    kolo_service_request kept = {.server = SERVER, .kind = KEEP};
    if (rank == VICTIM) KOLO_TRY(kolo_service_start(service, &kept));
    kolo_status status = KOLO_OK;
    int64_t until_ns = kolo_now_ns() + INT64_C(15000000000);
    while (status == KOLO_OK && kolo_now_ns() < until_ns) status = echo(service, SERVER, 0);
    if (status != KOLO_ERR_PEER || !strstr(kolo_last_error(), "server rank 0 is gone")) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "status %d: %s", (int)status, kolo_last_error());
    }
    if (rank == VICTIM && kolo_service_wait(service, &kept, 0) != KOLO_ERR_PEER) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a request to a killed server is complete");
    }
    if (echo(service, SERVER, 0) != KOLO_ERR_PEER) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a request to a killed server was started");
    }
    status = KOLO_OK;
    for (int i = 0; i < 20 && status == KOLO_OK; i++) status = echo(service, OTHER_SERVER, 0);
    if (rank == OTHER_SERVER && status == KOLO_OK) (void)wait_until(&s.left, RANKS - 2);
    kolo_service_destroy(service);
    return status;
}

static void requests_to_a_killed_server_fail(void **state) { check(killed_server_body); }

/* A server that stands still is a timeout, after which the client goes on with the others. */
static kolo_status still_server_body(kolo_comm *comm, const void *arg, void *result) {
    static server s;
    kolo_service *service;
    int rank = kolo_comm_rank(comm);
    s = (server){0};
    KOLO_TRY(create(comm, &s, &service));
    kolo_service_request kept = {.server = SERVER, .kind = KEEP, .key = 9};
    kolo_status status = KOLO_OK;
    if (rank == VICTIM) {
        KOLO_TRY(kolo_service_start(service, &kept));
        kolo_service_request other = {.server = SERVER, .kind = KEEP};
        KOLO_TRY(kolo_service_start(service, &other));
        status = kolo_service_wait(service, &kept, 200);
        const char *want = "server rank 0 has not replied to request kind 1, key 9 within 0.2 s";
        if (status != KOLO_ERR_TIMEOUT || !strstr(kolo_last_error(), want)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "status %d: %s", (int)status, kolo_last_error());
        }
        if (kolo_service_wait(service, &other, 0) != KOLO_ERR_TIMEOUT) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s", kolo_last_error());
        }
        status = echo(service, OTHER_SERVER, 0);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_service_destroy(service);
    return status;
}

static void a_server_without_reply_is_a_timeout(void **state) {
    ASSERT_OK(run_ranks(RANKS, RANKS_SHM, still_server_body, NULL, 0));
    ASSERT_OK(run_ranks(RANKS, RANKS_TCP, still_server_body, NULL, 0));
}

TEST_MAIN(test_comm_service_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_client_is_an_event),
        cmocka_unit_test(requests_to_a_killed_server_fail),
        cmocka_unit_test(a_server_without_reply_is_a_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
