/* post and wait: where gradients leave for the other ranks and come back. They take any number of
 * values and are made with kolo_graph_add_raw, so they have no shape rule. No kernel runs them; the
 * plan turns them into steps of its own. */
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
