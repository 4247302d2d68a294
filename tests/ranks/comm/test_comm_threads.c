/* Communicators of frameworks: joined by an exchange of the program, used by several threads that
 * start, test and wait at the same time. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"
#include "comm/engine/lock.h"
#include "kolo/embed.h"
#include "kolo/named.h"
#include "support/ranks.h"
#include "support/support.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 3, COUNT = 20000, ROUNDS = 20, TEXT_BYTES = 636 };

/* The store: rank 0's result. All ranks map the results, which lie at multiples of 64 bytes. */
typedef struct store {
    _Atomic int published;
    char text[TEXT_BYTES];
} store;
_Static_assert(sizeof(store) % 64 == 0, "results follow each other");

typedef struct exchange {
    store *store;
    int rank;
} exchange;

static kolo_status share(void *arg, char *text, size_t bytes, int64_t timeout_ms) {
    const exchange *e = arg;
    if (e->rank == 0) {
        snprintf(e->store->text, sizeof e->store->text, "%s", text);
        atomic_store(&e->store->published, 1);
        return KOLO_OK;
    }
    int64_t until_ns = kolo_now_ns() + kolo_ms_to_ns(timeout_ms);
    while (!atomic_load(&e->store->published)) {
        if (kolo_now_ns() > until_ns) {
            return kolo_error_set(KOLO_ERR_TIMEOUT, "rank 0 has published nothing");
        }
        kolo_sleep_ns(1000000);
    }
    snprintf(text, bytes, "%s", e->store->text);
    return KOLO_OK;
}

static kolo_status join(void *result, const kolo_comm_opts *more, kolo_comm **comm) {
    kolo_comm_opts own = ranks_own_opts(), o = *more;
    exchange e = {.rank = ranks_own_rank()};
    e.store = (store *)result - e.rank;
    o.rank = e.rank;
    o.world = RANKS;
    o.transport = own.transport;
    o.segment_bytes = own.segment_bytes;
    if (o.timeout_ms == 0) o.timeout_ms = own.timeout_ms;
    return kolo_comm_create_by(&o, share, &e, comm);
}

/* ---- threads ---- */

typedef struct worker {
    kolo_comm *comm;
    kolo_request *shared; /* that both threads wait for */
    kolo_status status;
    char error[300];
} worker;

static void end(worker *w, kolo_status status) {
    w->status = status;
    snprintf(w->error, sizeof w->error, "%s", kolo_last_error());
}

static kolo_status expect(bool holds, const char *what) {
    return holds ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%s", what);
}

/* Messages around the ring. */
static kolo_status pass_messages(kolo_comm *comm) {
    int rank = kolo_comm_rank(comm), n = kolo_comm_size(comm);
    static int32_t out[COUNT], in[COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        kolo_request *send, *receive;
        for (int i = 0; i < COUNT; i++) out[i] = 100 * rank + round + i;
        kolo_request_opts o = {.kind = KOLO_COLLECTIVE_SEND,
                               .dtype = KOLO_DTYPE_I32,
                               .input = out,
                               .count = COUNT,
                               .root = (rank + 1) % n};
        KOLO_TRY(kolo_request_create(comm, &o, &send));
        o = (kolo_request_opts){.kind = KOLO_COLLECTIVE_RECV,
                                .dtype = KOLO_DTYPE_I32,
                                .output = in,
                                .count = COUNT,
                                .root = (rank + n - 1) % n};
        KOLO_TRY(kolo_request_create(comm, &o, &receive));
        KOLO_TRY(kolo_request_start(receive));
        KOLO_TRY(kolo_request_start(send));
        bool complete = false; /* poll now and then instead of waiting */
        while (round % 4 == 0 && !complete) KOLO_TRY(kolo_request_test(receive, &complete));
        KOLO_TRY(kolo_request_wait(receive, 0));
        KOLO_TRY(kolo_request_wait(send, 0));
        int32_t from = 100 * ((rank + n - 1) % n) + round;
        KOLO_TRY(expect(in[0] == from && in[COUNT - 1] == from + COUNT - 1, "a message"));
        kolo_request_destroy(send);
        kolo_request_destroy(receive);
    }
    return KOLO_OK;
}

static void *run_messages(void *arg) {
    worker *w = arg;
    kolo_status status = kolo_request_wait(w->shared, 0);
    end(w, status == KOLO_OK ? pass_messages(w->comm) : status);
    return NULL;
}

static kolo_status allreduces(kolo_comm *comm) {
    static int32_t data[COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) data[i] = kolo_comm_rank(comm) + round;
        KOLO_TRY(kolo_allreduce(comm, data, COUNT, KOLO_DTYPE_I32, KOLO_SUM));
        int32_t want = RANKS * (RANKS - 1) / 2 + RANKS * round;
        KOLO_TRY(expect(data[0] == want && data[COUNT - 1] == want, "an allreduce"));
    }
    return KOLO_OK;
}

/* More requests in flight than are accepted at once, which makes a start wait; then two threads. */
static kolo_status threads_body(kolo_comm *unused, const void *arg, void *result) {
    kolo_comm *comm;
    KOLO_TRY(join(result, &(kolo_comm_opts){.progress_thread = true, .max_in_flight = 4}, &comm));
    KOLO_TRY(kolo_comm_allow_threads(comm));
    int64_t value[8];
    kolo_request *several[8];
    for (int i = 0; i < 8; i++) {
        value[i] = kolo_comm_rank(comm);
        kolo_part part = {.data = &value[i], .count = 1};
        KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_I64, KOLO_SUM,
                                       KOLO_ALGORITHM_AUTO, "several", &several[i]));
        KOLO_TRY(kolo_request_start(several[i]));
    }
    worker w = {.comm = comm, .shared = several[7]};
    pthread_t thread;
    KOLO_TRY(expect(pthread_create(&thread, NULL, run_messages, &w) == 0, "a thread"));
    kolo_status status = kolo_request_wait(several[7], 0);
    if (status == KOLO_OK) status = allreduces(comm);
    pthread_join(thread, NULL);
    KOLO_TRY(status);
    if (w.status != KOLO_OK) return KOLO_FAIL(w.status, "%s", w.error);
    for (int i = 0; i < 8; i++) KOLO_TRY(expect(value[i] == RANKS * (RANKS - 1) / 2, "a sum"));
    KOLO_TRY(kolo_barrier(comm));
    kolo_comm_destroy(comm);
    return KOLO_OK;
}

static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP, RANKS_HOSTS};

static void threads_share_a_communicator(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(transports); i++) {
        store results[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = transports[i],
                        .body = threads_body,
                        .results = results,
                        .result_bytes = sizeof(store),
                        .bare = true};
        ASSERT_OK(run_rank_job(&job));
    }
}

/* ---- failures ---- */

/* A thread waits for a message that never comes, another one for the deadline of a second one, or
 * aborts. */
typedef struct failing {
    bool abort;
} failing;

static void *wait_forever(void *arg) {
    worker *w = arg;
    end(w, kolo_request_wait(w->shared, 0));
    return NULL;
}

/* Starts two receives that nobody answers. */
static kolo_status start_receives(kolo_comm *comm, int32_t data[2], kolo_request *never[2]) {
    for (int i = 0; i < 2; i++) {
        kolo_request_opts o = {.kind = KOLO_COLLECTIVE_RECV,
                               .dtype = KOLO_DTYPE_I32,
                               .output = &data[i],
                               .count = 1,
                               .root = (kolo_comm_rank(comm) + 1) % RANKS,
                               .tag = i};
        KOLO_TRY(kolo_request_create(comm, &o, &never[i]));
        KOLO_TRY(kolo_request_start(never[i]));
    }
    return KOLO_OK;
}

static kolo_status wait_in_two_threads(kolo_comm *comm, bool abort, const char *want) {
    int32_t data[2];
    kolo_request *never[2];
    KOLO_TRY(start_receives(comm, data, never));
    worker w = {.comm = comm, .shared = never[0]};
    pthread_t thread;
    KOLO_TRY(expect(pthread_create(&thread, NULL, wait_forever, &w) == 0, "a thread"));
    bool first = kolo_comm_rank(comm) == 0;
    if (first && abort) kolo_comm_abort(comm, want);
    kolo_status status = kolo_request_wait(never[1], first ? 50 : 0);
    bool named = status != KOLO_OK && strstr(kolo_last_error(), want);
    pthread_join(thread, NULL);
    return expect(named && w.status != KOLO_OK && strstr(w.error, want),
                  "the waits of both threads end with the reason");
}

/* Rank 0 may give up before the others have started. */
static kolo_status failing_body(kolo_comm *unused, const void *arg, void *result) {
    const failing *f = arg;
    const char *want = f->abort ? "aborted by the test" : "waited";
    kolo_comm *comm;
    KOLO_TRY(join(result, &(kolo_comm_opts){.progress_thread = true}, &comm));
    KOLO_TRY(kolo_comm_allow_threads(comm));
    kolo_status status = wait_in_two_threads(comm, f->abort, want);
    bool early = kolo_comm_rank(comm) != 0 && strstr(kolo_last_error(), want);
    kolo_comm_destroy(comm);
    return early ? KOLO_OK : status;
}

static void failures_end_the_waits_of_all_threads(void **state) {
    for (int abort = 0; abort < 2; abort++) {
        store results[RANKS];
        failing f = {.abort = abort};
        rank_job job = {.n = RANKS,
                        .transport = abort ? RANKS_TCP : RANKS_SHM,
                        .body = failing_body,
                        .arg = &f,
                        .arg_bytes = sizeof f,
                        .results = results,
                        .result_bytes = sizeof(store),
                        .bare = true};
        ASSERT_OK(run_rank_job(&job));
    }
}

/* Destruction ends the waits of two threads, one of which makes progress, and returns after them;
 * other ranks get the reason. */
static kolo_status destroy_while_threads_wait(kolo_comm *comm, kolo_request *const never[2]) {
    worker w[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        w[i] = (worker){.comm = comm, .shared = never[i]};
        KOLO_TRY(expect(pthread_create(&threads[i], NULL, wait_forever, &w[i]) == 0, "a thread"));
    }
    while (atomic_load(&comm->lock->inside) < 4) sched_yield(); /* two for each thread in a wait */
    kolo_comm_destroy(comm);
    kolo_status status = KOLO_OK;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        bool good = w[i].status == KOLO_ERR_PEER && strstr(w[i].error, "destroyed while a thread");
        if (!good) status = KOLO_FAIL(KOLO_ERR_FORMAT, "the wait ended with: %s", w[i].error);
    }
    return status;
}

/* Rank 0 may be destroyed before the others have started. */
static kolo_status destroyed_body(kolo_comm *unused, const void *arg, void *result) {
    kolo_comm *comm;
    KOLO_TRY(join(result, &(kolo_comm_opts){.progress_thread = true}, &comm));
    KOLO_TRY(kolo_comm_allow_threads(comm));
    int32_t data[2];
    kolo_request *never[2];
    kolo_status status = start_receives(comm, data, never);
    if (kolo_comm_rank(comm) == 0) {
        KOLO_TRY(status);
        return destroy_while_threads_wait(comm, never);
    }
    if (status == KOLO_OK) status = kolo_request_wait(never[0], 0);
    bool named = status == KOLO_ERR_PEER && strstr(kolo_last_error(), "destroyed while a thread");
    kolo_comm_destroy(comm);
    return expect(named, "the error of the other ranks has the reason");
}

static void destruction_waits_for_other_threads(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(transports); i++) {
        store results[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = transports[i],
                        .body = destroyed_body,
                        .results = results,
                        .result_bytes = sizeof(store),
                        .bare = true};
        ASSERT_OK(run_rank_job(&job));
    }
}

/* ---- named tensors beside a thread that makes progress ---- */

static kolo_status named_body(kolo_comm *unused, const void *arg, void *result) {
    kolo_comm *comm;
    KOLO_TRY(join(result, &(kolo_comm_opts){.progress_thread = true, .max_in_flight = 2}, &comm));
    KOLO_TRY(kolo_comm_allow_threads(comm));
    int rank = kolo_comm_rank(comm);
    int32_t value = rank, got = -1;
    kolo_request *receive, *send;
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_RECV,
                           .dtype = KOLO_DTYPE_I32,
                           .output = &got,
                           .count = 1,
                           .root = (rank + RANKS - 1) % RANKS};
    KOLO_TRY(kolo_request_create(comm, &o, &receive));
    KOLO_TRY(kolo_request_start(receive));
    worker w = {.comm = comm, .shared = receive};
    pthread_t thread;
    KOLO_TRY(expect(pthread_create(&thread, NULL, wait_forever, &w) == 0, "a thread"));
    while (atomic_load(&comm->lock->inside) < 2) sched_yield(); /* it waits, and makes progress */
    kolo_named *named;
    KOLO_TRY(kolo_named_create(comm, &(kolo_named_opts){.fusion_bytes = 1}, &named));
    int32_t sums[12];
    char name[32];
    for (int i = 0; i < 12; i++) {
        int handle;
        sums[i] = rank + i;
        snprintf(name, sizeof name, "tensor %d", i);
        KOLO_TRY(kolo_named_post(named, name, &sums[i], 1, KOLO_DTYPE_I32, KOLO_SUM, &handle));
    }
    KOLO_TRY(kolo_named_wait_all(named, 0));
    for (int i = 0; i < 12; i++) {
        KOLO_TRY(expect(sums[i] == RANKS * (RANKS - 1) / 2 + RANKS * i, "a sum"));
    }
    kolo_named_destroy(named);
    o = (kolo_request_opts){.kind = KOLO_COLLECTIVE_SEND,
                            .dtype = KOLO_DTYPE_I32,
                            .input = &value,
                            .count = 1,
                            .root = (rank + 1) % RANKS};
    KOLO_TRY(kolo_request_create(comm, &o, &send));
    KOLO_TRY(kolo_request_start(send));
    KOLO_TRY(kolo_request_wait(send, 0));
    pthread_join(thread, NULL);
    KOLO_TRY(expect(w.status == KOLO_OK && got == (rank + RANKS - 1) % RANKS, "the message"));
    KOLO_TRY(kolo_barrier(comm));
    kolo_comm_destroy(comm);
    return KOLO_OK;
}

static void named_tensors_beside_a_waiting_thread(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(transports); i++) {
        store results[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = transports[i],
                        .body = named_body,
                        .results = results,
                        .result_bytes = sizeof(store),
                        .bare = true};
        ASSERT_OK(run_rank_job(&job));
    }
}

static kolo_status refused_share(void *arg, char *text, size_t bytes, int64_t timeout_ms) {
    return kolo_error_set(KOLO_ERR_IO, "the store is closed");
}

static void wrong_calls_are_refused(void **state) {
    kolo_comm *comm = NULL;
    kolo_comm_opts o = {.rank = 2, .world = 2};
    assert_int_equal(kolo_comm_create_by(&o, refused_share, NULL, &comm), KOLO_ERR_ARG);
    assert_int_equal(kolo_comm_create_by(NULL, refused_share, NULL, &comm), KOLO_ERR_ARG);
    o.rank = 1;
    assert_int_equal(kolo_comm_create_by(&o, refused_share, NULL, &comm), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "the store is closed"));
    o.transport = KOLO_TRANSPORT_MPI;
    assert_int_equal(kolo_comm_create_by(&o, refused_share, NULL, &comm), KOLO_ERR_UNSUPPORTED);
    o = (kolo_comm_opts){.world = 1};
    ASSERT_OK(
        kolo_comm_create_by(&o, refused_share, NULL, &comm)); /* alone: nothing is exchanged */
    ASSERT_OK(kolo_comm_allow_threads(comm));
    ASSERT_OK(kolo_barrier(comm));
    kolo_comm_destroy(comm);
    kolo_comm *pair[2];
    ASSERT_OK(kolo_comm_create_threads(2, NULL, pair));
    assert_int_equal(kolo_comm_allow_threads(pair[0]), KOLO_ERR_ARG);
    for (int r = 0; r < 2; r++) kolo_comm_destroy(pair[r]);
}

TEST_MAIN(test_comm_threads) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_communicator),
        cmocka_unit_test(failures_end_the_waits_of_all_threads),
        cmocka_unit_test(destruction_waits_for_other_threads),
        cmocka_unit_test(named_tensors_beside_a_waiting_thread),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests_name("comm_threads", tests, NULL, NULL);
}
