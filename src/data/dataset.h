#pragma once
/* Inside of a data set, and the table of readers that open them. A reader is one file that fills a
 * kolo_dataset, and one row of the table in dataset.c. */

#include "kolo/data.h"

/* What a reader fills. A reader whose samples lie in memory gives `samples` and `labels` and leaves
 * `gather` NULL; one that decodes gives `gather`. The memory of both belongs to the reader, which
 * keeps what it needs to free in `own` and frees it in `close`. */
struct kolo_dataset {
    kolo_dataset_info info;
    size_t sample_bytes;    /* filled by dataset.c */
    int64_t sample_labels;  /* the same: labels of one sample */
    kolo_dataset_opts opts; /* the model's word */
    const uint8_t *samples; /* count,C,H,W */
    const int32_t *labels;  /* count, the labels of a sample each */
    /* As kolo_dataset_gather, indices checked already; any thread. */
    kolo_status (*gather)(const kolo_dataset *dataset, const int64_t *indices, int64_t n,
                          uint8_t *samples, int32_t *labels);
    void (*close)(kolo_dataset *dataset); /* NULL: nothing to free; also called after a failure */
    void *own;
    char *place; /* info.place */
};

typedef struct kolo_reader {
    const char *name;
    const char *argument; /* what stands after the colon, for help: "DIR" */
    const char *help;
    /* Fills a zeroed data set whose info.split is set. `argument` is NULL when `spec` had no colon.
     */
    kolo_status (*open)(const struct kolo_reader *reader, const char *argument,
                        kolo_dataset *dataset);
    int token_bytes; /* of readers of tokens */
    /* Constants of readers of the MNIST family. */
    int classes;
    float mean, std;
    const char *folder, *package; /* where a Debian package puts it; NULL: there is none */
} kolo_reader;

/* All readers, ended by a row without a name. */
extern const kolo_reader kolo_readers[];

/* A data set by `reader`; what kolo_dataset_open does once it has found the reader. */
kolo_status kolo_dataset_open_with(const kolo_reader *reader, const char *argument,
                                   kolo_split split, const kolo_dataset_opts *opts,
                                   kolo_dataset **dataset);

/* The readers' open functions. */
kolo_status kolo_read_mnist(const kolo_reader *reader, const char *argument, kolo_dataset *dataset);
kolo_status kolo_read_synthetic(const kolo_reader *reader, const char *argument,
                                kolo_dataset *dataset);
kolo_status kolo_read_synthetic_seg(const kolo_reader *reader, const char *argument,
                                    kolo_dataset *dataset);
/* Fills what every set of tokens has: the shapes of windows by the model's word. */
kolo_status kolo_tokens_describe(const kolo_reader *reader, kolo_dataset *dataset);
kolo_status kolo_read_tokens(const kolo_reader *reader, const char *argument,
                             kolo_dataset *dataset);
/* Fills pairs of sentences from what `reader` reads; what an open function is when the options say
 * so. */
kolo_status kolo_pairs_open(const kolo_reader *reader, const char *argument, kolo_dataset *dataset);
kolo_status kolo_read_synthetic_tokens(const kolo_reader *reader, const char *argument,
                                       kolo_dataset *dataset);
