#pragma once
/* Plans on meshes against those of one rank, in f64. */

#include "plan/plan.h"
#include "support/fewer.h"
#include "support/ranks.h"

enum { MESH_STEPS = TEST_FEWER(21, 50), MESH_RANKS = 8, MESH_NUMBERS = 33000 };

/* Of a rank: the losses of all steps, and the parameters before, after the first and after the last
 * one. */
typedef struct mesh_outcome {
    double losses[MESH_STEPS], initial[MESH_NUMBERS], first[MESH_NUMBERS], last[MESH_NUMBERS];
    int slots;             /* of a stage of a pipeline */
    double store, trained; /* bytes of the store, and of the parameters of this rank */
    double state[64];      /* of each optimizer state, a sum */
} mesh_outcome;

/* A model that trains for MESH_STEPS steps. */
typedef struct mesh_model {
    const char *mesh;
    int64_t samples, terms, micro_batches; /* samples of a micro-batch; terms of the loss in each */
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    int zero;             /* level of ZeRO */
    bool sync_batch_norm; /* statistics of all samples of a micro-batch */
    bool sparse_embedding;
    const char *placement; /* rules; NULL: the built-in ones */
    kolo_status (*build)(kolo_graph *g, int64_t samples, const void *arg);
    /* Fills the inputs with samples first to first + count - 1 of a step. */
    void (*feed)(kolo_plan *p, int step, int64_t first, int64_t count, const void *arg);
    const void *arg;
} mesh_model;

/* For `feed` of models of tokens: fills the inputs "x" and "y" with tokens first to first + count -
 * 1 of a step, numbers below `words`. */
void mesh_feed_tokens(kolo_plan *p, int step, int64_t first, int64_t count, int words);
/* What a rank of mesh_run does: trains the model in f64 with the reference kernels. Collective. */
kolo_status mesh_train(kolo_comm *comm, const mesh_model *m, mesh_outcome *o);
/* Copies the parameters of a model to `to`, the rest is left. Collective. NOMEM: there are more. */
kolo_status mesh_read_parameters(const kolo_store *store, double to[MESH_NUMBERS]);
/* Runs `body`, which fills a mesh_outcome, and fails unless all ranks have equal numbers. The
 * outcomes are valid until the second call after this one. */
const mesh_outcome *mesh_run(int ranks, rank_transport transport, rank_body body, const void *arg,
                             size_t arg_bytes);
/* Fails unless the loss falls; steps whose numbers differ by a multiple of `period`, at most 20,
 * have the same samples. */
void mesh_assert_learns(const char *what, const mesh_outcome *o, int period);
/* Fails unless initial parameters are bitwise equal, and losses and parameters differ by at most
 * 1e-12 after one step and 1e-10 at the end. */
void mesh_assert_close(const char *what, const mesh_outcome *a, const mesh_outcome *b);
/* Fails unless `ranks` ranks with the setting `meshed` compute what `alone_ranks` do with `alone`,
 * whose loss falls; settings of `bytes`, arguments of `body`. All ranks are threads. */
void mesh_assert_equals(const char *what, rank_body body, const void *meshed, int ranks,
                        const void *alone, int alone_ranks, size_t bytes);
