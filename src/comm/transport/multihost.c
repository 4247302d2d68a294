/* Transports `shm+tcp`, `shm+ucx`: one group over several hosts. Calls about a peer of this host
 * go to shared memory, calls about other peers to the transport `tcp` or `ucx`, and calls about all
 * peers to both.
 *
 * Memory can be mapped only between ranks of a host, so algorithms that need the memory of all
 * ranks are not available (hierarchical uses it where possible); messages between ranks of a host
 * go through memory. A sub-group whose members are all on one host, or all on different ones, uses
 * only one of the two transports. */
#include "comm/transport/multihost.h"

#include "base/status.h"
#include "comm/transport/shm/control_block.h"
#include "comm/transport/shm/shm.h"
#include "comm/transport/shm/subgroup.h"

/* The two parts. The transport itself is the one in memory, with its operations replaced. */
static kolo_transport *remote(kolo_transport *t) { return ((kolo_block_transport *)t)->remote; }
static const kolo_transport_ops *memory(kolo_transport *t) {
    return ((kolo_block_transport *)t)->memory;
}

static bool is_local(kolo_transport *t, int peer) {
    return ((kolo_block_transport *)t)->blocks[peer] != NULL;
}

static bool hosts_start(kolo_transport *t, uint64_t seq, void **payload) {
    void *unused; /* payload is only delivered inside the host, from the slot */
    return kolo_block_start(t, seq, payload) && remote(t)->ops->start(remote(t), seq, &unused);
}

static void hosts_signal(kolo_transport *t, uint64_t seq, uint32_t phase,
                         const kolo_announcement *call, const uint64_t *peer_counts,
                         const char *title) {
    kolo_block_signal(t, seq, phase, call, peer_counts, title);
    if (phase > 0) {
        remote(t)->ops->signal(remote(t), seq, phase, call, peer_counts, title);
        return;
    }
    kolo_announcement remote_call = *call; /* handles are of no use there */
    remote_call.data = remote_call.scratch = 0;
    remote(t)->ops->signal(remote(t), seq, phase, &remote_call, peer_counts, title);
}

static bool hosts_query(kolo_transport *t, uint64_t seq, int peer, kolo_peer_call *peer_call) {
    return is_local(t, peer) ? kolo_block_query(t, seq, peer, peer_call)
                             : remote(t)->ops->query(remote(t), seq, peer, peer_call);
}

static void hosts_finish(kolo_transport *t, uint64_t finished) {
    kolo_block_finish(t, finished);
    remote(t)->ops->finish(remote(t), finished);
}

static kolo_status hosts_send(kolo_transport *t, uint64_t seq, int peer, const void *data,
                              size_t bytes, size_t *queued, bool *accepted) {
    return is_local(t, peer)
               ? kolo_block_send(t, seq, peer, data, bytes, queued, accepted)
               : remote(t)->ops->send(remote(t), seq, peer, data, bytes, queued, accepted);
}

static bool hosts_sent(kolo_transport *t, uint64_t seq, int peer) {
    return is_local(t, peer) ? kolo_block_sent(t, seq, peer)
                             : remote(t)->ops->sent(remote(t), seq, peer);
}

static kolo_status hosts_recv(kolo_transport *t, uint64_t seq, int peer, void *data, size_t bytes,
                              size_t *received, bool *arrived) {
    return is_local(t, peer)
               ? kolo_block_recv(t, seq, peer, data, bytes, received, arrived)
               : remote(t)->ops->recv(remote(t), seq, peer, data, bytes, received, arrived);
}

static void hosts_need(kolo_transport *t, int peer, bool now) {
    if (!is_local(t, peer)) kolo_transport_need(remote(t), peer, now);
}

static bool hosts_started(kolo_transport *t, uint64_t seq, int peer) {
    kolo_peer_call unused;
    if (is_local(t, peer)) return kolo_block_query(t, seq, peer, &unused);
    return kolo_transport_started(remote(t), seq, peer);
}

static uint64_t hosts_handle(kolo_transport *t, const void *data, size_t bytes) {
    return memory(t)->handle(t, data, bytes);
}

static void *hosts_window(kolo_transport *t, int peer, uint64_t handle, size_t bytes) {
    return is_local(t, peer) ? memory(t)->window(t, peer, handle, bytes) : NULL;
}

static kolo_status hosts_progress(kolo_transport *t, bool *moved) {
    /* NULL in sub-groups: the root group makes progress for all. */
    return remote(t)->ops->progress ? remote(t)->ops->progress(remote(t), moved) : KOLO_OK;
}

static bool hosts_arm(kolo_transport *t) {
    return !remote(t)->ops->arm || remote(t)->ops->arm(remote(t));
}

static void hosts_peer_state(kolo_transport *t, int peer, kolo_peer_state *state) {
    if (is_local(t, peer)) {
        memory(t)->peer_state(t, peer, state);
    } else {
        remote(t)->ops->peer_state(remote(t), peer, state);
    }
}

static void hosts_report(kolo_transport *t, kolo_status status, const char *text) {
    kolo_block_report(t, status, text);
    remote(t)->ops->report(remote(t), status, text);
}

static void hosts_abandon(kolo_transport *t) {
    if (remote(t)->ops->abandon) remote(t)->ops->abandon(remote(t));
    memory(t)->abandon(t);
}

static void hosts_destroy(kolo_transport *t, const char *why) {
    /* Waits for peers, which still need the memory. */
    remote(t)->ops->destroy(remote(t), why);
    memory(t)->destroy(t, why);
}

/* ---- sub-groups ---- */

static kolo_status hosts_sub(kolo_transport *parent, const int *members, int size, int rank,
                             kolo_transport **subgroup, kolo_subgroup_address *address);

static kolo_status hosts_attach(kolo_transport *t, int peer, const kolo_subgroup_address *address) {
    int member;
    kolo_transport *parent = kolo_subgroup_parent(t, peer, &member);
    if (is_local(parent, member)) return memory(t)->attach(t, peer, address);
    return remote(t)->ops->attach(remote(t), peer, address);
}

static const kolo_transport_ops hosts_ops = {
    .start = hosts_start,
    .signal = hosts_signal,
    .query = hosts_query,
    .finish = hosts_finish,
    .send = hosts_send,
    .sent = hosts_sent,
    .recv = hosts_recv,
    .need = hosts_need,
    .started = hosts_started,
    .handle = hosts_handle,
    .window = hosts_window,
    .reaches = is_local,
    .progress = hosts_progress,
    .arm = hosts_arm,
    .peer_state = hosts_peer_state,
    .report = hosts_report,
    .subgroup = hosts_sub,
    .attach = hosts_attach,
    .abandon = hosts_abandon,
    .destroy = hosts_destroy,
};

/* Turns a shared-memory transport into the combined one. */
static void join_parts(kolo_transport *t, kolo_transport *network) {
    kolo_block_transport *b = (kolo_block_transport *)t;
    b->memory = t->ops;
    b->remote = network;
    t->ops = &hosts_ops;
    t->name = network->multihost_name;
    t->windows = false;
    t->events = network->events;
    t->sparse = network->sparse;
    if (network->alarm) network->alarm = t->alarm;
}

static kolo_status hosts_sub(kolo_transport *parent, const int *members, int size, int rank,
                             kolo_transport **subgroup, kolo_subgroup_address *address) {
    int local = 0;
    for (int p = 0; p < size; p++) local += is_local(parent, members[p]);
    if (local == size) return kolo_subgroup_create(parent, members, size, rank, subgroup, address);
    kolo_transport *network;
    KOLO_TRY(remote(parent)->ops->subgroup(remote(parent), members, size, rank, &network, address));
    network->no_wakeup = true; /* other groups of this rank use shared memory */
    network->segment.of = &parent->segment;
    if (local == 1) {
        *subgroup = network;
        return KOLO_OK;
    }
    uint64_t group = address->group;
    kolo_status status = kolo_subgroup_create(parent, members, size, rank, subgroup, address);
    if (status != KOLO_OK) {
        network->ops->destroy(network, NULL);
        return status;
    }
    address->group = group;
    join_parts(*subgroup, network);
    return KOLO_OK;
}

kolo_status kolo_hosts_create(int rank, int size, size_t segment_bytes, kolo_transport *network,
                              kolo_transport **transport) {
    kolo_transport *t;
    kolo_status status = kolo_shm_create(rank, size, segment_bytes, &t);
    if (status != KOLO_OK) {
        network->ops->destroy(network, NULL);
        return status;
    }
    join_parts(t, network);
    *transport = t;
    return KOLO_OK;
}
