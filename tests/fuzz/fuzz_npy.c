/* The header of .npy files on any bytes. */
#include "base/status.h"
#include "data/readers/npy.h"
#include "fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    int64_t rows = -1, columns = -1;
    size_t data = 0;
    const kolo_status status =
        kolo_npy_parse((const char *)bytes, length, "input", &rows, &columns, &data);
    if (status != KOLO_OK) {
        KOLO_ASSERT(status == KOLO_ERR_FORMAT || status == KOLO_ERR_UNSUPPORTED);
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return 0;
    }
    KOLO_ASSERT(rows >= 0 && columns >= 0 && data <= length);
    return 0;
}
