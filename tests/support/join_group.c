#include "support/join_group.h"

#include "base/status.h"
#include "support/support.h"

#include <string.h>

kolo_status join_group(int64_t timeout_ms, kolo_comm **comm) {
    return kolo_comm_create(&(kolo_comm_opts){.timeout_ms = timeout_ms, .segment_bytes = 64 << 20},
                            comm);
}

kolo_status join_and_add(int64_t timeout_ms) {
    kolo_comm *comm;
    float x = 1;
    KOLO_TRY(join_group(timeout_ms, &comm));
    kolo_status status = kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM);
    if (status == KOLO_OK && x != (float)kolo_comm_size(comm)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "the sum is %g", (double)x);
    }
    kolo_comm_destroy(comm);
    return status;
}

kolo_status join_run(int n, rank_body body, rank_outcome *outcomes) {
    return run_rank_job(&(rank_job){
        .n = n, .transport = RANKS_SHM, .body = body, .bare = true, .outcomes = outcomes});
}

void join_expect(const rank_outcome *outcome, kolo_status status, const char *text) {
    if (outcome->status != status || !strstr(outcome->error, text) ||
        strchr(outcome->error, '\n')) {
        fail_msg("status %d (signal %d), not %d: %s; expected: %s", outcome->status,
                 outcome->signal, status, outcome->error, text);
    }
}
