/* Labelled texts in fastText's format. A line is read and parsed when its sample is, so memory
 * holds the places of the lines and the names of the labels alone. Opening checks each line; blank
 * ones are skipped. */
#include "data/readers/labelled.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/readers/keys.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NGRAMS = 8 };

static const char prefix[] = "__label__";
enum { PREFIX = sizeof prefix - 1 };

/* ---- lines and words ---- */

/* The line from `at` on, without its end; *next is where the next one begins. */
static kolo_word line_at(const char *text, size_t length, size_t at, size_t *next) {
    const char *begin = text + at, *end = memchr(begin, '\n', length - at);
    *next = end ? (size_t)(end - text) + 1 : length;
    return (kolo_word){begin, end ? end : text + length};
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' || c == '\0';
}

/* Takes the next word off the line; false: there is none. */
static bool next_word(kolo_word *line, kolo_word *word) {
    while (line->at < line->end && is_blank(*line->at)) line->at++;
    word->at = line->at;
    while (line->at < line->end && !is_blank(*line->at)) line->at++;
    word->end = line->at;
    return word->end > word->at;
}

static bool is_label(kolo_word word) {
    return word.end - word.at >= PREFIX && memcmp(word.at, prefix, PREFIX) == 0;
}

static int64_t number_of_line(const char *text, const char *at) {
    int64_t number = 1;
    for (const char *c = text; (c = memchr(c, '\n', (size_t)(at - c))); c++) number++;
    return number;
}

/* Takes the label off the line, which holds a word; its name is not empty. */
static kolo_status take_label(const char *text, const char *where, kolo_word *line,
                              kolo_word *label) {
    const char *begin = line->at, *why = NULL;
    kolo_word rest, word;
    if (!next_word(line, label) || !is_label(*label)) {
        why = "begins with no label";
    } else if (label->end - label->at == PREFIX) {
        why = "has a label without a name";
    }
    rest = *line;
    while (!why && next_word(&rest, &word)) {
        if (is_label(word)) why = "has more than one label";
    }
    label->at += why ? 0 : PREFIX;
    if (!why) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: line %" PRId64 " %s: write one, as in \"%ssports the match was lost\"",
                     where, number_of_line(text, begin), why, prefix);
}

/* ---- labels ---- */

static int compare_words(const void *a, const void *b) {
    const kolo_word *x = a, *y = b;
    const size_t n = (size_t)(x->end - x->at), m = (size_t)(y->end - y->at);
    const int order = memcmp(x->at, y->at, n < m ? n : m);
    return order != 0 ? order : (n > m) - (n < m);
}

/* Calls `take` with each line that is not blank, from its first word on, and where it begins. */
typedef kolo_status take_line(void *arg, kolo_word line, size_t begin);

static kolo_status for_each_line(const char *text, size_t length, take_line *take, void *arg) {
    for (size_t at = kolo_byte_order_mark(text, length); at < length;) {
        const size_t begin = at;
        kolo_word line = line_at(text, length, at, &at), word, rest = line;
        if (!next_word(&rest, &word)) continue;
        line.at = word.at;
        KOLO_TRY(take(arg, line, begin));
    }
    return KOLO_OK;
}

static kolo_status count_line(void *arg, kolo_word line, size_t begin) {
    (void)line, (void)begin;
    ++*(int64_t *)arg;
    return KOLO_OK;
}

static kolo_status changed(const char *where) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: was changed while it was opened: open it again", where);
}

typedef struct label_list {
    const char *text, *where;
    kolo_word *label;
    size_t count, room;
} label_list;

static kolo_status list_label(void *arg, kolo_word line, size_t begin) {
    (void)begin;
    label_list *l = arg;
    if (l->count == l->room) return changed(l->where);
    return take_label(l->text, l->where, &line, &l->label[l->count++]);
}

kolo_status kolo_label_names_find(const char *text, size_t length, const char *where,
                                  kolo_label_names *names) {
    int64_t lines = 0;
    KOLO_TRY(for_each_line(text, length, count_line, &lines));
    if (lines == 0) return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: no lines: give a file with some", where);
    const size_t bytes = (size_t)lines * sizeof *names->name;
    label_list l = {
        .text = text, .where = where, .label = kolo_alloc(bytes), .room = (size_t)lines};
    kolo_status status = l.label ? for_each_line(text, length, list_label, &l) : KOLO_NOMEM(bytes);
    if (status != KOLO_OK) {
        kolo_free(l.label);
        return status;
    }
    qsort(l.label, l.count, sizeof *l.label, compare_words);
    size_t kept = 1;
    for (size_t i = 1; i < l.count; i++) {
        if (compare_words(&l.label[i], &l.label[kept - 1]) != 0) l.label[kept++] = l.label[i];
    }
    kolo_word *shorter = kolo_realloc(l.label, kept * sizeof *l.label);
    *names = (kolo_label_names){.name = shorter ? shorter : l.label, .count = (int)kept};
    if (kept <= INT32_MAX) return KOLO_OK;
    kolo_label_names_fini(names);
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %zu labels are too many", where, kept);
}

void kolo_label_names_fini(kolo_label_names *names) {
    kolo_free(names->name);
    *names = (kolo_label_names){0};
}

/* The class of a label; -1: it is not among the names. */
static int class_of(const kolo_label_names *names, kolo_word label) {
    const kolo_word *found =
        bsearch(&label, names->name, (size_t)names->count, sizeof *names->name, compare_words);
    return found ? (int)(found - names->name) : -1;
}

/* ---- splits ---- */

typedef struct line_list {
    kolo_labelled *file;
    const kolo_labelled_opts *opts;
    int64_t lines, test, left, seen, kept;
} line_list;

static kolo_status unknown_label(const kolo_labelled *f, kolo_word label) {
    const int n = (int)(label.end - label.at < 32 ? label.end - label.at : 32);
    char text[33] = "";
    for (int i = 0; i < n; i++)
        text[i] = label.at[i] > ' ' && label.at[i] <= '~' ? label.at[i] : '?';
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: line %" PRId64 ": the training split has no label \"%s\": remove the "
                     "line, or train with such lines",
                     f->where, number_of_line(f->text, label.at), text);
}

static kolo_status list_line(void *arg, kolo_word line, size_t begin) {
    line_list *l = arg;
    kolo_labelled *f = l->file;
    kolo_word label;
    KOLO_TRY(take_label(f->text, f->where, &line, &label));
    if (class_of(f->names, label) < 0) return unknown_label(f, label);
    const bool tests = kolo_split_takes(l->opts->seed, l->seen++, l->lines, &l->left);
    if (l->test > 0 && tests != (l->opts->split == KOLO_SPLIT_TEST)) return KOLO_OK;
    if (l->kept == f->count) return changed(f->where);
    f->at[l->kept++] = begin;
    return KOLO_OK;
}

static kolo_status find_lines(kolo_labelled *f, const kolo_labelled_opts *opts) {
    line_list l = {.file = f, .opts = opts};
    KOLO_TRY(for_each_line(f->text, f->length, count_line, &l.lines));
    if (opts->test > 0) {
        l.test = (int64_t)((double)l.lines * opts->test + 0.5);
        if (l.test < 1) l.test = 1;
    }
    if (l.lines <= l.test) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %" PRId64 " lines, too few for the %s: give more",
                         f->where, l.lines,
                         opts->test > 0 ? "training and the test split" : "split");
    }
    l.left = l.test;
    f->count = l.test == 0 ? l.lines : opts->split == KOLO_SPLIT_TEST ? l.test : l.lines - l.test;
    f->at = kolo_alloc((size_t)f->count * sizeof *f->at);
    if (!f->at) return KOLO_NOMEM((size_t)f->count * sizeof *f->at);
    KOLO_TRY(for_each_line(f->text, f->length, list_line, &l));
    return l.kept == f->count ? KOLO_OK : changed(f->where);
}

kolo_status kolo_labelled_open(const char *text, size_t length, const char *where,
                               const kolo_label_names *names, const kolo_labelled_opts *opts,
                               kolo_labelled *file) {
    kolo_labelled found = {
        .text = text, .where = where, .length = length, .names = names, .ngrams = opts->ngrams};
    kolo_status status = find_lines(&found, opts);
    if (status != KOLO_OK) {
        kolo_labelled_fini(&found);
        return status;
    }
    *file = found;
    return KOLO_OK;
}

void kolo_labelled_fini(kolo_labelled *file) {
    kolo_free(file->at);
    *file = (kolo_labelled){0};
}

/* ---- samples ---- */

/* The hashes of the words from one on, the last of which is the newest. */
typedef struct window {
    uint64_t hash[MAX_NGRAMS];
    int64_t words;
} window;

/* The row of the n-gram that ends with the newest word and begins with the oldest of the window. */
static int32_t row_of(const window *w, int64_t n, int64_t rows) {
    uint64_t hash = w->hash[0];
    for (int64_t k = 1; k < n; k++) {
        const uint64_t both[2] = {hash, w->hash[k]};
        hash = kolo_hash_bytes(both, sizeof both);
    }
    return (int32_t)(hash % (uint64_t)rows);
}

int64_t kolo_labelled_read(const kolo_labelled *f, int64_t i, int64_t rows, int64_t features,
                           int32_t *ids, int32_t *y) {
    size_t next;
    kolo_word line = line_at(f->text, f->length, f->at[i], &next), word;
    window w = {.words = 0};
    int64_t n = 0;
    const bool labelled = next_word(&line, &word) && is_label(word);
    if (labelled) word.at += PREFIX;
    *y = labelled ? class_of(f->names, word) : -1;
    /* The window holds the words from one on, as many as there are and n-grams have. */
    for (bool more = true; n < features;) {
        while (more && w.words < f->ngrams && (more = next_word(&line, &word))) {
            w.hash[w.words++] = kolo_hash_bytes(word.at, (size_t)(word.end - word.at));
        }
        if (w.words == 0) break;
        for (int64_t k = 1; k <= w.words && n < features; k++) ids[n++] = row_of(&w, k, rows);
        memmove(w.hash, w.hash + 1, (size_t)--w.words * sizeof *w.hash);
    }
    for (int64_t k = n; k < features; k++) ids[k] = -1;
    return n;
}

/* ---- data set ---- */

kolo_status kolo_labelled_describe(const kolo_reader *reader, kolo_dataset *d) {
    const kolo_dataset_opts *o = &d->opts;
    if (o->features < 1 || o->rows < 1 || o->rows > INT32_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set %s has features in rows of a table: choose a model of labelled "
                         "texts, such as fasttext, or set features and rows",
                         reader->name);
    }
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_F32, kolo_shape_1(1), kolo_shape_0());
    d->info.fields[KOLO_FIELD_IDS] =
        (kolo_field){.name = "ids", .dtype = KOLO_DTYPE_I32, .shape = kolo_shape_1(o->features)};
    d->info.n_fields = 3;
    return KOLO_OK;
}

typedef struct labelled {
    kolo_file *file;
    char *words; /* of the names */
    kolo_label_names names;
    kolo_labelled lines; /* without their text, once they are open */
} labelled;

static void close_labelled(kolo_dataset *d) {
    labelled *own = d->own;
    if (!own) return;
    kolo_labelled_fini(&own->lines);
    kolo_label_names_fini(&own->names);
    kolo_free(own->words);
    kolo_file_close(own->file);
    kolo_free(own);
}

static kolo_status read_sample(const labelled *own, int64_t index, int64_t rows, int64_t features,
                               kolo_line *line, float *x, int32_t *y, int32_t *ids) {
    size_t first = 0;
    kolo_labelled one = own->lines;
    KOLO_TRY(kolo_line_read(own->file, own->lines.at[index], line));
    one.text = line->text;
    one.length = line->length;
    one.at = &first;
    const int64_t found = kolo_labelled_read(&one, 0, rows, features, ids, y);
    *x = found > 0 ? 1 / (float)found : 0;
    return *y >= 0 ? KOLO_OK : kolo_file_changed(own->file, own->lines.at[index]);
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const int64_t features = d->opts.features;
    float *x = data[KOLO_FIELD_X];
    int32_t *y = data[KOLO_FIELD_Y], *ids = data[KOLO_FIELD_IDS];
    kolo_line line = {0};
    kolo_status status = KOLO_OK;
    for (int64_t i = 0; i < n && status == KOLO_OK; i++) {
        status = read_sample(d->own, indices[i], d->opts.rows, features, &line, &x[i], &y[i],
                             ids + i * features);
    }
    kolo_free(line.text);
    return status;
}

/* Copies the names from the text, which does not stay. */
static kolo_status keep_names(labelled *own) {
    size_t bytes = 1;
    for (int i = 0; i < own->names.count; i++) {
        bytes += (size_t)(own->names.name[i].end - own->names.name[i].at);
    }
    char *next = own->words = kolo_alloc(bytes);
    if (!next) return KOLO_NOMEM(bytes);
    for (int i = 0; i < own->names.count; i++) {
        kolo_word *name = &own->names.name[i];
        const size_t n = (size_t)(name->end - name->at);
        memcpy(next, name->at, n);
        *name = (kolo_word){next, next + n};
        next += n;
    }
    return KOLO_OK;
}

static kolo_status find_names(const char *path, labelled *own) {
    kolo_file_view view = {0};
    KOLO_TRY(kolo_file_map(path, &view));
    kolo_status status = kolo_label_names_find(view.data, view.bytes, path, &own->names);
    if (status == KOLO_OK) status = keep_names(own);
    kolo_file_unmap(&view);
    return status;
}

static kolo_status open_lines(const kolo_dataset *d, const kolo_labelled_opts *opts) {
    labelled *own = d->own;
    kolo_file_view view = {0};
    KOLO_TRY(kolo_file_open(d->place, &own->file));
    KOLO_TRY(kolo_file_map(d->place, &view));
    const kolo_status status =
        kolo_labelled_open(view.data, view.bytes, d->place, &own->names, opts, &own->lines);
    kolo_file_unmap(&view);
    own->lines.text = NULL;
    return status;
}

static kolo_status open_file(kolo_dataset *d, const kolo_labelled_opts *opts, const char *test) {
    labelled *own = d->own;
    KOLO_TRY(find_names(d->place, own));
    if (*test && opts->split == KOLO_SPLIT_TEST) {
        kolo_free(d->place);
        d->info.place = d->place = kolo_strdup(test);
        if (!d->place) return KOLO_NOMEM(strlen(test));
    }
    KOLO_TRY(open_lines(d, opts));
    d->info.count = own->lines.count;
    d->info.classes = own->names.count;
    return KOLO_OK;
}

kolo_status kolo_read_labelled(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    kolo_labelled_opts opts = {.ngrams = 2, .test = 0.1, .split = d->info.split};
    char test[KOLO_KEY_PATH] = "";
    const kolo_data_key keys[] = {
        {"test", kolo_key_path, test, .write = "test=FILE, the test split"},
        {"ngrams", kolo_key_count, &opts.ngrams, 1, MAX_NGRAMS, "ngrams=WORDS, from 1 to 8"},
        {"split", kolo_key_real, &opts.test, 1e-6, 1 - 1e-6, "split=PART, between 0 and 1"},
        {"seed", kolo_key_seed, &opts.seed, .write = "seed=NUMBER, at least 0"},
        {NULL},
    };
    KOLO_TRY(kolo_labelled_describe(reader, d));
    KOLO_TRY(kolo_keys_parse_after(reader, "FILE", argument, keys, &d->place));
    d->info.place = d->place;
    if (*test) {
        KOLO_TRY(kolo_keys_refuse_split(reader->name, argument, "with test="));
        opts.test = 0;
    }
    labelled *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_labelled;
    d->gather = gather;
    return open_file(d, &opts, test);
}
