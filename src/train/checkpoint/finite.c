/* A number is NaN or infinite if all bits of its exponent are set. */
#include "train/checkpoint/finite.h"

#include <inttypes.h>
#include <string.h>

/* Counts numbers of an unsigned type of the same size. */
#define COUNT(type, exponent)                                                     \
    for (int64_t i = 0; i < count; i++) {                                         \
        type bits;                                                                \
        memcpy(&bits, (const char *)data + (size_t)i * sizeof bits, sizeof bits); \
        found += (bits & (exponent)) == (exponent);                               \
    }

/* How many of `count` numbers are NaN or infinite; 0 for integers. Any alignment. */
static int64_t count_not_finite(kolo_dtype dtype, const void *data, int64_t count) {
    int64_t found = 0;
    switch (dtype) {
    case KOLO_DTYPE_F64:
        COUNT(uint64_t, UINT64_C(0x7ff) << 52);
        break;
    case KOLO_DTYPE_F32:
        COUNT(uint32_t, UINT32_C(0xff) << 23);
        break;
    case KOLO_DTYPE_BF16:
        COUNT(uint16_t, 0x7f80);
        break;
    case KOLO_DTYPE_F16:
        COUNT(uint16_t, 0x7c00);
        break;
    default:
        break;
    }
    return found;
}

kolo_status kolo_check_finite(const char *path, const kolo_safetensors_entry *entry) {
    int64_t count = kolo_shape_count(&entry->shape);
    int64_t bad = count_not_finite(entry->dtype, entry->data, count);
    if (bad == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: %" PRId64 " of the %" PRId64
                     " numbers of %s are NaN or infinite: the run diverged, or the file is damaged",
                     path, bad, count, entry->name);
}

kolo_status kolo_store_find_not_finite(const kolo_store *store, kolo_text *what) {
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        int64_t count = entry->count; /* padding is 0 */
        int64_t bad = count_not_finite(entry->tensor.dtype, kolo_store_data(store, entry), count);
        if (bad == 0) continue;
        kolo_text_add(what, "%" PRId64 " of the %" PRId64 " numbers of %s are NaN or infinite", bad,
                      count, entry->name);
        return what->failed ? KOLO_NOMEM(what->length) : KOLO_OK;
    }
    return kolo_store_check(store);
}
