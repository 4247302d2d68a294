/* Options of models: NAME=NUMBER, separated by commas. */
#include "models/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 16 };

/* The names of the table as kolo_closest wants them. */
static const char *suggest(const char *name, const model_option *table, int n) {
    const char *names[MAX_OPTIONS + 1] = {NULL};
    for (int i = 0; i < n; i++) names[i] = table[i].name;
    return kolo_closest(name, names);
}

static kolo_status fail_unknown(const char *model, const char *name, const model_option *table,
                                int n) {
    if (n == 0)
        return kolo_error_set(KOLO_ERR_ARG, "model %s has no options: drop \"%s\"", model, name);
    const char *closest = suggest(name, table, n);
    if (closest) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s has no option \"%s\": did you mean \"%s\"?",
                              model, name, closest);
    }
    char known[MAX_OPTIONS * 16] = "";
    size_t length = 0;
    for (int i = 0; i < n && length < sizeof known; i++) {
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
                                   table[i].name);
    }
    return kolo_error_set(KOLO_ERR_ARG, "model %s has no option \"%s\": it has %s", model, name,
                          known);
}

/* What a number of this name counts, where that is not what it says. */
static const char *unit_of(const char *name) {
    return strcmp(name, "dropout") == 0 || strcmp(name, "aux_dropout") == 0 ? " of percent" : "";
}

/* One option, text[0..length). */
static kolo_status parse_one(const char *model, const char *text, size_t length,
                             const model_option *table, int n, unsigned *seen) {
    const char *equals = memchr(text, '=', length);
    size_t name_length = equals ? (size_t)(equals - text) : length;
    char name[32], *end;
    if (name_length >= sizeof name) name_length = sizeof name - 1;
    memcpy(name, text, name_length);
    name[name_length] = '\0';
    int i = 0;
    while (i < n && strcmp(table[i].name, name) != 0) i++;
    if (i == n) return fail_unknown(model, name, table, n);
    const model_option *o = &table[i];
    if (*seen >> i & 1) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s: option %s is given twice", model, name);
    }
    *seen |= 1U << i;
    errno = 0;
    long long value = equals ? strtoll(equals + 1, &end, 10) : 0;
    if (!equals || end == equals + 1 || end != text + length || errno != 0 || value < o->min ||
        value > o->max) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "model %s: \"%.*s\": give %s a whole number%s from %" PRId64
                              " to %" PRId64 ", as in %s=%" PRId64,
                              model, (int)length, text, name, unit_of(name), o->min, o->max, name,
                              *o->value);
    }
    *o->value = value;
    return KOLO_OK;
}

kolo_status model_options_parse(const char *model, const char *text, const model_option *table,
                                int n) {
    unsigned seen = 0;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        kolo_status status = parse_one(model, text, length, table, n, &seen);
        if (status != KOLO_OK) return status;
        text += length;
        if (*text == ',') text++;
    }
    return KOLO_OK;
}
