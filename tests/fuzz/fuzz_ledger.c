/* Ledgers of any bytes, of one worker: they are checked, or refused with a line. */
#define _GNU_SOURCE
#include "fuzz/file.h"
#include "fuzz/fuzz.h"
#include "kolo/data.h"

#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/kolo-ledger-XXXXXX", ledger[sizeof folder + 8],
            first[sizeof ledger + 8];

static void leave(void) {
    unlink(first);
    rmdir(folder);
}

/* The ledger of worker 0 is a link to the file. */
static void enter(const char *path) {
    KOLO_ASSERT(mkdtemp(folder) != NULL);
    snprintf(ledger, sizeof ledger, "%s/used", folder);
    snprintf(first, sizeof first, "%s.0", ledger);
    KOLO_ASSERT(symlink(path, first) == 0 && atexit(leave) == 0);
}

/* The check takes a byte of memory for each sample: data of 10^8 or more are left out. */
static bool is_large(const uint8_t *bytes, size_t length) {
    enum { DIGITS = 9 };
    for (size_t i = 0, digits = 0; i < length; i++) {
        digits = bytes[i] >= '0' && bytes[i] <= '9' ? digits + 1 : 0;
        if (digits == DIGITS) return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    bool exact;
    char *text;
    if (is_large(bytes, length)) return 0;
    const char *path = fuzz_file(bytes, length);
    if (!*ledger) enter(path);
    const kolo_status status = kolo_ledger_check(ledger, &exact, &text);
    if (status != KOLO_OK) { /* IO: it has other workers, whose files are missing */
        KOLO_ASSERT(status == KOLO_ERR_FORMAT || status == KOLO_ERR_IO || status == KOLO_ERR_NOMEM);
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return 0;
    }
    KOLO_ASSERT(text[0] && text[strlen(text) - 1] == '\n');
    kolo_ledger_text_free(text);
    return 0;
}
