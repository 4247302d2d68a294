/* The check of shared objects on any bytes: it accepts them or names what is wrong in one line. */
#include "base/elf.h"
#include "base/status.h"
#include "fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    kolo_status status = kolo_elf_check(bytes, length, "input");
    if (status == KOLO_OK) return 0;
    KOLO_ASSERT(status == KOLO_ERR_FORMAT);
    KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
    return 0;
}
