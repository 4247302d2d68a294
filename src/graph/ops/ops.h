#pragma once
/* The ops: inputs, outputs, attributes; a header per subject. Shapes are logical (N,C,H,W); [x] is
 * an optional input or output. Ops with _bwd in their names compute gradients.
 *
 * kolo_op_<name> is defined in a file of src/op/, with its reference kernel. A header declares it
 * for the passes and kernels that refer to it; an op to which nothing refers needs no declaration.
 */

#include "graph/graph.h"
#include "graph/ops/attention.h"
#include "graph/ops/binary.h"
#include "graph/ops/comm.h"
#include "graph/ops/dropout.h"
#include "graph/ops/images.h"
#include "graph/ops/linear.h"
#include "graph/ops/loss.h"
#include "graph/ops/norm.h"
#include "graph/ops/sequence.h"
#include "graph/ops/shape.h"
#include "graph/ops/unary.h"
#include "graph/ops/update.h"

#define KOLO_OP_DECLARE(name) extern const kolo_op kolo_op_##name;
KOLO_BINARY_LIST(KOLO_BINARY_OP, KOLO_OP_DECLARE)
KOLO_UNARY_LIST(KOLO_UNARY_OP, KOLO_OP_DECLARE)
#undef KOLO_OP_DECLARE

/* Op number i, in no order that means anything; NULL past the end. */
const kolo_op *kolo_op_at(size_t i);
