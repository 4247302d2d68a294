#include "comm/bench/bench_ranks.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/family.h"

#include <sched.h>
#include <string.h>

enum { SLEEP_NS = 1000000 };
enum {
    LEAST = 32 << 20,
    TIMES = 32,
    TURN_BYTES = 1 << 20
}; /* a turn: until the next look at the clock */

/* ---- a barrier ---- */

static kolo_status sleep_until_complete(const kolo_comm *comm, kolo_request *barrier) {
    const int64_t end_ns = kolo_now_ns() + comm->timeout_ns;
    bool complete = false;
    KOLO_TRY(kolo_request_test(barrier, &complete));
    while (!complete && kolo_now_ns() < end_ns) {
        kolo_sleep_ns(SLEEP_NS);
        KOLO_TRY(kolo_request_test(barrier, &complete));
    }
    return complete ? KOLO_OK : kolo_request_wait(barrier, 0);
}

kolo_status kolo_bench_barrier(kolo_comm *comm) {
    kolo_request *barrier;
    KOLO_TRY(kolo_barrier_create(comm, "benchmark", &barrier));
    kolo_status status = kolo_request_start(barrier);
    if (status == KOLO_OK) status = sleep_until_complete(comm, barrier);
    kolo_request_destroy(barrier);
    return status;
}

/* ---- copies ---- */

/* Finds the vectors of the next rank here; NULL: they are not mapped. */
static kolo_status find_next(const kolo_bench_copies *c, const char **next) {
    kolo_comm *comm = c->comm;
    const int peer = (comm->rank + 1) % comm->size;
    kolo_transport *t = comm->transport;
    const size_t size = (size_t)comm->size;
    uint64_t *handles = kolo_zalloc(size * sizeof *handles);
    if (!handles) return KOLO_NOMEM(size * sizeof *handles);
    handles[comm->rank] = t->ops->handle(t, c->memory, c->most);
    const kolo_status status = kolo_allgather(comm, NULL, handles, 1, KOLO_DTYPE_U64);
    const bool maps = status == KOLO_OK && handles[peer] != 0 && kolo_comm_maps(comm, peer);
    *next = maps ? t->ops->window(t, peer, handles[peer], c->most) : NULL;
    kolo_free(handles);
    return status;
}

kolo_status kolo_bench_copies_init(kolo_comm *comm, size_t most, bool registered,
                                   kolo_bench_copies *c) {
    const size_t least = TIMES * most < LEAST ? TIMES * most : LEAST;
    const size_t bytes = kolo_round_up(most > least ? most : least, TURN_BYTES);
    void *memory = NULL;
    if (registered) KOLO_TRY(kolo_comm_alloc(comm, 2 * bytes, &memory));
    if (!registered) memory = kolo_pages_map(2 * bytes);
    if (!memory) return KOLO_NOMEM(2 * bytes);
    *c = (kolo_bench_copies){.comm = comm,
                             .least = least,
                             .most = bytes,
                             .memory = memory,
                             .to = (char *)memory + bytes,
                             .registered = registered};
    memset(memory, 1, 2 * bytes);
    const char *next;
    KOLO_TRY(find_next(c, &next));
    c->from = next ? next : c->memory;
    return KOLO_OK;
}

void kolo_bench_copies_fini(kolo_bench_copies *c) {
    if (!c->registered) kolo_pages_unmap(c->memory, 2 * c->most);
}

kolo_status kolo_bench_copies_rate(const kolo_bench_copies *c, size_t bytes, bool takes_part,
                                   int64_t budget_ms, double *rate) {
    const size_t vector = kolo_round_up(bytes > c->least ? bytes : c->least, TURN_BYTES);
    KOLO_ASSERT(vector <= c->most);
    KOLO_TRY(kolo_barrier(c->comm));
    const int64_t begin_ns = kolo_now_ns(), end_ns = begin_ns + kolo_ms_to_ns(budget_ms);
    int64_t now_ns = begin_ns;
    double copied = 0, now = 0;
    for (size_t at = 0; takes_part && now_ns < end_ns; at = (at + TURN_BYTES) % vector) {
        memcpy(c->to + at, c->from + at, TURN_BYTES);
        copied += TURN_BYTES;
        sched_yield(); /* all ranks copy, also where they share processors */
        now_ns = kolo_now_ns();
    }
    if (takes_part) now = copied / ((double)(now_ns - begin_ns) * 1e-3);
    KOLO_TRY(kolo_bench_barrier(c->comm));
    KOLO_TRY(kolo_allreduce(c->comm, &now, 1, KOLO_DTYPE_F64, KOLO_SUM));
    if (now > *rate) *rate = now;
    return KOLO_OK;
}
