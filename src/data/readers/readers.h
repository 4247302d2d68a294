#pragma once
/* The table of readers, and their open functions. */

#include "base/file.h"
#include "data/dataset.h"
#include "data/readers/keys.h"

/* All readers, ended by a row without a name. */
extern const kolo_reader kolo_readers[];

kolo_reader_open kolo_read_mnist, kolo_read_cifar10, kolo_read_cifar100, kolo_read_csv;
kolo_reader_open kolo_read_raw;
kolo_reader_open kolo_read_folder, kolo_read_pack, kolo_read_voc, kolo_read_webdataset;
kolo_reader_open kolo_read_synthetic, kolo_read_synthetic_seg;
kolo_reader_open kolo_read_tokens, kolo_read_synthetic_tokens;
kolo_reader_open kolo_read_criteo, kolo_read_synthetic_clicks;
kolo_reader_open kolo_read_labelled, kolo_read_synthetic_labelled;

/* Opens pairs of sentences from the tokens of `reader`, for models that require pairs. */
kolo_reader_open kolo_pairs_open;

/* Sets what all token data sets have in common: shapes and classes as the model requires. */
kolo_status kolo_tokens_describe(const kolo_reader *reader, kolo_dataset *dataset);

/* The name of the reader of "PATH" or "PATH,KEY=VALUE,...", by the files there; NULL: unknown.
 * *exists: there is such a path. */
const char *kolo_reader_recognize(const char *spec, bool *exists);

/* Sets the place of a data set to the folder `argument`, or that of the reader. `holds` names its
 * contents in errors. ARG: there is none; IO: it does not exist, or is a file; NOMEM. */
kolo_status kolo_reader_folder(const kolo_reader *reader, const char *argument, const char *holds,
                               kolo_dataset *dataset);

/* The path of a file in a folder, for kolo_free. IO, with `hint` as what to do: there is no such
 * file; NOMEM. */
kolo_status kolo_reader_file(const char *folder, const char *name, const char *hint, char **path);

/* The files of the splits of tables and tokens, by keys that their readers share: the path, or a
 * test split of its own; the path may be a stream. */
typedef struct kolo_split_files {
    double follow;
    char test[KOLO_KEY_PATH]; /* "": a part of the path's */
} kolo_split_files;
#define KOLO_SPLIT_FILE_KEYS(files)                                                 \
    {"follow",                                                                      \
     kolo_key_seconds,                                                              \
     &(files).follow,                                                               \
     0,                                                                             \
     1e9,                                                                           \
     "follow=SECONDS without new data after which a file ends, or follow=forever"}, \
    {                                                                               \
        "test", kolo_key_path, (files).test, .write = "test=FILE, the test split"   \
    }

/* Sets d->place to the file of the split, and d->stream where that is a stream, whose `next` and
 * `record` the reader sets; *whole: the split is all of the file. ARG: the stream has no test
 * split, or a key that does not go with it; NOMEM. */
kolo_status kolo_reader_choose_split(const kolo_reader *reader, const char *argument,
                                     const kolo_split_files *files, kolo_dataset *d, bool *whole);

/* Copies the moments of a reader's channels to a field of images. */
void kolo_reader_moments(const kolo_reader *reader, kolo_field *images);

/* The bytes of the byte order mark of UTF-8 that a text begins with: 3, or 0. */
size_t kolo_byte_order_mark(const char *text, size_t length);

/* Lines of a text file, read one at a time while it is in use. Zeroed at first; free `text`. */
typedef struct kolo_line {
    char *text;
    size_t length, room;
} kolo_line;
/* Reads the line that begins at `at`, with its end mark. Errors of kolo_file_read_at; NOMEM. */
kolo_status kolo_line_read(const kolo_file *file, uint64_t at, kolo_line *line);

/* Whether sample i of `count` is in the test split, which has *left samples of those from i on: a
 * fixed number of them, drawn by `seed`. Called for each sample in order (Knuth, volume 2, section
 * 3.4.2, algorithm S). */
bool kolo_split_takes(uint64_t seed, int64_t i, int64_t count, int64_t *left);

/* Whether two specs of one data set, or of it and its pack, have the same keys, in any order, as
 * far as they change samples. Their paths may differ. */
bool kolo_dataset_same_keys(const char *a, const char *b);

/* A hash of what a data set is and of 16 of its samples: the first, the last, and some between.
 * Data sets that differ elsewhere only have the same hash. Images are not decoded. 0: a stream, or
 * samples of a program. NOMEM. */
kolo_status kolo_dataset_fingerprint(const kolo_dataset *dataset, uint64_t *hash);
