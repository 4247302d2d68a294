#pragma once
/* Runs a graph for tests: node after node in order, each value in a buffer of its own, nothing
 * re-used, nothing in place. The plan, which does all that, is compared to this.
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
    void **data;                   /* by value id; a view has the buffer of what it sees */
    bool *owned;                   /* by value id: the buffer is its own */
    struct graph_eval_step *steps; /* by node */
    void *scratch;
} graph_eval;

/* Kernels and zeroed buffers for all of the graph, which must not change after. One thread. */
kolo_status graph_eval_init(graph_eval *e, const kolo_graph *g, kolo_kernel_set set);
/* Runs nodes [0, n_nodes). */
void graph_eval_run(graph_eval *e, int32_t n_nodes);
/* Zeroed evals are allowed. */
void graph_eval_fini(graph_eval *e);

/* The buffer of a value of that dtype. */
double *graph_eval_f64(const graph_eval *e, kolo_value v);
float *graph_eval_f32(const graph_eval *e, kolo_value v);
int32_t *graph_eval_i32(const graph_eval *e, kolo_value v);
int64_t graph_eval_count(const graph_eval *e, kolo_value v);

/* Fills a float value with numbers in (-scale, scale) that are all different, nearly evenly spread
 * in an order drawn from `seed`, and never nearer to zero than 0.2 scale / count: no maximum has a
 * rival and no ReLU sits on its kink. */
void graph_eval_fill(graph_eval *e, kolo_value v, uint64_t seed, double scale);
/* Fills an i32 value with labels in [0, classes). */
void graph_eval_fill_labels(graph_eval *e, kolo_value v, uint64_t seed, int64_t classes);
