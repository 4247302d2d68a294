/* Click logs in Criteo's format. Lines are read and parsed as samples are, so memory holds their
 * places alone. Opening checks each line; blank ones are skipped. */
#include "base/file.h"
#include "base/memory.h"
#include "data/readers/clicks.h"
#include "data/readers/keys.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { COLUMNS = 1 + KOLO_CRITEO_NUMBERS + KOLO_CRITEO_CATEGORIES, MAX_DIGITS = 15, HEX = 8 };

typedef struct span {
    const char *at, *end;
} span;

typedef struct sample {
    float y, x[KOLO_CRITEO_NUMBERS];
    int64_t category[KOLO_CRITEO_CATEGORIES]; /* -1: missing */
} sample;

/* ---- columns ---- */

static bool parse_label(span cell, float *y) {
    if (cell.end - cell.at != 1 || (*cell.at != '0' && *cell.at != '1')) return false;
    *y = (float)(*cell.at - '0');
    return true;
}

static bool parse_number(span cell, float *x) {
    bool negative = cell.at < cell.end && *cell.at == '-';
    int64_t value = 0;
    *x = 0;
    if (cell.at == cell.end) return true;
    if (negative) cell.at++;
    if (cell.at == cell.end || cell.end - cell.at > MAX_DIGITS) return false;
    for (; cell.at < cell.end; cell.at++) {
        if (*cell.at < '0' || *cell.at > '9') return false;
        value = value * 10 + (*cell.at - '0');
    }
    if (!negative) *x = (float)log1p((double)value);
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool parse_category(span cell, int64_t *value) {
    *value = cell.at == cell.end ? -1 : 0;
    if (cell.end - cell.at > HEX) return false;
    for (; cell.at < cell.end; cell.at++) {
        int digit = hex_digit(*cell.at);
        if (digit < 0) return false;
        *value = *value * 16 + digit;
    }
    return true;
}

static bool parse_cell(span cell, int column, sample *s) {
    if (column == 0) return parse_label(cell, &s->y);
    column--;
    if (column < KOLO_CRITEO_NUMBERS) return parse_number(cell, &s->x[column]);
    return parse_category(cell, &s->category[column - KOLO_CRITEO_NUMBERS]);
}

/* ---- lines ---- */

/* The line from `at` on, without its end; *next is where the next one begins. */
static span line_at(const kolo_criteo *log, size_t at, size_t *next) {
    const char *text = log->text + at, *end = memchr(text, '\n', log->length - at);
    *next = end ? (size_t)(end - log->text) + 1 : log->length;
    span line = {text, end ? end : log->text + log->length};
    if (line.end > line.at && line.end[-1] == '\r') line.end--;
    return line;
}

static int64_t number_of_line(const kolo_criteo *log, const char *at) {
    int64_t number = 1;
    for (const char *c = log->text; (c = memchr(c, '\n', (size_t)(at - c))); c++) number++;
    return number;
}

static kolo_status bad_cell(const kolo_criteo *log, span cell, int column) {
    char text[33] = "";
    for (int i = 0; i < 32 && cell.at + i < cell.end; i++) {
        text[i] = cell.at[i] >= ' ' && cell.at[i] <= '~' ? cell.at[i] : '?';
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: line %" PRId64 ", column %d: \"%s\" is no %s",
                     log->where, number_of_line(log, cell.at), column + 1, text,
                     column == 0                     ? "label, 0 or 1"
                     : column <= KOLO_CRITEO_NUMBERS ? "integer of at most 15 digits"
                                                     : "category of at most 8 hexadecimal digits");
}

static kolo_status bad_length(const kolo_criteo *log, span line) {
    int columns = 1;
    for (const char *c = line.at; c < line.end; c++) columns += *c == '\t';
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: line %" PRId64 " has %d columns, not %d: a label, %d integers and %d "
                     "categories, separated by tabs%s",
                     log->where, number_of_line(log, line.at), columns, COLUMNS,
                     KOLO_CRITEO_NUMBERS, KOLO_CRITEO_CATEGORIES,
                     columns == COLUMNS - 1 ? "; a log without labels cannot be used" : "");
}

static kolo_status parse_line(const kolo_criteo *log, span line, sample *s) {
    span cell = {line.at, line.at};
    for (int column = 0; column < COLUMNS; column++) {
        const char *tab = memchr(cell.at, '\t', (size_t)(line.end - cell.at));
        cell.end = tab ? tab : line.end;
        if (!tab != (column == COLUMNS - 1)) return bad_length(log, line);
        if (!parse_cell(cell, column, s)) return bad_cell(log, cell, column);
        if (tab) cell.at = tab + 1;
    }
    return KOLO_OK;
}

/* Counts the lines, of which *test are the test split. */
static kolo_status count_lines(const kolo_criteo *log, const kolo_criteo_opts *opts, int64_t *count,
                               int64_t *test) {
    *count = *test = 0;
    for (size_t at = 0; at < log->length;) {
        span line = line_at(log, at, &at);
        *count += line.at < line.end;
    }
    if (opts->test > 0) {
        *test = (int64_t)((double)*count * opts->test + 0.5);
        if (*test < 1) *test = 1;
    }
    if (*count > *test) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %" PRId64 " lines, too few for the %s: give more",
                     log->where, *count, opts->test > 0 ? "training and the test split" : "split");
}

static kolo_status find_lines(kolo_criteo *log, const kolo_criteo_opts *opts) {
    int64_t count, test, kept = 0, i = 0;
    KOLO_TRY(count_lines(log, opts, &count, &test));
    const bool wants_test = opts->split == KOLO_SPLIT_TEST;
    log->count = test == 0 ? count : wants_test ? test : count - test;
    log->at = kolo_alloc((size_t)log->count * sizeof *log->at);
    if (!log->at) return KOLO_NOMEM((size_t)log->count * sizeof *log->at);
    int64_t left = test;
    for (size_t at = 0; at < log->length;) {
        sample s;
        const size_t begin = at;
        span line = line_at(log, begin, &at);
        if (line.at == line.end) continue;
        KOLO_TRY(parse_line(log, line, &s));
        bool tests = kolo_split_takes(opts->seed, i++, count, &left);
        if (test == 0 || tests == wants_test) log->at[kept++] = begin;
    }
    KOLO_ASSERT(kept == log->count);
    return KOLO_OK;
}

kolo_status kolo_criteo_open(const char *text, size_t length, const char *where,
                             const kolo_criteo_opts *opts, kolo_criteo *log) {
    kolo_criteo found = {.text = text, .where = where, .length = length};
    kolo_status status = find_lines(&found, opts);
    if (status != KOLO_OK) {
        kolo_criteo_fini(&found);
        return status;
    }
    *log = found;
    return KOLO_OK;
}

void kolo_criteo_fini(kolo_criteo *log) {
    kolo_free(log->at);
    *log = (kolo_criteo){0};
}

kolo_status kolo_criteo_read(const kolo_criteo *log, int64_t i, int64_t rows, float *x, float *y,
                             int32_t *ids) {
    sample s;
    size_t next;
    KOLO_TRY(parse_line(log, line_at(log, log->at[i], &next), &s));
    memcpy(x, s.x, sizeof s.x);
    *y = s.y;
    for (int64_t t = 0; t < KOLO_CRITEO_CATEGORIES; t++) {
        const bool there = s.category[t] >= 0 && rows > 1;
        ids[t] = (int32_t)(t * rows + (there ? 1 + s.category[t] % (rows - 1) : 0));
    }
    return KOLO_OK;
}

/* ---- data set ---- */

typedef struct criteo {
    kolo_file *file;
    kolo_criteo log; /* without its text, once it is open */
} criteo;

static void close_criteo(kolo_dataset *d) {
    criteo *own = d->own;
    if (!own) return;
    kolo_criteo_fini(&own->log);
    kolo_file_close(own->file);
    kolo_free(own);
}

static kolo_status read_sample(const kolo_dataset *d, int64_t index, kolo_line *line, float *x,
                               float *y, int32_t *ids) {
    const criteo *own = d->own;
    size_t first = 0;
    KOLO_TRY(kolo_line_read(own->file, own->log.at[index], line));
    const kolo_criteo one = {
        .text = line->text, .where = d->place, .length = line->length, .count = 1, .at = &first};
    const kolo_status status = kolo_criteo_read(&one, 0, d->opts.rows, x, y, ids);
    if (status != KOLO_ERR_FORMAT) return status;
    return kolo_file_changed(own->file, own->log.at[index]);
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    float *x = data[KOLO_FIELD_X], *y = data[KOLO_FIELD_Y];
    int32_t *ids = data[KOLO_FIELD_IDS];
    kolo_line line = {0};
    kolo_status status = KOLO_OK;
    for (int64_t i = 0; i < n && status == KOLO_OK; i++) {
        status = read_sample(d, indices[i], &line, x + i * KOLO_CRITEO_NUMBERS, y + i,
                             ids + i * KOLO_CRITEO_CATEGORIES);
    }
    kolo_free(line.text);
    return status;
}

static kolo_status open_log(const kolo_dataset *d, const kolo_criteo_opts *opts) {
    criteo *own = d->own;
    kolo_file_view view = {0};
    KOLO_TRY(kolo_file_open(d->place, &own->file));
    KOLO_TRY(kolo_file_map(d->place, &view));
    const kolo_status status = kolo_criteo_open(view.data, view.bytes, d->place, opts, &own->log);
    kolo_file_unmap(&view);
    own->log.text = NULL;
    return status;
}

kolo_status kolo_read_criteo(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    kolo_criteo_opts opts = {.test = 0.1, .split = d->info.split};
    const kolo_data_key keys[] = {
        {"split", kolo_key_real, &opts.test, 1e-6, 1 - 1e-6, "split=PART, between 0 and 1"},
        {"seed", kolo_key_seed, &opts.seed, .write = "seed=NUMBER, at least 0"},
        {NULL},
    };
    KOLO_TRY(kolo_clicks_describe(reader, d));
    if (d->opts.numbers != KOLO_CRITEO_NUMBERS || d->opts.categories != KOLO_CRITEO_CATEGORIES) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set %s has %d numbers and %d categories, and the model takes "
                         "%" PRId64 " and %" PRId64 ": give it as many",
                         reader->name, KOLO_CRITEO_NUMBERS, KOLO_CRITEO_CATEGORIES, d->opts.numbers,
                         d->opts.categories);
    }
    KOLO_TRY(kolo_keys_parse_after(reader, "FILE", argument, keys, &d->place));
    d->info.place = d->place;
    criteo *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_criteo;
    d->gather = gather;
    KOLO_TRY(open_log(d, &opts));
    d->info.count = own->log.count;
    return KOLO_OK;
}
