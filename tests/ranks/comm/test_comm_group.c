/* Sub-groups that their members create, without blocking and beside other communication, and that
 * one of them revokes. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "kolo/group.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

static kolo_status wrong(const char *what, int rank) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d: %s", rank, what);
}

/* Ranks 3, 1, 2 of four make a group while rank 0 waits for a message; one of them revokes it while
 * the others wait in it or in a sub-group of it; two of them make another one. The whole group
 * takes no notice. */
static kolo_status revoked_body(kolo_comm *comm, const void *arg, void *result) {
    static const int three[] = {3, 1, 2}, two[] = {1, 3};
    int rank = kolo_comm_rank(comm);
    int32_t x = 1 << rank, y = 0;
    kolo_comm *sub = NULL, *inner, *pair, *smaller;
    if (kolo_comm_create_group(comm, two, 2, 5, &sub) != KOLO_ERR_ARG && rank % 2 == 0) {
        return wrong("a group without this rank", rank);
    }
    if (sub) KOLO_TRY(kolo_barrier(sub));
    kolo_comm_destroy(sub);
    if (rank > 0) {
        KOLO_TRY(kolo_comm_create_group(comm, three, 3, 7, &sub));
        KOLO_TRY(kolo_comm_split(sub, 0, 0, &inner));
        KOLO_TRY(kolo_comm_split(sub, rank == 3 ? -1 : 0, 0, &pair));
        KOLO_TRY(kolo_allreduce(sub, &x, 1, KOLO_DTYPE_I32, KOLO_SUM));
        if (x != 14 || kolo_comm_rank(sub) != rank % 3) return wrong("another group", rank);
        if (rank != 3) KOLO_TRY(kolo_send(comm, &x, 1, KOLO_DTYPE_I32, 3, 8));
        if (rank == 3) { /* when the others have completed that */
            for (int r = 1; r < 3; r++) KOLO_TRY(kolo_recv(comm, &x, 1, KOLO_DTYPE_I32, r, 8));
            (void)KOLO_FAIL(KOLO_ERR_TIMEOUT, "one member is too slow");
            kolo_comm_revoke(sub, kolo_last_error());
        }
        kolo_status status = kolo_barrier(rank == 1 ? inner : sub);
        if (status != KOLO_ERR_PEER || !strstr(kolo_last_error(), "one member is too slow")) {
            return wrong("a revoked group goes on", rank);
        }
        if (kolo_barrier(sub) != KOLO_ERR_PEER) return wrong("the group goes on", rank);
        if (rank != 3) KOLO_TRY(kolo_barrier(pair)); /* rank 3 is not in it */
        if (rank != 2) KOLO_TRY(kolo_comm_create_group(comm, two, 2, 7, &smaller));
        if (rank != 2) KOLO_TRY(kolo_barrier(smaller));
    }
    if (rank == 2) KOLO_TRY(kolo_send(comm, &x, 1, KOLO_DTYPE_I32, 0, 7));
    if (rank == 0) KOLO_TRY(kolo_recv(comm, &y, 1, KOLO_DTYPE_I32, 2, 7));
    if (rank == 0 && y != 14) return wrong("a message", rank);
    x = 1;
    KOLO_TRY(kolo_allreduce(comm, &x, 1, KOLO_DTYPE_I32, KOLO_SUM));
    return x == 4 ? KOLO_OK : wrong("the whole group", rank);
}

static void members_create_and_revoke_groups(void **state) {
    static const rank_transport all[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    for (size_t t = 0; t < KOLO_COUNT(all); t++) {
        ASSERT_OK(run_ranks(4, all[t], revoked_body, NULL, 0));
    }
}

/* Rank 2 comes to an allreduce in place of a group that rank 1 has revoked meanwhile: it must not
 * write to the vectors of the others, who use them for something else by then. */
static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    enum { COUNT = 30000 };
    static const int all[] = {0, 1, 2};
    int rank = kolo_comm_rank(comm);
    int32_t turn = 0;
    void *memory;
    kolo_comm *sub;
    kolo_request *q;
    KOLO_TRY(kolo_comm_alloc(comm, COUNT * sizeof(float), &memory));
    float *x = memory;
    KOLO_TRY(kolo_comm_create_group(comm, all, 3, 1, &sub));
    kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                              .output = x,
                              .count = COUNT,
                              .algorithm = KOLO_ALGORITHM_DIRECT};
    KOLO_TRY(kolo_request_create(sub, &opts, &q));
    for (int i = 0; i < COUNT; i++) x[i] = 1;
    if (rank < 2) KOLO_TRY(kolo_request_start(q));
    if (rank == 0) {
        KOLO_TRY(kolo_send(comm, &turn, 1, KOLO_DTYPE_I32, 1, 2)); /* it has started */
        if (kolo_request_wait(q, 0) != KOLO_ERR_PEER) return wrong("a revoked allreduce", rank);
        for (int i = 0; i < COUNT; i++) x[i] = 5;
        KOLO_TRY(kolo_send(comm, &turn, 1, KOLO_DTYPE_I32, 2, 2));
    } else if (rank == 1) {
        KOLO_TRY(kolo_recv(comm, &turn, 1, KOLO_DTYPE_I32, 0, 2));
        kolo_comm_revoke(sub, "without rank 2");
    } else {
        KOLO_TRY(kolo_recv(comm, &turn, 1, KOLO_DTYPE_I32, 0, 2));
        kolo_status status = kolo_request_start(q);
        if (status == KOLO_OK) status = kolo_request_wait(q, 0);
        if (status != KOLO_ERR_PEER) return wrong("a late rank", rank);
    }
    KOLO_TRY(kolo_barrier(comm));
    for (int i = 0; i < COUNT && rank == 0; i++) {
        if (x[i] != 5) return wrong("a late rank has written to a vector", i);
    }
    return KOLO_OK;
}

static void a_late_rank_does_not_write_to_revoked_vectors(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_THREAD, late_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_SHM, late_body, NULL, 0));
}

/* Two groups are created at once, while collectives of the whole group go on. */
static kolo_status creation_body(kolo_comm *comm, const void *arg, void *result) {
    static const int all[] = {2, 1, 0}, some[] = {0, 2};
    int rank = kolo_comm_rank(comm);
    kolo_creation *first, *second = NULL;
    kolo_comm *subs[2] = {NULL, NULL};
    int32_t x = 1;
    KOLO_TRY(kolo_creation_start(comm, all, 3, 1, &first));
    if (rank != 1) KOLO_TRY(kolo_creation_start(comm, some, 2, 2, &second));
    for (int i = 0; i < 10; i++) KOLO_TRY(kolo_allreduce(comm, &x, 1, KOLO_DTYPE_I32, KOLO_SUM));
    for (bool complete = false; !complete;) KOLO_TRY(kolo_creation_test(first, &complete));
    if (second) KOLO_TRY(kolo_creation_wait(second, &subs[1]));
    KOLO_TRY(kolo_creation_wait(first, &subs[0]));
    if (kolo_comm_rank(subs[0]) != 2 - rank) return wrong("order", rank);
    for (int g = 0; g < 2; g++) {
        x = 1;
        if (subs[g]) KOLO_TRY(kolo_allreduce(subs[g], &x, 1, KOLO_DTYPE_I32, KOLO_SUM));
        if (subs[g] && x != 3 - g) return wrong("sum", rank);
    }
    if (kolo_creation_start(comm, all, 3, -1, &first) != KOLO_ERR_ARG) return wrong("tag", rank);
    static const int bad[][2] = {{0, 3}, {-1, 0}, {1, 1}};
    for (int i = 0; i < 3; i++) {
        if (kolo_creation_start(comm, bad[i], 2, 1, &first) != KOLO_ERR_ARG)
            return wrong("list", i);
    }
    return kolo_barrier(comm);
}

static void groups_are_created_without_blocking(void **state) {
    static const rank_transport all[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    for (size_t t = 0; t < KOLO_COUNT(all); t++) {
        ASSERT_OK(run_ranks(3, all[t], creation_body, NULL, 0));
    }
}

/* Memory fails in turn on one member of a group: both get the error, or the whole is broken. */
static kolo_status starved_members_body(kolo_comm *comm, const void *arg, void *result) {
    static const int both[] = {0, 1};
    int rank = kolo_comm_rank(comm);
    for (long nth = 1; nth <= 30; nth += 2) {
        kolo_comm *sub = NULL;
        if (rank == 1) kolo_alloc_fail_nth(nth);
        kolo_status status = kolo_comm_create_group(comm, both, 2, 3, &sub);
        kolo_alloc_fail_nth(0);
        if (status != KOLO_OK && status != KOLO_ERR_NOMEM) return status;
        if (comm->broken) return KOLO_OK;
        int32_t failed = status != KOLO_OK, total = failed;
        kolo_status after = kolo_allreduce(comm, &total, 1, KOLO_DTYPE_I32, KOLO_SUM);
        if (after == KOLO_ERR_NOMEM) return KOLO_OK; /* the other rank has broken it */
        KOLO_TRY(after);
        if (total != failed * 2) return wrong("only one member failed", rank);
        if (status == KOLO_OK) KOLO_TRY(kolo_barrier(sub));
        kolo_comm_destroy(sub);
    }
    return KOLO_OK;
}

static void lack_of_memory_is_reported_to_members(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_SHM, starved_members_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, starved_members_body, NULL, 0));
}

TEST_MAIN(test_comm_group) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_create_and_revoke_groups),
        cmocka_unit_test(a_late_rank_does_not_write_to_revoked_vectors),
        cmocka_unit_test(groups_are_created_without_blocking),
        cmocka_unit_test(lack_of_memory_is_reported_to_members),
    };
    return cmocka_run_group_tests_name("comm_group", tests, NULL, NULL);
}
