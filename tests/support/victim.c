#include "support/victim.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "support/support.h"

#include <signal.h>
#include <stdatomic.h>

/* A rank's flag, in memory that all ranks share, side by side: it has created what they share. */
typedef struct flag {
    _Alignas(64) _Atomic int created;
} flag;

void victim_wait(void *result, int rank, bool victim) {
    flag *own = result;
    atomic_store(&own->created, 1);
    for (int r = 0; victim && r < VICTIM_RANKS; r++) {
        while (!atomic_load(&own[r - rank].created)) {
            kolo_sleep_ns(1000000);
        }
    }
}

void victim_check(rank_body body, const void *arg, size_t arg_bytes, int victim) {
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        rank_outcome outcomes[VICTIM_RANKS];
        flag flags[VICTIM_RANKS];
        rank_job job = {.n = VICTIM_RANKS,
                        .transport = transports[t],
                        .body = body,
                        .arg = arg,
                        .arg_bytes = arg_bytes,
                        .results = flags,
                        .result_bytes = sizeof flags[0],
                        .outcomes = outcomes};
        (void)run_rank_job(&job);
        for (int r = 0; r < VICTIM_RANKS; r++) {
            if (r == victim) {
                assert_int_equal(outcomes[r].signal, SIGKILL);
            } else if (outcomes[r].status != KOLO_OK) {
                fail_msg("transport %d, rank %d: %s", (int)transports[t], r, outcomes[r].error);
            }
        }
    }
}
