/* Codes from anywhere: the first bytes select the codec and the number of elements, the rest is the
 * code. A code that is refused changes nothing; one that is accepted writes no element but its own.
 */
#include "base/memory.h"
#include "fuzz/fuzz.h"
#include "kolo/codec.h"

#include <string.h>

enum { COUNT_MOST = 5000 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (length < 4) return 0;
    size_t count = (size_t)(bytes[1] | bytes[2] << 8) % COUNT_MOST;
    kolo_codec codec = {.kind = (kolo_codec_kind)(bytes[0] % (KOLO_CODEC_COUNT + 1)),
                        .ratio = (double)bytes[3] / 128};
    float *values = kolo_alloc((count + 1) * sizeof *values);
    if (!values) return 0;
    for (size_t i = 0; i <= count; i++) values[i] = 7;
    kolo_status status = kolo_codec_decode(&codec, bytes + 4, length - 4, values, count);
    if (status == KOLO_OK) status = kolo_codec_add(&codec, bytes + 4, length - 4, values, count, 2);
    if (status != KOLO_OK) {
        KOLO_ASSERT(status == KOLO_ERR_FORMAT || status == KOLO_ERR_ARG);
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        for (size_t i = 0; i < count; i++) KOLO_ASSERT(values[i] == 7);
    }
    KOLO_ASSERT(values[count] == 7);
    kolo_free(values);
    return 0;
}
