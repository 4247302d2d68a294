#pragma once
/* A streaming JSON printer: calls append to a kolo_text, nothing is kept. (JSON is read by
 * jansson.)
 *
 *     kolo_text text = {0};
 *     kolo_json j = {.out = &text};
 *     kolo_json_object(&j, NULL);
 *     kolo_json_string(&j, "model", "lenet");
 *     kolo_json_array(&j, "losses");
 *     kolo_json_double(&j, NULL, 0.25);
 *     kolo_json_close(&j);
 *     kolo_json_close(&j);                  // {"model": "lenet", "losses": [0.25]}
 *
 * Inside an object each value takes its key; inside an array, and at the top, the key is NULL. A
 * call that breaks this asserts. Want of memory shows in the text's `failed`. */

#include "base/compiler.h"
#include "base/text.h"

#include <stdint.h>


enum { KOLO_JSON_DEPTH = 63 };

typedef struct kolo_json {
    kolo_text *out;
    int indent;      /* spaces for each level; 0: all on one line */
    int depth;       /* open objects and arrays */
    uint64_t filled; /* bit d: level d has a value already */
    uint64_t arrays; /* bit d: level d is an array */
} kolo_json;

KOLO_SHARED void kolo_json_object(kolo_json *j, const char *key);
KOLO_SHARED void kolo_json_array(kolo_json *j, const char *key);
/* Closes the innermost object or array. */
KOLO_SHARED void kolo_json_close(kolo_json *j);

/* Text that is no UTF-8 is printed with U+FFFD in place of each bad byte. NULL prints null. */
KOLO_SHARED void kolo_json_string(kolo_json *j, const char *key, const char *text);
KOLO_SHARED void kolo_json_int(kolo_json *j, const char *key, int64_t value);
/* The shortest form that reads back as the same double; nan and infinities become null. */
KOLO_SHARED void kolo_json_double(kolo_json *j, const char *key, double value);
KOLO_SHARED void kolo_json_bool(kolo_json *j, const char *key, bool value);
KOLO_SHARED void kolo_json_null(kolo_json *j, const char *key);
/* `json` is printed as it stands: the caller promises that it is one JSON value. */
KOLO_SHARED void kolo_json_raw(kolo_json *j, const char *key, const char *json);
