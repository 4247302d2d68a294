#pragma once
/* A graph interpreter for tests: runs the nodes in order, each value in a buffer of its own,
 * without reuse or in-place updates. The plan, which does both, is compared with it.
 *
 *     graph_eval e;
 *     ASSERT_OK(graph_eval_init(&e, g, KOLO_KERNELS_REF));
 *     graph_eval_fill(&e, x, 1, 0.5);
 *     graph_eval_run(&e, g->n_nodes);
 *     ... graph_eval_f64(&e, y)[0] ...
 *     graph_eval_fini(&e);
 */

#include "graph/graph.h"
#include "kernel/kernel.h"

typedef struct graph_eval {
    const kolo_graph *g;
    void **data;                   /* by value id; a view shares the buffer of its base */
    bool *owned;                   /* by value id: not a view */
    struct graph_eval_step *steps; /* by node */
    void *scratch;
} graph_eval;

/* Selects kernels and allocates zeroed buffers; the graph must not change afterwards. One thread.
 */
kolo_status graph_eval_init(graph_eval *e, const kolo_graph *g, kolo_kernel_set set);
/* Runs nodes [0, n_nodes). */
void graph_eval_run(graph_eval *e, int32_t n_nodes);
/* Accepts a zeroed struct. */
void graph_eval_fini(graph_eval *e);

/* The buffer of a value of the dtype. */
double *graph_eval_f64(const graph_eval *e, kolo_value v);
float *graph_eval_f32(const graph_eval *e, kolo_value v);
int32_t *graph_eval_i32(const graph_eval *e, kolo_value v);
int64_t graph_eval_count(const graph_eval *e, kolo_value v);

/* Fills a float value with distinct numbers in (-scale, scale), nearly evenly spread, in an order
 * drawn from `seed`, and at least 0.2 scale / count away from zero: no maximum is tied and no ReLU
 * is at its kink. */
void graph_eval_fill(graph_eval *e, kolo_value v, uint64_t seed, double scale);
/* Fills an i32 value with labels in [0, classes). */
void graph_eval_fill_labels(graph_eval *e, kolo_value v, uint64_t seed, int64_t classes);
