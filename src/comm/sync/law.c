#include "comm/sync/law.h"

#include <stdbool.h>

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a > 0 ? a : 1;
}

/* The shares of a worker and of a server. A single worker leaves all to the servers. */
static uint64_t share_of(kolo_law law, bool serves) {
    const uint64_t workers = (uint64_t)law.workers, k = (uint64_t)law.servers;
    const uint64_t n = law.hosts > 0 ? (uint64_t)law.hosts : workers;
    const uint64_t divisor = common_divisor(workers, n);
    if (k >= n) return serves;
    return serves ? 2 * (n - 1) * (workers / divisor) : (n - k) * (n / divisor);
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
