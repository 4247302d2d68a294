#pragma once
/* A case of test_op_forward.c: an op, its inputs, and the outputs worked out by hand. */
#include "graph/ops/chain.h"
#include "graph/ops/ops.h"
#include "support/shapes.h"

#include <math.h>

enum { MAX_NUMBERS = 16, MAX_INPUTS = 8, MAX_OUTPUTS = 3 };

typedef struct forward_case {
    const char *name;
    const char *op; /* its name */
    int n_in;
    kolo_shape in[MAX_INPUTS];
    const char *types; /* of the inputs: f float, i i32, l i64, b u8; NULL: all f */
    kolo_attr attr[KOLO_MAX_ATTRS];
    double data[MAX_INPUTS][MAX_NUMBERS]; /* of each input */
    double out[MAX_OUTPUTS][MAX_NUMBERS]; /* of each output, and of nothing else */
} forward_case;

#define LN2 0.69314718055994530942
#define LN3 1.09861228866810969140
