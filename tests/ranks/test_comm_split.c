/* Sub-groups: members and their order, collectives of different groups in flight at once, memory
 * that serves both, sub-groups of sub-groups, failures. */
#include "comm/engine.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

static kolo_status wrong(const char *what, int rank) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d: %s", rank, what);
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
    if (strcmp(kolo_comm_transport(row), kolo_comm_transport(comm)) != 0) {
        return wrong("transport", rank);
    }
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
    for (int n = 1; n <= 6; n++) ASSERT_OK(run_ranks(n, RANKS_THREAD, grid_body, NULL, 0));
    for (int n = 2; n <= 4; n++) ASSERT_OK(run_ranks(n, RANKS_SHM, grid_body, NULL, 0));
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

static void a_group_knows_its_hosts(void **state) {
    ASSERT_OK(run_ranks(4, RANKS_THREAD, hosts_body, NULL, 0));
}

/* A rank leaves in the middle: the members of its sub-group see it there, the others in the whole.
 */
static kolo_status failure_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    kolo_comm *sub;
    float data[400] = {0};
    KOLO_TRY(kolo_comm_split(comm, rank % 2, 0, &sub));
    kolo_status met = kolo_barrier(comm); /* whoever is late learns of the loss here */
    if (rank == 1 || (met != KOLO_OK && met != KOLO_ERR_PEER)) return KOLO_ERR_PEER; /* gone */
    kolo_status status =
        kolo_allreduce(rank == 3 ? sub : comm, data, 400, KOLO_DTYPE_F32, KOLO_SUM);
    if (status != KOLO_ERR_PEER) return wrong("the loss was not noticed", rank);
    bool both = kolo_barrier(sub) == KOLO_ERR_PEER && kolo_barrier(comm) == KOLO_ERR_PEER;
    return both ? KOLO_OK : wrong("one of the two is not broken", rank);
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

static void lack_of_memory_is_told_to_all(void **state) {
    ASSERT_OK(run_rank_job(
        &(rank_job){.n = 2, .transport = RANKS_THREAD, .body = starved_body, .timeout_ms = 2000}));
}

int main(void) {
    if (ranks_is_child()) return ranks_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_a_grid),
        cmocka_unit_test(a_group_knows_its_hosts),
        cmocka_unit_test(a_lost_rank_breaks_groups_and_whole),
        cmocka_unit_test(lack_of_memory_is_told_to_all),
    };
    return cmocka_run_group_tests_name("comm_split", tests, NULL, NULL);
}
