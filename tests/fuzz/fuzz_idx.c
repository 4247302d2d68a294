/* The IDX reader on any bytes: it reads only what is there, and what it accepts is whole. */
#include "base/status.h"
#include "data/readers/idx.h"
#include "fuzz/fuzz.h"

#include <string.h>

static void parse_as(kolo_idx_kind kind, const uint8_t *bytes, size_t length) {
    kolo_idx idx;
    kolo_status status = kolo_idx_parse(bytes, length, kind, "input", &idx);
    if (status != KOLO_OK) {
        KOLO_ASSERT(status == KOLO_ERR_FORMAT || status == KOLO_ERR_NOMEM);
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return;
    }
    size_t count = (size_t)idx.dim[0] * (size_t)idx.dim[1] * (size_t)idx.dim[2];
    KOLO_ASSERT(count > 0);
    KOLO_ASSERT(idx.unpacked || count + 4 + 4 * (size_t)kind == length);
    volatile uint8_t last = 0;
    for (size_t i = 0; i < count; i++) last = idx.data[i]; /* for the address sanitizer */
    (void)last;
    kolo_idx_fini(&idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    parse_as(KOLO_IDX_IMAGES, bytes, length);
    parse_as(KOLO_IDX_LABELS, bytes, length);
    return 0;
}
