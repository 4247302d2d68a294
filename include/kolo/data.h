#pragma once
/* Data sets: samples with labels, in random access.
 *
 *     kolo_dataset *train;
 *     KOLO_TRY(kolo_dataset_open("fashion-mnist", KOLO_SPLIT_TRAIN, &train));
 *     const kolo_dataset_info *info = kolo_dataset_describe(train);
 *
 * A data set is named by NAME or NAME:ARGUMENT:
 *
 *     fashion-mnist        the folder of Debian's package dataset-fashion-mnist
 *     fashion-mnist:DIR    the four IDX files in another folder, gzipped or not
 *     mnist:DIR            the handwritten digits, in the same format
 *
 *     synthetic[:KEY=VALUE,...]
 *         synthetic images in memory, the same in every run; keys N (training samples), test (test
 *         samples), shape (CxHxW), classes, seed
 *
 *     synthetic-seg[:KEY=VALUE,...]
 *         the same keys; discs and boxes, with a label for each pixel
 *
 *     text:FILE
 *         the bytes of a file as tokens; the last tenth is the test split
 *
 *     tokens:FILE
 *         little-endian tokens of two bytes (in *.u32 of four); or a folder with train.bin and
 *         val.bin
 *
 *     synthetic-tokens[:KEY=VALUE,...]
 *         synthetic tokens; keys N, test (windows), seed
 *
 * In the last three a sample is a window of tokens, and the label of a token is the next one. The
 * model sets the length of a window: kolo_dataset_open_for. */

#include "kolo/dtype.h"
#include "kolo/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_dataset kolo_dataset;

typedef enum kolo_split { KOLO_SPLIT_TRAIN, KOLO_SPLIT_TEST } kolo_split;

enum { KOLO_MAX_CHANNELS = 16 };

/* Description of a data set. */
typedef struct kolo_dataset_info {
    const char *name;  /* "fashion-mnist" */
    const char *place; /* its folder or argument */
    kolo_split split;
    int64_t count;     /* samples, at least 1 */
    kolo_shape sample; /* C,H,W; tokens: T */
    kolo_dtype dtype;  /* of the elements: KOLO_DTYPE_U8; tokens: KOLO_DTYPE_I32 */
    kolo_shape label;  /* of the labels of one sample: [], [H,W] per pixel, [T] per token */
    int classes;       /* labels and tokens are 0 .. classes-1; -1: a pixel without a label */
    /* Per channel, of elements scaled to [0, 1]; the network input is (x / 255 - mean) / std. */
    float mean[KOLO_MAX_CHANNELS], std[KOLO_MAX_CHANNELS];
} kolo_dataset_info;

/* The path in a spec, "DIR" of "mnist:DIR"; NULL: it holds none. Points into `spec`. */
KOLO_API const char *kolo_dataset_path(const char *spec);

/* Opens one split of the data set `spec`. Reads and checks all headers and labels. ARG: unknown
 * name (the message suggests one) or argument; IO: a file or folder is missing or cannot be read;
 * FORMAT: a file is damaged, or files do not match; NOMEM. */
KOLO_API kolo_status kolo_dataset_open(const char *spec, kolo_split split, kolo_dataset **dataset);

/* Requirements of a model on token data; zero: none. */
typedef struct kolo_dataset_opts {
    int64_t context;    /* tokens of a window */
    int64_t vocabulary; /* number of distinct tokens */
    bool pairs;         /* windows are pairs of sentences, with the two tokens below */
    int64_t first;      /* token before a pair */
    int64_t separator;  /* token after each sentence */
} kolo_dataset_opts;

/* Labels of pairs: the label of a token is the sum of these flags; of the inserted tokens, which
 * are not predicted, it is -2 minus that sum. */
enum {
    KOLO_PAIR_SECOND = 1, /* in the second sentence */
    KOLO_PAIR_RANDOM = 2, /* the second sentence does not follow the first */
};

/* As kolo_dataset_open, for a model. Token data require context and vocabulary; other data ignore
 * `opts`. ARG: a token outside the vocabulary, or too few tokens for a window in each split. */
KOLO_API kolo_status kolo_dataset_open_for(const char *spec, kolo_split split,
                                           const kolo_dataset_opts *opts, kolo_dataset **dataset);

/* Frees the data set and all pointers into it. NULL is allowed. */
KOLO_API void kolo_dataset_close(kolo_dataset *dataset);

/* The description; valid until the data set is closed. */
KOLO_API const kolo_dataset_info *kolo_dataset_describe(const kolo_dataset *dataset);

/* Copies samples indices[0 .. n) to `samples` (u8 n,C,H,W; tokens i32 n,T) and their labels to
 * `labels`. Thread-safe. ARG: an index out of range; IO, FORMAT: a sample cannot be read. */
KOLO_API kolo_status kolo_dataset_gather(const kolo_dataset *dataset, const int64_t *indices,
                                         int64_t n, uint8_t *samples, int32_t *labels);

#ifdef __cplusplus
}
#endif
