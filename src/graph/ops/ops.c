/* The table of ops. */
#include "graph/ops/ops.h"

#define ROW(op) &op,
const kolo_op *const kolo_ops[] = {KOLO_OP_LIST(ROW) NULL};
#undef ROW
