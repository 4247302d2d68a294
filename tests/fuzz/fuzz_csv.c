/* The CSV reader on any bytes, of which the first chooses the options. */
#include "base/status.h"
#include "data/readers/csv.h"
#include "fuzz/fuzz.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (length == 0) return 0;
    const kolo_csv_opts opts = {
        .target = bytes[0] & 1 ? "class" : NULL,
        .values = bytes[0] & 2,
        .test = bytes[0] & 4 ? 0.5 : 0,
        .split = bytes[0] & 8 ? KOLO_SPLIT_TEST : KOLO_SPLIT_TRAIN,
    };
    kolo_csv csv;
    kolo_status status = kolo_csv_parse((const char *)bytes + 1, length - 1, "input", &opts, &csv);
    if (status != KOLO_OK) {
        KOLO_ASSERT(status != KOLO_ERR_IO);
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return 0;
    }
    KOLO_ASSERT(csv.count > 0 && csv.features > 0 && csv.classes > 0);
    for (int64_t i = 0; i < csv.count * csv.features; i++) KOLO_ASSERT(isfinite(csv.x[i]));
    const int32_t *labels = csv.y;
    for (int64_t i = 0; i < csv.count && !opts.values; i++) {
        KOLO_ASSERT(labels[i] >= 0 && labels[i] < csv.classes);
    }
    kolo_csv_fini(&csv);
    return 0;
}
