/* Properties of a communicator. */
#include "comm/engine/comm.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/engine/offload.h"
#include "comm/engine/traffic.h"
#include "kolo/embed.h"

enum {
    CHUNK_DEFAULT = 256 << 10,
    CHUNK_NETWORK = 2 << 20, /* between two chunks a link is idle for one round trip */
};

int kolo_comm_rank(const kolo_comm *comm) { return comm->rank; }
int kolo_comm_size(const kolo_comm *comm) { return comm->size; }
int kolo_comm_local_rank(const kolo_comm *comm) { return comm->local_rank; }
int kolo_comm_local_size(const kolo_comm *comm) { return comm->local_size; }
int kolo_comm_local_processors(const kolo_comm *comm) { return comm->processors; }
int kolo_comm_host_count(const kolo_comm *comm) { return comm->host_of ? comm->n_hosts : 1; }
int kolo_comm_host(const kolo_comm *comm, int rank) {
    return comm->host_of && rank >= 0 && rank < comm->size ? comm->host_of[rank] : 0;
}
const char *kolo_comm_transport(const kolo_comm *comm) {
    return comm->backend ? comm->backend->ops->name : comm->transport->name;
}

kolo_status kolo_comm_peer_traffic(kolo_comm *comm, int peer, kolo_peer_traffic *traffic) {
    if (peer < 0 || peer >= comm->size) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank %d outside the group of %d", peer, comm->size);
    }
    KOLO_COMM_LOCK_SCOPE(comm);
    *traffic = kolo_traffic_with(comm, peer);
    return KOLO_OK;
}

void kolo_comm_keep_memory(kolo_comm *comm) {
    KOLO_COMM_LOCK_SCOPE(comm);
    kolo_comm_whole(comm)->transport->segment.kept = true;
}

kolo_status kolo_comm_alloc(kolo_comm *comm, size_t bytes, void **memory) {
    KOLO_COMM_CLAIM(comm);
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(kolo_comm_check(comm));
    return kolo_segment_alloc(&comm->transport->segment, bytes, memory);
}

kolo_status kolo_comm_set_hosts(kolo_comm *comm, const int *hosts) {
    int *host_of = kolo_zalloc((size_t)comm->size * sizeof *host_of), n = 0;
    if (!host_of) return KOLO_NOMEM((size_t)comm->size * sizeof *host_of);
    for (int r = 0; r < comm->size; r++) { /* counted in the order of their lowest ranks */
        int same = 0;
        while (hosts[same] != hosts[r]) same++;
        host_of[r] = same < r ? host_of[same] : n++;
    }
    kolo_free(comm->host_of);
    comm->host_of = host_of;
    comm->n_hosts = n;
    return KOLO_OK;
}

void kolo_comm_set_gate(kolo_comm *comm, kolo_comm_gate gate, void *arg) {
    KOLO_COMM_LOCK_SCOPE(comm);
    comm->gate = gate;
    comm->gate_arg = arg;
}

void kolo_comm_name_ranks(kolo_comm *comm, kolo_rank_namer namer, const void *arg) {
    KOLO_COMM_LOCK_SCOPE(comm);
    comm->namer = namer;
    comm->namer_arg = arg;
}

void kolo_comm_set_tuning(kolo_comm *comm, kolo_comm_tuning tuning) {
    KOLO_COMM_LOCK_SCOPE(comm);
    if (tuning.chunk_bytes == 0) {
        tuning.chunk_bytes = comm->transport->events >= 0 ? CHUNK_NETWORK : CHUNK_DEFAULT;
    }
    if (tuning.eager_bytes == 0 || tuning.eager_bytes > KOLO_EAGER_BYTES) {
        tuning.eager_bytes = KOLO_EAGER_BYTES;
    }
    comm->tuning = tuning;
}
