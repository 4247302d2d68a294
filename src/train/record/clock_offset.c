/* Offsets of clocks from round trips. */
#include "train/record/clock_offset.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/session/agree.h"

enum { ROUND_TRIPS = 16, TAG = 0x6b6c6f };

typedef struct offset {
    int64_t ns, error_ns;
} offset;

/* This rank's part of the round trips with rank 0. */
static kolo_status ask(kolo_comm *comm, offset *found) {
    found->error_ns = INT64_MAX;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        int64_t begin = kolo_now_ns(), there;
        KOLO_TRY(kolo_send(comm, &begin, 1, KOLO_DTYPE_I64, 0, TAG));
        KOLO_TRY(kolo_recv(comm, &there, 1, KOLO_DTYPE_I64, 0, TAG));
        const int64_t half = (kolo_now_ns() - begin + 1) / 2;
        if (half < found->error_ns) *found = (offset){there - begin - half, half};
    }
    return KOLO_OK;
}

static kolo_status answer(kolo_comm *comm, int rank) {
    for (int i = 0; i < ROUND_TRIPS; i++) {
        int64_t time;
        KOLO_TRY(kolo_recv(comm, &time, 1, KOLO_DTYPE_I64, rank, TAG));
        time = kolo_now_ns();
        KOLO_TRY(kolo_send(comm, &time, 1, KOLO_DTYPE_I64, rank, TAG));
    }
    return KOLO_OK;
}

/* The lowest rank of a host. */
static int first_of(const kolo_comm *comm, int host) {
    int rank = 0;
    while (kolo_comm_host(comm, rank) != host) rank++;
    return rank;
}

kolo_status kolo_clock_offset(kolo_comm *comm, int64_t *ns, int64_t *error_ns) {
    *ns = *error_ns = 0;
    if (!comm || kolo_comm_host_count(comm) == 1) return KOLO_OK;
    const int rank = kolo_comm_rank(comm), own = first_of(comm, kolo_comm_host(comm, rank));
    offset found = {0};
    for (int host = 1; host < kolo_comm_host_count(comm); host++) {
        const int asking = first_of(comm, host);
        if (rank == 0) KOLO_TRY(answer(comm, asking));
        if (rank == asking) KOLO_TRY(ask(comm, &found));
    }
    const size_t size = (size_t)kolo_comm_size(comm);
    offset *all = kolo_alloc(size * sizeof *all);
    kolo_status status = kolo_agree(comm, all ? KOLO_OK : KOLO_NOMEM(size * sizeof *all));
    if (status == KOLO_OK && all) status = kolo_allgather(comm, &found, all, 2, KOLO_DTYPE_I64);
    if (status == KOLO_OK && all) {
        *ns = all[own].ns;
        *error_ns = all[own].error_ns;
    }
    kolo_free(all);
    return status;
}
