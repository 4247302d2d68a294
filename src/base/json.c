/* The streaming JSON writer. Two bit masks hold, for each open level, whether it is an array and
 * whether it has a value, which determines commas and keys. */
#include "base/json.h"

#include "base/number.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>

static void add_line_break(kolo_json *j) {
    if (j->indent) kolo_text_add(j->out, "\n%*s", j->indent * j->depth, "");
}

/* Prints what precedes a value: comma, line break, key. */
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
