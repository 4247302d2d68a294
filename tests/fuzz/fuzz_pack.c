/* Packed data sets of any bytes: what is accepted can be described and read, or names what is
 * damaged. The seeds are files of `kolo data pack`. */
#include "base/memory.h"
#include "base/status.h"
#include "data/readers/pack.h"
#include "fuzz/fuzz.h"

#include <string.h>

static kolo_safetensors *file; /* of the data set that is opened */

static kolo_status open_file(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    const kolo_pack_request opts = {0};
    return kolo_pack_take(d, file, "input", &opts);
}

static void check_error(void) {
    KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
}

static void read_samples(const kolo_dataset *d) {
    enum { MOST_BYTES = 1 << 20, MOST_SAMPLES = 8 };
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    KOLO_ASSERT(info->count > 0 && info->classes > 0 && info->n_fields == 2);
    if (d->bytes[0] > MOST_BYTES || d->bytes[1] > MOST_BYTES) return;
    void *data[2] = {kolo_alloc(d->bytes[0]), kolo_alloc(d->bytes[1])};
    for (int64_t i = 0; i < info->count && i < MOST_SAMPLES && data[0] && data[1]; i++) {
        kolo_status status = kolo_dataset_gather(d, &i, 1, data);
        if (status != KOLO_OK) check_error();
    }
    for (int f = 0; f < 2; f++) kolo_free(data[f]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static const kolo_reader reader = {.name = "pack"};
    if (kolo_safetensors_parse(bytes, length, "input", &file) != KOLO_OK) return 0;
    for (int s = 0; s < 2; s++) {
        kolo_dataset *d;
        kolo_status status =
            kolo_dataset_open_with(&reader, open_file, NULL, (kolo_split)s, NULL, &d);
        if (status == KOLO_OK) {
            read_samples(d);
            kolo_dataset_close(d);
        } else {
            check_error();
        }
    }
    kolo_safetensors_close(file);
    return 0;
}
