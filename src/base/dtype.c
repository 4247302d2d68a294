/* Sizes and names of element types, from their list. */
#include "kolo/dtype.h"

#include "base/compiler.h"
#include "base/status.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define KOLO_DTYPE_ROW(code, name, bytes) {name, bytes},
    KOLO_DTYPE_LIST(KOLO_DTYPE_ROW)
#undef KOLO_DTYPE_ROW
};

size_t kolo_dtype_bytes(kolo_dtype dtype) {
    KOLO_ASSERT((size_t)dtype < KOLO_COUNT(dtypes));
    return dtypes[dtype].bytes;
}

const char *kolo_dtype_name(kolo_dtype dtype) {
    return (size_t)dtype < KOLO_COUNT(dtypes) ? dtypes[dtype].name : "unknown";
}
