/* Memory that all ranks of a host have. */
#include "base/compiler.h"
#include "base/status.h"
#include "comm/engine/request.h"
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

/* ---- reduce-scatters without additions ---- */

enum { COUNT = 1000, STEPS = 3 };

static kolo_request_opts summands_of(float *data, const size_t *counts) {
    return (kolo_request_opts){.kind = KOLO_COLLECTIVE_REDUCE_SCATTER,
                               .dtype = KOLO_DTYPE_F32,
                               .output = data,
                               .counts = counts,
                               .site = "summands"};
}

/* Each rank reads the vectors of all and writes its own slice alone. */
static kolo_status summands_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm), ranks = kolo_comm_size(comm);
    const size_t counts[RANKS] = {COUNT / 2, 0, COUNT - COUNT / 2},
                 first[] = {0, COUNT / 2, COUNT / 2};
    void *memory;
    float private[COUNT];
    kolo_request *q;
    kolo_request_opts opts = summands_of(private, counts);
    if (!kolo_comm_shares_memory(comm) || kolo_summands_create(comm, &opts, &q) == KOLO_OK) {
        KOLO_TRY(kolo_comm_alloc(comm, COUNT * sizeof(float), &memory));
        opts = summands_of(memory, counts);
        const bool refused = kolo_summands_create(comm, &opts, &q) == KOLO_ERR_UNSUPPORTED;
        if (!kolo_comm_shares_memory(comm)) return refused ? KOLO_OK : KOLO_ERR_FORMAT;
    }
    KOLO_TRY(kolo_comm_alloc(comm, COUNT * sizeof(float), &memory));
    opts = summands_of(memory, counts);
    KOLO_TRY(kolo_summands_create(comm, &opts, &q));
    for (int step = 0; step < STEPS; step++) {
        float *own = memory;
        for (int i = 0; i < COUNT; i++) own[i] = (float)(i + 1000 * rank + step);
        KOLO_TRY(kolo_request_start(q));
        KOLO_TRY(kolo_request_wait(q, 0));
        for (size_t i = first[rank]; i < first[rank] + counts[rank]; i++) {
            float sum = 0;
            for (int r = 0; r < ranks; r++) {
                const float *its = kolo_request_summand(q, r);
                if (its[i] != (float)((int)i + 1000 * r + step)) return KOLO_ERR_FORMAT;
                sum += its[i];
            }
            own[i] = sum;
        }
        KOLO_TRY(kolo_barrier(comm));
    }
    kolo_request_destroy(q);
    return KOLO_OK;
}

static void ranks_read_summands(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        rank_job job = {.n = RANKS, .transport = transports[t], .body = summands_body};
        ASSERT_OK(run_rank_job(&job));
    }
}

/* One rank leaves the addition to the caller, the others to the collective. */
static kolo_status odd_body(kolo_comm *comm, const void *arg, void *result) {
    const size_t counts[RANKS] = {COUNT, 0, 0};
    void *memory;
    kolo_request *q;
    KOLO_TRY(kolo_comm_alloc(comm, COUNT * sizeof(float), &memory));
    const kolo_request_opts opts = summands_of(memory, counts);
    KOLO_TRY(kolo_comm_rank(comm) == 1 ? kolo_summands_create(comm, &opts, &q)
                                       : kolo_request_create(comm, &opts, &q));
    KOLO_TRY(kolo_request_start(q));
    return kolo_request_wait(q, 0);
}

static void ranks_must_agree_on_who_adds(void **state) {
    rank_outcome outcomes[RANKS];
    rank_job job = {.n = RANKS, .transport = RANKS_SHM, .body = odd_body, .outcomes = outcomes};
    assert_int_equal(run_rank_job(&job), KOLO_ERR_ARG);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(outcomes[r].status, KOLO_ERR_ARG);
        assert_non_null(strstr(outcomes[r].error, "disagree"));
    }
}

TEST_MAIN(test_comm_host_memory) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_have_the_memory),
        cmocka_unit_test(all_ranks_lack_memory_alike),
        cmocka_unit_test(ranks_read_summands),
        cmocka_unit_test(ranks_must_agree_on_who_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
