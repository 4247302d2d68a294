/* The engine: progress without blocking, several requests in flight, gates, entries that are
 * missing. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/lock.h"
#include "comm/engine/progress_thread.h"
#include "comm/engine/request.h"
#include "support/ranks.h"
#include "support/support.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 3000 };

static void fill(float *data, size_t n, int rank) {
    for (size_t i = 0; i < n; i++) data[i] = (float)(rank + 1) * (float)(i % 13 + 1);
}

static kolo_status check_sum(const float *data, size_t n, int size, const char *what) {
    float total = (float)(size * (size + 1) / 2);
    for (size_t i = 0; i < n; i++) {
        if (data[i] != total * (float)(i % 13 + 1)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: element %zu is %g", what, i, (double)data[i]);
        }
    }
    return KOLO_OK;
}

static kolo_status make(kolo_comm *comm, void *data, size_t n, kolo_algorithm algorithm,
                        const char *site, kolo_request **request) {
    kolo_part part = {.data = data, .count = n};
    if (!comm->transport->windows) algorithm = KOLO_ALGORITHM_RING;
    return kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, algorithm, site,
                                 request);
}

/* ---- progress ---- */

/* Completes by kolo_comm_progress alone; the test only polls. */
static kolo_status progress_body(kolo_comm *comm, const void *arg, void *result) {
    for (int a = KOLO_ALGORITHM_RING; a < KOLO_ALGORITHM_COUNT; a++) {
        void *data;
        kolo_request *q;
        bool complete = false;
        KOLO_TRY(kolo_comm_alloc(comm, COUNT * sizeof(float), &data));
        KOLO_TRY(make(comm, data, COUNT, (kolo_algorithm)a, "polled", &q));
        fill(data, COUNT, kolo_comm_rank(comm));
        KOLO_TRY(kolo_request_start(q));
        while (kolo_request_in_flight(q)) {
            KOLO_TRY(kolo_comm_progress(comm));
            sched_yield();
        }
        KOLO_TRY(kolo_request_test(q, &complete));
        if (!complete) return KOLO_FAIL(KOLO_ERR_FORMAT, "not complete");
        KOLO_TRY(check_sum(data, COUNT, kolo_comm_size(comm), "polled"));
        KOLO_TRY(kolo_barrier(comm));
    }
    return KOLO_OK;
}

static void progress_alone_completes_a_request(void **state) {
    for (int n = 1; n <= 4; n++) {
        ASSERT_OK(run_ranks(n, RANKS_THREAD, progress_body, NULL, 0));
        ASSERT_OK(run_ranks(n, RANKS_SHM, progress_body, NULL, 0));
        ASSERT_OK(run_ranks(n, RANKS_TCP, progress_body, NULL, 0));
        ASSERT_OK(run_ranks(n, RANKS_HOSTS, progress_body, NULL, 0));
    }
}

/* Rank 0 starts a request of several rounds and makes no further call until rank 1 has the result:
 * only its progress thread can run the rounds. `flag` is rank 1's, in shared memory. */
typedef struct rank_flag {
    _Alignas(64) _Atomic int set; /* results lie at multiples of 64 bytes */
} rank_flag;

static kolo_status thread_body(kolo_comm *none, const void *arg, void *result) {
    enum { LONG = 1 << 20 };
    float *data;
    kolo_comm *comm;
    kolo_request *q;
    kolo_comm_opts opts = ranks_own_opts();
    opts.progress_thread = true;
    KOLO_TRY(kolo_comm_create(&opts, &comm));
    assert_non_null(data = malloc(LONG * sizeof *data));
    rank_flag *flag = result;
    if (kolo_comm_rank(comm) == 0) flag++;
    fill(data, LONG, kolo_comm_rank(comm));
    KOLO_TRY(make(comm, data, LONG, KOLO_ALGORITHM_RING, "by the thread", &q));
    KOLO_TRY(kolo_request_start(q));
    if (kolo_comm_rank(comm) == 0) {
        while (!atomic_load(&flag->set)) sched_yield();
    }
    kolo_status status = kolo_request_wait(q, 0);
    if (kolo_comm_rank(comm) == 1) atomic_store(&flag->set, 1);
    if (status == KOLO_OK) status = check_sum(data, LONG, 2, "by the thread");
    kolo_comm_destroy(comm);
    free(data);
    return status;
}

static void a_thread_makes_progress_in_shared_memory(void **state) {
    rank_flag flags[2];
    rank_job job = {.n = 2,
                    .transport = RANKS_SHM,
                    .body = thread_body,
                    .bare = true,
                    .results = flags,
                    .result_bytes = sizeof flags[0]};
    ASSERT_OK(run_rank_job(&job));
}

/* ---- several in flight ---- */

/* More requests than the transport has places, over both algorithms, waited for from the last to
 * the first, twice: data of different requests never mixes. */
static kolo_status flight_body(kolo_comm *comm, const void *arg, void *result) {
    enum { REQUESTS = KOLO_FLIGHT_MAX + 9 };
    kolo_request *requests[REQUESTS];
    float *data[REQUESTS];
    int rank = kolo_comm_rank(comm);
    kolo_comm_set_tuning(comm, (kolo_comm_tuning){.chunk_bytes = 256, .eager_bytes = 200});
    for (int i = 0; i < REQUESTS; i++) {
        void *memory;
        size_t n = 1 + (size_t)i * 17;
        KOLO_TRY(kolo_comm_alloc(comm, n * sizeof(float), &memory));
        data[i] = memory;
        kolo_algorithm a = i % 3 ? KOLO_ALGORITHM_DIRECT : KOLO_ALGORITHM_RING;
        KOLO_TRY(make(comm, memory, n, a, "many", &requests[i]));
    }
    for (int repeat = 0; repeat < 3; repeat++) {
        for (int i = 0; i < REQUESTS; i++) {
            fill(data[i], 1 + (size_t)i * 17, rank);
            KOLO_TRY(kolo_request_start(requests[i]));
        }
        for (int i = REQUESTS - 1; i >= 0; i--) KOLO_TRY(kolo_request_wait(requests[i], 0));
        for (int i = 0; i < REQUESTS; i++) {
            KOLO_TRY(check_sum(data[i], 1 + (size_t)i * 17, kolo_comm_size(comm), "many"));
        }
    }
    return KOLO_OK;
}

static void requests_in_flight_do_not_mix(void **state) {
    for (int n = 1; n <= 4; n++) {
        ASSERT_OK(run_ranks(n, RANKS_THREAD, flight_body, NULL, 0));
        ASSERT_OK(run_ranks(n, RANKS_SHM, flight_body, NULL, 0));
        ASSERT_OK(run_ranks(n, RANKS_TCP, flight_body, NULL, 0));
        ASSERT_OK(run_ranks(n, RANKS_HOSTS, flight_body, NULL, 0));
    }
}

/* Ranks give time to their requests in different orders, and one is far ahead of the others. */
static kolo_status skew_body(kolo_comm *comm, const void *arg, void *result) {
    void *data;
    kolo_request *q;
    KOLO_TRY(kolo_comm_alloc(comm, 64, &data));
    KOLO_TRY(make(comm, data, 3, KOLO_ALGORITHM_DIRECT, "small", &q));
    for (int i = 0; i < 500; i++) { /* many times around all places */
        fill(data, 3, kolo_comm_rank(comm));
        KOLO_TRY(kolo_request_start(q));
        KOLO_TRY(kolo_request_wait(q, 0));
        KOLO_TRY(check_sum(data, 3, kolo_comm_size(comm), "small"));
        if (i % 64 == kolo_comm_rank(comm)) sched_yield();
    }
    return KOLO_OK;
}

static void places_are_used_again_safely(void **state) {
    for (int n = 2; n <= 4; n++) ASSERT_OK(run_ranks(n, RANKS_THREAD, skew_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_SHM, skew_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, skew_body, NULL, 0));
}

static int in_flight(kolo_comm *comm) {
    KOLO_COMM_LOCK_SCOPE(comm); /* of the progress thread */
    return comm->n_flight;
}

/* A start beyond the limit waits for room instead of failing, whenever the ranks come. */
static kolo_status limit_body(kolo_comm *none, const void *arg, void *result) {
    enum { REQUESTS = 12 };
    kolo_comm *comm;
    kolo_request *requests[REQUESTS];
    float data[REQUESTS][COUNT];
    kolo_comm_opts opts = ranks_own_opts();
    opts.max_in_flight = 3;
    KOLO_TRY(kolo_comm_create(&opts, &comm));
    for (int i = 0; i < REQUESTS; i++) {
        KOLO_TRY(make(comm, data[i], COUNT, KOLO_ALGORITHM_RING, "limited", &requests[i]));
        fill(data[i], COUNT, kolo_comm_rank(comm));
    }
    if (kolo_comm_rank(comm) == 1) kolo_sleep_ns(20000000);
    for (int i = 0; i < REQUESTS; i++) {
        KOLO_TRY(kolo_request_start(requests[i]));
        if (in_flight(comm) > 3) return KOLO_FAIL(KOLO_ERR_FORMAT, "more than 3 in flight");
    }
    for (int i = 0; i < REQUESTS; i++) {
        KOLO_TRY(kolo_request_wait(requests[i], 0));
        KOLO_TRY(check_sum(data[i], COUNT, kolo_comm_size(comm), "limited"));
    }
    kolo_comm_destroy(comm);
    return KOLO_OK;
}

static kolo_status other_limit_body(kolo_comm *none, const void *arg, void *result) {
    kolo_comm *comm;
    kolo_comm_opts opts = ranks_own_opts();
    opts.max_in_flight = 5 + ranks_own_rank();
    return kolo_comm_create(&opts, &comm);
}

static kolo_status other_algorithm_body(kolo_comm *none, const void *arg, void *result) {
    kolo_comm *comm;
    const kolo_comm_opts opts = ranks_own_opts();
    setenv("KOLO_ALGORITHM", ranks_own_rank() == 0 ? "tree" : "ring", 1);
    return kolo_comm_create(&opts, &comm);
}

static void ranks_of_different_algorithms_do_not_join(void **state) {
    rank_outcome outcomes[2];
    rank_job job = {.n = 2,
                    .transport = RANKS_SHM,
                    .body = other_algorithm_body,
                    .bare = true,
                    .outcomes = outcomes};
    assert_int_equal(run_rank_job(&job), KOLO_ERR_ARG);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(outcomes[r].status, KOLO_ERR_ARG);
        const char *text =
            "ranks 0 and 1 disagree on the algorithm (KOLO_ALGORITHM): tree and ring";
        if (!strstr(outcomes[r].error, text)) fail_msg("%s", outcomes[r].error);
    }
}

static void requests_beyond_the_limit_wait(void **state) {
    for (int t = RANKS_SHM; t <= RANKS_TCP; t++) {
        rank_job job = {.n = 3, .transport = (rank_transport)t, .body = limit_body, .bare = true};
        ASSERT_OK(run_rank_job(&job));
    }
    rank_outcome outcomes[2];
    rank_job other = {.n = 2,
                      .transport = RANKS_SHM,
                      .body = other_limit_body,
                      .bare = true,
                      .outcomes = outcomes};
    assert_int_equal(run_rank_job(&other), KOLO_ERR_ARG);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(outcomes[r].status, KOLO_ERR_ARG);
        assert_non_null(strstr(outcomes[r].error, "disagree on max_in_flight: 5 and 6"));
    }
}

/* ---- two threads ---- */

static void *receive_one(void *arg) {
    static char text[200];
    float data;
    kolo_status status = kolo_recv(arg, &data, 1, KOLO_DTYPE_F32, 1, 0);
    snprintf(text, sizeof text, "%d %s", (int)status, kolo_last_error());
    return text;
}

/* Refusing one of two calls would leave the other one to be matched with any call of a peer. */
static void calls_of_two_threads_break_the_communicator(void **state) {
    static const char want[] = "two threads use the communicator of rank 0 at once";
    kolo_comm *comms[2];
    pthread_t thread;
    void *received;
    float x = 7;
    ASSERT_OK(kolo_comm_create_threads(2, NULL, comms));
    pthread_create(&thread, NULL, receive_one, comms[0]);
    while (!atomic_load(&comms[0]->user)) sched_yield();
    assert_int_equal(kolo_allreduce(comms[0], &x, 1, KOLO_DTYPE_F32, KOLO_SUM), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), want));
    pthread_join(thread, &received);
    assert_int_equal(strtol(received, NULL, 10), KOLO_ERR_ARG);
    assert_non_null(strstr(received, want));
    assert_int_equal(kolo_barrier(comms[1]), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), want));
    for (int r = 0; r < 2; r++) kolo_comm_destroy(comms[r]);
}

/* ---- sends ahead of their round ---- */

/* In a ring of 3 rank 2 starts last. Rank 0's first round waits for it, yet the second message goes
 * to rank 1 meanwhile, and no third one. */
static kolo_status ahead_body(kolo_comm *comm, const void *arg, void *result) {
    enum { CHUNK = 64, N = 3 * 4 * CHUNK };
    float data[N];
    kolo_request *q;
    int32_t go = 0;
    int rank = kolo_comm_rank(comm);
    kolo_comm_set_tuning(comm, (kolo_comm_tuning){.chunk_bytes = CHUNK * sizeof(float)});
    KOLO_TRY(make(comm, data, N, KOLO_ALGORITHM_RING, "ahead", &q));
    fill(data, N, rank);
    if (rank == 2) KOLO_TRY(kolo_recv(comm, &go, 1, KOLO_DTYPE_I32, 0, 0));
    KOLO_TRY(kolo_request_start(q));
    int64_t until_ns = kolo_now_ns() + 10000000000;
    while (rank == 0 && kolo_request_traffic(q).sent < 2 * CHUNK && kolo_now_ns() < until_ns) {
        KOLO_TRY(kolo_comm_progress(comm));
        sched_yield();
    }
    uint64_t sent = kolo_request_traffic(q).sent;
    if (rank == 0) KOLO_TRY(kolo_send(comm, &go, 1, KOLO_DTYPE_I32, 2, 0));
    KOLO_TRY(kolo_request_wait(q, 0));
    KOLO_TRY(check_sum(data, N, 3, "ahead"));
    if (rank != 0 || sent == 2 * CHUNK) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%llu elements went ahead", (unsigned long long)sent);
}

static void a_send_may_go_before_its_round(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_TCP, ahead_body, NULL, 0));
}

/* ---- gates ---- */

typedef struct gate_state {
    bool open;
    int asked;
} gate_state;

static bool gate(void *arg, const kolo_request *request) {
    gate_state *g = arg;
    g->asked++;
    return g->open || strcmp(kolo_request_site(request), "held") != 0;
}

/* A held request stays in flight, whatever is done; another that was started later overtakes it. */
static kolo_status gate_body(kolo_comm *comm, const void *arg, void *result) {
    gate_state g = {.open = false};
    float held_data[300], free_data[300];
    kolo_request *held, *later;
    bool complete = false;
    int rank = kolo_comm_rank(comm), size = kolo_comm_size(comm);
    kolo_comm_set_gate(comm, gate, &g);
    fill(held_data, 300, rank);
    fill(free_data, 300, rank);
    KOLO_TRY(make(comm, held_data, 300, KOLO_ALGORITHM_DIRECT, "held", &held));
    KOLO_TRY(make(comm, free_data, 300, KOLO_ALGORITHM_DIRECT, "free", &later));
    KOLO_TRY(kolo_request_start(held));
    KOLO_TRY(kolo_request_start(later));
    KOLO_TRY(kolo_request_wait(later, 0));
    KOLO_TRY(check_sum(free_data, 300, size, "free"));
    for (int i = 0; i < 100; i++) {
        KOLO_TRY(kolo_request_test(held, &complete));
        if (complete) return KOLO_FAIL(KOLO_ERR_FORMAT, "a held request has completed");
    }
    if (g.asked < 100) return KOLO_FAIL(KOLO_ERR_FORMAT, "the gate was asked %d times", g.asked);
    g.open = true;
    KOLO_TRY(kolo_request_wait(held, 0));
    return check_sum(held_data, 300, size, "held");
}

static void a_gate_holds_requests_by_order_not_by_time(void **state) {
    for (int n = 1; n <= 3; n++) ASSERT_OK(run_ranks(n, RANKS_THREAD, gate_body, NULL, 0));
}

/* ---- missing entries ---- */

typedef struct removal {
    int rank;
    size_t entry;
    kolo_algorithm algorithm;
} removal;

/* A rank that gave up may still be read by one that was held up: the data outlive the threads. */
typedef struct removal_result {
    size_t n_entries;
    float data[64];
} removal_result;

/* Runs a schedule that lacks one entry: a result that is right must not come out on all ranks. */
static kolo_status removal_body(kolo_comm *comm, const void *arg, void *result) {
    const removal *r = arg;
    removal_result *mine = result;
    float *data = mine->data;
    kolo_request *q;
    kolo_comm_set_tuning(comm, (kolo_comm_tuning){.chunk_bytes = 32, .eager_bytes = 1});
    fill(data, 64, kolo_comm_rank(comm));
    KOLO_TRY(make(comm, data, 64, r->algorithm, "incomplete", &q));
    kolo_schedule *s = kolo_request_schedule(q);
    mine->n_entries = s->n_entries;
    if (kolo_comm_rank(comm) == r->rank && r->entry < s->n_entries) {
        /* Without a barrier this rank would read while others write: left to the schedule check. */
        if (s->entries[r->entry].kind == KOLO_ENTRY_BARRIER) return KOLO_ERR_PEER;
        kolo_schedule_remove(s, r->entry);
    }
    KOLO_TRY(kolo_request_start(q));
    KOLO_TRY(kolo_request_wait(q, 0));
    return check_sum(data, 64, kolo_comm_size(comm), "incomplete");
}

static kolo_status run_removal(int n, const removal *r, size_t *n_entries) {
    removal_result results[8];
    kolo_status status = run_rank_job(&(rank_job){.n = n,
                                                  .transport = RANKS_THREAD,
                                                  .body = removal_body,
                                                  .arg = r,
                                                  .arg_bytes = sizeof *r,
                                                  .results = results,
                                                  .result_bytes = sizeof results[0],
                                                  .timeout_ms = r->entry == SIZE_MAX ? 20000 : 60});
    *n_entries = results[r->rank].n_entries;
    return status;
}

static void a_real_run_fails_without_any_one_entry(void **state) {
#ifdef __SANITIZE_THREAD__
    print_message(
        "skip: without an entry ranks race, which the thread sanitizer rightly reports\n");
    skip();
#endif
    for (int a = KOLO_ALGORITHM_RING; a < KOLO_ALGORITHM_COUNT; a++) {
        for (int n = 2; n <= 3; n++) {
            removal r = {.rank = n - 1, .entry = SIZE_MAX, .algorithm = (kolo_algorithm)a};
            size_t n_entries;
            ASSERT_OK(run_removal(n, &r, &n_entries));
            assert_true(n_entries > 0);
            for (r.entry = 0; r.entry < n_entries; r.entry++) {
                size_t same;
                kolo_status status = run_removal(n, &r, &same);
                if (status == KOLO_OK) {
                    fail_msg("%s with %d ranks is right without entry %zu of rank %d",
                             kolo_algorithm_name(r.algorithm), n, r.entry, r.rank);
                }
                assert_true(status == KOLO_ERR_FORMAT || status == KOLO_ERR_TIMEOUT ||
                            status == KOLO_ERR_PEER);
            }
        }
    }
}

/* ---- what is refused ---- */

static void wrong_use_is_refused(void **state) {
    kolo_comm *comm;
    kolo_request *q;
    float data[4] = {0};
    kolo_part part = {.data = data, .count = 4}, none = {.data = NULL, .count = 4};
    ASSERT_OK(kolo_comm_create_threads(1, NULL, &comm));
    assert_string_equal(kolo_comm_transport(comm), "self");
    assert_int_equal(kolo_allreduce(comm, data, 4, (kolo_dtype)99, KOLO_SUM), KOLO_ERR_ARG);
    assert_int_equal(kolo_allreduce(comm, data, 4, KOLO_DTYPE_F32, (kolo_reduce_op)9),
                     KOLO_ERR_ARG);
    assert_int_equal(kolo_allreduce(comm, NULL, 4, KOLO_DTYPE_F32, KOLO_SUM), KOLO_ERR_ARG);
    assert_int_equal(kolo_allreduce(comm, data, SIZE_MAX / 2, KOLO_DTYPE_F32, KOLO_SUM),
                     KOLO_ERR_ARG);
    assert_int_equal(kolo_broadcast(comm, data, 4, KOLO_DTYPE_F32, 1), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "root 1 outside [0, 1)"));
    assert_int_equal(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM,
                                           (kolo_algorithm)99, "x", &q),
                     KOLO_ERR_ARG);
    assert_int_equal(kolo_allreduce_create(comm, &none, 1, KOLO_DTYPE_F32, KOLO_SUM,
                                           KOLO_ALGORITHM_AUTO, "x", &q),
                     KOLO_ERR_ARG);
    assert_int_equal(kolo_comm_create_threads(0, NULL, &comm), KOLO_ERR_ARG);
    ASSERT_OK(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, KOLO_ALGORITHM_AUTO,
                                    "x", &q));
    assert_int_equal(kolo_request_wait(q, -1), KOLO_ERR_ARG);
    gate_state g = {.open = false};
    kolo_request *held;
    ASSERT_OK(kolo_barrier_create(comm, "held", &held));
    kolo_comm_set_gate(comm, gate, &g);
    ASSERT_OK(kolo_request_start(held));
    assert_int_equal(kolo_request_start(held), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "is in flight: wait"));
    kolo_request_destroy(held); /* breaks the communicator: peers would wait for ever */
    assert_int_equal(kolo_request_start(q), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "destroyed while in flight"));
    kolo_request_destroy(NULL);
    kolo_comm_destroy(comm); /* frees q */
    kolo_comm_destroy(NULL);
}

/* ---- deadlines ---- */

static kolo_status patience_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_request *q;
    if (kolo_comm_rank(comm) == 1) kolo_sleep_ns(20000000);
    KOLO_TRY(kolo_barrier_create(comm, "patience", &q));
    KOLO_TRY(kolo_request_start(q));
    return kolo_request_wait(q, INT64_MAX);
}

static void a_deadline_may_be_as_far_as_can_be(void **state) {
    for (int t = RANKS_THREAD; t <= RANKS_TCP; t++) {
        ASSERT_OK(run_rank_job(&(rank_job){.n = 2,
                                           .transport = (rank_transport)t,
                                           .body = patience_body,
                                           .timeout_ms = INT64_MAX,
                                           .heartbeat_ms = INT64_MAX}));
    }
}

/* Heartbeats are sent four times in their period, by the progress thread alone if the rank is idle.
 */
static void the_thread_wakes_for_any_heartbeat(void **state) {
    static const int64_t heartbeats_ms[] = {100, 150, 1000, 10000, INT64_MAX};
    for (size_t i = 0; i < KOLO_COUNT(heartbeats_ms); i++) {
        int64_t tick_ns = kolo_progress_tick_ns(heartbeats_ms[i]);
        assert_true(tick_ns >= 1000000 && tick_ns <= 100000000);
        assert_true(tick_ns / 1000000 <= heartbeats_ms[i] / 8);
    }
}

/* ---- memory ---- */

static void registered_memory_is_zeroed_aligned_and_bounded(void **state) {
    kolo_comm *comm;
    ASSERT_OK(kolo_comm_create_threads(1, &(kolo_comm_opts){.segment_bytes = 16 << 20}, &comm));
    void *a, *b;
    ASSERT_OK(kolo_comm_alloc(comm, 100, &a));
    ASSERT_OK(kolo_comm_alloc(comm, 10000, &b));
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 4096, 0);
    for (int i = 0; i < 10000; i++) assert_int_equal(((char *)b)[i], 0);
    assert_int_equal(kolo_comm_alloc(comm, 16 << 20, &b), KOLO_ERR_NOMEM);
    assert_non_null(strstr(kolo_last_error(), "registered memory"));
    assert_int_equal(kolo_comm_alloc(comm, SIZE_MAX, &b), KOLO_ERR_NOMEM);
    ASSERT_OK(kolo_comm_alloc(comm, 0, &b));
    kolo_segment *segment = &comm->transport->segment;
    for (int k = 25; k < 64; k++) { /* working blocks have the sizes of vectors */
        assert_int_equal(kolo_segment_take(segment, (size_t)1 << k, &b), KOLO_ERR_NOMEM);
    }
    kolo_comm_destroy(comm);
}

/* Fails each allocation in turn, of a group and of each kind of request; nothing is lost or broken.
 */
static void creation_survives_lack_of_memory(void **state) {
    kolo_comm_opts opts = {.segment_bytes = 16 << 20};
    kolo_status status = KOLO_ERR_NOMEM;
    for (long nth = 1; status != KOLO_OK; nth++) {
        kolo_comm *comms[3];
        kolo_alloc_fail_nth(nth);
        status = kolo_comm_create_threads(3, &opts, comms);
        kolo_alloc_fail_nth(0);
        assert_true(status == KOLO_OK || status == KOLO_ERR_NOMEM);
        for (int r = 0; r < 3 && status == KOLO_OK; r++) kolo_comm_destroy(comms[r]);
    }
    kolo_comm *comms[2];
    ASSERT_OK(kolo_comm_create_threads(2, &opts, comms));
    float data[1000];
    kolo_part parts[2] = {{.data = data, .count = 300}, {.data = data + 300, .count = 700}};
    for (int a = KOLO_ALGORITHM_RING; a < KOLO_ALGORITHM_COUNT; a++) {
        status = KOLO_ERR_NOMEM;
        for (long nth = 1; status != KOLO_OK; nth++) {
            kolo_request *q;
            kolo_alloc_fail_nth(nth);
            status = kolo_allreduce_create(comms[0], parts, 2, KOLO_DTYPE_F32, KOLO_SUM,
                                           (kolo_algorithm)a, "x", &q);
            kolo_alloc_fail_nth(0);
            assert_true(status == KOLO_OK || status == KOLO_ERR_NOMEM);
            if (status == KOLO_OK) kolo_request_destroy(q);
        }
    }
    for (int r = 0; r < 2; r++) kolo_comm_destroy(comms[r]);
}

TEST_MAIN(test_comm_engine) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_alone_completes_a_request),
        cmocka_unit_test(a_thread_makes_progress_in_shared_memory),
        cmocka_unit_test(requests_in_flight_do_not_mix),
        cmocka_unit_test(requests_beyond_the_limit_wait),
        cmocka_unit_test(ranks_of_different_algorithms_do_not_join),
        cmocka_unit_test(calls_of_two_threads_break_the_communicator),
        cmocka_unit_test(places_are_used_again_safely),
        cmocka_unit_test(a_send_may_go_before_its_round),
        cmocka_unit_test(a_gate_holds_requests_by_order_not_by_time),
        cmocka_unit_test(a_real_run_fails_without_any_one_entry),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(a_deadline_may_be_as_far_as_can_be),
        cmocka_unit_test(the_thread_wakes_for_any_heartbeat),
        cmocka_unit_test(registered_memory_is_zeroed_aligned_and_bounded),
        cmocka_unit_test(creation_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("comm_engine", tests, NULL, NULL);
}
