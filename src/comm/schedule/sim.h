#pragma once
/* A modelled network in virtual time: runs the schedules of a whole group in one process.
 *
 * Every rank walks through its schedule as the engine does; communication and reductions advance
 * its virtual clock. A message occupies the sender's link and, one latency later, the receiver's,
 * for its size divided by the link's bandwidth. A link carries one message at a time per direction
 * (the one-port model with latency alpha and time per byte beta; Hockney, 1994): the sender's in
 * the order of sending, the receiver's in the order in which the messages are first at their
 * senders' links. The ranks of a host share its link to other hosts and have separate links among
 * each other. Random delays are drawn from the seed by rank and the rank's message number: equal
 * options give the same events in the same order at the same times. */

#include "comm/schedule/algorithms.h"
#include "kolo/sim.h"

typedef enum kolo_sim_kind {
    KOLO_SIM_START,  /* rank starts */
    KOLO_SIM_SEND,   /* rank sends a message to `peer` */
    KOLO_SIM_ARRIVE, /* the last byte of a message from `peer` arrives */
    KOLO_SIM_TAKE,   /* rank receives a message from `peer`, which completes both sides */
    KOLO_SIM_END,    /* rank finishes */
} kolo_sim_kind;

typedef struct kolo_sim_event {
    int64_t ps; /* virtual time in picoseconds */
    int32_t kind, rank, peer, zero;
    uint64_t bytes;
} kolo_sim_event;

/* Called for each event in the order of virtual time. */
typedef void (*kolo_sim_watch)(void *arg, const kolo_sim_event *event);

/* One rank's DATA and INPUT, f32; `input` may be NULL if the schedule has none. */
typedef struct kolo_sim_data {
    float *elements;
    const float *input;
} kolo_sim_data;

/* Runs the group's schedules. data[r] is rank r's, reduced by sums; NULL: only time is modelled.
 * FORMAT: a schedule does not finish, or messages do not match; UNSUPPORTED: a schedule accesses
 * the peers' memory; NOMEM. */
KOLO_SHARED kolo_status kolo_sim_run(const kolo_sim_network *network,
                                     const kolo_schedule *schedules, int ranks,
                                     const kolo_sim_data *data, kolo_sim_watch watch, void *arg,
                                     kolo_sim_result *result);
