#pragma once
/* A model for tests of sessions: two inputs, a target and a prediction, all f32: y = u a + v b. */

#include "kolo/session.h"

enum { SUM_SAMPLES = 12, SUM_A = 3, SUM_B = 2 };

extern float sum_u[SUM_SAMPLES * SUM_A], sum_v[SUM_SAMPLES * SUM_B], sum_target[SUM_SAMPLES];
extern const kolo_field sum_fields[3]; /* target, v, u */

/* Fills the samples: the set-up of a group of tests. */
int sum_fill(void **state);
kolo_status sum_build(kolo_graph *g, int64_t samples, void *arg);
/* `count` samples from `first` on. */
kolo_batch sum_batch(int64_t first, int64_t count);
