#pragma once
/* Inside of a data set: what a reader fills in, and the row that describes a reader.
 *
 * The folder from the bottom up: images/, which decodes and resizes; augment; dataset (this file);
 * readers/, one file and one row of the table in readers.c each; sampler, batch and normalize,
 * which a batch passes through; prefetch, which runs them ahead of training. safetensors/ is apart.
 */

#include "data/augment.h"
#include "data/feed.h"
#include "kolo/data.h"

#include <stdint.h>

/* The third field of click logs and labelled texts: rows of tables, "ids". */
enum { KOLO_FIELD_IDS = KOLO_FIELD_Y + 1 };

/* A reader that holds its samples in memory sets `data` and leaves `gather` NULL; one that reads or
 * decodes them sets `gather`, and of `data` at most labels, which are checked. It owns the memory,
 * keeps what it has to free in `own` and frees it in `close`. */
typedef struct kolo_dataset_stream kolo_dataset_stream;

struct kolo_dataset {
    kolo_dataset_info info;
    size_t bytes[KOLO_MAX_FIELDS];     /* of one sample, by field; set by dataset.c */
    kolo_dataset_opts opts;            /* what the model requires */
    const void *data[KOLO_MAX_FIELDS]; /* by field: [count, shape] */
    /* As kolo_dataset_gather_for, with valid indices. Any thread. */
    kolo_status (*gather)(const kolo_dataset *dataset, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data);
    /* The samples that will be gathered next, in this order, to read ahead; NULL: no use. */
    void (*announce)(const kolo_dataset *dataset, const int64_t *indices, int64_t n);
    /* `gather` decodes images of their own sizes: it does the random resized crop or scale, and
     * skips damaged ones. */
    bool encoded;
    kolo_dataset_stream *stream; /* samples are read once, in order, not by `gather`; or NULL */
    void (*close)(kolo_dataset *dataset); /* NULL: nothing to free; also called after a failure */
    void *own;
    char *place;                   /* info.place */
    kolo_read_samples *by_program; /* of kolo_dataset_create */
    char *names[KOLO_MAX_FIELDS];  /* of its fields */
};

typedef struct kolo_reader kolo_reader;

/* Fills a zeroed data set whose name, split and options are set. `argument` is NULL when the data
 * set was named without a colon. */
typedef kolo_status kolo_reader_open(const kolo_reader *reader, const char *argument,
                                     kolo_dataset *dataset);

struct kolo_reader {
    const char *name;
    const char *argument;    /* what follows the name, for help: ":DIR" */
    bool path;               /* the argument is a file or a folder */
    bool keys;               /* keys follow the path, or are the argument */
    const char *neutral_key; /* a key that changes no sample; NULL: there is none */
    const char *path_key;    /* a key that is a path, of kolo_key_path; NULL: there is none */
    const char *help;
    kolo_reader_open *open;
    int token_bytes; /* token readers */
    /* Of published sets of images: */
    int classes;
    float mean[3], std[3];        /* of the channels, over the training samples */
    const char *folder, *package; /* default folder and the Debian package that installs it */
};

/* A place between two samples of a stream. */
typedef struct kolo_stream_place {
    int64_t samples; /* before it */
    uint64_t bytes;  /* of a text: before it, with those that are no samples; 0: not known, as of
                        a pipe, which may be a part of the text */
    int64_t lines;   /* the same in lines */
} kolo_stream_place;

/* A data set of KOLO_STREAM_SAMPLES samples: as many as come. */
struct kolo_dataset_stream {
    const char *path; /* of kolo_feed_open, with `follow` */
    double follow;
    kolo_feed *source; /* from kolo_dataset_begin on */
    size_t record;     /* bytes from a sample to the next one; 0: they differ */
    int64_t damaged;   /* skipped since the latest kolo_dataset_next began */
    bool repeats;      /* samples that an earlier run has used are read again: no warnings */
    int64_t first;     /* samples before the first one that is read, for errors */
    int64_t lines;     /* of a text: consumed */
    /* Of a text whose samples are lines: reads the first row, which may be a header that others
     * depend on; *there false: there is none. NULL: it is no such text. */
    kolo_status (*read_head)(const kolo_dataset *dataset, bool *there);
    /* Reads the next sample to data[field]; *got false: there is none. */
    kolo_status (*next)(const kolo_dataset *dataset, void *const *data, bool *got);
};

/* Opens a stream at a place; a pipe at what it gives next. A text whose bytes before the place are
 * not known is read up to it. ARG: it has been opened before; IO; FORMAT: the file has fewer
 * samples, or no line begins there; NOMEM. */
kolo_status kolo_dataset_begin(const kolo_dataset *dataset, const kolo_stream_place *place);
/* Where a stream is, after `samples` samples. */
kolo_stream_place kolo_dataset_place(const kolo_dataset *dataset, int64_t samples);
/* Reads the next n samples of a stream as kolo_dataset_gather does. *got: how many there are, below
 * n at its end; *damaged: how many were skipped. One thread at a time. */
kolo_status kolo_dataset_next(const kolo_dataset *dataset, int64_t n, void *const *data,
                              int64_t *got, int64_t *damaged);
/* ARG if a data set is a stream; `what` needs one that is not. */
kolo_status kolo_dataset_refuse_stream(const kolo_dataset *dataset, const char *what);

/* Describes samples "x" and i32 labels "y". */
void kolo_dataset_set_fields(kolo_dataset_info *info, kolo_dtype dtype, kolo_shape sample,
                             kolo_shape label);

/* As kolo_dataset_gather, for training; `draw` NULL: as in evaluation. */
kolo_status kolo_dataset_gather_for(const kolo_dataset *dataset, const int64_t *indices, int64_t n,
                                    const kolo_draw *draw, void *const *data);

/* Opens a data set with `open` and checks what it filled in, labels included. */
kolo_status kolo_dataset_open_with(const kolo_reader *reader, kolo_reader_open *open,
                                   const char *argument, kolo_split split,
                                   const kolo_dataset_opts *opts, kolo_dataset **dataset);
