#include "train/session/memory.h"

#include "plan/rounds.h"
#include "train/session/internal.h"

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

kolo_status kolo_session_check_memory(const kolo_session *session, kolo_comm *comm, size_t copies) {
    const kolo_memory_need own = {.memory = kolo_session_memory_parts(session),
                                  .copies = (int64_t)copies};
    return kolo_check_memory(comm, &own);
}
