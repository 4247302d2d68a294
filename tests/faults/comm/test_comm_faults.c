/* What goes wrong after the group has formed: ranks killed, left, late, or out of step. */
#include "base/clock.h"
#include "base/process.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/watch.h"
#include "support/ranks.h"
#include "support/support.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, VICTIM = 1 };

/* Every rank but the victim must fail with `status`, and with each of the texts in its line. */
static void check_survivors(const rank_outcome *outcomes, int n, int victim, kolo_status status,
                            const char *first, const char *second) {
    for (int r = 0; r < n; r++) {
        if (r == victim) continue;
        const rank_outcome *o = &outcomes[r];
        if (o->status != status || !strstr(o->error, first) || !strstr(o->error, second) ||
            strchr(o->error, '\n')) {
            fail_msg("rank %d: status %d, signal %d: %s", r, o->status, o->signal, o->error);
        }
    }
}

static void run_faulty(int n, rank_transport transport, rank_body body, int64_t timeout_ms,
                       rank_outcome *outcomes, void *results, size_t result_bytes) {
    kolo_status status = run_rank_job(&(rank_job){.n = n,
                                                  .transport = transport,
                                                  .body = body,
                                                  .outcomes = outcomes,
                                                  .timeout_ms = timeout_ms,
                                                  .results = results,
                                                  .result_bytes = result_bytes});
    assert_int_not_equal(status, KOLO_OK);
}

/* ---- a killed rank ---- */

/* While the progress thread is active, the call has nothing to do and returns OK. */
static kolo_status progress_until_it_fails(kolo_comm *comm) {
    kolo_status status;
    do {
        status = kolo_comm_progress(comm);
    } while (status == KOLO_OK);
    return status;
}

/* Moves buckets around until the victim kills itself; survivors then try again, and must fail
 * again. */
static kolo_status killed_body(kolo_comm *comm, const void *arg, void *result) {
    void *data;
    kolo_request *q[2];
    KOLO_TRY(kolo_comm_alloc(comm, 1 << 20, &data));
    for (int i = 0; i < 2; i++) {
        kolo_part part = {.data = (char *)data + (i << 19), .count = 1 << 17};
        KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM,
                                       i || !comm->transport->windows ? KOLO_ALGORITHM_RING
                                                                      : KOLO_ALGORITHM_DIRECT,
                                       i ? "bucket 1" : "bucket 0", &q[i]));
    }
    kolo_status status = KOLO_OK;
    for (int step = 0; step < 100000 && status == KOLO_OK; step++) {
        if (step == 20 && kolo_comm_rank(comm) == VICTIM) {
            KOLO_TRY(kolo_request_start(q[0])); /* its announcement is out */
            *(int64_t *)result = kolo_now_ns();
            raise(SIGKILL);
        }
        for (int i = 0; i < 2 && status == KOLO_OK; i++) status = kolo_request_start(q[i]);
        for (int i = 0; i < 2 && status == KOLO_OK; i++) status = kolo_request_wait(q[i], 0);
    }
    *(int64_t *)result = kolo_now_ns();
    char text[sizeof((rank_outcome){0}.error)];
    strncpy(text, kolo_last_error(), sizeof text - 1);
    text[sizeof text - 1] = '\0';
    float x = 0;
    if (kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM) != status ||
        kolo_request_start(q[0]) != status || progress_until_it_fails(comm) != status ||
        strcmp(text, kolo_last_error()) != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "later calls do not fail alike: %d %.200s; %.200s",
                         (int)status, text, kolo_last_error());
    }
    return status;
}

static void every_survivor_names_the_killed_rank(void **state) {
    for (int t = RANKS_SHM; t <= RANKS_HOSTS_UCX; t++) {
        if (!ranks_have((rank_transport)t)) continue;
        rank_outcome outcomes[RANKS];
        int64_t times[RANKS];
        run_faulty(RANKS, (rank_transport)t, killed_body, 30000, outcomes, times, sizeof times[0]);
        assert_int_equal(outcomes[VICTIM].signal, SIGKILL);
        check_survivors(outcomes, RANKS, VICTIM, KOLO_ERR_PEER, "rank 1 is gone (",
                        "while waiting in allreduce 'bucket ");
        for (int r = 0; r < RANKS; r++) { /* long before the deadline of 30 s: seen, not timed */
            assert_true(times[r] - times[VICTIM] < (int64_t)5 * 1000000000);
        }
    }
}

/* A rank dies while a child that it has forked lives. The child waits until rank 0 has detected the
 * death, and reports that it still lived; its communicator is inert. */
typedef struct fork_flag {
    _Alignas(64) _Atomic int set; /* results lie at multiples of 64 bytes */
} fork_flag;

static void run_child(kolo_comm *comm, fork_flag *own) {
    float x = 0;
    bool inert = kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM) == KOLO_ERR_ARG &&
                 strstr(kolo_last_error(), "belongs to the parent process");
    kolo_comm_destroy(comm);
    for (int ms = 0; ms < 30000 && !atomic_load(&(own - 1)->set); ms++) {
        kolo_sleep_ns(1000000);
    }
    atomic_store(&own->set, inert ? 1 : 2);
    _exit(0);
}

static kolo_status forked_body(kolo_comm *comm, const void *arg, void *result) {
    fork_flag *own = result;
    kolo_comm *sub;
    KOLO_TRY(kolo_comm_split(comm, 0, 0, &sub));
    KOLO_TRY(kolo_barrier(comm));
    if (kolo_comm_rank(comm) == VICTIM) {
        if (fork() == 0) run_child(comm, own);
        raise(SIGKILL);
    }
    kolo_status status = kolo_barrier(sub);
    char text[200];
    strncpy(text, kolo_last_error(), sizeof text - 1);
    text[sizeof text - 1] = '\0';
    atomic_store(&own->set, 1);
    while (!atomic_load(&(own + VICTIM)->set)) {
        kolo_sleep_ns(1000000);
    }
    if (atomic_load(&(own + VICTIM)->set) != 1) return KOLO_FAIL(KOLO_ERR_FORMAT, "not inert");
    return KOLO_FAIL(status, "%s", text);
}

static void a_death_is_detected_while_a_child_lives(void **state) {
    for (int t = RANKS_SHM; t <= RANKS_TCP; t += RANKS_TCP - RANKS_SHM) {
        rank_outcome outcomes[2];
        fork_flag flags[2];
        run_faulty(2, (rank_transport)t, forked_body, 0, outcomes, flags, sizeof flags[0]);
        check_survivors(outcomes, 2, VICTIM, KOLO_ERR_PEER, "rank 1", "is gone (");
    }
}

/* ---- a rank that leaves ---- */

static kolo_status leaver_body(kolo_comm *comm, const void *arg, void *result) {
    KOLO_TRY(kolo_barrier(comm));
    if (kolo_comm_rank(comm) == VICTIM) return KOLO_OK; /* destroys its communicator */
    return kolo_barrier(comm);
}

static void leaving_early_differs_from_dying(void **state) {
    for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
        if (!ranks_have((rank_transport)t)) continue;
        rank_outcome outcomes[RANKS];
        run_faulty(RANKS, (rank_transport)t, leaver_body, 30000, outcomes, NULL, 0);
        assert_int_equal(outcomes[VICTIM].status, KOLO_OK);
        check_survivors(outcomes, RANKS, VICTIM, KOLO_ERR_PEER, "rank 1 has left the group",
                        "while waiting in barrier");
    }
}

static kolo_status in_order_body(kolo_comm *comm, const void *arg, void *result) {
    for (int i = 0; i < 20; i++) KOLO_TRY(kolo_barrier(comm));
    return KOLO_OK; /* the first rank leaves while others may still be in the last collective */
}

static void leaving_in_order_is_no_failure(void **state) {
    for (int i = 0; i < 5; i++) {
        ASSERT_OK(run_ranks(RANKS, RANKS_SHM, in_order_body, NULL, 0));
        ASSERT_OK(run_ranks(RANKS, RANKS_TCP, in_order_body, NULL, 0));
        ASSERT_OK(run_ranks(RANKS, RANKS_HOSTS, in_order_body, NULL, 0));
        if (ranks_have(RANKS_UCX)) ASSERT_OK(run_ranks(RANKS, RANKS_UCX, in_order_body, NULL, 0));
        ASSERT_OK(run_ranks(RANKS, RANKS_THREAD, in_order_body, NULL, 0));
    }
}

/* ---- ranks out of step ---- */

typedef enum difference {
    COUNT,
    DTYPE,
    OP,
    SITE,
    KIND,
    ROOT,
    PARTS,
    ALGORITHM,
    DIFFERENCES
} difference;

static kolo_status start_and_wait(kolo_request *q) {
    KOLO_TRY(kolo_request_start(q));
    return kolo_request_wait(q, 0);
}

/* Rank VICTIM differs from the others in one thing. */
static kolo_status mismatch_body(kolo_comm *comm, const void *arg, void *result) {
    difference d;
    memcpy(&d, arg, sizeof d);
    if (kolo_comm_rank(comm) != VICTIM) d = DIFFERENCES;
    static const float zeros[400];
    float data[400];
    memcpy(data, zeros, sizeof data);
    kolo_part parts[2] = {{.data = data, .count = d == COUNT ? 399 : 400}, {0}};
    if (d == PARTS) {
        parts[0].count = 200;
        parts[1] = (kolo_part){.data = data + 200, .count = 200};
    }
    kolo_request *q;
    if (d == KIND || d == ROOT) {
        KOLO_TRY(kolo_broadcast_create(comm, parts, 1, KOLO_DTYPE_F32, 1, "gradient", &q));
    } else {
        KOLO_TRY(kolo_allreduce_create(comm, parts, d == PARTS ? 2 : 1,
                                       d == DTYPE ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32,
                                       d == OP ? KOLO_MAX : KOLO_SUM,
                                       d == ALGORITHM ? KOLO_ALGORITHM_RING : KOLO_ALGORITHM_DIRECT,
                                       d == SITE ? "other place" : "gradient", &q));
    }
    return start_and_wait(q);
}

static void a_mismatch_shows_both_sides_on_all_ranks(void **state) {
    for (int d = 0; d < DIFFERENCES; d++) {
        for (int t = RANKS_THREAD; t <= RANKS_SHM; t++) {
            rank_outcome outcomes[RANKS];
            difference which = (difference)d;
            kolo_status status = run_rank_job(&(rank_job){.n = RANKS,
                                                          .transport = (rank_transport)t,
                                                          .body = mismatch_body,
                                                          .arg = &which,
                                                          .arg_bytes = sizeof which,
                                                          .outcomes = outcomes});
            assert_int_equal(status, KOLO_ERR_ARG);
            check_survivors(outcomes, RANKS, -1, KOLO_ERR_ARG, "ranks disagree on collective 0",
                            "'gradient'");
            check_survivors(outcomes, RANKS, -1, KOLO_ERR_ARG, "rank 1", "rank ");
            if (which == PARTS)
                check_survivors(outcomes, RANKS, -1, KOLO_ERR_ARG, ", with other parts",
                                "gradient");
        }
    }
}

/* ---- late ranks ---- */

/* A short deadline for waits only: ranks of a busy machine may take longer to join. */
static void shorten_waits(kolo_comm *comm, int64_t ms) { comm->timeout_ns = ms * 1000000; }

/* The victim never starts what the others wait for. */
static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    float x[1000] = {0};
    KOLO_TRY(kolo_barrier(comm));
    shorten_waits(comm, 700);
    kolo_part part = {.data = x, .count = 1000};
    kolo_request *q;
    KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, KOLO_ALGORITHM_RING,
                                   "bucket 7", &q));
    if (kolo_comm_rank(comm) == VICTIM) {
        kolo_status status; /* of the others' failure; progress may be made by another thread */
        while ((status = kolo_comm_watch(comm)) == KOLO_OK) kolo_sleep_ns(1000000);
        return status;
    }
    return start_and_wait(q);
}

/* Rank 1 starts what rank 0 has given up. */
static kolo_status too_late_body(kolo_comm *comm, const void *arg, void *result) {
    float x = 1;
    KOLO_TRY(kolo_barrier(comm));
    if (kolo_comm_rank(comm) == 0) shorten_waits(comm, 100);
    while (kolo_comm_rank(comm) == 1 && !atomic_load(comm->transport->alarm))
        kolo_sleep_ns(1000000);
    return kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM);
}

static void a_late_rank_does_not_complete_what_has_timed_out(void **state) {
    for (int t = RANKS_THREAD; t <= RANKS_TCP; t++) {
        rank_outcome outcomes[2];
        run_faulty(2, (rank_transport)t, too_late_body, 0, outcomes, NULL, 0);
        check_survivors(outcomes, 2, -1, KOLO_ERR_TIMEOUT, "waited 0.", "not started by rank 1");
    }
}

static void a_deadline_reports_who_waits_for_whom(void **state) {
    for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
        if (!ranks_have((rank_transport)t)) continue;
        rank_outcome outcomes[RANKS];
        run_faulty(RANKS, (rank_transport)t, late_body, 0, outcomes, NULL, 0);
        /* Over TCP ranks publish their progress only from time to time. */
        const char *who = t <= RANKS_SHM ? "sequence 1: not started by rank 1 (finished 1 "
                                           "collective, last barrier)"
                                         : "sequence 1: not started by rank 1 (finished ";
        check_survivors(outcomes, RANKS, -1, KOLO_ERR_TIMEOUT, "in allreduce 'bucket 7'", who);
        check_survivors(outcomes, RANKS, -1, KOLO_ERR_TIMEOUT, "waited 0.", "--timeout");
        for (int r = 0; r < RANKS; r++) { /* a rank does not speak of itself by number */
            char own[32];
            snprintf(own, sizeof own, "rank %d waited", r);
            assert_null(strstr(outcomes[r].error, own));
        }
    }
}

/* Waits in a barrier until the report that this process requested has been written. */
static kolo_status report_in_barrier(kolo_comm *comm, int fd, char *text, size_t bytes) {
    kolo_request *barrier;
    KOLO_TRY(kolo_barrier_create(comm, NULL, &barrier));
    kolo_status status = kolo_request_start(barrier);
    kill(getpid(), SIGUSR1);
    while (status == KOLO_OK && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 1) == 0) {
        status = kolo_comm_progress(comm);
    }
    if (status == KOLO_OK && read(fd, text, bytes) <= 0) {
        status = KOLO_FAIL(KOLO_ERR_IO, "no report");
    }
    int32_t go = 1; /* now the victim may come */
    if (status == KOLO_OK) status = kolo_send(comm, &go, 1, KOLO_DTYPE_I32, VICTIM, 7);
    if (status == KOLO_OK) status = kolo_request_wait(barrier, 0);
    kolo_request_destroy(barrier);
    return status;
}

static kolo_status late_barrier(kolo_comm *comm) {
    for (int r = 0; r < RANKS; r++) {
        int32_t go;
        if (r != VICTIM) KOLO_TRY(kolo_recv(comm, &go, 1, KOLO_DTYPE_I32, r, 7));
    }
    return kolo_barrier(comm);
}

/* The victim comes when the others have seen a report of what they wait for, which goes to a pipe.
 * Then each makes one while nothing is in flight. */
static kolo_status report_body(kolo_comm *none, const void *arg, void *result) {
    kolo_comm *comm;
    int fds[2];
    char text[1024] = "";
    KOLO_TRY(kolo_pipe(fds));
    kolo_comm_opts opts = {.timeout_ms = 10000, .report_signal = SIGUSR1, .report_fd = fds[1]};
    KOLO_TRY(kolo_comm_create(&opts, &comm));
    kolo_status status = kolo_barrier(comm);
    bool victim = kolo_comm_rank(comm) == VICTIM;
    if (status == KOLO_OK) {
        status =
            victim ? late_barrier(comm) : report_in_barrier(comm, fds[0], text, sizeof text - 1);
    }
    kolo_comm_report(comm, (char *)result, 256);
    memcpy((char *)result + 256, text, 768);
    kolo_comm_destroy(comm);
    close(fds[0]);
    close(fds[1]);
    return status;
}

static void a_signal_asks_for_a_report(void **state) {
    static char reports[RANKS][1024];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_SHM,
                    .body = report_body,
                    .bare = true,
                    .results = reports,
                    .result_bytes = sizeof reports[0]};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < RANKS; r++) {
        char start[64], idle[96];
        snprintf(idle, sizeof idle,
                 "rank %d of 3 waits for no rank; it finished 2 collectives, last barrier", r);
        assert_string_equal(reports[r], idle);
        if (r == VICTIM) continue;
        snprintf(start, sizeof start, "kolo: rank %d of 3 waits in barrier, sequence 1: ", r);
        const char *line = reports[r] + 256;
        assert_memory_equal(line, start, strlen(start));
        /* The published state of the others depends on timing. */
        assert_non_null(strstr(line, "not started by "));
        assert_non_null(strstr(line, "rank 1 (finished "));
        assert_non_null(strstr(line, "; this rank finished 1 collective, last barrier\n"));
    }
}

static kolo_status pair_killed_late(kolo_comm *comm, const void *arg, void *result) {
    KOLO_TRY(kolo_barrier(comm));
    shorten_waits(comm, 500);
    if (kolo_comm_rank(comm) == VICTIM) {
        alarm(3);
        pause(); /* alive without progress */
    }
    return kolo_barrier(comm);
}

static void a_silent_rank_is_a_timeout_not_a_hang(void **state) {
    rank_outcome outcomes[RANKS];
    run_faulty(RANKS, RANKS_SHM, pair_killed_late, 0, outcomes, NULL, 0);
    assert_int_equal(outcomes[VICTIM].signal, SIGALRM);
    check_survivors(outcomes, RANKS, VICTIM, KOLO_ERR_TIMEOUT, "in barrier",
                    "not started by rank 1");
}

/* Over a network a rank that is alive may still be out of reach: here it stands still. Its
 * connections stay open, with data in flight on them. */
static kolo_status still_body(kolo_comm *comm, const void *arg, void *result) {
    void *data;
    KOLO_TRY(kolo_comm_alloc(comm, 8 << 20, &data));
    for (int step = 0; step < 100000; step++) {
        if (step == 3 && kolo_comm_rank(comm) == VICTIM) {
            *(pid_t *)result = getpid();
            raise(SIGSTOP);
        }
        KOLO_TRY(kolo_allreduce(comm, data, 2 << 20, KOLO_DTYPE_F32, KOLO_SUM));
    }
    return KOLO_OK;
}

static kolo_status still_or_wake_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_status status = still_body(comm, arg, result);
    if (kolo_comm_rank(comm) == 0) { /* the results of the ranks lie side by side */
        pid_t *victim = (pid_t *)((char *)result + VICTIM * 64);
        kill(*victim, SIGKILL);
    }
    return status;
}

static void check_still(rank_transport transport) {
    rank_outcome outcomes[RANKS];
    pid_t pids[RANKS];
    kolo_status status = run_rank_job(&(rank_job){.n = RANKS,
                                                  .transport = transport,
                                                  .body = still_or_wake_body,
                                                  .outcomes = outcomes,
                                                  .timeout_ms = 30000,
                                                  .heartbeat_ms = 1500,
                                                  .results = pids,
                                                  .result_bytes = sizeof pids[0]});
    assert_int_equal(status, KOLO_ERR_PEER);
    assert_int_equal(outcomes[VICTIM].signal, SIGKILL);
    check_survivors(outcomes, RANKS, VICTIM, KOLO_ERR_PEER, "rank 1 is gone (",
                    "while waiting in allreduce");
}

static void a_rank_that_stands_still_is_lost_after_the_heartbeat(void **state) {
    check_still(RANKS_TCP);
    if (ranks_have(RANKS_UCX)) check_still(RANKS_UCX);
}

/* ---- the next generation ---- */

/* Joins as rank `rank` of `world` in a generation of its own, adds up, and leaves. */
static kolo_status join_generation(uint32_t generation, int rank, int world, int64_t timeout_ms) {
    kolo_comm *comm;
    kolo_comm_opts opts = ranks_own_opts();
    opts.generation = generation;
    opts.rank = rank;
    opts.world = world;
    opts.master_addr = "127.0.0.1";
    opts.master_port = atoi(getenv("MASTER_PORT"));
    opts.secret_file = getenv("KOLO_SECRET_FILE");
    opts.timeout_ms = timeout_ms;
    KOLO_TRY(kolo_comm_create(&opts, &comm));
    float x = 1;
    kolo_status status = kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM);
    if (status == KOLO_OK && x != (float)world) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "generation %u sums to %g", generation, (double)x);
    }
    kolo_comm_destroy(comm);
    return status;
}

/* Four ranks: 1 is killed, the others go on as three; then 3, which has left, comes back as a
 * newcomer, first with the number of a generation that is over. */
static kolo_status generations_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = ranks_own_rank();
    kolo_comm *first;
    kolo_comm_opts opts = ranks_own_opts();
    KOLO_TRY(kolo_comm_create(&opts, &first));
    kolo_status status = kolo_barrier(first);
    if (rank == VICTIM) raise(SIGKILL);
    if (status == KOLO_OK) status = kolo_barrier(first);
    kolo_comm_destroy(first);
    if (status != KOLO_ERR_PEER) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "status %d, not a lost peer", status);
    }
    int now = rank > VICTIM ? rank - 1 : rank;
    KOLO_TRY(join_generation(1, now, 3, 20000));
    if (rank < 3) return join_generation(2, now, 3, 20000);
    if (join_generation(1, 2, 3, 20000) != KOLO_ERR_ARG ||
        !strstr(kolo_last_error(),
                "this is generation 2 of the group; rank 2 belongs to generation 1")) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a stale member was let in: %s", kolo_last_error());
    }
    return join_generation(2, 2, 3, 20000);
}

static void survivors_and_newcomers_form_the_next_generation(void **state) {
    for (int t = RANKS_SHM; t <= RANKS_HOSTS_UCX; t++) {
        if (!ranks_have((rank_transport)t)) continue;
        rank_outcome outcomes[4];
        (void)run_rank_job(&(rank_job){.n = 4,
                                       .transport = (rank_transport)t,
                                       .body = generations_body,
                                       .bare = true,
                                       .outcomes = outcomes});
        for (int r = 0; r < 4; r++) {
            if (r == VICTIM ? outcomes[r].signal != SIGKILL : outcomes[r].status != KOLO_OK) {
                fail_msg("rank %d: signal %d, status %d: %s", r, outcomes[r].signal,
                         outcomes[r].status, outcomes[r].error);
            }
        }
    }
}

TEST_MAIN(test_comm_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_survivor_names_the_killed_rank),
        cmocka_unit_test(a_death_is_detected_while_a_child_lives),
        cmocka_unit_test(leaving_early_differs_from_dying),
        cmocka_unit_test(leaving_in_order_is_no_failure),
        cmocka_unit_test(a_mismatch_shows_both_sides_on_all_ranks),
        cmocka_unit_test(a_late_rank_does_not_complete_what_has_timed_out),
        cmocka_unit_test(a_deadline_reports_who_waits_for_whom),
        cmocka_unit_test(a_signal_asks_for_a_report),
        cmocka_unit_test(a_silent_rank_is_a_timeout_not_a_hang),
        cmocka_unit_test(survivors_and_newcomers_form_the_next_generation),
        cmocka_unit_test(a_rank_that_stands_still_is_lost_after_the_heartbeat),
    };
    return cmocka_run_group_tests_name("comm_faults", tests, NULL, NULL);
}
