#pragma once
/* Learning-rate schedules: the rate is a pure function of the step, hence equal on all ranks.
 *
 * Of step k (from 0), with W warm-up steps and T steps in total:
 *
 *     warm-up   k < W:  start + (lr - start) (k + 1) / W
 *               Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2
 *     constant  lr
 *     step      lr factor^floor(k / step_every)
 *     cosine    lr_min + (lr - lr_min) (1 + cos(pi (k - W) / (T - W))) / 2
 *               Loshchilov, Hutter, "SGDR", 2017, equation 5, one period
 *     poly      lr_min + (lr - lr_min) (1 - (k - W) / (T - W))^power
 *
 * With linear scaling (the same paper, section 2.1) lr is the given rate times the global batch
 * over the batch that the rate is for, and start is the given rate where that is lower. */

#include "kolo/train.h"

#include <stdint.h>

typedef struct kolo_lr {
    kolo_lr_schedule kind;
    double start, lr, lr_min;
    double power;
    double step_factor;
    int64_t step_every; /* steps, at least 1 */
    int64_t warmup;     /* steps */
    int64_t total;      /* steps */
} kolo_lr;

/* Whether a schedule depends on the number of steps of the run. */
bool kolo_lr_has_end(kolo_lr_schedule schedule);
/* The schedule of resolved options, with epochs converted to steps. */
kolo_lr kolo_lr_make(const kolo_train_opts *opts, int64_t global_batch, int64_t epoch_steps,
                     int64_t total);
/* The learning rate of step 0 <= k < total. */
double kolo_lr_at(const kolo_lr *schedule, int64_t k);
