#include "base/text.h"

#include "base/memory.h"
#include "base/number.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD for an invalid byte */

void kolo_text_addv(kolo_text *t, const char *fmt, va_list args) {
    if (t->failed) return;
    va_list copy;
    va_copy(copy, args);
    int n = kolo_vsnprintf(NULL, 0, fmt, args);
    size_t need = t->length + (size_t)(n > 0 ? n : 0) + 1;
    if (need > t->capacity) {
        size_t capacity = need > 2 * t->capacity ? need : 2 * t->capacity;
        char *bigger = kolo_realloc(t->text, capacity);
        t->failed = !bigger;
        if (bigger) {
            t->text = bigger;
            t->capacity = capacity;
        }
    }
    if (!t->failed) {
        kolo_vsnprintf(t->text + t->length, t->capacity - t->length, fmt, copy);
        t->length = need - 1;
    }
    va_end(copy);
}

void kolo_text_add(kolo_text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    kolo_text_addv(t, fmt, args);
    va_end(args);
}

int kolo_utf8_length(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : 4;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
    }
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool beyond = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

static void add_escape(kolo_text *t, unsigned char c) {
    static const char letters[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                   ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    if (c < sizeof letters && letters[c]) {
        kolo_text_add(t, "\\%c", letters[c]);
    } else if (c < 0x20 || c == 0x7f) {
        kolo_text_add(t, "\\u%04x", c);
    } else {
        kolo_text_add(t, REPLACEMENT);
    }
}

void kolo_text_add_utf8(kolo_text *t, const char *text) {
    const char *run = text; /* start of the pending valid bytes */
    for (const char *s = text; *s;) {
        const int n = kolo_utf8_length((const unsigned char *)s);
        if (n > 0) {
            s += n;
            continue;
        }
        kolo_text_add(t, "%.*s" REPLACEMENT, (int)(s - run), run);
        run = ++s;
    }
    kolo_text_add(t, "%s", run);
}

void kolo_text_add_quoted(kolo_text *t, const char *text) {
    kolo_text_add(t, "\"");
    const char *run = text; /* start of the pending unescaped bytes */
    for (const char *s = text; *s;) {
        int n = kolo_utf8_length((const unsigned char *)s);
        unsigned char c = (unsigned char)*s;
        if (n > 0 && c >= 0x20 && c != 0x7f && c != '"' && c != '\\') {
            s += n;
            continue;
        }
        kolo_text_add(t, "%.*s", (int)(s - run), run);
        add_escape(t, c);
        run = ++s;
    }
    kolo_text_add(t, "%s\"", run);
}

void kolo_text_fini(kolo_text *t) {
    kolo_free(t->text);
    *t = (kolo_text){0};
}

char *kolo_format(const char *fmt, ...) {
    kolo_text t = {0};
    va_list args;
    va_start(args, fmt);
    kolo_text_addv(&t, fmt, args);
    va_end(args);
    if (t.failed) kolo_text_fini(&t);
    return t.text;
}
