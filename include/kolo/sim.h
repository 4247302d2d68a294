#pragma once
/* What an allreduce would take on a network that is not there: the schedules of every rank, run in
 * virtual time in one process. */

#include "kolo/comm.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The modelled network. Zero means the default. */
typedef struct kolo_sim_network {
    int ranks_per_host;                  /* default 1 */
    double latency_us, gbps;             /* between hosts: default 5 us, 100 Gbit/s each way */
    double local_latency_us, local_gbps; /* between ranks of a host: default 0.5 us, 80 Gbit/s */
    double reduce_gbps;                  /* bits of sums per second that a rank makes; default 80 */
    uint64_t seed;                       /* what the next two are drawn from */
    double jitter;  /* of each message's latency: its mean exponential excess, relative */
    double late_us; /* mean of the exponentially distributed delays with which ranks start */
} kolo_sim_network;

typedef struct kolo_sim_result {
    double us;           /* from the first rank's start to the last rank's end */
    uint64_t events;     /* in the log */
    uint64_t hash;       /* of the log: every event's time, kind, ranks and bytes */
    uint64_t messages;   /* of all ranks */
    uint64_t bytes_most; /* that the busiest link between hosts carried in one direction */
    uint64_t rounds;     /* of rank 0 */
} kolo_sim_result;

/* Predicts an allreduce of `count` floats by `algorithm`, which must be one that works by messages
 * (AUTO: ring); with `shards` not 0 the reproducible one of so many logical shards, whatever
 * `algorithm` is. Up to 2^26 floats over all ranks the data is there and the sum is checked; beyond
 * it only time is modelled. ARG: a network that cannot be; UNSUPPORTED: another algorithm; NOMEM.
 * Needs no communicator; blocks for the time of its events, about a second per million messages. */
KOLO_API kolo_status kolo_sim_allreduce(const kolo_sim_network *network, int ranks, size_t count,
                                        kolo_algorithm algorithm, int shards,
                                        kolo_sim_result *result);

#ifdef __cplusplus
}
#endif
