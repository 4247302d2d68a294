#pragma once
/* Combines vectors by the operation of a request: a loop of the library, or a function of the
 * program (kolo_user_op). */

#include "comm/engine/request.h"

/* Keeps a copy of the operation and allocates its block of elements. NOMEM. */
kolo_status kolo_request_set_user_op(kolo_request *q, const kolo_user_op *op);
/* kolo_request_combine by the function of the program. */
kolo_status kolo_user_op_combine(kolo_request *q, void *const *to, int n_to,
                                 const void *const *from, int n_from, size_t count);
/* to[0..n_to)[i] = from[0][i] op from[1][i] op ..., in this order, for i < count, as
 * kolo_reduce_fn. The error of the program's function. */
static inline kolo_status kolo_request_combine(kolo_request *q, void *const *to, int n_to,
                                               const void *const *from, int n_from, size_t count) {
    if (q->user_op.combine) return kolo_user_op_combine(q, to, n_to, from, n_from, count);
    q->comm->reduce->fn[q->dtype][kolo_reduce_kernel(q->op)](to, n_to, from, n_from, count);
    return KOLO_OK;
}
