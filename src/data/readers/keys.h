#pragma once
/* Keys of a data set's argument: "KEY=VALUE,KEY=VALUE". A reader lists its keys in a table. */

#include "data/dataset.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_data_key kolo_data_key;
struct kolo_data_key {
    const char *name;
    /* Parses the text from `text` to `end` into key->value; false: it is malformed. */
    bool (*parse)(const kolo_data_key *key, const char *text, const char *end);
    void *value;
    double min, max;   /* of numbers */
    const char *write; /* what to write, for errors */
};

/* Values: int64_t in [min, max]; double in [min, max]; uint64_t; char[KOLO_KEY_TEXT];
 * char[KOLO_KEY_PATH]. */
enum { KOLO_KEY_TEXT = 64, KOLO_KEY_PATH = 4096 };
bool kolo_key_count(const kolo_data_key *key, const char *text, const char *end);
bool kolo_key_real(const kolo_data_key *key, const char *text, const char *end);
bool kolo_key_seed(const kolo_data_key *key, const char *text, const char *end);
bool kolo_key_text(const kolo_data_key *key, const char *text, const char *end);
bool kolo_key_path(const kolo_data_key *key, const char *text, const char *end);

/* "class" or "value", false or true; into a bool. */
bool kolo_key_target_type(const kolo_data_key *key, const char *text, const char *end);

/* Seconds above 0, or "forever", INFINITY; into a double. */
bool kolo_key_seconds(const kolo_data_key *key, const char *text, const char *end);

/* "HxW", or "N" for NxN, into int64_t[2]; each in [min, max]. */
bool kolo_key_size(const kolo_data_key *key, const char *text, const char *end);

/* Parses `text` (NULL: nothing) by `keys`, ended by a row without a name. A key is parsed by
 * kolo_key_path if it is the path_key of the reader. ARG, naming the data set and the item, also of
 * a key that is given twice. */
kolo_status kolo_keys_parse(const kolo_reader *reader, const char *text, const kolo_data_key *keys);

/* ARG if "PATH,KEY=VALUE,..." sets split= or seed=, for data whose splits are apart; `why` begins
 * with "with" or "for". */
kolo_status kolo_keys_refuse_split(const char *name, const char *argument, const char *why);

/* Divides "PATH,KEY=VALUE,..." at its first comma: parses the keys and returns the path in *path,
 * for kolo_free. ARG, also if there is no path: `what` it names ("FILE"); NOMEM. */
kolo_status kolo_keys_parse_after(const kolo_reader *reader, const char *what, const char *argument,
                                  const kolo_data_key *keys, char **path);
