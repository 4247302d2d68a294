#pragma once
/* A modelled network in virtual time: runs the schedules of a whole group in one process.
 *
 * Every rank walks through its own schedule as the engine would; what takes time is modelled. A
 * message occupies the sender's link and, one latency later, the receiver's, for its bytes over the
 * link's bandwidth; links serve messages one after the other in the order in which they are sent,
 * both directions independently (the one-port model with latency alpha and time per byte beta;
 * Hockney, 1994). The ranks of a host share its link to the other hosts and have links of their own
 * among each other. Additions take time too. What differs from rank to rank and message to message
 * is drawn from the seed by rank and by the number of the rank's message, so equal options give the
 * same events, in the same order, at the same times. */

#include "comm/schedule/algorithms.h"
#include "kolo/sim.h"

typedef enum kolo_sim_kind {
    KOLO_SIM_START,  /* rank begins */
    KOLO_SIM_SEND,   /* rank hands a message for `peer` to its link */
    KOLO_SIM_ARRIVE, /* a message of `peer` is there in full */
    KOLO_SIM_TAKE,   /* rank takes a message of `peer`, whose send is over with it */
    KOLO_SIM_END,    /* rank is through */
} kolo_sim_kind;

typedef struct kolo_sim_event {
    int64_t ps; /* virtual time in picoseconds */
    int32_t kind, rank, peer, zero;
    uint64_t bytes;
} kolo_sim_event;

/* Called with each event in the order of virtual time. */
typedef void (*kolo_sim_watch)(void *arg, const kolo_sim_event *event);

/* One rank's DATA and INPUT, f32; `input` may be NULL where the schedule has none. */
typedef struct kolo_sim_data {
    float *elements;
    const float *input;
} kolo_sim_data;

/* Runs the group's schedules; `data[r]` (or NULL: only time is modelled) is rank r's, summed.
 * FORMAT: a schedule that does not end, or messages that do not match; UNSUPPORTED: one that needs
 * the peers' memory; NOMEM. */
KOLO_SHARED kolo_status kolo_sim_run(const kolo_sim_network *network,
                                     const kolo_schedule *schedules, int ranks,
                                     const kolo_sim_data *data, kolo_sim_watch watch, void *arg,
                                     kolo_sim_result *result);
