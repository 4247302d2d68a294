/* post and wait: start and completion of the synchronisation of gradients. They have any number of
 * values and no shape rule; the bucket pass adds them with kolo_graph_add_raw. The plan executes
 * them as steps of its own, without a kernel. */
#include "graph/ops/ops.h"

#include <limits.h>

static const char *const attrs[] = {"bucket", "gathers", NULL};

const kolo_op kolo_op_post = {
    .name = "post",
    .min_in = 1,
    .max_in = INT_MAX,
    .attrs = attrs,
    .view = true,
    .comm = KOLO_OP_POST,
};
const kolo_op kolo_op_wait = {
    .name = "wait",
    .min_in = 1,
    .max_in = INT_MAX,
    .attrs = attrs,
    .view = true,
    .comm = KOLO_OP_WAIT,
};
