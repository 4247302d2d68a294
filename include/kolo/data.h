#pragma once
/* Data sets: samples that can be had in any order, with their labels.
 *
 *     kolo_dataset *train;
 *     KOLO_TRY(kolo_dataset_open("fashion-mnist", KOLO_SPLIT_TRAIN, &train));
 *     const kolo_dataset_info *info = kolo_dataset_describe(train);
 *
 * A data set is named by a text, NAME or NAME:ARGUMENT:
 *
 *     fashion-mnist        the folder of Debian's package dataset-fashion-mnist
 *     fashion-mnist:DIR    the same four IDX files in any folder, gzipped or not
 *     mnist:DIR            the handwritten digits, in the same format
 *
 *     synthetic[:KEY=VALUE,...]
 *         made in memory, the same at every run; keys N (training samples), test (test samples),
 *         shape (CxHxW), classes, seed
 *
 *     synthetic-seg[:KEY=VALUE,...]
 *         the same keys: discs and boxes of the classes, with a label for each pixel
 *
 *     text:FILE
 *         the bytes of a file as tokens; its last tenth is the test split
 *
 *     tokens:FILE
 *         tokens as they lie in a file, two bytes each (or, FILE being *.u32, four), little-endian;
 *         or a folder with train.bin and val.bin
 *
 *     synthetic-tokens[:KEY=VALUE,...]
 *         made up as needed; keys N, test (windows), seed
 *
 * The last three are of tokens: a sample is a window of them, its labels are the tokens that follow
 * each. They need a model's word on how long a window is: kolo_dataset_open_for. */

#include "kolo/dtype.h"
#include "kolo/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_dataset kolo_dataset;

typedef enum kolo_split { KOLO_SPLIT_TRAIN, KOLO_SPLIT_TEST } kolo_split;

enum { KOLO_MAX_CHANNELS = 16 };

/* What a data set holds. */
typedef struct kolo_dataset_info {
    const char *name;  /* "fashion-mnist" */
    const char *place; /* the folder or the argument it was made from */
    kolo_split split;
    int64_t count;     /* samples, at least 1 */
    kolo_shape sample; /* C,H,W; T of tokens */
    kolo_dtype dtype;  /* of the stored elements: KOLO_DTYPE_U8; KOLO_DTYPE_I32 of tokens */
    kolo_shape label; /* of one sample's labels: [] one label, [H,W] one for each pixel, [T] one for
                         each token */
    int classes;      /* labels, and tokens, are 0 .. classes-1, and -1 for a pixel that has none */
    /* Per channel, of elements scaled to [0, 1]: a network sees (x / 255 - mean) / std. */
    float mean[KOLO_MAX_CHANNELS], std[KOLO_MAX_CHANNELS];
} kolo_dataset_info;

/* Opens one split of the data set named by `spec`. Reads and checks all of its headers and labels.
 * ARG: unknown name (the text suggests one) or argument; IO: a file or folder is missing or cannot
 * be read; FORMAT: a file is damaged, or files do not belong together; NOMEM. */
KOLO_API kolo_status kolo_dataset_open(const char *spec, kolo_split split, kolo_dataset **dataset);

/* What a model says of the samples that it takes; zero: nothing. */
typedef struct kolo_dataset_opts {
    int64_t context;    /* tokens of a window */
    int64_t vocabulary; /* tokens that the model knows */
    bool pairs;         /* windows are pairs of sentences, which need the two tokens below */
    int64_t first;      /* stands before a pair */
    int64_t separator;  /* stands behind each sentence */
} kolo_dataset_opts;

/* Labels of pairs: each token's is the sum of these, or -2 less that sum where the token is one of
 * those that were put in between, which nobody is to guess. */
enum {
    KOLO_PAIR_SECOND = 1, /* it belongs to the second sentence */
    KOLO_PAIR_RANDOM = 2, /* the second sentence is not the one behind the first */
};

/* The same for a model; `opts` matters to sets of tokens alone, which need both. ARG: a token
 * outside the vocabulary, fewer tokens than a window of each split takes. */
KOLO_API kolo_status kolo_dataset_open_for(const char *spec, kolo_split split,
                                           const kolo_dataset_opts *opts, kolo_dataset **dataset);

/* Frees the data set and all pointers it gave. NULL is allowed. */
KOLO_API void kolo_dataset_close(kolo_dataset *dataset);

/* What the data set holds; valid until it is closed. */
KOLO_API const kolo_dataset_info *kolo_dataset_describe(const kolo_dataset *dataset);

/* Copies samples indices[0 .. n) to `samples` (n,C,H,W elements, u8; n,T of i32) and their labels
 * to `labels` (n times those of a sample). Any number of threads may call it at a time. ARG: an
 * index outside the set; IO, FORMAT: a sample cannot be read. */
KOLO_API kolo_status kolo_dataset_gather(const kolo_dataset *dataset, const int64_t *indices,
                                         int64_t n, uint8_t *samples, int32_t *labels);

#ifdef __cplusplus
}
#endif
