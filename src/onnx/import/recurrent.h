#pragma once
/* Recurrent layers of a file, between the two files that map them. */

#include "onnx/import/import.h"

enum { RNN_X, RNN_W, RNN_R, RNN_B, RNN_LENGTHS, RNN_STATE, RNN_CELL, RNN_PEEPHOLES, RNN_INPUTS };
enum { RNN_ACTIVATIONS = 3 };

/* A kind of layer. Gate k of the op is gate order[k] of ONNX. */
typedef struct onnx_recurrence {
    const char *name;
    const kolo_op *op; /* NULL: none */
    int gates, order[4], states, n_activations;
    const char *activations[RNN_ACTIVATIONS];
} onnx_recurrence;

typedef struct onnx_layer {
    const onnx_recurrence *kind;
    kolo_value in[RNN_INPUTS]; /* none: left out; x [N,T,I] */
    int64_t samples, steps, hidden;
    /* Of sequences of different lengths: 1 at the steps that count, and at the last one, [N,T,1];
     * matrices that reverse these steps, [N,T,T]. Else none. */
    kolo_value inside, last, turn;
    int directions;
    bool reverse;      /* the only direction */
    bool batch_first;  /* attribute layout */
    bool late_reset;   /* of GRU: linear_before_reset */
    bool input_forget; /* of LSTM: the forget gate is 1 - the input gate */
} onnx_layer;

/* v [1,...] for each sample. */
kolo_value onnx_of_samples(onnx_call *c, const onnx_layer *l, kolo_value v);
/* Part d of a dimension of v, without that dimension. */
kolo_value onnx_part_of(onnx_call *c, kolo_value v, int axis, int d);
/* Direction d of a layer as ops of each step: h and, of LSTM, the cells, [N,T,H] in the order of
 * the computation. */
kolo_status onnx_run_steps(onnx_call *c, const onnx_layer *l, int d, kolo_value x, kolo_value *h,
                           kolo_value *cells);
