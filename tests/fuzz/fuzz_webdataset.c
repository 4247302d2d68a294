/* Tar shards of any bytes as a data set: the members are samples whose classes are in range, and
 * which decode or are named; or the shard is refused. */
#define _GNU_SOURCE
#include "data/dataset.h"
#include "fuzz/file.h"
#include "fuzz/fuzz.h"

#include <string.h>

enum { SIDE = 4 };

static void open_as(const char *spec) {
    kolo_dataset *d;
    uint8_t x[3 * SIDE * SIDE];
    int32_t y;
    const kolo_status status = kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d);
    if (status == KOLO_ERR_UNSUPPORTED) return; /* a build without images */
    if (status != KOLO_OK) {
        KOLO_ASSERT(status == KOLO_ERR_FORMAT);
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return;
    }
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    KOLO_ASSERT(info->count > 0 && info->classes > 0);
    for (int64_t i = 0; i < info->count && i < 4; i++) {
        const kolo_status read = kolo_dataset_gather(d, &i, 1, (void *[]){x, &y});
        KOLO_ASSERT(read == KOLO_OK || read == KOLO_ERR_FORMAT);
        KOLO_ASSERT(read != KOLO_OK || (y >= 0 && y < info->classes));
        KOLO_ASSERT(read == KOLO_OK || strstr(kolo_last_error(), ": offset "));
    }
    kolo_dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    char spec[128];
    const char *path = fuzz_file(bytes, length);
    snprintf(spec, sizeof spec, "webdataset:%s,size=%d", path, (int)SIDE);
    open_as(spec);
    snprintf(spec, sizeof spec, "webdataset:%s,size=%d,label=label", path, (int)SIDE);
    open_as(spec);
    return 0;
}
