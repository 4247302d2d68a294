#include "comm/sync/byte_split.h"

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
static uint64_t share_of(kolo_byte_split split, bool serves) {
    const uint64_t workers = (uint64_t)split.workers, k = (uint64_t)split.servers;
    const uint64_t n = split.hosts > 0 ? (uint64_t)split.hosts : workers;
    const uint64_t divisor = common_divisor(workers, n);
    if (k >= n) return serves;
    return serves ? 2 * (n - 1) * (workers / divisor) : (n - k) * (n / divisor);
}

uint64_t kolo_byte_split_before(kolo_byte_split split, int rank) {
    const int workers = rank < split.workers ? rank : split.workers;
    return (uint64_t)workers * share_of(split, false) +
           (uint64_t)(rank - workers) * share_of(split, true);
}

uint64_t kolo_byte_split_total(kolo_byte_split split) {
    return kolo_byte_split_before(split, split.workers + split.servers);
}

uint64_t kolo_byte_split_part(uint64_t total, uint64_t part, uint64_t all) {
    return total / all * part + total % all * part / all;
}
