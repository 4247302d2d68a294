/* The safetensors reader on any bytes: what it accepts covers its data exactly, each tensor has the
 * bytes that its shape takes, and names are distinct. */
#include "base/status.h"
#include "data/safetensors/safetensors.h"
#include "fuzz/fuzz.h"

#include <string.h>

static void check(const kolo_safetensors *file, const uint8_t *bytes, size_t length) {
    uint64_t header_bytes;
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    const uint8_t *next = bytes + 8 + header_bytes;
    volatile uint8_t last = 0;
    for (int i = 0; i < kolo_safetensors_count(file); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(file, i);
        KOLO_ASSERT(e->data == next);
        KOLO_ASSERT(e->bytes == (size_t)kolo_shape_count(&e->shape) * kolo_dtype_bytes(e->dtype));
        for (size_t b = 0; b < e->bytes; b++) last = ((const uint8_t *)e->data)[b];
        KOLO_ASSERT(kolo_safetensors_find(file, e->name) == e);
        next += e->bytes;
    }
    (void)last;
    KOLO_ASSERT(next == bytes + length);
    const char *model = kolo_safetensors_metadata(file, "model");
    KOLO_ASSERT(!model || strlen(model) < length);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    kolo_safetensors *file;
    kolo_status status = kolo_safetensors_parse(bytes, length, "input", &file);
    if (status == KOLO_OK) {
        check(file, bytes, length);
        kolo_safetensors_close(file);
    } else {
        KOLO_ASSERT(status == KOLO_ERR_FORMAT || status == KOLO_ERR_UNSUPPORTED);
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
    }
    return 0;
}
