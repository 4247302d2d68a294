/* post and wait: where gradients leave for the other ranks and come back. No kernel runs them; the
 * plan turns them into steps of its own. */
#include <limits.h>

#include "graph/op.h"

static const char *const attrs[] = {"bucket", NULL};

/* The outputs are the inputs; the caller has room for as many. */
static kolo_status comm_shape(kolo_shape_query *q) {
    for (int i = 0; i < q->n_in; i++) q->out[i] = q->in[i];
    q->n_out = q->n_in;
    return KOLO_OK;
}

const kolo_op kolo_op_post = {
    .name = "post",
    .min_in = 1,
    .max_in = INT_MAX,
    .attrs = attrs,
    .shape = comm_shape,
    .view = true,
};
const kolo_op kolo_op_wait = {
    .name = "wait",
    .min_in = 1,
    .max_in = INT_MAX,
    .attrs = attrs,
    .shape = comm_shape,
    .view = true,
};
