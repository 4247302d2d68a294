#pragma once
/* Predicts allreduces on a modelled network: the schedules of all ranks run in virtual time in one
 * process. */

#include "kolo/comm.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The modelled network. A zero field takes its default. */
typedef struct kolo_sim_network {
    int ranks_per_host; /* default 1 */
    /* Between hosts, each way: default 5 us, 100 Gbit/s. */
    double latency_us, gbit_per_s;
    /* Between ranks of one host: default 0.5 us, 80 Gbit/s. */
    double local_latency_us, local_gbit_per_s;
    double reduce_gbit_per_s; /* at which one rank reduces; default 80 */
    uint64_t seed;            /* of jitter and late_us */
    double jitter;  /* mean of the exponentially distributed extra latency, relative to latency */
    double late_us; /* mean of the exponentially distributed start delay of each rank */
} kolo_sim_network;

typedef struct kolo_sim_result {
    double us;           /* from the first rank's start to the last rank's end */
    uint64_t events;     /* in the log */
    uint64_t hash;       /* of the log: time, kind, ranks and bytes of every event */
    uint64_t messages;   /* of all ranks */
    uint64_t bytes_most; /* in one direction of the busiest link between hosts */
    uint64_t rounds;     /* of rank 0 */
} kolo_sim_result;

/* Predicts an allreduce of `count` floats. `algorithm` must have a variant that uses messages only
 * (AUTO: ring). With `shards` above 0, `algorithm` is ignored and the reproducible allreduce of
 * that many logical shards runs. Up to 2^26 floats over all ranks, the data is simulated too and
 * the sums are checked; beyond that only time is modelled.
 * Needs no communicator. Blocks for about a second per million messages. ARG: invalid network;
 * UNSUPPORTED: the algorithm needs access to the peers' memory; NOMEM. */
KOLO_API kolo_status kolo_sim_allreduce(const kolo_sim_network *network, int ranks, size_t count,
                                        kolo_algorithm algorithm, int shards,
                                        kolo_sim_result *result);
/* About how many messages that allreduce has, from the schedules of some ranks: its cost. Errors as
 * above. */
KOLO_API kolo_status kolo_sim_messages(const kolo_sim_network *network, int ranks, size_t count,
                                       kolo_algorithm algorithm, int shards, uint64_t *messages);

#ifdef __cplusplus
}
#endif
