/* Memory of all ranks of a host: part of the segment of rank 0, which the others map. */
#include "kolo/host_memory.h"

#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/failure.h"
#include "comm/engine/lock.h"

bool kolo_comm_shares_memory(const kolo_comm *comm) {
    return comm->transport->windows && !comm->backend;
}

bool kolo_comm_sums_in_rank_order(const kolo_comm *comm, kolo_algorithm algorithm) {
    const kolo_algorithm a = algorithm ? algorithm : comm->algorithm;
    const size_t sizes[] = {0, (size_t)1 << 40}; /* costs are linear in the size */
    if (!kolo_comm_shares_memory(comm)) return false;
    if (a != KOLO_ALGORITHM_AUTO) return a == KOLO_ALGORITHM_DIRECT;
    for (size_t i = 0; i < KOLO_COUNT(sizes); i++) {
        if (kolo_comm_costs_choose(&comm->costs, true, comm->size, 1, sizes[i]) !=
            KOLO_ALGORITHM_DIRECT) {
            return false;
        }
    }
    return true;
}

/* The handle of new memory of rank 0; 0 on failure. */
static uint64_t offer(kolo_comm *comm, size_t bytes, void **memory, kolo_status *status) {
    *status = kolo_comm_alloc(comm, bytes, memory);
    if (*status != KOLO_OK) return 0;
    KOLO_COMM_LOCK_SCOPE(comm);
    return comm->transport->ops->handle(comm->transport, *memory, bytes);
}

kolo_status kolo_comm_alloc_shared(kolo_comm *comm, size_t bytes, void **memory) {
    kolo_status status = KOLO_OK;
    void *own = NULL;
    KOLO_COMM_CLAIM(comm);
    if (!kolo_comm_shares_memory(comm)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "the ranks of this group do not share memory (transport %s)",
                         kolo_comm_transport(comm));
    }
    uint64_t handle = comm->rank == 0 ? offer(comm, bytes, &own, &status) : 0;
    KOLO_TRY(kolo_broadcast(comm, &handle, sizeof handle, KOLO_DTYPE_U8, 0));
    KOLO_TRY(status);
    if (comm->rank > 0 && handle) {
        KOLO_COMM_LOCK_SCOPE(comm);
        own = comm->transport->ops->window(comm->transport, 0, handle, bytes);
    }
    if (!own) {
        return KOLO_FAIL(KOLO_ERR_NOMEM, "rank 0 has no room for %zu bytes of shared memory",
                         bytes);
    }
    *memory = own;
    return KOLO_OK;
}
