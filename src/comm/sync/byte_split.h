#pragma once
/* How n workers that own parts of the parameters divide them with k servers: between a ring,
 * without servers, and a parameter server. Jiang et al., "A unified architecture for accelerating
 * distributed DNN training in heterogeneous GPU/CPU clusters", OSDI 2020, section 4.1.
 *
 * In a step of M bytes a worker with a part of w bytes sends M - w of its gradient to the others
 * and w to each of n - 1 workers, and receives as much; a server with s bytes receives n s and
 * sends n s. All links have equal times if
 *
 *     M - w + (n - 1) w = n s,    n w + k s = M
 *
 * hence s = 2 (n - 1) M / D and w = (n - k) M / D with D = n^2 + k n - 2 k, and a step takes
 * n s / B = 2 n (n - 1) / D of M / B. From k = n on workers own nothing, and M / B is the bound of
 * their own links. */

#include "base/compiler.h"

#include <stdint.h>

/* The ranks are workers, then servers. Where the workers of a host push and pull together, n is the
 * number of hosts, whose share its workers divide equally. */
typedef struct kolo_byte_split {
    int workers, servers;
    int hosts; /* of the workers, which divide them equally; 0: each has a link of its own */
} kolo_byte_split;

/* The sum of the shares of the ranks before `rank`, of kolo_byte_split_total. */
KOLO_SHARED uint64_t kolo_byte_split_before(kolo_byte_split split, int rank);
KOLO_SHARED uint64_t kolo_byte_split_total(kolo_byte_split split);
/* total * part / all, rounded down; part <= all < 2^32. */
KOLO_SHARED uint64_t kolo_byte_split_part(uint64_t total, uint64_t part, uint64_t all);
