#pragma once
/* Plans on meshes against those of one rank, in f64. */

#include "plan/plan.h"
#include "support/ranks.h"

enum { MESH_STEPS = 50, MESH_RANKS = 8, MESH_NUMBERS = 33000 };

/* Of a rank: the losses of all steps, and the parameters after the first and the last one. */
typedef struct mesh_outcome {
    double losses[MESH_STEPS], first[MESH_NUMBERS], last[MESH_NUMBERS];
    int slots;             /* of a stage of a pipeline */
    double store, trained; /* bytes of the store, and of the parameters of this rank */
    double state[64];      /* of each optimizer state, a sum */
} mesh_outcome;

/* Copies the parameters of a model to `to`, the rest is left. Collective. NOMEM: there are more. */
kolo_status mesh_read_parameters(const kolo_store *store, double to[MESH_NUMBERS]);
/* Runs `body`, which fills a mesh_outcome, and fails unless all ranks have equal numbers. The
 * outcomes are valid until the second call after this one. */
const mesh_outcome *mesh_run(int ranks, rank_transport transport, rank_body body, const void *arg,
                             size_t arg_bytes);
/* Fails unless losses and parameters differ by at most 1e-12 after one step and 1e-10 at the end.
 */
void mesh_assert_close(const char *what, const mesh_outcome *a, const mesh_outcome *b);
