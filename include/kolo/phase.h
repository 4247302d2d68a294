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
    KOLO_PHASE_SYNCHRONISE, /* starting collectives and waiting for them */
    KOLO_PHASE_UPDATE,      /* of parameters, optimizer state and statistics */
} kolo_phase;
enum { KOLO_PHASES = KOLO_PHASE_UPDATE + 1 };
/* "forward" and so on. */
KOLO_API const char *kolo_phase_name(kolo_phase phase);

#ifdef __cplusplus
}
#endif
