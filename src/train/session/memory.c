#include "train/session/memory.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/process.h"
#include "comm/sync/agree.h"
#include "plan/rounds.h"
#include "train/session/internal.h"

#include <math.h>
#include <string.h>

static const double gib = 1 << 30;

static kolo_plan_memory session_memory(const kolo_session *s) {
    kolo_plan_memory m = kolo_plan_memory_of(kolo_session_plan(s));
    if (s->rounds) m.gradients += kolo_rounds_bytes(s->rounds);
    return m;
}

kolo_train_memory kolo_session_memory_parts(const kolo_session *s) {
    const kolo_plan_memory m = session_memory(s);
    return (kolo_train_memory){
        .store = (int64_t)(m.store - m.shared),
        .shared = (int64_t)m.shared,
        .exchanged = (int64_t)m.gradients,
        .values = (int64_t)(m.arena + m.scratch),
    };
}

/* A row of numbers of each rank. */
static kolo_status gather(kolo_comm *comm, const void *own, void *rows, size_t bytes) {
    memcpy(rows, own, bytes);
    return comm ? kolo_allgather(comm, own, rows, bytes / sizeof(int64_t), KOLO_DTYPE_I64)
                : KOLO_OK;
}

kolo_status kolo_gather_memory(kolo_comm *comm, const kolo_train_memory *own,
                               kolo_train_memory *rows) {
    return gather(comm, own, rows, sizeof *own);
}

/* ---- the check ---- */

static double own_bytes(const kolo_train_memory *m) {
    return (double)m->store + (double)m->exchanged + (double)m->values;
}

typedef struct need {
    kolo_train_memory memory;
    int64_t copies; /* for checkpoints */
} need;

/* Of the ranks of this machine. */
typedef struct local_needs {
    int ranks;
    double together, copies; /* what they share counts once */
} local_needs;

static local_needs add_local(const kolo_comm *comm, const need *rows) {
    const int here = comm ? kolo_comm_host(comm, kolo_comm_rank(comm)) : 0;
    local_needs all = {0};
    double shared = 0;
    for (int r = 0; r < (comm ? kolo_comm_size(comm) : 1); r++) {
        if (comm && kolo_comm_host(comm, r) != here) continue;
        all.ranks++;
        all.together += own_bytes(&rows[r].memory);
        all.copies += (double)rows[r].copies;
        shared = fmax(shared, (double)rows[r].memory.shared);
    }
    all.together += shared;
    return all;
}

static kolo_status fail_check(const kolo_train_memory *own, const local_needs *local,
                              double limit) {
    char copied[48] = "", all[48] = "";
    if (local->copies > 0) {
        kolo_snprintf(copied, sizeof copied, ", copies for checkpoints %.1f GiB",
                      local->copies / gib);
    }
    if (local->ranks > 1) {
        kolo_snprintf(all, sizeof all, ", all %d of them %.1f GiB", local->ranks,
                      local->together / gib);
    }
    return KOLO_FAIL(
        KOLO_ERR_NOMEM,
        "a worker needs %.1f GiB (parameters and optimizer %.1f, gradients "
        "%.1f, values of a step %.1f)%s%s, and this machine has %.1f GiB for them: use a "
        "smaller model or batch, fewer workers, --accumulate or --recompute full%s",
        (own_bytes(own) + (double)own->shared) / gib, (double)(own->store + own->shared) / gib,
        (double)own->exchanged / gib, (double)own->values / gib, all, copied, limit / gib,
        local->copies > 0 ? ", or --wait-for-saves" : "");
}

kolo_status kolo_session_check_memory(const kolo_session *session, kolo_comm *comm, size_t copies) {
    const need own = {kolo_session_memory_parts(session), (int64_t)copies};
    const size_t bytes = (size_t)(comm ? kolo_comm_size(comm) : 1) * sizeof own;
    const double limit = (double)kolo_memory_limit();
    need *rows = kolo_zalloc(bytes);
    kolo_status status = kolo_agree(comm, rows ? KOLO_OK : KOLO_NOMEM(bytes));
    if (status == KOLO_OK && rows) status = gather(comm, &own, rows, sizeof own);
    if (status == KOLO_OK && rows) {
        const local_needs local = add_local(comm, rows);
        const bool fits = limit <= 0 || local.together + local.copies <= limit;
        status = kolo_agree(comm, fits ? KOLO_OK : fail_check(&own.memory, &local, limit));
    }
    kolo_free(rows);
    return status;
}
