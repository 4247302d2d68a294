/* Parser of model options: NAME=NUMBER, separated by commas. */
#include "models/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 16 };

/* The closest option name. */
static const char *suggest(const char *name, const kolo_model_option *table, int n) {
    const char *names[MAX_OPTIONS + 1] = {NULL};
    for (int i = 0; i < n; i++) names[i] = table[i].name;
    return kolo_closest(name, names);
}

static kolo_status fail_unknown(const char *model, const char *name, const kolo_model_option *table,
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

/* Parses all of text[0..length), digits and a point in every locale, as a fraction of `one`. */
static bool read_share(const char *text, size_t length, int64_t one, int64_t *number) {
    double digits = 0, scale = 0; /* scale: 1 at the point, 10 after one more digit */
    for (size_t i = 0; i < length; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9', point = text[i] == '.' && scale == 0;
        if (!(digit || point) || length < 2) return false;
        if (digit) digits = 10 * digits + (text[i] - '0');
        scale = point ? 1 : digit ? 10 * scale : scale;
    }
    if (!(digits / scale <= INT32_MAX)) return false;
    *number = llround(digits / scale * (double)one);
    return true;
}

/* Parses all of text[0..length) as an integer, or as a fraction of `one`. */
static bool read_number(const char *text, size_t length, int64_t one, int64_t *number) {
    char *end;
    errno = 0;
    if (one > 0 && memchr(text, '.', length)) return read_share(text, length, one, number);
    *number = strtoll(text, &end, 10);
    return length > 0 && end == text + length && errno == 0;
}

static kolo_status fail_value(const char *model, const char *text, size_t length,
                              const kolo_model_option *o) {
    char share[64] = "";
    if (o->one == 100) {
        snprintf(share, sizeof share, " of percent, or a share as 0.5,");
    } else if (o->one > 0) {
        snprintf(share, sizeof share, ", or a share of %" PRId64 " as 0.5,", o->one);
    }
    return kolo_error_set(KOLO_ERR_ARG,
                          "model %s: \"%.*s\": give %s a whole number%s from %" PRId64
                          " to %" PRId64 ", as in %s=%" PRId64,
                          model, (int)length, text, o->name, share, o->min, o->max, o->name,
                          *o->value);
}

/* One option, text[0..length). */
static kolo_status parse_one(const char *model, const char *text, size_t length,
                             const kolo_model_option *table, int n, unsigned *seen) {
    const char *equals = memchr(text, '=', length);
    size_t name_length = equals ? (size_t)(equals - text) : length;
    char name[32];
    if (name_length >= sizeof name) name_length = sizeof name - 1;
    memcpy(name, text, name_length);
    name[name_length] = '\0';
    int i = 0;
    while (i < n && strcmp(table[i].name, name) != 0) i++;
    if (i == n) return fail_unknown(model, name, table, n);
    const kolo_model_option *o = &table[i];
    if (*seen >> i & 1) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s: option %s is given twice", model, name);
    }
    *seen |= 1U << i;
    int64_t value;
    if (!equals || !read_number(equals + 1, length - name_length - 1, o->one, &value) ||
        value < o->min || value > o->max) {
        return fail_value(model, text, length, o);
    }
    *o->value = value;
    return KOLO_OK;
}

kolo_status kolo_model_options_parse(const char *model, const char *text,
                                     const kolo_model_option *table, int n) {
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

int64_t model_options_number(const char *text, const char *name, int64_t otherwise) {
    size_t name_length = strlen(name);
    int64_t number;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        bool named = length > name_length && strncmp(text, name, name_length) == 0 &&
                     text[name_length] == '=';
        if (named) {
            const char *value = text + name_length + 1;
            bool read = read_number(value, length - name_length - 1, 0, &number);
            return read && number > 0 ? number : otherwise;
        }
        text += length;
        if (*text == ',') text++;
    }
    return otherwise;
}
