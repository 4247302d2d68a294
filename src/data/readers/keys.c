/* Keys of a data set's argument. */
#include "data/readers/keys.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/status.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool kolo_key_count(const kolo_data_key *key, const char *text, const char *end) {
    char *stop;
    errno = 0;
    long long n = strtoll(text, &stop, 10);
    if (stop != end || stop == text || errno || (double)n < key->min || (double)n > key->max) {
        return false;
    }
    *(int64_t *)key->value = n;
    return true;
}

bool kolo_key_real(const kolo_data_key *key, const char *text, const char *end) {
    char *stop;
    double x = kolo_parse_double(text, &stop);
    if (stop != end || stop == text || !(x >= key->min && x <= key->max)) return false;
    *(double *)key->value = x;
    return true;
}

bool kolo_key_seed(const kolo_data_key *key, const char *text, const char *end) {
    char *stop;
    errno = 0;
    unsigned long long n = strtoull(text, &stop, 10);
    if (stop != end || stop == text || errno || *text == '-') return false;
    *(uint64_t *)key->value = n;
    return true;
}

bool kolo_key_seconds(const kolo_data_key *key, const char *text, const char *end) {
    static const char forever[] = "forever";
    const size_t length = (size_t)(end - text);
    if (length == sizeof forever - 1 && memcmp(text, forever, length) == 0) {
        *(double *)key->value = INFINITY;
        return true;
    }
    return kolo_key_real(key, text, end) && *(double *)key->value > 0;
}

static bool copy(const char *text, const char *end, size_t room, char *to) {
    size_t length = (size_t)(end - text);
    if (length == 0 || length >= room) return false;
    memcpy(to, text, length);
    to[length] = '\0';
    return true;
}

bool kolo_key_text(const kolo_data_key *key, const char *text, const char *end) {
    return copy(text, end, KOLO_KEY_TEXT, key->value);
}
bool kolo_key_path(const kolo_data_key *key, const char *text, const char *end) {
    return copy(text, end, KOLO_KEY_PATH, key->value);
}

static kolo_status unknown_key(const char *name, const char *key, int length,
                               const kolo_data_key *keys) {
    const char *names[16] = {NULL};
    kolo_text known = {0};
    for (int i = 0; keys[i].name; i++) {
        KOLO_ASSERT(i < 15);
        names[i] = keys[i].name;
        kolo_text_add(&known, "%s%s", i ? ", " : "", names[i]);
    }
    char shown[32] = "";
    if ((size_t)length < sizeof shown) memcpy(shown, key, (size_t)length);
    const char *closest = kolo_closest(shown, names);
    const char *all = known.failed ? names[0] : known.text;
    kolo_status status = KOLO_FAIL(KOLO_ERR_ARG, "data set %s: unknown key \"%.*s\": %s%s%s", name,
                                   length, key, closest ? "did you mean " : "known are ",
                                   closest ? closest : all, closest ? "?" : "");
    kolo_text_fini(&known);
    return status;
}

/* Bit i of *seen: row i has had a value. */
static kolo_status parse_one(const char *name, const char *text, const char *end,
                             const kolo_data_key *keys, uint32_t *seen) {
    const char *equals = memchr(text, '=', (size_t)(end - text));
    size_t length = (size_t)((equals ? equals : end) - text);
    const kolo_data_key *key = keys;
    while (key->name && (strlen(key->name) != length || strncmp(key->name, text, length) != 0)) {
        key++;
    }
    if (!key->name) return unknown_key(name, text, (int)length, keys);
    const uint32_t bit = UINT32_C(1) << (key - keys);
    if (*seen & bit) {
        return KOLO_FAIL(KOLO_ERR_ARG, "data set %s: %s= is given twice: omit one", name,
                         key->name);
    }
    *seen |= bit;
    if (equals && key->parse(key, equals + 1, end)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "data set %s: bad value in \"%.*s\": write %s", name,
                     (int)(end - text), text, key->write);
}

/* Config files find paths by the table of readers. */
static void check_paths(const kolo_reader *reader, const kolo_data_key *keys) {
    for (; keys->name; keys++) {
        const bool declared = reader->path_key && strcmp(reader->path_key, keys->name) == 0;
        KOLO_ASSERT(declared == (keys->parse == kolo_key_path));
    }
}

kolo_status kolo_keys_parse(const kolo_reader *reader, const char *text,
                            const kolo_data_key *keys) {
    uint32_t seen = 0;
    check_paths(reader, keys);
    while (text && *text) {
        const char *end = text + strcspn(text, ",");
        KOLO_TRY(parse_one(reader->name, text, end, keys, &seen));
        text = *end ? end + 1 : end;
    }
    return KOLO_OK;
}

/* Whether "PATH,KEY=VALUE,..." sets `key`. */
static bool is_set(const char *argument, const char *key) {
    const size_t length = strlen(key);
    for (const char *at = strchr(argument, ','); at; at = strchr(at + 1, ',')) {
        if (strncmp(at + 1, key, length) == 0 && at[1 + length] == '=') return true;
    }
    return false;
}

kolo_status kolo_keys_refuse_split(const char *name, const char *argument, const char *why) {
    static const char *const keys[] = {"split", "seed"};
    for (size_t i = 0; i < KOLO_COUNT(keys); i++) {
        if (!is_set(argument, keys[i])) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "data set %s: %s= has no effect %s: omit it", name, keys[i],
                         why);
    }
    return KOLO_OK;
}

kolo_status kolo_keys_parse_after(const kolo_reader *reader, const char *what, const char *argument,
                                  const kolo_data_key *keys, char **path) {
    const char *name = reader->name;
    size_t length = argument ? strcspn(argument, ",") : 0;
    if (length == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "data set %s needs a path: write %s:%s", name, name, what);
    }
    KOLO_TRY(kolo_keys_parse(reader, argument[length] ? argument + length + 1 : NULL, keys));
    char *copy = kolo_strdup(argument);
    if (!copy) return KOLO_NOMEM(strlen(argument));
    copy[length] = '\0';
    *path = copy;
    return KOLO_OK;
}

bool kolo_key_size(const kolo_data_key *key, const char *text, const char *end) {
    int64_t *size = key->value;
    const char *by = memchr(text, 'x', (size_t)(end - text));
    kolo_data_key height = *key, width = *key;
    width.value = &size[1];
    if (!kolo_key_count(&height, text, by ? by : end)) return false;
    if (by) return kolo_key_count(&width, by + 1, end);
    size[1] = size[0];
    return true;
}

bool kolo_key_target_type(const kolo_data_key *key, const char *text, const char *end) {
    char type[KOLO_KEY_TEXT];
    if (!copy(text, end, sizeof type, type)) return false;
    *(bool *)key->value = strcmp(type, "value") == 0;
    return *(bool *)key->value || strcmp(type, "class") == 0;
}
