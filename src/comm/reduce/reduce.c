/* Dispatch of the reduction loops, and the names of operations. */
#include "comm/reduce/reduce.h"

#include "base/isa.h"
#include "base/status.h"

const kolo_reduce_table *kolo_reduce_of(kolo_isa isa) { return KOLO_ISA_COPY(kolo_reduce, isa); }

const kolo_reduce_table *kolo_reduce_best(void) { return KOLO_ISA_PICK(kolo_reduce); }

const char *kolo_reduce_op_name(kolo_reduce_op op) {
    static const char *const names[] = {
#define NAME(code, name) name,
        KOLO_REDUCE_OP_LIST(NAME)
#undef NAME
    };
    return (size_t)op < KOLO_COUNT(names) ? names[op] : "unknown";
}

kolo_status kolo_reduce_check(kolo_dtype dtype, kolo_reduce_op op) {
    if ((size_t)dtype >= KOLO_DTYPE_COUNT || (size_t)op >= KOLO_REDUCE_OP_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown element type %d or operation %d", (int)dtype,
                         (int)op);
    }
    if (kolo_reduce_best()->fn[dtype][kolo_reduce_kernel(op)]) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "operation %s needs %s, not %s", kolo_reduce_op_name(op),
                     op > KOLO_MEAN ? "integers" : "real numbers", kolo_dtype_name(dtype));
}

kolo_status kolo_combine(void *to, const void *from, size_t count, kolo_dtype dtype,
                         kolo_reduce_op op) {
    KOLO_TRY(kolo_reduce_check(dtype, op));
    const void *both[2] = {to, from};
    kolo_reduce_best()->fn[dtype][kolo_reduce_kernel(op)](&to, 1, both, 2, count);
    return KOLO_OK;
}
