/* Memory that all ranks of a host have. */
#include "base/compiler.h"
#include "base/status.h"
#include "kolo/host_memory.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

enum { RANKS = 3, PART = 100000 };

/* What each rank writes, all read. */
static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    void *memory;
    (void)arg;
    (void)result;
    if (!kolo_comm_shares_memory(comm)) {
        kolo_status status = kolo_comm_alloc_shared(comm, PART, &memory);
        return status == KOLO_ERR_UNSUPPORTED ? KOLO_OK : KOLO_ERR_ARG;
    }
    for (int round = 0; round < 2; round++) { /* memory of its own in each */
        KOLO_TRY(kolo_comm_alloc_shared(comm, (size_t)RANKS * PART, &memory));
        unsigned char *bytes = memory;
        for (int i = 0; i < PART; i++) {
            if (bytes[(size_t)rank * PART + (size_t)i] != 0) return KOLO_ERR_FORMAT;
        }
        KOLO_TRY(kolo_barrier(comm));
        memset(bytes + (size_t)rank * PART, rank + 1, PART);
        KOLO_TRY(kolo_barrier(comm));
        for (size_t i = 0; i < (size_t)RANKS * PART; i++) {
            if (bytes[i] != i / PART + 1) return KOLO_ERR_FORMAT;
        }
    }
    return kolo_barrier(comm);
}

static void all_ranks_have_the_memory(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    (void)state;
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        rank_job job = {.n = RANKS, .transport = transports[t], .body = body};
        ASSERT_OK(run_rank_job(&job));
    }
}

/* More than the segment of rank 0 has: an error on all ranks. */
static kolo_status too_much(kolo_comm *comm, const void *arg, void *result) {
    void *memory;
    (void)arg;
    (void)result;
    kolo_status status = kolo_comm_alloc_shared(comm, (size_t)1 << 60, &memory);
    return status == KOLO_ERR_NOMEM ? kolo_barrier(comm) : KOLO_ERR_ARG;
}

static void all_ranks_lack_memory_alike(void **state) {
    (void)state;
    rank_job job = {.n = RANKS, .transport = RANKS_SHM, .body = too_much};
    ASSERT_OK(run_rank_job(&job));
}

TEST_MAIN(test_comm_host_memory) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_have_the_memory),
        cmocka_unit_test(all_ranks_lack_memory_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
