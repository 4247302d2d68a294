#pragma once
/* A small transformer that a program builds, for sessions on meshes: tokens "ids" i32 [N,T] with a
 * label "next" each. Attention, gated layers, dropout, and a table that is the output layer too. */

#include "kolo/session.h"

enum { OWN_TOKENS = 6, OWN_WIDTH = 16, OWN_HEADS = 8, OWN_LAYERS = 2, OWN_WORDS = 19 };
enum { OWN_SAMPLES = 7, OWN_BATCHES = 3 }; /* of a step; steps with samples of their own */

/* Placement rules for tensor parallelism. */
extern const char *const own_net_rules;
extern const kolo_field own_net_fields[2]; /* ids, next */

/* `arg` is not used. */
kolo_status own_net_build(kolo_graph *g, int64_t samples, void *arg);
typedef struct own_net_samples {
    int32_t ids[OWN_SAMPLES * OWN_TOKENS], next[OWN_SAMPLES * OWN_TOKENS];
} own_net_samples;

/* This rank's share of a step. */
kolo_status own_net_batch(const kolo_session *session, int step, own_net_samples *samples,
                          kolo_batch *batch);
/* A program's loop: trains with the batches of a loader. */
kolo_status own_net_loop(kolo_session *session, const kolo_dataset *data, int64_t epochs);
/* Fills ids and next, [count,T] each, with samples from `first` on: formulas of their numbers. */
void own_net_fill(int64_t first, int64_t count, int32_t *ids, int32_t *next);
