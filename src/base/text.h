#pragma once
/* Growing strings. Numbers have a decimal point in every locale. */

#include "base/compiler.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* A growing string. Zero-initialize it; `text` is NULL or NUL-terminated. When an append runs out
 * of memory it sets `failed` and later appends do nothing, so one check at the end is enough. */
typedef struct kolo_text {
    char *text;
    size_t length, capacity;
    bool failed;
} kolo_text;
KOLO_SHARED void kolo_text_add(kolo_text *t, const char *fmt, ...) KOLO_PRINTF(2, 3);
KOLO_SHARED void kolo_text_addv(kolo_text *t, const char *fmt, va_list args) KOLO_PRINTF(2, 0);
/* Appends `text`. Each byte that is not valid UTF-8 becomes U+FFFD. */
KOLO_SHARED void kolo_text_add_utf8(kolo_text *t, const char *text);
/* Appends `text` as a JSON string, which is also a YAML one. Each byte that is not valid UTF-8
 * becomes U+FFFD. */
KOLO_SHARED void kolo_text_add_quoted(kolo_text *t, const char *text);
KOLO_SHARED void kolo_text_fini(kolo_text *t);

/* Bytes of the UTF-8 sequence at `s`; 0 when it is malformed: overlong forms, surrogates and values
 * above U+10FFFF are (RFC 3629). */
KOLO_SHARED int kolo_utf8_length(const unsigned char *s);

/* A formatted string for kolo_free; NULL when out of memory. */
KOLO_SHARED char *kolo_format(const char *fmt, ...) KOLO_PRINTF(1, 2);
