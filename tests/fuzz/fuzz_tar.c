/* Tar archives of any bytes: members lie within the archive, one behind the other. */
#include "base/status.h"
#include "data/readers/tar.h"
#include "fuzz/fuzz.h"

#include <string.h>

static kolo_status check(void *arg, const kolo_tar_member *m) {
    size_t *end = arg;
    KOLO_ASSERT(m->at > *end && strlen(m->name) < 4096);
    *end = m->at + m->length;
    return KOLO_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    size_t end = 0;
    kolo_status status = kolo_tar_each(bytes, length, "input", check, &end);
    KOLO_ASSERT(end <= length);
    KOLO_ASSERT(status == KOLO_OK || status == KOLO_ERR_FORMAT);
    KOLO_ASSERT(status == KOLO_OK || (kolo_last_error()[0] && !strchr(kolo_last_error(), '\n')));
    return 0;
}
