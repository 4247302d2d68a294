#pragma once
/* LSTM layers whose hidden units are divided over ranks, and the time steps that the pass
 * recurrence makes of them. */

#include "graph/graph.h"

/* lstm and lstm_bwd (graph/ops/sequence.h) with `units`: this rank has H of so many hidden units,
 * so that w is [4H,units], h0 [N,units] and c0 [N,H]. No kernel runs such a node. */
enum { KOLO_LSTM_UNITS };
/* Whether a node is such a layer, or its gradient. */
bool kolo_lstm_is_divided(const kolo_node *n);

/* lstm_cell: the time step `step` of a layer: gx [N,T,4H], b [4H], [p [N,1,4H], the product of w
 * and the state before, c [N,1,H], the cells before; else zero] -> h [N,1,H], gates [N,1,4H], c
 * [N,1,H]. lstm_cell_bwd: dh [N,T,H], gates and c of the step, [from the step after, [N,1,H]: the
 * gradient of h by its product, and that of c], [c before] -> dp [N,1,4H], which is the gradient of
 * gx[step] too, and that of c before. */
enum { KOLO_LSTM_CELL_STEP };
extern const kolo_op kolo_op_lstm_cell, kolo_op_lstm_cell_bwd;
