/* Sub-groups over every transport: members and their order, collectives of different groups in
 * flight at once, memory that serves both, sub-groups of sub-groups, failures. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rank_transport transports[] = {RANKS_THREAD,  RANKS_SHM,   RANKS_TCP,
                                            RANKS_UCX,     RANKS_HOSTS, RANKS_HOSTS_UCX,
                                            RANKS_OPENMPI, RANKS_MPICH};

static kolo_status wrong(const char *what, int rank) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d: %s", rank, what);
}

/* Groups that come and go beside one that stays, with messages of private memory in them, take no
 * more memory than the first of them did. */
static kolo_status churn_body(kolo_comm *comm, const void *arg, void *result) {
    enum { COUNT = 2000 };
    const int times = *(const int *)arg;
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    static _Thread_local int32_t data[COUNT];
    size_t used = 0;
    kolo_comm *stays, *sub, *inner;
    KOLO_TRY(kolo_comm_split(comm, 0, 0, &stays));
    for (int i = 0; i < times; i++) {
        KOLO_TRY(kolo_comm_split(i % 3 ? comm : stays, i % 2 && rank == 0, -rank, &sub));
        for (int k = 0; k < COUNT; k++) data[k] = 1;
        int count = i % 50 ? 1 : COUNT, size = kolo_comm_size(sub);
        KOLO_TRY(kolo_allreduce(sub, data, (size_t)count, KOLO_DTYPE_I32, KOLO_SUM));
        if (data[0] != size || data[count - 1] != size) return wrong("sum", rank);
        if (i % 50 == 0) {
            KOLO_TRY(kolo_comm_split(sub, 0, 0, &inner));
            KOLO_TRY(kolo_alltoall(inner, NULL, data, COUNT / (size_t)n, KOLO_DTYPE_I32));
            kolo_comm_destroy(inner);
        }
        kolo_comm_destroy(sub);
        if (i == 1000) used = comm->transport->segment.used;
    }
    size_t end = comm->transport->segment.used;
    return end == used ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%zu bytes, then %zu", used, end);
}

static void groups_that_go_leave_their_memory(void **state) {
    static const int few = 1500, many = TEST_FEWER(1500, 10000);
    ASSERT_OK(run_ranks(3, RANKS_THREAD, churn_body, &few, sizeof few));
    ASSERT_OK(run_ranks(2, RANKS_SHM, churn_body, &many, sizeof many));
}

/* What carries a sub-group: memory where all its members are on one host; never UCX. */
static const char *carrier(const kolo_comm *whole, const kolo_comm *sub) {
    const char *name = kolo_comm_transport(whole);
    if (strcmp(name, "ucx") == 0) return "tcp";
    if (kolo_comm_host_count(whole) == 1 && strcmp(name, "tcp") == 0) return "tcp";
    if (kolo_comm_local_size(sub) < kolo_comm_size(sub)) {
        return kolo_comm_local_size(sub) == 1 ? "tcp" : "shm+tcp";
    }
    if (kolo_comm_size(sub) == 1) return strcmp(name, "tcp") == 0 ? "tcp" : "self";
    return strcmp(name, "thread") == 0 ? "thread" : "shm";
}

static bool carried(const kolo_comm *whole, const kolo_comm *sub) {
    return strcmp(kolo_comm_transport(sub), carrier(whole, sub)) == 0;
}

/* Rows and columns of a grid of two columns, columns counted backwards. */
static kolo_status grid_body(kolo_comm *comm, const void *arg, void *result) {
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    kolo_comm *row, *column, *none;
    KOLO_TRY(kolo_comm_split(comm, rank / 2, rank, &row));
    KOLO_TRY(kolo_comm_split(comm, rank % 2, -rank, &column));
    KOLO_TRY(kolo_comm_split(comm, rank == 0 ? 7 : -1, 0, &none));
    if ((none != NULL) != (rank == 0)) return wrong("a negative colour makes no group", rank);
    int columns = (n + 1 - rank % 2) / 2;
    if (kolo_comm_rank(row) != rank % 2 || kolo_comm_size(column) != columns ||
        kolo_comm_rank(column) != columns - 1 - rank / 2) {
        return wrong("place in a group", rank);
    }
    if (!carried(comm, row) || !carried(comm, column)) return wrong("transport", rank);
    void *memory; /* registered with the whole group; used by all three */
    KOLO_TRY(kolo_comm_alloc(comm, 3 * sizeof(double) * 2000, &memory));
    double *data = memory;
    kolo_comm *groups[3] = {comm, row, column};
    kolo_request *q[3];
    for (int repeat = 0; repeat < 3; repeat++) {
        for (int g = 0; g < 3; g++) {
            kolo_part part = {.data = data + 2000 * g, .count = 2000};
            for (int i = 0; i < 2000; i++) data[2000 * g + i] = rank + 1;
            KOLO_TRY(kolo_allreduce_create(groups[g], &part, 1, KOLO_DTYPE_F64, KOLO_SUM,
                                           KOLO_ALGORITHM_AUTO, "grid", &q[g]));
        }
        /* Started alike, waited for in different orders: everybody moves all of them. */
        for (int g = 0; g < 3; g++) KOLO_TRY(kolo_request_start(q[g]));
        for (int g = 0; g < 3; g++) KOLO_TRY(kolo_request_wait(q[(g + rank) % 3], 0));
        double in_row = 0, in_column = 0;
        for (int r = 0; r < n; r++) {
            in_row += r / 2 == rank / 2 ? r + 1 : 0;
            in_column += r % 2 == rank % 2 ? r + 1 : 0;
        }
        double want[3] = {n * (n + 1) / 2.0, in_row, in_column};
        for (int g = 0; g < 3; g++) {
            for (int i = 0; i < 2000; i++) {
                if (data[2000 * g + i] != want[g]) return wrong("sum", rank);
            }
            kolo_request_destroy(q[g]);
        }
        KOLO_TRY(kolo_barrier(comm));
    }
    kolo_comm *inner;
    KOLO_TRY(kolo_comm_split(column, 0, rank, &inner)); /* the order of the whole group again */
    int32_t place = kolo_comm_rank(inner), first = rank / 2;
    KOLO_TRY(kolo_broadcast(inner, &first, 1, KOLO_DTYPE_I32, 0));
    if (place != rank / 2 || first != 0) return wrong("a group of a group", rank);
    int32_t sent = rank, got = -1;
    if (kolo_comm_size(row) == 2) {
        if (rank % 2 == 0) KOLO_TRY(kolo_send(row, &sent, 1, KOLO_DTYPE_I32, 1, 0));
        if (rank % 2 == 1) KOLO_TRY(kolo_recv(row, &got, 1, KOLO_DTYPE_I32, 0, 0));
        if (rank % 2 == 1 && got != rank - 1) return wrong("a message", rank);
    }
    kolo_comm_destroy(row); /* the others go with `comm` */
    return KOLO_OK;
}

static void groups_of_a_grid(void **state) {
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        bool mpi = transports[t] == RANKS_OPENMPI || transports[t] == RANKS_MPICH;
        for (size_t i = 0; i < KOLO_COUNT(sizes); i++) {
            if (!ranks_have(transports[t]) || (mpi && sizes[i] != 3)) continue;
            const bool usual = TEST_FEWER(sizes[i] >= 3 && sizes[i] <= 5, true);
            if (transports[t] != RANKS_THREAD && !usual) continue; /* processes */
            ASSERT_OK(run_ranks(sizes[i], transports[t], grid_body, NULL, 0));
        }
    }
}

/* Four at a time, the even and the odd ones of these, repeatedly, each group's sums in flight
 * with the others', more of them than a group has places, with groups that end while the rest goes
 * on: what comes late for them is nobody's. */
static kolo_status nested_body(kolo_comm *comm, const void *arg, void *result) {
    enum { COUNT = 30000, REPEATS = 12 };
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    float *data = malloc(sizeof *data * 4 * COUNT);
    if (!data) return KOLO_NOMEM(sizeof *data * 4 * COUNT);
    kolo_status status = KOLO_OK;
    for (int repeat = 0; repeat < REPEATS && status == KOLO_OK; repeat++) {
        kolo_comm *groups[4] = {comm};
        KOLO_TRY_GOTO(kolo_comm_split(comm, rank / 4, 0, &groups[1]), done);
        KOLO_TRY_GOTO(kolo_comm_split(groups[1], rank % 2, 0, &groups[2]), done);
        KOLO_TRY_GOTO(kolo_comm_split(groups[2], 5, -rank, &groups[3]), done);
        if (!carried(comm, groups[1]) || !carried(comm, groups[2])) {
            status = wrong("transport of a group of a group", rank);
            break;
        }
        float want[4] = {0};
        for (int r = 0; r < n; r++) {
            want[0] += (float)r;
            want[1] += r / 4 == rank / 4 ? (float)r : 0;
            want[2] += r / 4 == rank / 4 && r % 2 == rank % 2 ? (float)r : 0;
        }
        want[3] = want[2];
        size_t count = repeat % 8 == 0 ? COUNT : 10;
        kolo_request *q[4];
        for (int g = 0; g < 4; g++) {
            kolo_part part = {.data = data + (size_t)g * COUNT, .count = count};
            for (size_t i = 0; i < count; i++) data[(size_t)g * COUNT + i] = (float)rank;
            KOLO_TRY_GOTO(kolo_allreduce_create(groups[g], &part, 1, KOLO_DTYPE_F32, KOLO_SUM,
                                                KOLO_ALGORITHM_AUTO, "nested", &q[g]),
                          done);
            KOLO_TRY_GOTO(kolo_request_start(q[g]), done);
        }
        for (int g = 3; g >= 0; g--) KOLO_TRY_GOTO(kolo_request_wait(q[g], 0), done);
        for (int g = 0; g < 4; g++) {
            kolo_request_destroy(q[g]);
            for (size_t i = 0; i < count; i++) {
                if (data[(size_t)g * COUNT + i] != want[g]) status = wrong("sum", rank);
            }
        }
        kolo_comm_destroy(groups[repeat % 3 + 1]); /* with those below it */
        if (repeat % 3 == 1) kolo_comm_destroy(groups[1]);
    }
done:
    if (status != KOLO_OK) kolo_comm_destroy(comm->children); /* before the data goes */
    free(data);
    return status;
}

static void groups_of_groups_come_and_go(void **state) {
    for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
        if (!ranks_have((rank_transport)t)) continue;
        ASSERT_OK(run_ranks(5, (rank_transport)t, nested_body, NULL, 0));
        ASSERT_OK(run_ranks(8, (rank_transport)t, nested_body, NULL, 0));
    }
}

static kolo_status hosts_body(kolo_comm *comm, const void *arg, void *result) {
    static const int hosts[] = {7, 3, 7, 3};
    int rank = kolo_comm_rank(comm);
    kolo_comm *sub;
    if (kolo_comm_host_count(comm) != 1 || kolo_comm_host(comm, 3) != 0) {
        return wrong("one host", rank);
    }
    KOLO_TRY(kolo_comm_set_hosts(comm, hosts));
    if (kolo_comm_host_count(comm) != 2 || kolo_comm_host(comm, 2) != 0 ||
        kolo_comm_host(comm, 3) != 1 || kolo_comm_host(comm, 9) != 0) {
        return wrong("hosts are counted by their lowest ranks", rank);
    }
    KOLO_TRY(kolo_comm_split(comm, rank == 0 ? -1 : 1, 0, &sub));
    if (rank == 0) return KOLO_OK;
    if (kolo_comm_host_count(sub) != 2 || kolo_comm_host(sub, 1) != 1 - kolo_comm_host(sub, 0)) {
        return wrong("hosts of a sub-group", rank);
    }
    int size = kolo_comm_local_size(sub), local = kolo_comm_local_rank(sub);
    return size == (rank == 2 ? 1 : 2) && local == (rank == 3 ? 1 : 0) ? KOLO_OK
                                                                       : wrong("local rank", rank);
}

static void a_group_has_its_hosts(void **state) {
    ASSERT_OK(run_ranks(4, RANKS_THREAD, hosts_body, NULL, 0));
}

/* A rank's process ends while its sub-group waits for it: its members get an error that names the
 * rank in the whole, and in which group; the members of the other sub-group go on. */
static kolo_status death_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    kolo_comm *sub;
    float data[40000] = {0};
    KOLO_TRY(kolo_comm_split(comm, rank % 2, 0, &sub));
    kolo_status status = kolo_barrier(comm);
    if (rank == 3) {
        kolo_sleep_ns(50000000);
        raise(SIGKILL);
    }
    if (status == KOLO_ERR_PEER) return KOLO_OK; /* so late that the whole group has failed */
    for (int i = 0; i < 3 && status == KOLO_OK; i++) {
        status = kolo_allreduce(sub, data, 40000, KOLO_DTYPE_F32, KOLO_SUM);
    }
    if (rank % 2 == 0) return status;
    const char *text = kolo_last_error();
    bool named = strstr(text, "rank 3 (1 in sub-group 1) is gone (") != NULL;
    if (status != KOLO_ERR_PEER || !named) return wrong("the loss has no or another name", rank);
    bool both = kolo_barrier(sub) == KOLO_ERR_PEER && kolo_barrier(comm) == KOLO_ERR_PEER;
    return both ? KOLO_OK : wrong("one of the two is not broken", rank);
}

static void a_dead_member_is_named(void **state) {
    static const rank_transport processes[] = {RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    for (size_t t = 0; t < KOLO_COUNT(processes); t++) {
        for (int n = 4; n <= 6; n += 2) {
            rank_outcome outcomes[6];
            (void)run_rank_job(&(rank_job){
                .n = n, .transport = processes[t], .body = death_body, .outcomes = outcomes});
            assert_int_equal(outcomes[3].signal, SIGKILL);
            for (int r = 0; r < n; r++) {
                if (r != 3 && outcomes[r].status != KOLO_OK) fail_msg("%s", outcomes[r].error);
            }
        }
    }
}

/* Members that disagree, and one that is late: the error names the group, and the rank by its
 * number in the whole. */
static kolo_status mismatch_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    kolo_comm *sub, *inner;
    float data[8] = {0};
    KOLO_TRY(kolo_comm_split(comm, 7 * (rank / 2), 0, &sub));
    KOLO_TRY(kolo_comm_split(sub, 0, 0, &inner));
    if (rank < 2) return KOLO_OK;
    bool late = *(const bool *)arg;
    if (late && rank == 3) return kolo_send(comm, data, 1, KOLO_DTYPE_F32, 2, 0) == KOLO_OK;
    kolo_status status = kolo_request_run(inner,
                                          &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                               .dtype = KOLO_DTYPE_F32,
                                                               .output = data,
                                                               .count = rank == 2 ? 8 : 4,
                                                               .site = "here"},
                                          late ? 200 : 0);
    const char *text = kolo_last_error();
    bool named = strstr(text, "in sub-group 7/0") && strstr(text, "rank 3");
    if (!late) named = named && strstr(text, "rank 2");
    kolo_status want = late ? KOLO_ERR_TIMEOUT : KOLO_ERR_ARG;
    return status == want && named ? KOLO_OK : wrong("the words", rank);
}

static void errors_name_the_group(void **state) {
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        if (transports[t] == RANKS_OPENMPI || transports[t] == RANKS_MPICH) continue;
        for (int late = 0; late < 2; late++) {
            rank_outcome outcomes[4];
            bool arg = late;
            (void)run_rank_job(&(rank_job){.n = 4,
                                           .transport = transports[t],
                                           .body = mismatch_body,
                                           .arg = &arg,
                                           .arg_bytes = sizeof arg,
                                           .outcomes = outcomes});
            if (outcomes[2].status != KOLO_OK) fail_msg("%s", outcomes[2].error);
            if (!late && outcomes[3].status != KOLO_OK) fail_msg("%s", outcomes[3].error);
        }
    }
}

/* A rank leaves in the middle: the members of its sub-group see it there, the others in the whole;
 * the other sub-group continues. */
static kolo_status failure_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    kolo_comm *sub;
    float data[400] = {0};
    KOLO_TRY(kolo_comm_split(comm, rank % 2, 0, &sub));
    kolo_status status_late = kolo_barrier(comm); /* a late rank detects the loss here */
    if (rank == 1 || (status_late != KOLO_OK && status_late != KOLO_ERR_PEER))
        return KOLO_ERR_PEER; /* gone */
    kolo_status status =
        kolo_allreduce(rank == 3 ? sub : comm, data, 400, KOLO_DTYPE_F32, KOLO_SUM);
    if (status != KOLO_ERR_PEER) return wrong("the loss was not noticed", rank);
    kolo_status whole = kolo_allreduce(comm, data, 400, KOLO_DTYPE_F32, KOLO_SUM);
    bool both =
        whole == KOLO_ERR_PEER && kolo_barrier(sub) == (rank == 3 ? KOLO_ERR_PEER : KOLO_OK);
    return both ? KOLO_OK : wrong("not the groups of the lost rank are broken", rank);
}

static void a_lost_rank_breaks_groups_and_whole(void **state) {
    rank_outcome outcomes[4];
    kolo_status status = run_rank_job(
        &(rank_job){.n = 4, .transport = RANKS_THREAD, .body = failure_body, .outcomes = outcomes});
    assert_int_equal(status, KOLO_ERR_PEER);
    for (int r = 0; r < 4; r++) {
        if (r != 1 && outcomes[r].status != KOLO_OK) fail_msg("%s", outcomes[r].error);
    }
}

/* A grid of 2 x 2, of which rank 3 dies: groups without it complete what is in flight, and more. */
static kolo_status survivors_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    kolo_comm *groups[2]; /* row and column */
    kolo_request *q;
    float x = 1;
    kolo_part part = {.data = &x, .count = 1};
    KOLO_TRY(kolo_comm_split(comm, rank / 2, 0, &groups[0]));
    KOLO_TRY(kolo_comm_split(comm, rank % 2, 0, &groups[1]));
    KOLO_TRY(kolo_allreduce_create(groups[0], &part, 1, KOLO_DTYPE_F32, KOLO_SUM,
                                   KOLO_ALGORITHM_AUTO, "row", &q));
    KOLO_TRY(kolo_barrier(comm));
    if (rank == 3) kolo_sleep_ns(50000000); /* all have left it */
    if (rank == 3) raise(SIGKILL);
    if (rank == 0) KOLO_TRY(kolo_request_start(q));
    kolo_status whole = kolo_barrier(comm);
    if (whole != KOLO_ERR_PEER || !strstr(kolo_last_error(), "rank 3 is gone (")) {
        return wrong("the whole group is not broken", rank);
    }
    if (rank == 1) KOLO_TRY(kolo_request_start(q));
    if (rank < 2) KOLO_TRY(kolo_request_wait(q, 0));
    if (rank < 2 && x != 2) return wrong("the row has another sum", rank);
    for (int g = 0; g < 2; g++) {
        bool complete = g == 0 ? rank < 2 : rank % 2 == 0;
        for (int i = 0; i < 40; i++) {
            kolo_status status = kolo_allreduce(groups[g], &x, 1, KOLO_DTYPE_F32, KOLO_SUM);
            if (status != (complete ? KOLO_OK : KOLO_ERR_PEER)) return wrong("a group", rank);
        }
    }
    return KOLO_OK;
}

static void groups_without_the_lost_rank_continue(void **state) {
    static const rank_transport processes[] = {RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    for (size_t t = 0; t < KOLO_COUNT(processes); t++) {
        rank_outcome outcomes[4];
        (void)run_rank_job(&(rank_job){
            .n = 4, .transport = processes[t], .body = survivors_body, .outcomes = outcomes});
        assert_int_equal(outcomes[3].signal, SIGKILL);
        for (int r = 0; r < 3; r++) {
            if (outcomes[r].status != KOLO_OK) fail_msg("%s", outcomes[r].error);
        }
    }
}

/* Memory fails in turn on one rank: all ranks get the error, the whole group goes on or is broken
 * alike, and nothing is lost. */
static kolo_status starved_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    for (long nth = 1; nth <= 30; nth += 3) {
        kolo_comm *sub = NULL;
        if (rank == 1) kolo_alloc_fail_nth(nth);
        kolo_status status = kolo_comm_split(comm, 0, 0, &sub);
        kolo_alloc_fail_nth(0);
        if (status != KOLO_OK && status != KOLO_ERR_NOMEM) return status;
        if (comm->broken) return KOLO_OK;
        int32_t failed = status != KOLO_OK, total = failed;
        KOLO_TRY(kolo_allreduce(comm, &total, 1, KOLO_DTYPE_I32, KOLO_SUM));
        if (total != failed * kolo_comm_size(comm)) return wrong("only some ranks failed", rank);
        if (status == KOLO_OK) KOLO_TRY(kolo_barrier(sub));
        kolo_comm_destroy(sub);
    }
    return KOLO_OK;
}

static void lack_of_memory_is_reported_to_all(void **state) {
    for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
        if (!ranks_have((rank_transport)t)) continue;
        ASSERT_OK(run_rank_job(&(rank_job){.n = t >= RANKS_HOSTS ? 3 : 2,
                                           .transport = (rank_transport)t,
                                           .body = starved_body,
                                           .timeout_ms = 2000}));
    }
}

/* As a rank of a job that a launcher has started: tests/hosts. */
static int as_a_rank(void) {
    kolo_comm *comm = NULL;
    kolo_status status = kolo_comm_create(&(kolo_comm_opts){.timeout_ms = 30000}, &comm);
    if (status == KOLO_OK) status = grid_body(comm, NULL, NULL);
    if (status == KOLO_OK) status = nested_body(comm, NULL, NULL);
    if (status != KOLO_OK) {
        fprintf(stderr, "kolo: %s\n", kolo_last_error());
    } else {
        printf("sub-groups well over %s\n", kolo_comm_transport(comm));
    }
    kolo_comm_destroy(comm);
    return status != KOLO_OK;
}

TEST_MAIN(test_comm_split) {
    if (argc == 2 && strcmp(argv[1], "rank") == 0) return as_a_rank();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_that_go_leave_their_memory),
        cmocka_unit_test(groups_of_a_grid),
        cmocka_unit_test(groups_of_groups_come_and_go),
        cmocka_unit_test(a_dead_member_is_named),
        cmocka_unit_test(errors_name_the_group),
        cmocka_unit_test(a_group_has_its_hosts),
        cmocka_unit_test(groups_without_the_lost_rank_continue),
        cmocka_unit_test(a_lost_rank_breaks_groups_and_whole),
        cmocka_unit_test(lack_of_memory_is_reported_to_all),
    };
    return cmocka_run_group_tests_name("comm_split", tests, NULL, NULL);
}
