/* Operations of programs in collectives.
 *
 * The program's function combines two vectors in place. Where a result goes to several vectors, or
 * the first source must be kept, elements are combined in a block that stays in the cache. */
#include "comm/engine/combine.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { BLOCK_BYTES = 8 << 10 };

kolo_status kolo_request_set_user_op(kolo_request *q, const kolo_user_op *op) {
    q->user_op = *op;
    q->combined_count = q->element_bytes < BLOCK_BYTES ? BLOCK_BYTES / q->element_bytes : 1;
    q->combined = kolo_alloc(q->combined_count * q->element_bytes);
    return q->combined ? KOLO_OK : KOLO_NOMEM(q->combined_count * q->element_bytes);
}

static kolo_status call(const kolo_request *q, void *to, const void *from, size_t count) {
    uint64_t errors = kolo_error_count();
    kolo_status status = q->user_op.combine(q->user_op.arg, to, from, count);
    if (status == KOLO_OK) return KOLO_OK;
    status = kolo_callback_status(status, errors, "the function of the operation");
    bool known = status > KOLO_OK && status <= KOLO_ERR_PEER; /* peers accept no others */
    return known ? status : KOLO_FAIL(KOLO_ERR_ARG, "%s", kolo_last_error());
}

kolo_status kolo_user_op_combine(kolo_request *q, void *const *to, int n_to,
                                 const void *const *from, int n_from, size_t count) {
    if (n_to == 1 && to[0] == from[0]) {
        for (int p = 1; p < n_from; p++) KOLO_TRY(call(q, to[0], from[p], count));
        return KOLO_OK;
    }
    for (size_t done = 0, run; done < count; done += run) {
        run = count - done < q->combined_count ? count - done : q->combined_count;
        size_t first = done * q->element_bytes, bytes = run * q->element_bytes;
        memcpy(q->combined, (const char *)from[0] + first, bytes);
        for (int p = 1; p < n_from; p++) {
            KOLO_TRY(call(q, q->combined, (const char *)from[p] + first, run));
        }
        for (int p = 0; p < n_to; p++) memcpy((char *)to[p] + first, q->combined, bytes);
    }
    return KOLO_OK;
}
