/* The thread-local last error, and assertion failures. */
#include "base/status.h"

#include "base/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    char text[1024];
    char place[128];
    uint64_t count;
} slot;

const char *kolo_status_text(kolo_status status) {
    static const char *const texts[] = {
#define KOLO_STATUS_TEXT(name, text) text,
        KOLO_STATUS_LIST(KOLO_STATUS_TEXT)
#undef KOLO_STATUS_TEXT
    };
    size_t i = (size_t)status;
    return i < KOLO_COUNT(texts) ? texts[i] : "unknown status";
}

const char *kolo_last_error(void) { return slot.text; }

const char *kolo_last_error_place(void) { return slot.place; }

const char *kolo_version(void) { return KOLO_VERSION; }

/* Replaces control characters, which may come from a file, user or peer: an error is one line. */
static void make_one_line(char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
    }
}

static void set_text(const char *fmt, va_list args) {
    char text[sizeof slot.text]; /* an argument may be the current text */
    kolo_vsnprintf(text, sizeof text, fmt, args);
    make_one_line(text);
    memcpy(slot.text, text, sizeof text);
    slot.count++;
}

kolo_status kolo_fail(kolo_status status, const char *file, int line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set_text(fmt, args);
    va_end(args);
    snprintf(slot.place, sizeof slot.place, "%s:%d", file, line);
    return status;
}

kolo_status kolo_error_set(kolo_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set_text(fmt, args);
    va_end(args);
    slot.place[0] = '\0';
    return status;
}

kolo_status kolo_fail_in(kolo_status status, const char *fmt, ...) {
    char context[256], text[sizeof slot.text + sizeof context + 2];
    va_list args;
    va_start(args, fmt);
    kolo_vsnprintf(context, sizeof context, fmt, args);
    make_one_line(context);
    va_end(args);
    snprintf(text, sizeof text, "%s: %s", context, slot.text);
    text[sizeof slot.text - 1] = '\0';
    memcpy(slot.text, text, sizeof slot.text);
    return status;
}

uint64_t kolo_error_count(void) { return slot.count; }

kolo_status kolo_callback_status(kolo_status status, uint64_t count, const char *callback) {
    if (status == KOLO_OK || slot.count != count) return status;
    return KOLO_FAIL(status, "%s: %s, without an error text: its code should call kolo_error_set",
                     callback, kolo_status_text(status));
}

void kolo_assert_failed(const char *text, const char *file, int line) {
    fprintf(stderr, "kolo: assertion failed at %s:%d: %s (this is a bug in kolo)\n", file, line,
            text);
    abort();
}
