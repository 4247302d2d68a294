#pragma once
/* The phases of a training step, as profiles and traces report them. */

#include "kolo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kolo_phase {
    KOLO_PHASE_INPUT, /* copying the batch into the plan's inputs */
    KOLO_PHASE_FORWARD,
    KOLO_PHASE_BACKWARD,
    KOLO_PHASE_SYNCHRONIZE, /* starting collectives and waiting for them */
    KOLO_PHASE_UPDATE,      /* of parameters, optimizer state and statistics */
} kolo_phase;
enum { KOLO_PHASES = KOLO_PHASE_UPDATE + 1 };
/* "forward" and so on. */
KOLO_API const char *kolo_phase_name(kolo_phase phase);

/* The list of times that a run reports for a step: code, name, description. On each rank
 * step = input + forward + backward + exposed_communication + update + other. */
#define KOLO_TIME_LIST(X)                                                  \
    X(KOLO_TIME_STEP, "step", "a whole step")                              \
    X(KOLO_TIME_INPUT, "input", "waiting for the batch and copying it")    \
    X(KOLO_TIME_FORWARD, "forward", "kernels of the forward pass")         \
    X(KOLO_TIME_BACKWARD, "backward", "kernels of the backward pass")      \
    X(KOLO_TIME_EXPOSED, "exposed_communication",                          \
      "starting, advancing and awaiting collectives while no kernel runs") \
    X(KOLO_TIME_UPDATE, "update", "kernels of the update")                 \
    X(KOLO_TIME_OTHER, "other", "checks and overhead")                     \
    X(KOLO_TIME_COMMUNICATION, "communication",                            \
      "with a collective in flight, overlapped by kernels or not")         \
    X(KOLO_TIME_IDLE, "idle",                                              \
      "how much later the slowest rank was ready; in means at most exposed_communication")

typedef enum kolo_time {
#define KOLO_TIME_ENUM(code, name, help) code,
    KOLO_TIME_LIST(KOLO_TIME_ENUM)
#undef KOLO_TIME_ENUM
        KOLO_TIMES
} kolo_time;
/* The name in the list, and the description; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_time_name(kolo_time time);
KOLO_API const char *kolo_time_help(kolo_time time);

/* Where a step spent its time on one rank, or on average over ranks; a mean over steps. */
typedef struct kolo_step_time {
    double ms[KOLO_TIMES];
} kolo_step_time;

#ifdef __cplusplus
}
#endif
