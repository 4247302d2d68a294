/* The reader of Criteo's click logs on any bytes, of which the first two choose the options. */
#include "base/status.h"
#include "data/readers/clicks.h"
#include "fuzz/fuzz.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (length < 2) return 0;
    const kolo_criteo_opts opts = {
        .test = bytes[0] & 1 ? 0.5 : 0,
        .split = bytes[0] & 2 ? KOLO_SPLIT_TEST : KOLO_SPLIT_TRAIN,
        .seed = bytes[0],
    };
    const int64_t rows = bytes[1] + 1;
    kolo_criteo log;
    kolo_status status =
        kolo_criteo_open((const char *)bytes + 2, length - 2, "input", &opts, &log);
    if (status != KOLO_OK) {
        KOLO_ASSERT(status != KOLO_ERR_IO);
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return 0;
    }
    KOLO_ASSERT(log.count > 0);
    for (int64_t i = 0; i < log.count; i++) {
        float x[KOLO_CRITEO_NUMBERS], y;
        int32_t ids[KOLO_CRITEO_CATEGORIES];
        KOLO_ASSERT(kolo_criteo_read(&log, i, rows, x, &y, ids) == KOLO_OK);
        KOLO_ASSERT(y == 0 || y == 1);
        for (int k = 0; k < KOLO_CRITEO_NUMBERS; k++) KOLO_ASSERT(isfinite(x[k]) && x[k] >= 0);
        for (int t = 0; t < KOLO_CRITEO_CATEGORIES; t++) KOLO_ASSERT(ids[t] / rows == t);
    }
    kolo_criteo_fini(&log);
    return 0;
}
