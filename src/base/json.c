/* The streaming JSON printer. Two words of bits remember, for each open level, whether it is an
 * array and whether it has a value, which decides commas and keys. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kolo_double_text(double value, char text[32]) {
    if (!isfinite(value)) {
        snprintf(text, 32, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    /* The host program may have set a locale that writes a decimal comma. */
    for (char *c = text; *c; c++) {
        if (!strchr("0123456789+-e", *c)) *c = '.';
    }
}

/* Length of the UTF-8 sequence at `s`, 0 when it is malformed (overlong forms, surrogates and
 * values past U+10FFFF included). */
static int utf8_length(const unsigned char *s) {
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
        kolo_text_add(t, "\xef\xbf\xbd"); /* U+FFFD for a byte that is no UTF-8 */
    }
}

void kolo_text_add_quoted(kolo_text *t, const char *text) {
    kolo_text_add(t, "\"");
    const char *run = text; /* start of the plain bytes not yet printed */
    for (const char *s = text; *s;) {
        int n = utf8_length((const unsigned char *)s);
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

static void add_line_break(kolo_json *j) {
    if (j->indent) kolo_text_add(j->out, "\n%*s", j->indent * j->depth, "");
}

/* What stands before every value: comma, line break, key. */
static void begin_value(kolo_json *j, const char *key) {
    uint64_t bit = UINT64_C(1) << j->depth;
    bool in_object = j->depth > 0 && !(j->arrays & bit);
    KOLO_ASSERT(in_object == (key != NULL));
    if (j->filled & bit) {
        KOLO_ASSERT(j->depth > 0);
        kolo_text_add(j->out, j->indent ? "," : ", ");
    }
    j->filled |= bit;
    if (j->depth > 0) add_line_break(j);
    if (key) {
        kolo_text_add_quoted(j->out, key);
        kolo_text_add(j->out, ": ");
    }
}

static void open_level(kolo_json *j, const char *key, bool array) {
    begin_value(j, key);
    KOLO_ASSERT(j->depth < KOLO_JSON_DEPTH);
    j->depth++;
    uint64_t bit = UINT64_C(1) << j->depth;
    j->filled &= ~bit;
    j->arrays = array ? j->arrays | bit : j->arrays & ~bit;
    kolo_text_add(j->out, array ? "[" : "{");
}

void kolo_json_object(kolo_json *j, const char *key) { open_level(j, key, false); }

void kolo_json_array(kolo_json *j, const char *key) { open_level(j, key, true); }

void kolo_json_close(kolo_json *j) {
    KOLO_ASSERT(j->depth > 0);
    uint64_t bit = UINT64_C(1) << j->depth;
    bool array = j->arrays & bit, filled = j->filled & bit;
    j->depth--;
    if (filled) add_line_break(j);
    kolo_text_add(j->out, array ? "]" : "}");
}

void kolo_json_string(kolo_json *j, const char *key, const char *text) {
    if (!text) {
        kolo_json_null(j, key);
        return;
    }
    begin_value(j, key);
    kolo_text_add_quoted(j->out, text);
}

void kolo_json_int(kolo_json *j, const char *key, int64_t value) {
    begin_value(j, key);
    kolo_text_add(j->out, "%" PRId64, value);
}

void kolo_json_double(kolo_json *j, const char *key, double value) {
    char text[32];
    kolo_double_text(value, text);
    kolo_json_raw(j, key, isfinite(value) ? text : "null");
}

void kolo_json_bool(kolo_json *j, const char *key, bool value) {
    kolo_json_raw(j, key, value ? "true" : "false");
}

void kolo_json_null(kolo_json *j, const char *key) { kolo_json_raw(j, key, "null"); }

void kolo_json_raw(kolo_json *j, const char *key, const char *json) {
    begin_value(j, key);
    kolo_text_add(j->out, "%s", json);
}
