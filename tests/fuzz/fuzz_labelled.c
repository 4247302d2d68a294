/* The reader of labelled texts on any bytes, of which the first two choose the options. */
#include "base/memory.h"
#include "base/status.h"
#include "data/readers/labelled.h"
#include "fuzz/fuzz.h"

#include <string.h>

enum { MOST = 64 };

static void check_failure(kolo_status status) {
    KOLO_ASSERT(status != KOLO_ERR_IO);
    KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
}

static void check_sample(const kolo_labelled *file, int64_t i, int64_t rows, int64_t features) {
    int32_t ids[MOST], y = -1;
    const int64_t n = kolo_labelled_read(file, i, rows, features, ids, &y);
    KOLO_ASSERT(y >= 0 && y < file->names->count && n >= 0 && n <= features);
    for (int64_t k = 0; k < features; k++) {
        KOLO_ASSERT(k < n ? ids[k] >= 0 && ids[k] < rows : ids[k] == -1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (length < 2) return 0;
    const kolo_labelled_opts opts = {
        .ngrams = 1 + (bytes[0] >> 2 & 7),
        .test = bytes[0] & 1 ? 0.5 : 0,
        .split = bytes[0] & 2 ? KOLO_SPLIT_TEST : KOLO_SPLIT_TRAIN,
        .seed = bytes[1],
    };
    const char *text = (const char *)bytes + 2;
    kolo_label_names names;
    kolo_labelled file;
    kolo_status status = kolo_label_names_find(text, length - 2, "input", &names);
    if (status != KOLO_OK) {
        check_failure(status);
        return 0;
    }
    KOLO_ASSERT(names.count > 0);
    status = kolo_labelled_open(text, length - 2, "input", &names, &opts, &file);
    if (status != KOLO_OK) {
        check_failure(status);
    } else {
        KOLO_ASSERT(file.count > 0);
        for (int64_t i = 0; i < file.count; i++) {
            check_sample(&file, i, bytes[1] + 1, 1 + bytes[1] % MOST);
        }
        kolo_labelled_fini(&file);
    }
    kolo_label_names_fini(&names);
    return 0;
}
