#pragma once
/* A streaming JSON writer that appends to a kolo_text. (JSON is parsed with jansson.)
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
 * Inside an object each value needs a key; inside an array and at the top level the key is NULL.
 * Violations assert. Out of memory sets `failed` of the text. */

#include "base/compiler.h"
#include "base/text.h"

#include <stdint.h>

enum { KOLO_JSON_DEPTH = 63 };

typedef struct kolo_json {
    kolo_text *out;
    int indent;      /* spaces per level; 0: one line */
    int depth;       /* open objects and arrays */
    uint64_t filled; /* bit d: level d has a value */
    uint64_t arrays; /* bit d: level d is an array */
} kolo_json;

KOLO_SHARED void kolo_json_object(kolo_json *j, const char *key);
KOLO_SHARED void kolo_json_array(kolo_json *j, const char *key);
/* Closes the innermost object or array. */
KOLO_SHARED void kolo_json_close(kolo_json *j);

/* Each byte that is not valid UTF-8 becomes U+FFFD. NULL prints null. */
KOLO_SHARED void kolo_json_string(kolo_json *j, const char *key, const char *text);
KOLO_SHARED void kolo_json_int(kolo_json *j, const char *key, int64_t value);
/* The shortest form that parses to the same double; NaN and infinities become null. */
KOLO_SHARED void kolo_json_double(kolo_json *j, const char *key, double value);
KOLO_SHARED void kolo_json_bool(kolo_json *j, const char *key, bool value);
KOLO_SHARED void kolo_json_null(kolo_json *j, const char *key);
/* Prints `json` verbatim; it must be one JSON value. */
KOLO_SHARED void kolo_json_raw(kolo_json *j, const char *key, const char *json);
