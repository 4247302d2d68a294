/* The verdict of an audit. */
#include "train/session/audit.h"

#include "base/status.h"

#include <inttypes.h>

/* The number of computations that gave `hash`. */
static int count_votes(const kolo_audit_mismatch *m, uint64_t hash) {
    int votes = (m->of_owner == hash) + (m->of_auditor == hash);
    for (int r = 0; r < m->ranks; r++) votes += m->again[r] == hash;
    return votes;
}

/* The value that more computations gave than any other; false: there is none. */
static bool find_right(const kolo_audit_mismatch *m, uint64_t *right) {
    int most = 0;
    bool single = false;
    for (int i = -2; i < m->ranks; i++) {
        uint64_t hash = i == -2 ? m->of_owner : i == -1 ? m->of_auditor : m->again[i];
        int votes = count_votes(m, hash);
        if (votes == most && hash != *right) single = false;
        if (votes <= most) continue;
        most = votes;
        *right = hash;
        single = true;
    }
    return single;
}

kolo_status kolo_audit_verdict(const kolo_audit_mismatch *m) {
    uint64_t right = 0;
    if (!find_right(m, &right)) {
        return KOLO_FAIL(KOLO_ERR_PEER,
                         "audit of step %" PRId64
                         ": rank %d and rank %d compute different gradients of logical shard %d, "
                         "repeatedly: one of their machines is faulty; a third worker would "
                         "show which",
                         m->step, m->owner, m->auditor, m->shard);
    }
    int wrong = m->of_owner != right ? m->owner : m->auditor;
    bool again = m->again[wrong] != right;
    return KOLO_FAIL(KOLO_ERR_PEER,
                     "audit of step %" PRId64
                     ": rank %d computed a wrong gradient of logical shard %d, %s: check the "
                     "processor and the memory of its machine, and resume from a checkpoint",
                     m->step, wrong, m->shard,
                     again ? "and again when it repeated that"
                           : "though not when it repeated that");
}
