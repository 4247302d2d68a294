/* The CSV reader. Cells are separated by commas, or by tabs or semicolons where the first line has
 * those and no comma; in a cell in quotation marks these are text. A first line with a cell that is
 * text, neither empty nor a number (nan and inf are), is a header. The first of two passes counts
 * the rows. Rows of a stream are parsed on arrival, and malformed ones are skipped. */
#include "data/readers/csv.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "data/readers/keys.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct span {
    const char *at, *end;
} span;

/* What is left of a table, and where it stands. */
typedef struct scanner {
    span rest;
    int64_t line; /* of the last row, from 1 */
    char separator;
    const char *where;
} scanner;

static span trim(span s) {
    while (s.at < s.end && (*s.at == ' ' || *s.at == '\t')) s.at++;
    while (s.at < s.end && (s.end[-1] == ' ' || s.end[-1] == '\t' || s.end[-1] == '\r')) s.end--;
    if (s.end - s.at >= 2 && *s.at == '"' && s.end[-1] == '"') {
        s.at++;
        s.end--;
    }
    return s;
}

/* The next row that is not blank; false: there is none. */
static bool next_row(scanner *s, span *row) {
    while (s->rest.at < s->rest.end) {
        const char *end = memchr(s->rest.at, '\n', (size_t)(s->rest.end - s->rest.at));
        *row = (span){s->rest.at, end ? end : s->rest.end};
        s->rest.at = end ? end + 1 : s->rest.end;
        s->line++;
        span text = trim(*row);
        if (text.at < text.end) return true;
    }
    return false;
}

/* Behind the quotation marks of the first cell, in which "" stands for one; its beginning if it has
 * none, or no second one. */
static const char *skip_quoted(span row) {
    const char *at = row.at;
    while (at < row.end && *at == ' ') at++;
    if (at == row.end || *at != '"') return row.at;
    while (++at < row.end) {
        if (*at != '"') continue;
        if (at + 1 == row.end || at[1] != '"') return at + 1;
        at++;
    }
    return row.at;
}

/* The next cell of a row, whose `at` is NULL after the last one. */
static bool next_cell(const scanner *s, span *row, span *cell) {
    if (!row->at) return false;
    const char *from = skip_quoted(*row);
    const char *end = memchr(from, s->separator, (size_t)(row->end - from));
    *cell = trim((span){row->at, end ? end : row->end});
    row->at = end ? end + 1 : NULL;
    return true;
}

/* Any number, also one that is not finite. */
static bool number_of(span cell, double *value) {
    char text[512], *end;
    size_t length = (size_t)(cell.end - cell.at);
    if (length == 0 || length >= sizeof text) return false;
    memcpy(text, cell.at, length);
    text[length] = '\0';
    *value = kolo_parse_double(text, &end);
    return end == text + length;
}

/* The first of comma, tab and semicolon that a row has. */
static char separator_of(span row) {
    static const char separators[] = {',', '\t', ';'};
    const char *first = NULL;
    for (; row.at < row.end; row.at++) {
        const char *one = NULL;
        row.at = skip_quoted(row);
        while (row.at < row.end && !(one = memchr(separators, *row.at, sizeof separators))) {
            row.at++;
        }
        if (one && (!first || one < first)) first = one;
    }
    return first ? *first : ',';
}

/* ---- columns ---- */

typedef struct columns {
    int64_t count, target; /* target: its index */
    bool header;
} columns;

static kolo_status find_target(const scanner *s, span row, const kolo_csv_opts *opts, columns *c) {
    span cell;
    if (!opts->target || !*opts->target) {
        c->target = c->count - 1;
        return KOLO_OK;
    }
    size_t length = strlen(opts->target);
    int64_t found = 0;
    for (int64_t i = 0; c->header && next_cell(s, &row, &cell); i++) {
        if ((size_t)(cell.end - cell.at) != length) continue;
        if (memcmp(cell.at, opts->target, length) != 0) continue;
        if (found++ == 0) c->target = i;
    }
    if (found == 1) return KOLO_OK;
    if (found > 1) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: %" PRId64 " columns are named \"%s\": rename those that are not "
                         "the target",
                         s->where, found, opts->target);
    }
    char *end;
    long long number = strtoll(opts->target, &end, 10);
    if (*end || number < 1 || number > c->count) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: no column \"%s\" for target=: give a name of its header or a number, "
                         "1 to %" PRId64,
                         s->where, opts->target, c->count);
    }
    c->target = number - 1;
    return KOLO_OK;
}

static kolo_status read_columns(scanner *s, const kolo_csv_opts *opts, columns *c) {
    scanner ahead = *s;
    span row, cell, rest;
    double value;
    if (!next_row(&ahead, &row)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: no rows: give a table of numbers", s->where);
    }
    s->separator = ahead.separator = separator_of(row);
    *c = (columns){0};
    for (rest = row; next_cell(s, &rest, &cell); c->count++) {
        c->header = c->header || (cell.at < cell.end && !number_of(cell, &value));
    }
    if (c->count < 2) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: line %" PRId64 " has one column: a table has features and a target, "
                         "separated by commas, tabs or semicolons",
                         s->where, ahead.line);
    }
    KOLO_TRY(find_target(s, row, opts, c));
    if (c->header) *s = ahead;
    return KOLO_OK;
}

/* ---- rows ---- */

static kolo_status bad_cell(const scanner *s, int64_t column, span cell, const char *problem) {
    int shown = cell.end - cell.at < 32 ? (int)(cell.end - cell.at) : 32;
    char text[33] = "";
    for (int i = 0; i < shown; i++)
        text[i] = cell.at[i] >= ' ' && cell.at[i] <= '~' ? cell.at[i] : '?';
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: line %" PRId64 ", column %" PRId64 ": \"%s\" %s",
                     s->where, s->line, column + 1, text, problem);
}

/* Reads the features of a row into `x`, unless it is NULL, and its target into *y. */
static kolo_status read_row(const scanner *s, const columns *c, const kolo_csv_opts *opts, span row,
                            float *x, double *y) {
    span cell;
    double value;
    int64_t column = 0, most = opts->classes ? opts->classes - 1 : (1 << 24) - 1;
    for (; next_cell(s, &row, &cell); column++) {
        if (!number_of(cell, &value) || !isfinite((float)value)) {
            return bad_cell(s, column, cell, "is no finite number: correct or remove the row");
        }
        if (column != c->target) {
            if (x) *x++ = (float)value;
            continue;
        }
        *y = value;
        if (opts->values || (value >= 0 && value <= (double)most && value == floor(value)))
            continue;
        return bad_cell(s, column, cell,
                        opts->classes ? "is no class below classes=: classes are 0, 1, ..."
                                      : "is no class 0, 1, ...: for targets that are numbers, "
                                        "write type=value");
    }
    return KOLO_OK;
}

static kolo_status check_length(const scanner *s, const columns *c, span row) {
    span cell;
    int64_t cells = 0;
    while (next_cell(s, &row, &cell)) cells++;
    if (cells == c->count) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: line %" PRId64 " has %" PRId64 " columns and the first %" PRId64
                     ": correct or remove the row",
                     s->where, s->line, cells, c->count);
}

/* Counts the rows, of which `test` are the test split. */
static kolo_status count_rows(const scanner *start, const columns *c, const kolo_csv_opts *opts,
                              int64_t *count, int64_t *test) {
    scanner s = *start;
    span row;
    *count = *test = 0;
    for (; next_row(&s, &row); ++*count) KOLO_TRY(check_length(&s, c, row));
    if (opts->test > 0) {
        *test = (int64_t)((double)*count * opts->test + 0.5);
        if (*test < 1) *test = 1;
    }
    if (*count > *test) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %" PRId64 " rows, too few for the %s: give more",
                     s.where, *count, opts->test > 0 ? "training and the test split" : "split");
}

static kolo_status allocate(kolo_csv *csv) {
    int64_t most = PTRDIFF_MAX / (int64_t)sizeof(float) / csv->features;
    if (csv->count <= most)
        csv->x = kolo_alloc((size_t)(csv->count * csv->features) * sizeof(float));
    csv->y = kolo_alloc((size_t)csv->count * sizeof(int32_t));
    return csv->x && csv->y ? KOLO_OK : KOLO_NOMEM((size_t)csv->count * (size_t)csv->features * 4);
}

static kolo_status read_rows(scanner *s, const columns *c, const kolo_csv_opts *opts,
                             kolo_csv *csv) {
    int64_t count, test, kept = 0;
    KOLO_TRY(count_rows(s, c, opts, &count, &test));
    bool wants_test = opts->split == KOLO_SPLIT_TEST;
    csv->features = c->count - 1;
    csv->count = test == 0 ? count : wants_test ? test : count - test;
    csv->classes = opts->classes ? (int)opts->classes : 1;
    KOLO_TRY(allocate(csv));
    span row;
    for (int64_t i = 0, left = test; next_row(s, &row); i++) {
        double target = 0;
        bool tests = kolo_split_takes(opts->seed, i, count, &left);
        bool keeps = test == 0 || tests == wants_test;
        float *x = keeps ? csv->x + kept * csv->features : NULL;
        KOLO_TRY(read_row(s, c, opts, row, x, &target));
        if (!opts->values && target >= csv->classes) csv->classes = (int)target + 1;
        if (!keeps) continue;
        if (opts->values)
            ((float *)csv->y)[kept] = (float)target;
        else
            ((int32_t *)csv->y)[kept] = (int32_t)target;
        kept++;
    }
    KOLO_ASSERT(kept == csv->count);
    return KOLO_OK;
}

/* Without a byte order mark at its beginning. */
static span skip_mark(span text) {
    text.at += kolo_byte_order_mark(text.at, (size_t)(text.end - text.at));
    return text;
}

kolo_status kolo_csv_parse(const char *text, size_t length, const char *where,
                           const kolo_csv_opts *opts, kolo_csv *csv) {
    scanner s = {.rest = skip_mark((span){text, text + length}), .where = where};
    columns c = {0};
    kolo_csv read = {0};
    KOLO_TRY(read_columns(&s, opts, &c));
    kolo_status status = read_rows(&s, &c, opts, &read);
    if (status != KOLO_OK) {
        kolo_csv_fini(&read);
        return status;
    }
    *csv = read;
    return KOLO_OK;
}

void kolo_csv_fini(kolo_csv *csv) {
    kolo_free(csv->x);
    kolo_free(csv->y);
    *csv = (kolo_csv){0};
}

/* ---- streams ---- */

enum { MOST_DAMAGED = 100 /* rows one after the other */ };

typedef struct csv_stream {
    kolo_csv_opts opts;
    char target[KOLO_KEY_TEXT];
    scanner at; /* line and separator of the rows that have come */
    columns c;  /* count 0: no row has come */
    int64_t features;
} csv_stream;

/* The next row that is not blank; *row at NULL: there is none. */
static kolo_status next_line(const kolo_dataset *d, csv_stream *own, span *row) {
    span text;
    do {
        const char *line;
        size_t length;
        *row = (span){NULL, NULL};
        KOLO_TRY(kolo_feed_line(d->stream->source, &line, &length));
        if (!line) return KOLO_OK;
        own->at.line = ++d->stream->lines;
        *row = (span){line, line + length};
        if (own->at.line == 1) *row = skip_mark(*row);
        text = trim(*row);
    } while (text.at == text.end);
    return KOLO_OK;
}

/* The first row, which may be a header. */
static kolo_status begin_rows(csv_stream *own, span row) {
    scanner one = own->at;
    one.rest = row;
    one.line--;
    KOLO_TRY(read_columns(&one, &own->opts, &own->c));
    own->at.separator = one.separator;
    if (own->c.count == own->features + 1) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: line %" PRId64 " has %" PRId64 " columns: give columns=%" PRId64,
                     own->at.where, own->at.line, own->c.count, own->c.count);
}

static kolo_status take_row(const kolo_dataset *d, const csv_stream *own, span row,
                            void *const *data) {
    double target = 0;
    KOLO_TRY(check_length(&own->at, &own->c, row));
    KOLO_TRY(read_row(&own->at, &own->c, &own->opts, row, data[KOLO_FIELD_X], &target));
    if (!data[KOLO_FIELD_Y]) return KOLO_OK;
    if (own->opts.values) {
        *(float *)data[KOLO_FIELD_Y] = (float)target;
    } else {
        *(int32_t *)data[KOLO_FIELD_Y] = (int32_t)target;
    }
    return KOLO_OK;
}

/* A row that cannot be parsed: an error, unless such rows are skipped. */
static kolo_status pass_row(const kolo_dataset *d, kolo_status status, int damaged) {
    char line[1024];
    if (status != KOLO_ERR_FORMAT || !d->opts.warn) return status;
    if (damaged > MOST_DAMAGED) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s; so are the %d rows before it: is it such a table?",
                         kolo_last_error(), (int)MOST_DAMAGED);
    }
    if (d->stream->repeats) return KOLO_OK;
    snprintf(line, sizeof line, "%s: skipped", kolo_last_error());
    d->opts.warn(d->opts.warn_arg, line);
    d->stream->damaged++;
    return KOLO_OK;
}

static kolo_status next_streamed(const kolo_dataset *d, void *const *data, bool *got) {
    csv_stream *own = d->own;
    int damaged = 0;
    for (*got = false; !*got;) {
        span row;
        KOLO_TRY(next_line(d, own, &row));
        if (!row.at) return KOLO_OK;
        const bool first = own->c.count == 0;
        if (first) KOLO_TRY(begin_rows(own, row));
        if (first && own->c.header) continue;
        const kolo_status status = take_row(d, own, row, data);
        *got = status == KOLO_OK;
        if (!*got) KOLO_TRY(pass_row(d, status, ++damaged));
    }
    return KOLO_OK;
}

static kolo_status read_head(const kolo_dataset *d, bool *there) {
    csv_stream *own = d->own;
    span row;
    KOLO_TRY(next_line(d, own, &row));
    *there = row.at != NULL;
    return *there ? begin_rows(own, row) : KOLO_OK;
}

static void close_streamed(kolo_dataset *d) { kolo_free(d->own); }

static kolo_status open_streamed(kolo_dataset *d, const kolo_csv_opts *opts, int64_t width) {
    if (width == 0 || (!opts->values && opts->classes == 0)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set csv: the shape of a stream is not known before it comes: give "
                         "columns=N, with the target, and classes=N or type=value");
    }
    csv_stream *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_streamed;
    memcpy(own->target, opts->target, strlen(opts->target) + 1);
    own->opts = *opts;
    own->opts.target = own->target;
    own->at.where = d->place;
    own->features = width - 1;
    d->stream->next = next_streamed;
    d->stream->read_head = read_head;
    d->info.classes = opts->values ? 1 : (int)opts->classes;
    return KOLO_OK;
}

/* ---- data set ---- */

static void close_csv(kolo_dataset *d) {
    kolo_csv *own = d->own;
    if (own) kolo_csv_fini(own);
    kolo_free(own);
}

static kolo_status parse_file(const char *path, const kolo_csv_opts *opts, kolo_csv *csv) {
    kolo_file_view view = {0};
    KOLO_TRY(kolo_file_map(path, &view));
    kolo_status status = kolo_csv_parse(view.data, view.bytes, path, opts, csv);
    kolo_file_unmap(&view);
    return status;
}

static kolo_status open_file(kolo_dataset *d, const kolo_csv_opts *opts, int64_t *width) {
    kolo_csv *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_csv;
    KOLO_TRY(parse_file(d->place, opts, own));
    if (*width > 0 && *width != own->features + 1) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s has %" PRId64 " columns, not columns=%" PRId64,
                         d->place, own->features + 1, *width);
    }
    *width = own->features + 1;
    d->info.count = own->count;
    d->info.classes = own->classes;
    d->data[KOLO_FIELD_X] = own->x;
    d->data[KOLO_FIELD_Y] = own->y;
    return KOLO_OK;
}

/* A folder has a file for each split. */
static kolo_status choose_file(const kolo_reader *reader, const char *argument, kolo_dataset *d,
                               kolo_csv_opts *opts) {
    char *path;
    if (!kolo_folder_exists(d->place)) return KOLO_OK;
    KOLO_TRY(kolo_keys_refuse_split(reader->name, argument,
                                    "for a folder, which has a file for each split"));
    KOLO_TRY(kolo_reader_file(d->place, opts->split == KOLO_SPLIT_TRAIN ? "train.csv" : "test.csv",
                              "a folder has train.csv and test.csv; else give the path of a table",
                              &path));
    kolo_free(d->place);
    d->info.place = d->place = path;
    opts->test = 0;
    return KOLO_OK;
}

kolo_status kolo_read_csv(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    char target[KOLO_KEY_TEXT] = "";
    kolo_csv_opts opts = {.target = target, .test = 0.1, .split = d->info.split};
    kolo_split_files files = {0};
    int64_t width = 0;
    bool whole;
    const kolo_data_key keys[] = {
        {"target", kolo_key_text, target, .write = "target=COLUMN, a name or a number from 1"},
        {"type", kolo_key_target_type, &opts.values, .write = "type=class or type=value"},
        {"classes", kolo_key_count, &opts.classes, 1, 1 << 24, "classes=NUMBER, at least 1"},
        {"columns", kolo_key_count, &width, 2, 1 << 24, "columns=NUMBER, at least 2"},
        KOLO_SPLIT_FILE_KEYS(files),
        {"split", kolo_key_real, &opts.test, 1e-6, 1 - 1e-6, "split=PART, between 0 and 1"},
        {"seed", kolo_key_seed, &opts.seed, .write = "seed=NUMBER, at least 0"},
        {NULL},
    };
    KOLO_TRY(kolo_keys_parse_after(reader, "FILE", argument, keys, &d->place));
    KOLO_TRY(kolo_reader_choose_split(reader, argument, &files, d, &whole));
    if (whole) opts.test = 0;
    if (!d->stream) KOLO_TRY(choose_file(reader, argument, d, &opts));
    KOLO_TRY(d->stream ? open_streamed(d, &opts, width) : open_file(d, &opts, &width));
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_F32, kolo_shape_1(width - 1), kolo_shape_0());
    if (opts.values) d->info.fields[KOLO_FIELD_Y].dtype = KOLO_DTYPE_F32;
    return KOLO_OK;
}
