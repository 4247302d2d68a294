#pragma once
/* Generation of text with cached keys and values: the model of a few new tokens is derived from
 * that of a window. */

#include "graph/graph.h"

typedef struct kolo_cache_opts {
    int64_t rows; /* of the caches: the most positions */
    bool first;   /* the tokens are those at positions 0, 1, ...: nothing is read from the caches */
} kolo_cache_opts;

/* The input i32 [N,T] of positions, and what the names of caches begin with. */
#define KOLO_CACHE_POSITIONS "positions"
#define KOLO_CACHE_STATE "__cache."

/* Whether the output "logits" of a graph, for a window of two tokens or more and after the pass
 * inference, follows token by token from the input "x" but for causal self-attention
 * (kolo_attention), so that kolo_pass_cache applies. UNSUPPORTED: the first op that is in the way,
 * by name; ARG: no such input or output. */
kolo_status kolo_cache_check(const kolo_graph *g);

/* Rewrites the graph of such a model, built for windows of T tokens, for tokens at the positions of
 * the further input "positions": it writes their keys and values to these rows of caches, states
 * with one version, and attends to all rows up to the token's own; rotary and learned positions are
 * those of the input. With `first` it computes what it did before, and writes. Heads of keys and
 * values that serve several heads of queries are kept once. The only output left is "logits". Runs
 * on the graph as it was built. */
kolo_status kolo_pass_cache(kolo_graph *g, const kolo_cache_opts *opts);
