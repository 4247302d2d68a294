/* A transport for some ranks of another shared-memory transport. It has its own control blocks, in
 * the segments of the parent, so that sequence numbers, messages and failures are separate; memory
 * and processes are the parent's.
 *
 * When a rank leaves a sub-group, other members may still read its control block. So the block is
 * retired, together with its stage blocks, and reused by the next sub-group of that size after all
 * members have left: memory is bounded by the number of sub-groups that exist at the same time. */
#include "comm/transport/shm/subgroup.h"

#include "base/memory.h"
#include "comm/transport/shm/control_block.h"

#include <stdatomic.h>
#include <string.h>

/* A retired control block, with its owner's state of the group. */
typedef struct kolo_retired {
    struct kolo_retired *next;
    int rank, size;
    kolo_control_block **blocks;
    kolo_channel_end *ends;
    size_t stage_bytes;
    uint64_t generations[]; /* [size]: of the members' control blocks */
} kolo_retired;

typedef struct sub_transport {
    kolo_block_transport transport; /* first, so that a kolo_transport is one of these */
    kolo_block_transport *root;
    kolo_transport *parent;
    int members[]; /* the parent's ranks */
} sub_transport;

static sub_transport *sub(kolo_transport *t) { return (sub_transport *)t; }

static uint64_t sub_handle(kolo_transport *t, const void *data, size_t bytes) {
    kolo_transport *parent = sub(t)->parent;
    return parent->ops->handle(parent, data, bytes);
}

static void *sub_window(kolo_transport *t, int peer, uint64_t handle, size_t bytes) {
    kolo_transport *parent = sub(t)->parent;
    return parent->ops->window(parent, sub(t)->members[peer], handle, bytes);
}

/* The peer's state in this group. A failure in the parent does not concern it, unless the peer's
 * process has ended. */
static void sub_peer_state(kolo_transport *t, int peer, kolo_peer_state *state) {
    kolo_transport *parent = sub(t)->parent;
    kolo_peer_state above;
    parent->ops->peer_state(parent, sub(t)->members[peer],
                            &above); /* before the flags of this group */
    kolo_block_peer_state(t, peer, state);
    state->ended = above.ended;
    if (above.ended && state->condition == KOLO_PEER_ALIVE) state->condition = KOLO_PEER_LOST;
}

static bool all_left(const kolo_retired *r) {
    for (int p = 0; p < r->size; p++) {
        if (!r->blocks[p] || p == r->rank) continue; /* on another host */
        uint64_t left = atomic_load_explicit(&r->blocks[p]->left_generation, memory_order_acquire);
        if (left < r->generations[p]) return false;
    }
    return true;
}

static void free_retired(kolo_retired *r) {
    kolo_free(r->blocks);
    kolo_free(r->ends);
    kolo_free(r);
}

/* Takes a retired control block for a group of `size`; NULL if there is none. */
static kolo_control_block *reuse_retired(kolo_block_transport *root, int size) {
    for (kolo_retired **at = &root->retired; *at; at = &(*at)->next) {
        kolo_retired *r = *at;
        if (r->size != size || !all_left(r)) continue;
        kolo_control_block *block = r->blocks[r->rank];
        kolo_block_give_stages(&root->base.segment, r->ends, size, r->stage_bytes);
        *at = r->next;
        free_retired(r);
        return block;
    }
    return NULL;
}

/* Without memory for the record the block is not reused. */
static void retire(sub_transport *s, const char *why) {
    int size = s->transport.base.size;
    kolo_control_block **blocks = s->transport.blocks;
    kolo_retired *r = kolo_zalloc(sizeof *r + (size_t)size * sizeof r->generations[0]);
    for (int p = 0; p < size && r; p++) r->generations[p] = blocks[p] ? blocks[p]->generation : 0;
    kolo_control_block *own = blocks[s->transport.base.rank];
    kolo_block_leave(&s->transport.base, why);
    atomic_store_explicit(&own->left_generation, own->generation, memory_order_release);
    if (!r) return;
    r->rank = s->transport.base.rank;
    r->size = size;
    r->blocks = blocks;
    r->ends = s->transport.ends;
    r->stage_bytes = s->transport.stage_bytes;
    r->next = s->root->retired;
    s->root->retired = r;
    s->transport.blocks = NULL;
    s->transport.ends = NULL;
}

void kolo_subgroup_free_retired(kolo_block_transport *root) {
    while (root->retired) {
        kolo_retired *next = root->retired->next;
        free_retired(root->retired);
        root->retired = next;
    }
}

static void sub_destroy(kolo_transport *t, const char *why) {
    retire(sub(t), why);
    kolo_block_fini(&sub(t)->transport);
    kolo_free(t);
}

static const kolo_transport_ops sub_ops = {
    .start = kolo_block_start,
    .signal = kolo_block_signal,
    .query = kolo_block_query,
    .finish = kolo_block_finish,
    .send = kolo_block_send,
    .sent = kolo_block_sent,
    .recv = kolo_block_recv,
    .handle = sub_handle,
    .window = sub_window,
    .peer_state = sub_peer_state,
    .report = kolo_block_report,
    .subgroup = kolo_subgroup_create,
    .attach = kolo_subgroup_attach,
    .destroy = sub_destroy,
};

kolo_status kolo_subgroup_create(kolo_transport *parent, const int *members, int size, int rank,
                                 kolo_transport **transport, kolo_subgroup_address *address) {
    size_t bytes = sizeof(sub_transport) + (size_t)size * sizeof(int);
    sub_transport *s = kolo_zalloc(bytes);
    if (!s) return KOLO_NOMEM(bytes);
    s->root = parent->segment.of ? sub(parent)->root : (kolo_block_transport *)parent;
    kolo_status status = kolo_block_init_in(&s->transport, &sub_ops, rank, size, &parent->segment,
                                            reuse_retired(s->root, size));
    if (status != KOLO_OK) {
        kolo_free(s);
        return status;
    }
    s->parent = parent;
    s->transport.base.name = size == 1 ? "self" : parent->reaches_all ? "thread" : "shm";
    memcpy(s->members, members, (size_t)size * sizeof(int));
    s->transport.base.reaches_all = parent->reaches_all;
    if (parent->accesses) s->transport.base.accesses = &s->transport.blocks[rank]->accesses;
    uint64_t handle =
        sub_handle(&s->transport.base, s->transport.blocks[rank], kolo_control_block_bytes(size));
    *address = (kolo_subgroup_address){.block = handle};
    *transport = &s->transport.base;
    return KOLO_OK;
}

kolo_transport *kolo_subgroup_parent(kolo_transport *t, int peer, int *member) {
    *member = sub(t)->members[peer];
    return sub(t)->parent;
}

kolo_status kolo_subgroup_attach(kolo_transport *t, int peer,
                                 const kolo_subgroup_address *address) {
    sub_transport *s = sub(t);
    if (peer != t->rank)
        s->transport.blocks[peer] =
            sub_window(t, peer, address->block, kolo_control_block_bytes(t->size));
    if (s->transport.blocks[peer]) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sent a control block handle outside of its memory",
                     s->members[peer]);
}
