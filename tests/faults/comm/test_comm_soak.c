/* A rank is killed at a random moment, in the middle of whatever the group does: every other rank
 * must return KOLO_ERR_PEER with its number, soon, and nothing may stay behind.
 *
 * Group, transport, victim, moment and work are drawn from the number of the round, so a round can
 * be run again. A few rounds as an ordinary test; 200 of each transport with KOLO_SOAK=1, which
 * prints how long the survivors took. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kolo/comm.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum {
    RANKS_MOST = 5,
    ROUNDS = 4,
    ROUNDS_SOAK = 200,
    KILL_WITHIN_US = 30000,
    ELEMENTS = 1 << 18,
    TIMEOUT_MS = 30000,
};

static const int64_t limit_ns = 5000000000, limit_soak_ns = 1000000000;

typedef struct round_arg {
    uint64_t number;
    int ranks, victim;
} round_arg;

/* What a rank leaves: when it was to be killed, or when it had its error; and what it had done. */
typedef struct round_result {
    int64_t ns;
    int32_t steps, again; /* `again`: status of a later call */
} round_result;

static uint64_t draw(uint64_t round, uint64_t what, uint64_t below) {
    kolo_rng rng = kolo_rng_make(round, KOLO_RNG_TEST, what);
    return kolo_rng_below(&rng, 0, below);
}

/* SIGKILL comes by itself, wherever the process is then; gives the moment. */
static kolo_status kill_later(uint64_t round, int64_t *at_ns) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    *at_ns = kolo_now_ns() + 1000 * (int64_t)draw(round, 2, KILL_WITHIN_US);
    struct itimerspec when = {
        .it_value = {.tv_sec = *at_ns / 1000000000, .tv_nsec = *at_ns % 1000000000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, TIMER_ABSTIME, &when, NULL) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "no timer: %s", strerror(errno));
    }
    return KOLO_OK;
}

/* One step of work, the same on all ranks. */
static kolo_status work(kolo_comm *comm, uint64_t round, uint64_t step, float *data, float *more) {
    size_t count = (size_t)1 << draw(round, 100 + 2 * step, 18);
    int root = (int)draw(round, 101 + 2 * step, (uint64_t)kolo_comm_size(comm));
    kolo_part part = {.data = data, .count = ELEMENTS / 2};
    kolo_part other = {.data = data + ELEMENTS / 2, .count = count};
    kolo_request *q[2] = {NULL, NULL};
    switch (step % 5) {
    case 0:
        return kolo_allreduce(comm, data, count, KOLO_DTYPE_F32, KOLO_SUM);
    case 1:
        return kolo_broadcast(comm, data, count, KOLO_DTYPE_F32, root);
    case 2:
        return kolo_barrier(comm);
    case 3:
        return kolo_alltoall(comm, data, more, count / 8, KOLO_DTYPE_F32);
    default: /* two in flight; a failure breaks both, and they go with the communicator */
        KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM,
                                       KOLO_ALGORITHM_RING, "first", &q[0]));
        KOLO_TRY(kolo_allreduce_create(comm, &other, 1, KOLO_DTYPE_F32, KOLO_MAX,
                                       KOLO_ALGORITHM_AUTO, "second", &q[1]));
        KOLO_TRY(kolo_request_start(q[0]));
        KOLO_TRY(kolo_request_start(q[1]));
        KOLO_TRY(kolo_request_wait(q[0], 0));
        KOLO_TRY(kolo_request_wait(q[1], 0));
        kolo_request_destroy(q[0]);
        kolo_request_destroy(q[1]);
        return KOLO_OK;
    }
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    round_arg r;
    round_result *left = result;
    memcpy(&r, arg, sizeof r);
    void *registered;
    KOLO_TRY(kolo_comm_alloc(comm, ELEMENTS * sizeof(float), &registered));
    float *more = kolo_zalloc(RANKS_MOST * ELEMENTS * sizeof *more);
    if (!more) return KOLO_NOMEM(RANKS_MOST * ELEMENTS * sizeof *more);
    float *data = draw(r.number, 3, 2) ? registered : more; /* or private */
    /* UCX connects a pair of ranks at their first message, and aborts by an assertion of its own
     * (ucp_request_send_state_ff) when one is killed just then: all pairs are connected first. */
    kolo_status status = kolo_alltoall(comm, data, more + ELEMENTS, 1, KOLO_DTYPE_F32);
    if (status == KOLO_OK) {
        status = kolo_alltoall(comm, data, more + ELEMENTS, 1, KOLO_DTYPE_F32);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm);
    if (status == KOLO_OK && kolo_comm_rank(comm) == r.victim) {
        status = kill_later(r.number, &left->ns);
    }
    while (status == KOLO_OK) {
        status = work(comm, r.number, (uint64_t)left->steps, data, more + ELEMENTS);
        left->steps++;
    }
    left->ns = kolo_now_ns();
    char text[sizeof((rank_outcome){0}.error)];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    left->again = (int32_t)kolo_barrier(comm);
    kolo_free(more);
    return KOLO_FAIL(status, "%s", text);
}

/* One round; the time from the kill to the last survivor's error. */
static int64_t run_round(uint64_t number, rank_transport transport, int64_t limit) {
    round_arg r = {.number = number, .ranks = 2 + (int)draw(number, 0, RANKS_MOST - 1)};
    round_result results[RANKS_MOST];
    rank_outcome outcomes[RANKS_MOST];
    char name[32];
    int64_t longest = 0;
    r.victim = (int)draw(number, 1, (uint64_t)r.ranks);
    snprintf(name, sizeof name, "rank %d is gone", r.victim);
    (void)run_rank_job(&(rank_job){.n = r.ranks,
                                   .no_fork = true,
                                   .transport = transport,
                                   .body = body,
                                   .arg = &r,
                                   .arg_bytes = sizeof r,
                                   .outcomes = outcomes,
                                   .timeout_ms = TIMEOUT_MS,
                                   .results = results,
                                   .result_bytes = sizeof results[0]});
    assert_int_equal(outcomes[r.victim].signal, SIGKILL);
    for (int p = 0; p < r.ranks; p++) {
        if (p == r.victim) continue;
        int64_t ns = results[p].ns - results[r.victim].ns;
        bool right = outcomes[p].status == KOLO_ERR_PEER && strstr(outcomes[p].error, name) &&
                     results[p].again == KOLO_ERR_PEER && outcomes[p].signal == 0;
        if (!right || ns > limit) {
            fail_msg("round %llu: rank %d of %d, step %d, %.3f s after rank %d was killed: status "
                     "%d, later %d, signal %d: %s",
                     (unsigned long long)number, p, r.ranks, results[p].steps, (double)ns * 1e-9,
                     r.victim, outcomes[p].status, results[p].again, outcomes[p].signal,
                     outcomes[p].error);
        }
        if (ns > longest) longest = ns;
    }
    return longest;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void run_rounds(rank_transport transport, const char *name) {
    static int64_t ns[ROUNDS_SOAK];
    bool soak = getenv("KOLO_SOAK") != NULL;
    int rounds = soak ? ROUNDS_SOAK : ROUNDS, before = test_count_descriptors();
    for (int i = 0; i < rounds; i++) {
        ns[i] =
            run_round((uint64_t)i + 1000 * transport, transport, soak ? limit_soak_ns : limit_ns);
    }
    assert_int_equal(test_count_descriptors(), before);
    assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    qsort(ns, (size_t)rounds, sizeof ns[0], ascending);
    if (soak) {
        printf("%s: %d ranks killed; survivors knew after %.1f ms (median), %.1f ms at most\n",
               name, rounds, (double)ns[rounds / 2] * 1e-6, (double)ns[rounds - 1] * 1e-6);
    }
}

static void survivors_of_shared_memory_detect_it(void **state) { run_rounds(RANKS_SHM, "shm"); }

static void survivors_of_a_network_detect_it(void **state) { run_rounds(RANKS_TCP, "tcp"); }

static void survivors_of_hosts_detect_it(void **state) { run_rounds(RANKS_HOSTS, "shm+tcp"); }

static void survivors_of_ucx_detect_it(void **state) {
    if (!ranks_have(RANKS_UCX)) {
        print_message("skip: no module for UCX\n");
        skip();
    }
    run_rounds(RANKS_UCX, "ucx");
}

TEST_MAIN(test_comm_soak) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_shared_memory_detect_it),
        cmocka_unit_test(survivors_of_a_network_detect_it),
        cmocka_unit_test(survivors_of_hosts_detect_it),
        cmocka_unit_test(survivors_of_ucx_detect_it),
    };
    return cmocka_run_group_tests_name("comm_soak", tests, NULL, NULL);
}
