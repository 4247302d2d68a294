/* Transport `shm`: control blocks in memory files mapped by all ranks of the host
 * (control_block.h), and a local socket connection to each peer. Once the group is formed the
 * connection carries no data: the kernel closes it when a process ends in any way. A rank that
 * leaves in order first sets a flag in its control block. */
#include "comm/transport/shm/shm.h"

#include "base/memory.h"
#include "comm/transport/shm/control_block.h"
#include "comm/transport/shm/private_memory.h"
#include "comm/transport/shm/subgroup.h"
#include "comm/transport/socket.h"

#include <stdatomic.h>
#include <unistd.h>

typedef struct shm_peer {
    char *base; /* its segment, as mapped here */
    int control;
    bool closed; /* the connection is closed */
} shm_peer;

typedef struct shm_transport {
    kolo_block_transport transport; /* first, so that a kolo_transport is one of these */
    shm_peer peers[];
} shm_transport;

static shm_transport *shm(kolo_transport *t) { return (shm_transport *)t; }

/* A handle is the offset in the segment plus one; 0 means none. */
static uint64_t shm_handle(kolo_transport *t, const void *data, size_t bytes) {
    uintptr_t first = (uintptr_t)t->segment.base, p = (uintptr_t)data;
    if (p < first || p - first > t->segment.used || bytes > t->segment.used - (p - first)) return 0;
    return p - first + 1;
}

static void *shm_window(kolo_transport *t, int peer, uint64_t handle, size_t bytes) {
    size_t limit = t->segment.bytes, first = (size_t)handle - 1;
    if (handle == 0 || first > limit || bytes > limit - first) return NULL;
    return shm(t)->peers[peer].base + first;
}

static void shm_peer_state(kolo_transport *t, int peer, kolo_peer_state *state) {
    shm_peer *p = &shm(t)->peers[peer];
    if (!p->closed && peer != t->rank) p->closed = kolo_socket_closed(p->control);
    bool closed = p->closed; /* read before the flags, which a rank sets first */
    kolo_block_peer_state(t, peer, state);
    state->ended = closed;
    if (closed && state->condition == KOLO_PEER_ALIVE) state->condition = KOLO_PEER_LOST;
}

static void shm_abandon(kolo_transport *t) {
    for (int p = 0; p < t->size; p++) {
        if (shm(t)->peers[p].control >= 0) close(shm(t)->peers[p].control);
    }
    close(t->segment.fd);
}

static void shm_destroy(kolo_transport *t, const char *why) {
    shm_transport *s = shm(t);
    kolo_block_leave(t, why);
    for (int p = 0; p < t->size; p++) {
        if (p == t->rank) continue;
        kolo_segment_unmap(s->peers[p].base, t->segment.bytes);
        if (s->peers[p].control >= 0) close(s->peers[p].control);
    }
    kolo_subgroup_free_retired(&s->transport);
    kolo_block_fini(&s->transport);
    kolo_free(s);
}

static const kolo_transport_ops shm_ops = {
    .start = kolo_block_start,
    .signal = kolo_block_signal,
    .query = kolo_block_query,
    .finish = kolo_block_finish,
    .send = kolo_block_send,
    .sent = kolo_block_sent,
    .recv = kolo_block_recv,
    .handle = shm_handle,
    .window = shm_window,
    .peer_state = shm_peer_state,
    .report = kolo_block_report,
    .subgroup = kolo_subgroup_create,
    .attach = kolo_subgroup_attach,
    .abandon = shm_abandon,
    .destroy = shm_destroy,
};

kolo_status kolo_shm_create(int rank, int size, size_t segment_bytes, kolo_transport **transport) {
    shm_transport *s = kolo_zalloc(sizeof *s + (size_t)size * sizeof s->peers[0]);
    if (!s) return KOLO_NOMEM((size_t)size * sizeof s->peers[0]);
    kolo_status status = kolo_block_init(&s->transport, &shm_ops, rank, size, segment_bytes, true);
    if (status != KOLO_OK) {
        kolo_free(s);
        return status;
    }
    s->transport.base.name = "shm";
    for (int p = 0; p < size; p++) s->peers[p].control = -1;
    kolo_private_memory_offer(&s->transport);
    s->peers[rank].base = s->transport.base.segment.base;
    s->transport.base.reads_private =
        s->transport.blocks[rank]->prefers_reads; /* rank 0 decides for all */
    *transport = &s->transport.base;
    return KOLO_OK;
}

kolo_status kolo_shm_attach(kolo_transport *t, int peer, int segment, int control) {
    shm_peer *p = &shm(t)->peers[peer];
    KOLO_ASSERT(peer != t->rank && !p->base);
    p->control = control;
    KOLO_TRY(kolo_segment_map(segment, t->segment.bytes, &p->base));
    shm(t)->transport.blocks[peer] =
        (kolo_control_block *)(p->base + kolo_control_block_offset(peer));
    if (peer == 0) t->reads_private = shm(t)->transport.blocks[0]->prefers_reads;
    return KOLO_OK;
}
