#pragma once
/* Random graphs from the public builder: branches, diamonds, shared weights, dead ends, all
 * differentiable ops and odd sizes. A seed gives one graph. */

#include "base/rng.h"
#include "graph/graph.h"

enum { RANDOM_GRAPH_LIVE = 24, RANDOM_GRAPH_CLASSES = 3 };

typedef struct random_graph_opts {
    kolo_dtype dtype;
    int64_t batch;     /* samples; 0: one to three */
    bool only_samples; /* no op that reads several samples at once: batch normalization */
} random_graph_opts;

typedef struct random_graph {
    kolo_graph *g;
    kolo_dtype dtype;
    kolo_rng rng;
    uint64_t draws;
    int64_t batch;
    kolo_value live[RANDOM_GRAPH_LIVE]; /* values to build on */
    int n_live, n_names;
    bool only_samples;
    bool is_param; /* x is a parameter */
    kolo_value loss, labels;
} random_graph;

/* A graph with the outputs "loss" and "correct". Inputs of floats may have any small numbers;
 * inputs of integers are below RANDOM_GRAPH_CLASSES. The caller destroys m->g. */
void random_graph_make(random_graph *m, uint64_t seed, const random_graph_opts *opts);

/* A number below n, of the graph's sequence. */
int64_t random_graph_below(random_graph *m, int64_t n);
