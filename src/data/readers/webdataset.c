/* WebDataset: images and classes in tar shards, as KEY.jpg (or .jpeg, .png) and KEY.cls, or a
 * number in KEY.json, where KEY is the member's name up to the first dot of its last part. Members
 * of a sample follow each other; those of other kinds are skipped. Shards are indexed on opening,
 * while they are mapped, which reads one page of each member; with index=FOLDER once, as the index
 * is kept there (data/readers/shard_index.h). Images are read as they are needed. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/braces.h"
#include "data/readers/images.h"
#include "data/readers/readers.h"
#include "data/readers/shard_index.h"
#include "data/readers/tar.h"

#include <glob.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_CLASS = 1 << 24 };

typedef struct shard {
    kolo_file *file;     /* without a descriptor: there may be thousands */
    kolo_file_view view; /* while it is indexed */
    char *path;
} shard;

typedef struct sample {
    size_t shard, at, length; /* where its image lies */
    int32_t label;
} sample;

typedef struct webdataset {
    kolo_images images;
    int64_t classes;           /* 0: the largest label, plus 1 */
    char label[KOLO_KEY_TEXT]; /* of the class in KEY.json; empty: KEY.cls has it */
    char index[KOLO_KEY_PATH]; /* folder of indexes; empty: none */
    bool index_fails;          /* it cannot be written */
    const kolo_dataset_opts *opts;
    shard *shards;
    size_t n_shards, cap_shards;
    size_t n_train_shards; /* of PATTERN; those of test= follow */
    sample *samples;       /* of both splits, until take_split */
    size_t n_samples, cap_samples;
    size_t n_train; /* samples of PATTERN; those of test= follow */
    bool has_test;  /* test= is set */
    /* While shards are indexed: the members of one key so far. */
    char *key;    /* NULL: none yet */
    size_t begin; /* contents of the first one */
    sample next;
    bool has_image, has_class;
} webdataset;

static void close_webdataset(kolo_dataset *d) {
    webdataset *own = d->own;
    if (!own) return;
    kolo_images_fini(&own->images);
    for (size_t i = 0; i < own->n_shards; i++) {
        kolo_file_unmap(&own->shards[i].view);
        kolo_file_close(own->shards[i].file);
        kolo_free(own->shards[i].path);
    }
    kolo_free(own->shards);
    kolo_free(own->samples);
    kolo_free(own->key);
    kolo_free(own);
}

static kolo_status fetch(const kolo_images *images, int64_t index, kolo_encoded *e) {
    const webdataset *own = (const webdataset *)images;
    const sample *s = &own->samples[index];
    const shard *from = &own->shards[s->shard];
    e->name = kolo_format("%s: offset %zu", from->path, s->at);
    e->bytes = kolo_alloc(s->length + 1);
    if (!e->name || !e->bytes) return KOLO_NOMEM(s->length);
    e->length = s->length;
    return kolo_file_read_at(from->file, s->at, e->bytes, s->length);
}

/* ---- index ---- */

static shard *newest(const webdataset *own) { return &own->shards[own->n_shards - 1]; }

static const char *kind_of_class(const webdataset *own) { return *own->label ? "json" : "cls"; }

/* Ends the members of one key. */
static kolo_status add_sample(webdataset *own) {
    const bool any = own->has_image || own->has_class, both = own->has_image && own->has_class;
    own->has_image = own->has_class = false;
    if (!any) return KOLO_OK;
    if (!both) {
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: offset %zu: sample \"%s\" lacks an image (.jpg, .jpeg, .png) or a class (.%s): a "
            "sample has both, one after the other",
            newest(own)->path, own->begin, own->key, kind_of_class(own));
    }
    if (!KOLO_GROW(own->samples, own->n_samples, own->cap_samples)) {
        return KOLO_NOMEM(2 * own->cap_samples * sizeof *own->samples);
    }
    own->samples[own->n_samples++] = own->next;
    return KOLO_OK;
}

/* Ends the sample of another key; `length` bytes of the member's name are the new one. */
static kolo_status choose_key(webdataset *own, const kolo_tar_member *m, size_t length) {
    if (own->key && strlen(own->key) == length && !memcmp(own->key, m->name, length)) {
        return KOLO_OK;
    }
    if (own->key) KOLO_TRY(add_sample(own));
    kolo_free(own->key);
    own->key = kolo_format("%.*s", (int)length, m->name);
    own->begin = m->at;
    return own->key ? KOLO_OK : KOLO_NOMEM(length);
}

static kolo_status read_class(webdataset *own, const kolo_tar_member *m) {
    const char *text = (const char *)newest(own)->view.data + m->at;
    size_t n = m->length, i = 0;
    int32_t label = 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' ')) n--;
    for (; i < n && text[i] >= '0' && text[i] <= '9' && label < MAX_CLASS; i++) {
        label = label * 10 + (text[i] - '0');
    }
    if (n == 0 || i < n || label >= MAX_CLASS) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: offset %zu: %s is no class 0, 1, ...",
                         newest(own)->path, m->at, m->name);
    }
    own->next.label = label;
    return KOLO_OK;
}

static kolo_status read_json(webdataset *own, const kolo_tar_member *m) {
    const char *text = (const char *)newest(own)->view.data + m->at;
    json_error_t error;
    json_t *root = json_loadb(text, m->length, JSON_REJECT_DUPLICATES, &error);
    const json_t *label = root ? json_object_get(root, own->label) : NULL;
    const bool good = json_is_integer(label) && json_integer_value(label) >= 0 &&
                      json_integer_value(label) < MAX_CLASS;
    if (good) own->next.label = (int32_t)json_integer_value(label);
    json_decref(root);
    if (good) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: offset %zu: %s is no JSON object whose \"%s\" is a class "
                     "0, 1, ...",
                     newest(own)->path, m->at, m->name, own->label);
}

static bool is_image(const char *kind) {
    return !strcasecmp(kind, "jpg") || !strcasecmp(kind, "jpeg") || !strcasecmp(kind, "png");
}

static kolo_status add_member(void *arg, const kolo_tar_member *m) {
    webdataset *own = arg;
    const char *slash = strrchr(m->name, '/'), *base = slash ? slash + 1 : m->name;
    const char *dot = strchr(base, '.');
    if (!dot || dot == base) return KOLO_OK; /* no key */
    const bool image = is_image(dot + 1), class = !strcasecmp(dot + 1, kind_of_class(own));
    KOLO_TRY(choose_key(own, m, (size_t)(dot - m->name)));
    if ((image && own->has_image) || (class && own->has_class)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: offset %zu: %s: sample \"%s\" has two %s",
                         newest(own)->path, m->at, m->name, own->key, image ? "images" : "classes");
    }
    own->has_image |= image;
    own->has_class |= class;
    if (class) return *own->label ? read_json(own, m) : read_class(own, m);
    if (!image) return KOLO_OK;
    own->next.shard = own->n_shards - 1;
    own->next.at = m->at;
    own->next.length = m->length;
    return KOLO_OK;
}

static kolo_status scan_shard(webdataset *own) {
    const shard *s = newest(own);
    KOLO_TRY(kolo_tar_each(s->view.data, s->view.bytes, s->path, add_member, own));
    KOLO_TRY(add_sample(own));
    kolo_free(own->key);
    own->key = NULL;
    return KOLO_OK;
}

static kolo_status take_index(webdataset *own, const kolo_shard_sample *samples, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!KOLO_GROW(own->samples, own->n_samples, own->cap_samples)) {
            return KOLO_NOMEM(2 * own->cap_samples * sizeof *own->samples);
        }
        own->samples[own->n_samples++] =
            (sample){own->n_shards - 1, samples[i].at, samples[i].length, samples[i].label};
    }
    return KOLO_OK;
}

/* Keeps the samples of the newest shard, which begin with `first`. Without room on the disk, or in
 * a folder that cannot be written, the run goes on with those in memory. */
static kolo_status keep_index(webdataset *own, const kolo_shard_key *key, size_t first) {
    const size_t n = own->n_samples - first;
    kolo_shard_sample *samples = kolo_alloc((n + 1) * sizeof *samples);
    if (!samples) return KOLO_NOMEM(n * sizeof *samples);
    for (size_t i = 0; i < n; i++) {
        const sample *s = &own->samples[first + i];
        samples[i] = (kolo_shard_sample){.at = s->at, .length = s->length, .label = s->label};
    }
    kolo_status status = kolo_shard_index_write(own->index, key, samples, n);
    kolo_free(samples);
    if (status != KOLO_ERR_IO) return status;
    own->index_fails = true;
    if (!own->opts->warn) return KOLO_OK;
    char *line = kolo_format("no index of shards is kept: %s", kolo_last_error());
    if (!line) return KOLO_NOMEM(strlen(own->index));
    own->opts->warn(own->opts->warn_arg, line);
    kolo_free(line);
    return KOLO_OK;
}

/* The samples of the newest shard by its index, which is built if it is not there. */
static kolo_status index_shard(webdataset *own, const kolo_shard_key *key) {
    const size_t first = own->n_samples;
    kolo_shard_sample *samples;
    size_t n;
    KOLO_TRY(kolo_shard_index_read(key, &samples, &n));
    if (samples) {
        kolo_status status = take_index(own, samples, n);
        kolo_free(samples);
        return status;
    }
    KOLO_TRY(scan_shard(own));
    return own->index_fails ? KOLO_OK : keep_index(own, key, first);
}

static kolo_status open_index(webdataset *own) {
    const shard *s = newest(own);
    kolo_shard_key key = {0};
    kolo_status status =
        kolo_shard_key_init(&key, own->index, s->path, kind_of_class(own), own->label);
    if (status == KOLO_OK && key.bytes != s->view.bytes) {
        status = KOLO_FAIL(KOLO_ERR_IO, "%s: it changed while it was opened", s->path);
    }
    if (status == KOLO_OK) status = index_shard(own, &key);
    kolo_shard_key_fini(&key);
    return status;
}

static kolo_status add_shard(webdataset *own, const char *path) {
    if (!KOLO_GROW(own->shards, own->n_shards, own->cap_shards)) {
        return KOLO_NOMEM(2 * own->cap_shards * sizeof *own->shards);
    }
    shard *s = &own->shards[own->n_shards];
    *s = (shard){.path = kolo_strdup(path)};
    if (!s->path) return KOLO_NOMEM(strlen(path));
    own->n_shards++;
    KOLO_TRY(kolo_file_open(path, &s->file));
    KOLO_TRY(kolo_file_map(path, &s->view));
    KOLO_TRY(*own->index ? open_index(own) : scan_shard(own));
    kolo_file_unmap(&newest(own)->view);
    kolo_file_release(newest(own)->file);
    return KOLO_OK;
}

/* The shards of a pattern without ranges. */
static kolo_status add_found(void *arg, const char *pattern) {
    webdataset *own = arg;
    glob_t found = {0};
    int rc = glob(pattern, 0, NULL, &found);
    kolo_status status = KOLO_OK;
    if (rc == GLOB_NOMATCH) {
        status = KOLO_FAIL(KOLO_ERR_IO,
                           "%s: no such shards: give a pattern of *, ?, [0-9] and {00..19}, such "
                           "as train-*.tar",
                           pattern);
    } else if (rc != 0) {
        status = KOLO_FAIL(KOLO_ERR_IO, "%s: cannot be searched for shards", pattern);
    }
    for (size_t i = 0; i < found.gl_pathc && status == KOLO_OK; i++) {
        status = add_shard(own, found.gl_pathv[i]);
    }
    globfree(&found);
    return status;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Patterns of several ranges may name a shard twice. */
static kolo_status check_once(const webdataset *own, size_t first) {
    const size_t n = own->n_shards - first;
    const char **paths = kolo_alloc((n + 1) * sizeof *paths);
    if (!paths) return KOLO_NOMEM(n * sizeof *paths);
    for (size_t i = 0; i < n; i++) paths[i] = own->shards[first + i].path;
    qsort((void *)paths, n, sizeof *paths, compare_paths);
    kolo_status status = KOLO_OK;
    for (size_t i = 1; i < n && status == KOLO_OK; i++) {
        if (strcmp(paths[i - 1], paths[i]) != 0) continue;
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s: the pattern names this shard twice", paths[i]);
    }
    kolo_free((void *)paths);
    return status;
}

static kolo_status add_shards(webdataset *own, const char *pattern) {
    const size_t before = own->n_samples, first = own->n_shards;
    KOLO_TRY(kolo_braces_each(pattern, add_found, own));
    KOLO_TRY(check_once(own, first));
    if (own->n_samples > before) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: no samples (.jpg or .png, with .%s)", pattern,
                     kind_of_class(own));
}

/* Both patterns may match a shard. */
static kolo_status check_disjoint(const webdataset *own) {
    for (size_t i = own->n_train_shards; i < own->n_shards; i++) {
        for (size_t k = 0; k < own->n_train_shards; k++) {
            if (strcmp(own->shards[i].path, own->shards[k].path) != 0) continue;
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "%s: the patterns of both the training and the test shards match this "
                             "shard: give patterns that do not overlap",
                             own->shards[i].path);
        }
    }
    return KOLO_OK;
}

/* The pattern test=, in the folder of the training shards. */
static kolo_status add_test_shards(webdataset *own, const char *train, const char *test) {
    const char *slash = strrchr(train, '/');
    char *pattern =
        slash ? kolo_format("%.*s/%s", (int)(slash - train), train, test) : kolo_strdup(test);
    if (!pattern) return KOLO_NOMEM(strlen(train));
    kolo_status status = add_shards(own, pattern);
    if (status == KOLO_OK) status = check_disjoint(own);
    kolo_free(pattern);
    return status;
}

static kolo_status count_classes(const webdataset *own, const char *place, int *classes) {
    int32_t most = 0;
    for (size_t i = 0; i < own->n_samples; i++) {
        if (own->samples[i].label > most) most = own->samples[i].label;
    }
    *classes = own->classes ? (int)own->classes : most + 1;
    if (most < *classes) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: class %" PRId32 " is outside 0..%d: give classes=%" PRId32, place, most,
                     *classes - 1, most + 1);
}

/* Moves the samples of the split to the front, and labels them. */
static kolo_status take_split(kolo_dataset *d, webdataset *own) {
    const int64_t count = (int64_t)own->n_samples, train = (int64_t)own->n_train;
    int64_t test =
        own->has_test ? count - train : (int64_t)((double)count * own->images.test + 0.5);
    if (test < 1) test = 1;
    if (count <= test) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: %" PRId64 " samples (.jpg or .png, with .%s) are too few for a "
                         "training and a test split",
                         d->place, count, kind_of_class(own));
    }
    own->images.labels = kolo_alloc((size_t)count * sizeof *own->images.labels);
    if (!own->images.labels) return KOLO_NOMEM((size_t)count * sizeof *own->images.labels);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        const bool tests =
            own->has_test ? i >= train : kolo_split_takes(own->images.seed, i, count, &test);
        if (tests != (d->info.split == KOLO_SPLIT_TEST)) continue;
        own->images.labels[kept] = own->samples[i].label;
        own->samples[kept++] = own->samples[i];
    }
    d->info.count = kept;
    return KOLO_OK;
}

kolo_status kolo_read_webdataset(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    webdataset *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_webdataset;
    char test[KOLO_KEY_TEXT] = "";
    kolo_images_init(&own->images);
    own->opts = &d->opts;
    const kolo_data_key keys[] = {
        KOLO_IMAGES_KEYS(&own->images),
        {"classes", kolo_key_count, &own->classes, 1, 1 << 24, "classes=NUMBER, at least 1"},
        {"label", kolo_key_text, own->label, .write = "label=NAME, of the class in .json"},
        {"index", kolo_key_path, own->index, .write = "index=FOLDER, of the index of the shards"},
        {"test", kolo_key_text, test, .write = "test=PATTERN, in the folder of the others"},
        {NULL},
    };
    int classes;
    KOLO_TRY(kolo_keys_parse_after(reader, "PATTERN", argument, keys, &d->place));
    d->info.place = d->place;
    own->has_test = *test != '\0';
    if (own->has_test) {
        KOLO_TRY(kolo_keys_refuse_split(reader->name, argument,
                                        "with test=, whose shards are the test split"));
    }
    KOLO_TRY(add_shards(own, d->place));
    own->n_train = own->n_samples;
    own->n_train_shards = own->n_shards;
    if (own->has_test) KOLO_TRY(add_test_shards(own, d->place, test));
    KOLO_TRY(count_classes(own, d->place, &classes));
    KOLO_TRY(take_split(d, own));
    own->images.fetch = fetch;
    return kolo_images_open(d, classes);
}
