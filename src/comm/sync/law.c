#include "comm/sync/law.h"

#include <stdbool.h>

/* The shares of a worker and of a server. A single worker leaves all to the servers. */
static uint64_t share_of(kolo_law law, bool serves) {
    const uint64_t n = (uint64_t)law.workers, k = (uint64_t)law.servers;
    if (k >= n) return serves;
    return serves ? 2 * (n - 1) : n - k;
}

uint64_t kolo_law_before(kolo_law law, int rank) {
    const int workers = rank < law.workers ? rank : law.workers;
    return (uint64_t)workers * share_of(law, false) +
           (uint64_t)(rank - workers) * share_of(law, true);
}

uint64_t kolo_law_all(kolo_law law) { return kolo_law_before(law, law.workers + law.servers); }

uint64_t kolo_law_cut(uint64_t total, uint64_t part, uint64_t all) {
    return total / all * part + total % all * part / all;
}
