#pragma once
/* A staleness bound that adapts to the spread of the workers' step times (docs/servers.md, auto).
 *
 * The owner records the time of each step, from the read of a worker to its push. A simulation in
 * virtual time of the latest steps gives the steps per second that each bound would allow. The
 * choice is the smallest bound within a small margin of the maximum, but 0 if that gains little,
 * since stale gradients help less, and a smaller one for some time after the loss has risen. It
 * depends on the recorded values alone. Used by one thread. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    KOLO_ADAPT_WINDOW = 8,  /* steps of a worker, at least, between decisions */
    KOLO_ADAPT_LATEST = 64, /* steps of a worker that a decision is made from */
};

typedef struct kolo_adapt kolo_adapt;

/* Levels, from 0: their number, and the staleness of one as in kolo/parameters.h. */
int kolo_adapt_levels(void);
int kolo_adapt_staleness(int level);

/* NOMEM. */
kolo_status kolo_adapt_create(int workers, kolo_adapt **adapt);
/* NULL is allowed. */
void kolo_adapt_destroy(kolo_adapt *adapt);
/* A worker has made a step in `seconds`. */
void kolo_adapt_add_step(kolo_adapt *adapt, int worker, double seconds);
/* The mean loss of an update's samples. */
void kolo_adapt_add_loss(kolo_adapt *adapt, double loss);
/* A worker has finished or is lost: it counts no more. */
void kolo_adapt_leave(kolo_adapt *adapt, int worker);
/* Whether a window is complete. */
bool kolo_adapt_is_due(const kolo_adapt *adapt);
/* Ends a window in which the level was `level`: returns that of the next one. */
int kolo_adapt_choose(kolo_adapt *adapt, int level);
/* Steps per second of all workers together with a level, if they go on like the latest steps; 0:
 * not known. */
double kolo_adapt_predict(const kolo_adapt *adapt, int level);
