/* Transport `thread`: the ranks are threads of one process, so all memory can be accessed directly.
 * With one rank it is called `self`. The transports of all ranks are freed by the last rank that
 * destroys its own. */
#include "base/memory.h"
#include "comm/transport/shm/control_block.h"
#include "comm/transport/shm/subgroup.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct thread_group {
    _Atomic int members; /* not yet destroyed; acq_rel: the last one sees all others' writes */
    int size;
    kolo_block_transport ranks[];
} thread_group;

static uint64_t thread_handle(kolo_transport *t, const void *data, size_t bytes) {
    return (uint64_t)(uintptr_t)data;
}

static void *thread_window(kolo_transport *t, int peer, uint64_t handle, size_t bytes) {
    return (
        void *)(uintptr_t)handle; // NOLINT(performance-no-int-to-ptr): a handle is an address here
}

static void free_group(thread_group *group, int n) {
    for (int r = 0; r < n; r++) {
        kolo_subgroup_free_retired(&group->ranks[r]);
        kolo_block_fini(&group->ranks[r]);
    }
    kolo_free(group);
}

static void thread_destroy(kolo_transport *t, const char *why) {
    kolo_block_transport *own = (kolo_block_transport *)t;
    thread_group *group = (thread_group *)((char *)(own - t->rank) - offsetof(thread_group, ranks));
    kolo_block_leave(t, why);
    if (atomic_fetch_sub_explicit(&group->members, 1, memory_order_acq_rel) == 1) {
        free_group(group, group->size);
    }
}

static const kolo_transport_ops thread_ops = {
    .start = kolo_block_start,
    .signal = kolo_block_signal,
    .query = kolo_block_query,
    .finish = kolo_block_finish,
    .send = kolo_block_send,
    .sent = kolo_block_sent,
    .recv = kolo_block_recv,
    .handle = thread_handle,
    .window = thread_window,
    .peer_state = kolo_block_peer_state,
    .report = kolo_block_report,
    .subgroup = kolo_subgroup_create,
    .attach = kolo_subgroup_attach,
    .destroy = thread_destroy,
};

kolo_status kolo_thread_transports(int n, size_t segment_bytes, kolo_transport **out) {
    thread_group *group = kolo_zalloc(sizeof *group + (size_t)n * sizeof group->ranks[0]);
    if (!group) return KOLO_NOMEM((size_t)n * sizeof group->ranks[0]);
    group->size = n;
    segment_bytes = kolo_segment_fit(segment_bytes, n, false);
    atomic_init(&group->members, n);
    for (int r = 0; r < n; r++) {
        kolo_status status =
            kolo_block_init(&group->ranks[r], &thread_ops, r, n, segment_bytes, false);
        if (status != KOLO_OK) {
            free_group(group, r);
            return status;
        }
        group->ranks[r].base.name = n == 1 ? "self" : "thread";
        group->ranks[r].base.reaches_all = true;
        group->ranks[r].base.accesses = &group->ranks[r].blocks[r]->accesses;
    }
    for (int r = 0; r < n; r++) {
        for (int p = 0; p < n; p++) group->ranks[r].blocks[p] = group->ranks[p].blocks[p];
    }
    for (int r = 0; r < n; r++) out[r] = &group->ranks[r].base;
    return KOLO_OK;
}
