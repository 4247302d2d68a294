/* Files of CIFAR-100 with any bytes, and with as many as some samples have: labels are in range, or
 * the file is refused. */
#define _GNU_SOURCE
#include "data/dataset.h"
#include "fuzz/folder.h"
#include "fuzz/fuzz.h"

enum { RECORD = 2 + 3 * 32 * 32, SAMPLES = 4 };

static void open_file(const uint8_t *bytes, size_t length) {
    static const char *const entries[] = {"train.bin@", NULL};
    static uint8_t x[RECORD];
    char spec[128];
    int32_t y;
    kolo_dataset *d;
    snprintf(spec, sizeof spec, "cifar100:%s", fuzz_folder_with(entries, bytes, length));
    if (kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d) != KOLO_OK) {
        KOLO_ASSERT(strstr(kolo_last_error(), "train.bin: "));
        KOLO_ASSERT(!strchr(kolo_last_error(), '\n'));
        return;
    }
    const int64_t count = kolo_dataset_describe(d)->count;
    KOLO_ASSERT(count > 0 && (size_t)count * RECORD == length);
    for (int64_t i = 0; i < count; i++) {
        KOLO_ASSERT(kolo_dataset_gather(d, &i, 1, (void *[]){x, &y}) == KOLO_OK);
        KOLO_ASSERT(y >= 0 && y < 100 && y == bytes[(size_t)i * RECORD + 1]);
        KOLO_ASSERT(memcmp(x, bytes + (size_t)i * RECORD + 2, RECORD - 2) == 0);
    }
    kolo_dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static uint8_t samples[SAMPLES * RECORD];
    open_file(bytes, length);
    if (length < 2) return 0;
    const size_t n = (size_t)(1 + bytes[0] % SAMPLES) * RECORD;
    for (size_t i = 0; i < n; i++) samples[i] = bytes[1 + i % (length - 1)];
    open_file(samples, n);
    return 0;
}
