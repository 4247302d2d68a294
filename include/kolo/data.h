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
 *     cifar10:DIR          data_batch_1.bin to data_batch_5.bin and test_batch.bin
 *     cifar100:DIR         train.bin and test.bin, with the fine labels
 *
 *     folder:DIR[,KEY=VALUE,...]
 *         JPEG and PNG images, in a folder for each class; DIR may have the folders train and
 *         val (or test). Keys size (HxW of a sample; default 224), split and seed as below
 *
 *     webdataset:PATTERN[,KEY=VALUE,...]
 *         JPEG and PNG images in the tar shards of a file name pattern, as KEY.jpg and KEY.cls;
 *         keys test (the pattern of the test split, in the same folder), classes, index (a folder
 *         for the index of the shards), and those of folder
 *
 *     voc:DIR[,KEY=VALUE,...]
 *         Pascal VOC segmentation: JPEG images, and PNG masks with a class for each pixel. Keys
 *         size, classes, train and test (sets of images), masks (their folder)
 *
 *     pack:FILE[,size=HxW]
 *         both splits of another data set in one file: kolo_dataset_pack
 *
 *     csv:FILE[,KEY=VALUE,...]
 *         a table of numbers, a sample in each row; or a folder with train.csv and test.csv. Keys
 *         target (name or number of its column; default the last), type (class or value), classes,
 *         split (part of the rows that is the test split, drawn by seed; default 0.1), seed, test
 *         (a file that is the test split), columns; follow: see below
 *
 *     raw:FILE[,KEY=VALUE,...]
 *         a table of f32 in memory order: a .npy file, or one without a header. Keys as of tables;
 *         columns is required without a header
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
 * model sets the length of a window: kolo_dataset_open_for. Of files the key test names the test
 * split.
 *
 * Tables, texts and token files may be streams: "-" is the standard input, and named pipes and
 * files with the key follow (seconds without new bytes, or forever) are read as they come. A path
 * without a name is opened by the kind that is recognized.
 *
 *     criteo:FILE[,split=PART,seed=N]
 *         a click log in Criteo's format; split and seed as of tables
 *
 *     synthetic-clicks[:KEY=VALUE,...]
 *         synthetic click logs; keys N, test (samples), seed
 *
 * Click logs have the numbers and categories of the model, also by kolo_dataset_open_for.
 *
 *     fasttext:FILE[,test=FILE,ngrams=WORDS,split=PART,seed=N]
 *         labelled texts in fastText's format, a line each: "__label__NAME", and words separated by
 *         blanks. The classes are the labels of FILE in the order of their bytes. The features of a
 *         sample are its n-grams of up to `ngrams` (2) words, hashed to the rows of a table.
 *
 *     synthetic-labelled[:KEY=VALUE,...]
 *         synthetic labelled texts; keys N, test (samples), classes, seed
 *
 * Labelled texts have as many features and rows as the model; of longer texts the first ones.
 *
 * Programs make data sets of their own samples: kolo_dataset_create. */

#include "kolo/dtype.h"
#include "kolo/tensor.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_dataset kolo_dataset;

/* The list of splits of a data set: code, name, description. */
#define KOLO_SPLIT_LIST(X)                               \
    X(KOLO_SPLIT_TRAIN, "train", "the training samples") \
    X(KOLO_SPLIT_TEST, "test", "the test samples")

typedef enum kolo_split {
#define KOLO_SPLIT_ENUM(code, name, help) code,
    KOLO_SPLIT_LIST(KOLO_SPLIT_ENUM)
#undef KOLO_SPLIT_ENUM
        KOLO_SPLIT_COUNT
} kolo_split;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_split_name(kolo_split split);

enum { KOLO_MAX_FIELDS = 32, KOLO_MAX_CHANNELS = 16 };

/* The count of a stream, which has as many samples as come: kolo_train and kolo_fit read them once,
 * in order. Other calls refuse it: ARG. */
#define KOLO_STREAM_SAMPLES (INT64_C(1) << 48)

/* A field: one array that every sample has, such as an image or a label. It fills the input of the
 * graph that has its name. */
typedef struct kolo_field {
    const char *name;
    kolo_dtype dtype;
    kolo_shape shape; /* of one sample; the input of the graph is [samples, shape] */
    /* Of u8 that fill an f32 input, which becomes (x / 255 - mean) / std. Of images [C,H,W] one for
     * each channel, else the first for all elements. A std of 0 is 1. */
    float mean[KOLO_MAX_CHANNELS], std[KOLO_MAX_CHANNELS];
} kolo_field;

/* The fields of the data sets below: samples "x", labels "y". */
enum { KOLO_FIELD_X, KOLO_FIELD_Y };

/* Description of a data set. Fields of the data sets below:
 *
 *     images    "x" u8 [C,H,W]; "y" i32 [], or [H,W] per pixel
 *     tables    "x" f32 [F]; "y" i32 [], or f32 [] where targets are numbers
 *     tokens    "x" i32 [T]; "y" i32 [T]
 *     clicks    "x" f32 [numbers]; "y" f32 [], 1 of a click, else 0; "ids" i32 [categories], of
 *               category t a row from t rows on: its table follows those of the categories before
 *     labelled texts
 *               "ids" i32 [features], the rows of the features of a sample, then -1; "x" f32 [1],
 *               1 / the number of its features, 0 of none; "y" i32 []
 */
typedef struct kolo_dataset_info {
    const char *name;  /* "fashion-mnist" */
    const char *place; /* its folder or argument */
    kolo_split split;
    int64_t count; /* samples, at least 1; KOLO_STREAM_SAMPLES: a stream */
    int classes;   /* labels and tokens are 0 .. classes-1; -1: a pixel without a label; 1 where
                      targets are numbers */
    int n_fields;
    kolo_field fields[KOLO_MAX_FIELDS];
} kolo_dataset_info;

/* A batch: the samples of this rank in a step. A program that fills one sets count, fields and
 * data; a loader sets the rest too. Everything it points to stays the owner's. */
typedef struct kolo_batch {
    int64_t count; /* samples of this rank; 0: none, in a step of other ranks */
    int n_fields;
    const kolo_field *fields;
    const void *data[KOLO_MAX_FIELDS]; /* of each field: [count, shape], row-major */
    /* Of a loader; else 0. */
    int64_t global_count;   /* samples of all ranks; 0 in a batch of a loader: end of the data */
    int64_t first;          /* index of the first sample in the global batch */
    int64_t epoch, step;    /* step within the epoch */
    int64_t damaged;        /* samples of `count` that took the place of damaged ones */
    const int64_t *indices; /* [count]: of the samples in the data set */
} kolo_batch;

/* The first path in a spec after the one at `after` (NULL: the first of all), such as "DIR" of
 * "mnist:DIR" and "FILE" of "csv:-,test=FILE"; NULL: there is none. Points into `spec`; *length: of
 * the path. */
KOLO_API const char *kolo_dataset_path(const char *spec, const char *after, size_t *length);

/* Opens one split of the data set `spec`. Reads and checks all headers and labels. ARG: unknown
 * name (the message suggests one) or argument; IO: a file or folder is missing or cannot be read;
 * FORMAT: a file is damaged, or files do not match; NOMEM. */
KOLO_API kolo_status kolo_dataset_open(const char *spec, kolo_split split, kolo_dataset **dataset);

/* Requirements of a model on token data, click logs and labelled texts, and what happens to damaged
 * images; zero: none. */
typedef struct kolo_dataset_opts {
    int64_t context;    /* tokens of a window */
    int64_t vocabulary; /* number of distinct tokens */
    bool pairs;         /* windows are pairs of sentences, with the two tokens below */
    int64_t first;      /* token before a pair */
    int64_t separator;  /* token after each sentence */
    /* Of click logs: the numbers and categories of a sample, and the rows of a category's table. */
    int64_t numbers, categories, rows;
    /* Of labelled texts: the most features of a sample; `rows` are those of their table. */
    int64_t features;
    /* Receives a line on each damaged image, once; any thread. The next undamaged image, in the
     * order of the data set, takes its place. NULL: a damaged image is an error. Also receives one
     * if the index of shards cannot be written. */
    void (*warn)(void *arg, const char *line);
    void *warn_arg;
} kolo_dataset_opts;

/* Labels of pairs: the label of a token is the sum of these flags; of the inserted tokens, which
 * are not predicted, it is -2 minus that sum. */
enum {
    KOLO_PAIR_SECOND = 1, /* in the second sentence */
    KOLO_PAIR_RANDOM = 2, /* the second sentence does not follow the first */
};

/* As kolo_dataset_open, for a model. Token data require context and vocabulary, click logs numbers,
 * categories and rows, labelled texts features and rows; other data ignore `opts`. ARG: one that is
 * required is missing; a token outside the vocabulary, or too few tokens for a window in each
 * split. */
KOLO_API kolo_status kolo_dataset_open_for(const char *spec, kolo_split split,
                                           const kolo_dataset_opts *opts, kolo_dataset **dataset);

/* Copies the samples indices[0 .. n) of a program, field f to data[f], [n, shape]. Called by the
 * threads of loaders, several at a time. An error ends the loader with it. */
typedef kolo_status kolo_read_samples(void *arg, const int64_t *indices, int64_t n,
                                      void *const *data);

/* Samples of a program, in its memory or by a callback. */
typedef struct kolo_source {
    const char *name; /* in messages; default "data of the program" */
    int64_t count;    /* samples */
    int n_fields;     /* 1 to KOLO_MAX_FIELDS */
    const kolo_field *fields;
    const void *data[KOLO_MAX_FIELDS]; /* in memory, of each field: [count, shape]; or NULL, and: */
    kolo_read_samples *gather;
    void *arg;
    /* Of the i32 field "y" in memory, whose labels are then checked: 0 .. classes-1, or -1 where a
     * sample has several. 0: not checked here. */
    int classes;
} kolo_source;

/* Makes a data set of a program's samples. Fields and names are copied, `data` and `arg` are
 * borrowed until the data set is closed. ARG: no samples or fields, a field without a name, with
 * the name of another, of an unknown type or of too many dimensions, or without data; FORMAT: a
 * label outside the classes; NOMEM. */
KOLO_API kolo_status kolo_dataset_create(const kolo_source *source, kolo_dataset **dataset);

/* Frees the data set and all pointers into it. NULL is allowed. */
KOLO_API void kolo_dataset_close(kolo_dataset *dataset);

/* The description; valid until the data set is closed. */
KOLO_API const kolo_dataset_info *kolo_dataset_describe(const kolo_dataset *dataset);

/* Copies the samples indices[0 .. n): those of field f to data[f], [n, shape]. Thread-safe. ARG: an
 * index out of range; IO, FORMAT: a sample cannot be read. */
KOLO_API kolo_status kolo_dataset_gather(const kolo_dataset *dataset, const int64_t *indices,
                                         int64_t n, void *const *data);

/* ---- inspection ---- */

/* The first n samples of an epoch, in the order in which the loaders of a new run with this seed
 * take them. ARG: there are fewer; NOMEM. */
KOLO_API kolo_status kolo_dataset_order(const kolo_dataset *dataset, uint64_t seed, int64_t epoch,
                                        int64_t n, int64_t *indices);

/* A zero field takes its default. */
typedef struct kolo_verify_opts {
    int threads; /* default 1 */
    /* Receives a line on each sample that cannot be read, with its file, in the order of the data
     * set. */
    void (*report)(void *arg, const char *line);
    void *arg;
} kolo_verify_opts;

/* Reads and decodes all samples; *damaged is the number of those that cannot be read. `opts` may be
 * NULL. Blocks. ARG; NOMEM; IO: no thread. */
KOLO_API kolo_status kolo_dataset_verify(const kolo_dataset *dataset, const kolo_verify_opts *opts,
                                         int64_t *damaged);

/* ---- packing ---- */

/* A zero field takes its default. */
typedef struct kolo_pack_opts {
    bool decoded;           /* images as they are in evaluation; default: their files */
    bool no_train, no_test; /* leaves a split out */
    bool replace;           /* a packed data set that exists */
    bool seekable;          /* rewrites JPEGs without loss so that their parts decode faster:
                               sequential, with restart markers */
    /* Asked between two samples whether packing is to end, without a file. NULL: it is not. */
    bool (*stopped)(void *arg);
    void *stopped_arg;
} kolo_pack_opts;

/* Packs the data set `spec` into one file, which the data set pack:FILE reads: images and tables,
 * with a hash of each MiB. The file is complete or not there. ARG: other data, options that exclude
 * each other or have no effect, or a file to replace that is no packed data set; IO: the file
 * exists, does not fit on its disk or cannot be written, or packing was stopped; the errors of
 * opening and reading. What a process that was killed has left of this file is removed. */
KOLO_API kolo_status kolo_dataset_pack(const char *spec, const kolo_pack_opts *opts,
                                       const char *path);

/* ---- ledgers ---- */

/* Checks the ledgers PATH.0, PATH.1, ... that the workers of a run and of those that resumed it
 * have written (`ledger` in kolo_train_opts): whether each sample was used exactly once in each
 * epoch. *exact: no sample was used twice in an epoch, and none is missing in those that have
 * ended. *text has a line for each epoch, with the samples that are missing or were used more
 * often; free it with kolo_ledger_text_free. IO: a file is missing or cannot be read; FORMAT: one
 * is damaged, or of another run; NOMEM. */
KOLO_API kolo_status kolo_ledger_check(const char *path, bool *exact, char **text);
KOLO_API void kolo_ledger_text_free(char *text);

/* ---- loaders ---- */

/* Gathers batches ahead of training, in threads (kolo_session_loader). Every sample is in exactly
 * one batch of an epoch, on one rank, in an order that depends on seed and epoch only. */
typedef struct kolo_loader kolo_loader;

enum { KOLO_LOADER_NO_THREAD = -1, KOLO_LOADER_MAX_THREADS = 1024 };

/* The next batch, valid until the next call; global_count 0: the end. Blocks until it is ready. One
 * thread at a time. ARG: one is NULL; TIMEOUT; or the error of the data set, then also later. */
KOLO_API kolo_status kolo_loader_next(kolo_loader *loader, kolo_batch *batch);

/* Ends the threads; waits for what they are reading, at most one batch. NULL is allowed. */
KOLO_API void kolo_loader_destroy(kolo_loader *loader);

/* The list of a loader's stages: code, name, description. */
#define KOLO_LOADER_STAGE_LIST(X)                                         \
    X(KOLO_LOADER_READ, "read", "the bytes of a sample")                  \
    X(KOLO_LOADER_DECODE, "decode", "JPEG or PNG to pixels")              \
    X(KOLO_LOADER_RESIZE, "resize", "the crop of an image to the sample") \
    X(KOLO_LOADER_AUGMENT, "augment", "the other random transforms")      \
    X(KOLO_LOADER_MIX, "mix", "mixup and cutmix")                         \
    X(KOLO_LOADER_CONVERT, "convert", "to normalized f32, by the training thread")

typedef enum kolo_loader_stage {
#define KOLO_LOADER_STAGE_ENUM(code, name, help) code,
    KOLO_LOADER_STAGE_LIST(KOLO_LOADER_STAGE_ENUM)
#undef KOLO_LOADER_STAGE_ENUM
        KOLO_LOADER_STAGES
} kolo_loader_stage;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_loader_stage_name(kolo_loader_stage stage);

/* A zero field takes its default. */
typedef struct kolo_loader_bench_opts {
    const char *augment; /* as in kolo_session_loader; NULL: none */
    int64_t batch;       /* default 64 */
    int threads;         /* of the loader; default 1, or KOLO_LOADER_NO_THREAD */
    int64_t budget_ms;   /* of each of the two measurements; default 1000 */
} kolo_loader_bench_opts;

typedef struct kolo_loader_bench {
    int64_t samples;                    /* measured by stage, on one thread */
    double seconds[KOLO_LOADER_STAGES]; /* of processor time, of all of them in each stage; 0: there
                                           is none */
    double loader_samples_per_second;   /* of a loader with `threads`, without `convert` */
    double loader_seconds_per_sample;   /* of processor time, in all threads of that loader */
} kolo_loader_bench;

/* Measures what the stages of a loader cost, in shuffled epochs. `opts` may be NULL. Blocks. ARG: a
 * bad option; IO: no thread; the errors of reading samples. */
KOLO_API kolo_status kolo_bench_loader(const kolo_dataset *dataset,
                                       const kolo_loader_bench_opts *opts,
                                       kolo_loader_bench *result);

#ifdef __cplusplus
}
#endif
