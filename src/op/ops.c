/* The table of ops. */
#include "graph/ops/ops.h"

#include "graph/ops/chain.h"

#define ADDRESS(name) &kolo_op_##name,
const kolo_op *const kolo_ops[] = {KOLO_OP_LIST(ADDRESS) KOLO_OP_LIST_NO_KERNEL(ADDRESS)
                                       ADDRESS(chain) NULL};
