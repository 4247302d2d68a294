/* Opening a data set by name: the table of readers. */
#include "data/readers/readers.h"

#include "base/compiler.h"
#include "base/status.h"
#include "base/text.h"

#include <string.h>

const kolo_reader kolo_readers[] = {
    {
        .name = "fashion-mnist",
        .argument = "[:DIR]",
        .path = true,
        .help = "Fashion-MNIST, 28x28 grey images of 10 kinds of clothing",
        .open = kolo_read_mnist,
        .folder = "/usr/share/datasets/fashion-mnist",
        .package = "dataset-fashion-mnist",
        .classes = 10,
        .mean = {0.2860F},
        .std = {0.3530F},
    },
    {
        .name = "mnist",
        .argument = ":DIR",
        .path = true,
        .help = "MNIST, 28x28 grey images of handwritten digits",
        .open = kolo_read_mnist,
        .classes = 10,
        .mean = {0.1307F},
        .std = {0.3081F},
    },
    {
        .name = "cifar10",
        .argument = ":DIR",
        .path = true,
        .help = "CIFAR-10, 32x32 colour images of 10 kinds, the binary version",
        .open = kolo_read_cifar10,
        .classes = 10,
        .mean = {0.4914F, 0.4822F, 0.4465F},
        .std = {0.2470F, 0.2435F, 0.2616F},
    },
    {
        .name = "cifar100",
        .argument = ":DIR",
        .path = true,
        .help = "CIFAR-100, 32x32 colour images of 100 kinds, the binary version",
        .open = kolo_read_cifar100,
        .classes = 100,
        .mean = {0.5071F, 0.4865F, 0.4409F},
        .std = {0.2673F, 0.2564F, 0.2762F},
    },
    {
        .name = "folder",
        .argument = ":DIR[,size=224,split=0.1,seed=0]",
        .path = true,
        .keys = true,
        .help = "JPEG and PNG images in a folder for each class; in train and val, if there",
        .open = kolo_read_folder,
    },
    {
        .name = "voc",
        .argument = ":DIR[,size=512,classes=21,train=train,test=val,masks=SegmentationClass]",
        .path = true,
        .keys = true,
        .help = "JPEG images with a class for each pixel in PNG masks, as Pascal VOC has them",
        .open = kolo_read_voc,
    },
    {
        .name = "webdataset",
        .argument = ":PATTERN[,test=PATTERN,size=224,classes=N,split=0.1,seed=0,index=DIR]",
        .path = true,
        .keys = true,
        .neutral_key = "index",
        .path_key = "index",
        .help = "JPEG and PNG images with their classes in tar shards",
        .open = kolo_read_webdataset,
    },
    {
        .name = "pack",
        .argument = ":FILE[,size=224]",
        .path = true,
        .keys = true,
        .help = "another data set in one file, made by kolo data pack",
        .open = kolo_read_pack,
    },
    {
        .name = "csv",
        .argument = ":FILE[,target=COLUMN,type=class,classes=N,split=0.1,seed=0] or :DIR",
        .path = true,
        .keys = true,
        .neutral_key = "follow",
        .path_key = "test",
        .help = "a table of numbers, a sample in each row; or train.csv and test.csv",
        .open = kolo_read_csv,
    },
    {
        .name = "raw",
        .argument = ":FILE[,columns=N,target=N,type=class,classes=N,split=0.1,seed=0]",
        .path = true,
        .keys = true,
        .neutral_key = "follow",
        .path_key = "test",
        .help = "a table of f32, a sample in each row: without a header, or of NumPy (.npy)",
        .open = kolo_read_raw,
    },
    {
        .name = "synthetic",
        .argument = "[:N=60000,test=10000,shape=1x28x28,classes=10,seed=0]",
        .keys = true,
        .help =
            "synthetic images in memory; one noisy pattern per class, so that training converges",
        .open = kolo_read_synthetic,
    },
    {
        .name = "synthetic-seg",
        .argument = "[:N=1000,test=200,shape=3x128x128,classes=5,seed=0]",
        .keys = true,
        .help = "synthetic images of discs and boxes on a background, with a label for each pixel",
        .open = kolo_read_synthetic_seg,
    },
    {
        .name = "text",
        .argument = ":FILE[,test=FILE]",
        .path = true,
        .keys = true,
        .neutral_key = "follow",
        .path_key = "test",
        .help = "the bytes of a file as tokens",
        .open = kolo_read_tokens,
        .token_bytes = 1,
    },
    {
        .name = "tokens",
        .argument = ":FILE[,test=FILE] or :DIR",
        .path = true,
        .keys = true,
        .neutral_key = "follow",
        .path_key = "test",
        .help = "tokens of two bytes in a file (of four in *.u32), or in train.bin and val.bin",
        .open = kolo_read_tokens,
        .token_bytes = 2,
    },
    {
        .name = "synthetic-tokens",
        .argument = "[:N=65536,test=1024,seed=0]",
        .keys = true,
        .help = "windows of synthetic tokens, most of which follow from the one before",
        .open = kolo_read_synthetic_tokens,
    },
    {
        .name = "criteo",
        .argument = ":FILE[,split=0.1,seed=0]",
        .path = true,
        .keys = true,
        .help = "a click log: label, 13 integers and 26 hexadecimal categories, between tabs",
        .open = kolo_read_criteo,
    },
    {
        .name = "synthetic-clicks",
        .argument = "[:N=65536,test=8192,seed=0]",
        .keys = true,
        .help = "synthetic click logs, with the numbers and categories of the model",
        .open = kolo_read_synthetic_clicks,
    },
    {
        .name = "fasttext",
        .argument = ":FILE[,test=FILE,ngrams=2,split=0.1,seed=0]",
        .path = true,
        .keys = true,
        .path_key = "test",
        .help = "labelled texts in fastText's format: __label__NAME and words, a line each",
        .open = kolo_read_labelled,
    },
    {
        .name = "synthetic-labelled",
        .argument = "[:N=65536,test=8192,classes=10,seed=0]",
        .keys = true,
        .help = "synthetic labelled texts, with as many features and rows as the model has",
        .open = kolo_read_synthetic_labelled,
    },
    {.name = NULL},
};

static kolo_status unknown_name(const char *name) {
    const char *names[KOLO_COUNT(kolo_readers)] = {NULL};
    kolo_text known = {0};
    for (size_t i = 0; kolo_readers[i].name; i++) {
        names[i] = kolo_readers[i].name;
        kolo_text_add(&known, "%s%s", i ? ", " : "", names[i]);
    }
    const char *closest = kolo_closest(name, names);
    kolo_status status =
        closest
            ? KOLO_FAIL(KOLO_ERR_ARG, "unknown data set \"%s\": did you mean %s?", name, closest)
            : KOLO_FAIL(KOLO_ERR_ARG, "unknown data set \"%s\"%s: known are %s", name,
                        strchr(name, ':') ? "" : ", and no file or folder of this name",
                        known.failed ? "fashion-mnist" : known.text);
    kolo_text_fini(&known);
    return status;
}

kolo_status kolo_dataset_open(const char *spec, kolo_split split, kolo_dataset **dataset) {
    return kolo_dataset_open_for(spec, split, NULL, dataset);
}

static const kolo_reader *find_name(const char *name, size_t length) {
    for (const kolo_reader *r = kolo_readers; r->name; r++) {
        if (strlen(r->name) == length && strncmp(r->name, name, length) == 0) return r;
    }
    return NULL;
}

/* The reader of a spec and its argument, NULL if it has none; a spec without a kind is a path whose
 * kind is recognized. NULL: unknown; *exists: but there is such a path. */
static const kolo_reader *find_reader(const char *spec, const char **argument, bool *exists) {
    const size_t length = strcspn(spec, ":");
    const kolo_reader *r = find_name(spec, length);
    *exists = false;
    *argument = spec[length] ? spec + length + 1 : NULL;
    if (r) return r;
    const char *kind = kolo_reader_recognize(spec, exists);
    *argument = spec;
    return kind ? find_name(kind, strlen(kind)) : NULL;
}

/* "KEY=VALUE,..." of an argument; "" if it has none. */
static const char *keys_of(const kolo_reader *r, const char *argument) {
    if (!argument || !r->keys) return "";
    if (!r->path) return argument;
    const char *comma = strchr(argument, ',');
    return comma ? comma + 1 : "";
}

static bool is_key(const char *item, const char *key) {
    const size_t length = strcspn(item, "=,");
    return key && strlen(key) == length && strncmp(item, key, length) == 0;
}

/* Whether an argument is "-", the standard input. */
static bool is_input(const char *argument) {
    return argument[0] == '-' && (argument[1] == '\0' || argument[1] == ',');
}

/* Whether a spec of no kind is a path: kinds have no such characters. */
static bool is_path(const char *spec) { return !strchr(spec, ':') && strpbrk(spec, "./"); }

const char *kolo_dataset_path(const char *spec, const char *after, size_t *length) {
    /* A path, which may be there from another working folder. */
    static const kolo_reader other = {.path = true, .keys = true};
    const char *argument;
    bool exists;
    const kolo_reader *r = find_reader(spec, &argument, &exists);
    if (!r && is_path(spec)) r = &other;
    if (r == &other) argument = spec;
    if (!r || !argument) return NULL;
    if (!after && r->path && !is_input(argument)) {
        *length = r->keys ? strcspn(argument, ",") : strlen(argument);
        return argument;
    }
    for (const char *at = keys_of(r, argument); *at; at += strcspn(at, ","), at += *at == ',') {
        const char *value = at + strcspn(at, "=,") + 1;
        if (!is_key(at, r->path_key) || value[-1] != '=' || value <= after) continue;
        *length = strcspn(value, ",");
        return value;
    }
    return NULL;
}

/* ---- comparing specs ---- */

/* The last value of the key that `item` begins with; NULL: there is none. */
static const char *value_of(const char *keys, const char *item, size_t *length) {
    const size_t key = strcspn(item, "=,");
    const char *value = NULL;
    for (const char *at = keys; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strncmp(at, item, key) != 0 || at[key] != '=') continue;
        value = at + key + 1;
        *length = strcspn(value, ",");
    }
    return value;
}

/* Whether all keys of argument `a` have the same values in `b`, of which paths may differ. A pack
 * holds those of its data set, but for how images are decoded. */
static bool are_in(const kolo_reader *reader, const char *a, const kolo_reader *other,
                   const char *b) {
    const char *keys = keys_of(reader, a), *others = keys_of(other, b);
    for (const char *at = keys; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t n = 0, m = 0;
        if (reader->path && at[strcspn(at, "=,")] != '=') continue; /* of a path with a comma */
        if (is_key(at, reader->neutral_key) || (reader != other && !is_key(at, "decode"))) continue;
        const char *one = value_of(keys, at, &n), *two = value_of(others, at, &m);
        if (!one || !two) return false;
        if (is_key(at, reader->path_key)) continue;
        if (n != m || memcmp(one, two, n) != 0) return false;
    }
    return true;
}

bool kolo_dataset_same_keys(const char *a, const char *b) {
    const char *one, *two;
    bool exists;
    const kolo_reader *reader = find_reader(a, &one, &exists);
    const kolo_reader *other = find_reader(b, &two, &exists);
    return !reader || !other ||
           (are_in(reader, one, other, two) && are_in(other, two, reader, one));
}

/* ---- opening ---- */

kolo_status kolo_dataset_open_for(const char *spec, kolo_split split, const kolo_dataset_opts *opts,
                                  kolo_dataset **dataset) {
    if (!spec || !*spec) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no data set named: write for example fashion-mnist");
    }
    const char *argument;
    bool exists;
    const kolo_reader *r = find_reader(spec, &argument, &exists);
    if (r) {
        kolo_reader_open *open = opts && opts->pairs ? kolo_pairs_open : r->open;
        return kolo_dataset_open_with(r, open, argument, split, opts, dataset);
    }
    if (exists) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: the kind of these data is not recognized: write it before the path, "
                         "such as folder:%s",
                         spec, spec);
    }
    if (is_path(spec)) {
        return KOLO_FAIL(
            KOLO_ERR_IO,
            "%.*s: No such file or directory: check the path, or name a data set, such "
            "as fashion-mnist",
            (int)strcspn(spec, ","), spec);
    }
    size_t length = strcspn(spec, ":");
    char name[64];
    size_t shown = length < sizeof name ? length : sizeof name - 1;
    memcpy(name, spec, shown);
    name[shown] = '\0';
    return unknown_name(name);
}
