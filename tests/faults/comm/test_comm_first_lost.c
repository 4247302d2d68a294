/* The error of every rank names the rank that was lost first: also that of a rank which looks so
 * late that another one has noticed the loss and has ended as well. A rank that leaves after an
 * error reports it to those that still need it, and a failure that a rank has reported is named
 * before a rank that has left. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/failure.h"
#include "kolo/group.h"
#include "support/ranks.h"
#include "support/support.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, LATEST_MS = 30000 };

/* Of a rank, in memory that all ranks share, side by side. */
typedef struct own_state {
    _Alignas(64) _Atomic int pid, ready;
} own_state;

/* ---- a rank that looks late ---- */

typedef enum work { BARRIER, PIECES, SUBGROUP } work;

/* One rank dies; one notices that, and ends, by leaving or also by a signal; one is stopped
 * meanwhile. They are in a barrier; or in a sum, of which the latter has messages of the former to
 * receive; or the latter is in a barrier of a sub-group without the one that dies. */
typedef struct scene {
    rank_transport transport;
    int dies, notices;
    work work;
    bool killed; /* after it has noticed */
} scene;

static bool is_stopped(int pid) {
    char path[32], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *state = strrchr(text, ')');
    return state && state[1] == ' ' && state[2] == 'T';
}

/* Stops this process until another one has ended. */
static kolo_status stop_until_end(int other) {
    const int self = getpid(), pidfd = (int)syscall(SYS_pidfd_open, other, 0);
    int how = 0;
    if (pidfd < 0) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "no pidfd");
    const pid_t child = fork();
    if (child == 0) {
        (void)poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1, LATEST_MS);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    close(pidfd);
    return waitpid(child, &how, 0) == child && how == 0
               ? KOLO_OK
               : KOLO_FAIL(KOLO_ERR_IO, "the child that continues this process");
}

/* A request of the group; two starts let the receivers find out whether they can read messages in
 * the memory of their sender. */
static kolo_status open_work(kolo_comm *group, work what, float *data, size_t count,
                             kolo_request **request) {
    const kolo_part part = {.data = data, .count = count};
    if (what != PIECES) {
        const kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_BARRIER, .site = "all"};
        return kolo_request_create(group, &opts, request);
    }
    KOLO_TRY(kolo_allreduce_create(group, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, KOLO_ALGORITHM_RING,
                                   "first", request));
    for (int i = 0; i < 2; i++) {
        KOLO_TRY(kolo_request_start(*request));
        KOLO_TRY(kolo_request_wait(*request, 0));
    }
    return KOLO_OK;
}

static kolo_status play(kolo_comm *comm, const scene *s, own_state *all, kolo_request *q) {
    const int rank = kolo_comm_rank(comm), late = RANKS - s->dies - s->notices;
    KOLO_TRY(kolo_barrier(comm)); /* all have written their pids */
    if (rank == late) {
        if (s->work == PIECES) KOLO_TRY(kolo_request_start(q));
        KOLO_TRY(stop_until_end(atomic_load(&all[s->notices].pid)));
        if (s->work != PIECES) KOLO_TRY(kolo_request_start(q));
        return kolo_request_wait(q, 0);
    }
    while (!is_stopped(atomic_load(&all[late].pid))) kolo_sleep_ns(1000000);
    if (rank == s->dies) {
        while (!atomic_load(&all[s->notices].ready)) kolo_sleep_ns(1000000);
        raise(SIGKILL);
    }
    if (s->work == PIECES) KOLO_TRY(kolo_request_start(q)); /* its first message is out */
    atomic_store(&all[rank].ready, 1);
    kolo_status status = s->work == PIECES ? kolo_request_wait(q, 0) : kolo_barrier(comm);
    if (s->killed && strstr(kolo_last_error(), "is gone")) raise(SIGKILL);
    return status;
}

static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    const size_t count = 3 * 16384;
    scene s;
    kolo_comm *group = comm;
    kolo_request *q = NULL;
    memcpy(&s, arg, sizeof s);
    comm->transport->reads_private = true;
    float *data = kolo_zalloc(count * sizeof *data);
    if (!data) return KOLO_NOMEM(count * sizeof *data);
    own_state *all = (own_state *)result - rank;
    atomic_store(&all[rank].pid, getpid());
    kolo_status status = KOLO_OK;
    if (s.work == SUBGROUP) status = kolo_comm_split(comm, rank == s.dies, 0, &group);
    if (status == KOLO_OK) status = open_work(group, s.work, data, count, &q);
    if (status == KOLO_OK) status = play(comm, &s, all, q);
    char text[sizeof((rank_outcome){0}.error)];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    kolo_request_destroy(q); /* before its memory goes */
    kolo_free(data);
    return status == KOLO_OK ? status : KOLO_FAIL(status, "%s", text);
}

static void check_late(const scene *s) {
    rank_outcome outcomes[RANKS];
    own_state states[RANKS];
    char name[32];
    snprintf(name, sizeof name, "rank %d is gone (", s->dies);
    (void)run_rank_job(&(rank_job){.n = RANKS,
                                   .transport = s->transport,
                                   .body = late_body,
                                   .arg = s,
                                   .arg_bytes = sizeof *s,
                                   .outcomes = outcomes,
                                   .results = states,
                                   .result_bytes = sizeof states[0]});
    assert_int_equal(outcomes[s->dies].signal, SIGKILL);
    for (int r = 0; r < RANKS; r++) {
        const bool killed = s->killed && r == s->notices;
        if (r == s->dies || (killed && outcomes[r].signal == SIGKILL)) continue;
        if (outcomes[r].signal || outcomes[r].status != KOLO_ERR_PEER ||
            !strstr(outcomes[r].error, name)) {
            fail_msg("transport %d, rank %d dies, %d notices, work %d, killed %d: rank %d: signal "
                     "%d, status %d: %s",
                     (int)s->transport, s->dies, s->notices, (int)s->work, s->killed, r,
                     outcomes[r].signal, outcomes[r].status, outcomes[r].error);
        }
    }
}

/* In a ring rank 0 sends to rank 1, and rank 1 to rank 2. With hosts, ranks 0 and 1 are on one. */
static void a_rank_that_looks_late_names_the_first(void **state) {
    static const scene scenes[] = {
        {RANKS_SHM, 0, 1, BARRIER, false},    {RANKS_SHM, 0, 1, PIECES, false},
        {RANKS_SHM, 2, 0, PIECES, true},      {RANKS_SHM, 2, 0, SUBGROUP, false},
        {RANKS_SHM, 2, 0, SUBGROUP, true},    {RANKS_TCP, 2, 0, PIECES, false},
        {RANKS_TCP, 2, 0, PIECES, true},      {RANKS_TCP, 2, 0, SUBGROUP, false},
        {RANKS_TCP, 2, 0, SUBGROUP, true},    {RANKS_HOSTS, 2, 0, PIECES, false},
        {RANKS_HOSTS, 2, 0, SUBGROUP, true},  {RANKS_HOSTS, 0, 1, PIECES, true},
        {RANKS_HOSTS, 0, 1, SUBGROUP, false},
    };
    for (size_t i = 0; i < KOLO_COUNT(scenes); i++) check_late(&scenes[i]);
}

/* ---- a collective that all have entered ---- */

/* A process that is stopped, once, between a poll of its requests and a check of its peers. */
typedef struct slow_rank {
    const _Atomic int *dies; /* the process until whose end it is stopped */
    bool stopped;
} slow_rank;

static bool stop_once(void *arg) {
    slow_rank *s = arg;
    if (!s->stopped) (void)stop_until_end(atomic_load(s->dies));
    s->stopped = true;
    return false;
}

/* All enter a barrier: rank 2 first, which is then stopped; rank 1 ends after it. */
static kolo_status entered_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    own_state *all = (own_state *)result - rank;
    slow_rank slow = {.dies = &all[1].pid};
    atomic_store(&all[rank].pid, getpid());
    KOLO_TRY(kolo_barrier(comm));
    if (rank == 2) {
        comm->interrupted = stop_once;
        comm->interrupted_arg = &slow;
        kolo_status status = kolo_barrier(comm);
        comm->interrupted = NULL;
        return status == KOLO_OK && !slow.stopped ? KOLO_FAIL(KOLO_ERR_FORMAT, "it did not wait")
                                                  : status;
    }
    while (!is_stopped(atomic_load(&all[2].pid))) kolo_sleep_ns(1000000);
    KOLO_TRY(kolo_barrier(comm));
    if (rank == 1) raise(SIGKILL);
    return KOLO_OK;
}

static void a_barrier_that_all_have_entered_completes(void **state) {
    rank_outcome outcomes[RANKS];
    own_state states[RANKS];
    (void)run_rank_job(&(rank_job){.n = RANKS,
                                   .transport = RANKS_SHM,
                                   .body = entered_body,
                                   .outcomes = outcomes,
                                   .results = states,
                                   .result_bytes = sizeof states[0]});
    assert_int_equal(outcomes[1].signal, SIGKILL);
    for (int r = 0; r < RANKS; r += 2) {
        if (outcomes[r].signal || outcomes[r].status != KOLO_OK)
            fail_msg("rank %d: signal %d: %s", r, outcomes[r].signal, outcomes[r].error);
    }
}

/* ---- a rank that leaves ---- */

/* Rank 1 fails in a sub-group, and leaves; rank 0 is no member of it. */
static kolo_status leaver_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    kolo_comm *sub;
    KOLO_TRY(kolo_comm_split(comm, rank > 0, 0, &sub));
    KOLO_TRY(kolo_barrier(comm));
    if (rank != 1) return kolo_barrier(comm);
    (void)kolo_comm_break_one(sub, KOLO_ERR_NOMEM, "no memory left");
    return KOLO_OK; /* destroys its communicators */
}

static void a_rank_that_leaves_after_an_error_reports_it(void **state) {
    for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
        if (!ranks_have((rank_transport)t)) continue;
        rank_outcome outcomes[RANKS];
        (void)run_rank_job(&(rank_job){
            .n = RANKS, .transport = (rank_transport)t, .body = leaver_body, .outcomes = outcomes});
        assert_int_equal(outcomes[1].status, KOLO_OK);
        for (int r = 0; r < RANKS; r += 2) {
            const rank_outcome *o = &outcomes[r];
            if (o->status == KOLO_ERR_PEER && strstr(o->error, "rank 1 has left the group (") &&
                strstr(o->error, "; its error: no memory left"))
                continue;
            fail_msg("transport %d, rank %d: status %d: %s", t, r, o->status, o->error);
        }
    }
}

/* Rank 0 has left a sub-group in which rank 2 has failed, before rank 1 looks. */
static kolo_status failed_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    own_state *all = (own_state *)result - rank;
    kolo_comm *sub;
    bool named = true;
    KOLO_TRY(kolo_comm_split(comm, 0, 0, &sub));
    KOLO_TRY(kolo_barrier(comm));
    if (rank == 0) kolo_comm_destroy(sub);
    if (rank == 2) (void)kolo_comm_break_one(sub, KOLO_ERR_NOMEM, "no memory left");
    atomic_store(&all[rank].ready, 1);
    for (int r = 0; r < RANKS; r++) {
        while (!atomic_load(&all[r].ready)) kolo_sleep_ns(1000000);
    }
    if (rank == 1) {
        named = kolo_barrier(sub) == KOLO_ERR_NOMEM &&
                strstr(kolo_last_error(), "rank 2 reports: no memory left");
    }
    return named ? kolo_barrier(comm) : KOLO_FAIL(KOLO_ERR_FORMAT, "%.300s", kolo_last_error());
}

static void a_failure_is_named_before_a_rank_that_has_left(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        own_state states[RANKS];
        ASSERT_OK(run_rank_job(&(rank_job){.n = RANKS,
                                           .transport = transports[t],
                                           .body = failed_body,
                                           .results = states,
                                           .result_bytes = sizeof states[0]}));
    }
}

TEST_MAIN(test_comm_first_lost) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_looks_late_names_the_first),
        cmocka_unit_test(a_barrier_that_all_have_entered_completes),
        cmocka_unit_test(a_rank_that_leaves_after_an_error_reports_it),
        cmocka_unit_test(a_failure_is_named_before_a_rank_that_has_left),
    };
    return cmocka_run_group_tests_name("comm_first_lost", tests, NULL, NULL);
}
