#include "train/session/memory.h"

#include "base/number.h"
#include "base/process.h"
#include "plan/rounds.h"
#include "train/session/internal.h"

static const double gib = 1 << 30;

kolo_plan_memory kolo_session_memory(const kolo_session *s) {
    kolo_plan_memory m = kolo_plan_memory_of(kolo_session_plan(s));
    if (s->rounds) m.gradients += kolo_rounds_bytes(s->rounds);
    return m;
}

kolo_status kolo_session_check_memory(const kolo_session *session, kolo_comm *comm, size_t copies) {
    kolo_plan_memory m = kolo_session_memory(session);
    int ranks = comm ? kolo_comm_local_size(comm) : 1;
    double one = (double)m.store + (double)m.gradients + (double)m.arena + (double)m.scratch;
    double limit = (double)kolo_memory_limit(), twice = (double)m.shared * (ranks - 1);
    if (limit <= 0 || one * ranks - twice + (double)copies <= limit) return KOLO_OK;
    char copied[48] = "";
    if (copies > 0) {
        kolo_snprintf(copied, sizeof copied, ", copies for checkpoints %.1f GiB",
                      (double)copies / gib);
    }
    return KOLO_FAIL(
        KOLO_ERR_NOMEM,
        "%d worker%s %.1f GiB (parameters and optimizer %.1f, gradients "
        "%.1f, values of a step %.1f)%s, and this machine has %.1f GiB for them: take a "
        "smaller model or batch, fewer workers, --accumulate or --recompute full%s",
        ranks, ranks == 1 ? " needs" : "s need each", one / gib, (double)m.store / gib,
        (double)m.gradients / gib, (double)(m.arena + m.scratch) / gib, copied, limit / gib,
        copies > 0 ? ", or --wait-for-saves" : "");
}
