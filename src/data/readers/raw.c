/* Tables of little-endian f32 in memory order, a row for each sample: files without a header, whose
 * number of columns is a key, and NumPy's .npy files. One column is the target, and the others are
 * the features. All numbers are checked when the file is opened, those of a stream on arrival. */
#include "base/file.h"
#include "base/memory.h"
#include "data/readers/keys.h"
#include "data/readers/npy.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_CLASSES = 1 << 24 };

typedef struct raw {
    kolo_file *file;
    kolo_file_view view; /* while it is opened */
    const char *data;    /* [all, columns] of the view, of any alignment */
    uint64_t begin;      /* of the data in the file */
    int64_t all, columns, target, classes;
    bool values;   /* targets are numbers, not classes */
    int64_t *rows; /* of the split; NULL: all */
    int64_t next;  /* of a stream: the row after those that were read since it began */
} raw;

static void close_raw(kolo_dataset *d) {
    raw *own = d->own;
    if (!own) return;
    kolo_file_unmap(&own->view);
    kolo_file_close(own->file);
    kolo_free(own->rows);
    kolo_free(own);
}

/* A row into features `x` and target `y`, either may be NULL. */
static void take_row(const raw *own, const char *row, float *x, void *y) {
    const size_t before = (size_t)own->target * sizeof *x;
    float target;
    if (x) {
        memcpy(x, row, before);
        memcpy((char *)x + before, row + before + sizeof *x,
               (size_t)(own->columns - 1) * sizeof *x - before);
    }
    if (!y) return;
    memcpy(&target, row + before, sizeof target);
    if (own->values) {
        *(float *)y = target;
    } else {
        *(int32_t *)y = (int32_t)target;
    }
}

static kolo_status check_row(const kolo_dataset *d, const char *row, int64_t number) {
    const raw *own = d->own;
    const int64_t most = (own->classes ? own->classes : MOST_CLASSES) - 1;
    for (int64_t c = 0; c < own->columns; c++) {
        float value;
        memcpy(&value, row + (size_t)c * sizeof value, sizeof value);
        if (!isfinite(value)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: row %" PRId64 ", column %" PRId64 " is no finite number",
                             d->info.place, number, c + 1);
        }
        if (c != own->target || own->values) continue;
        if (value >= 0 && (double)value <= (double)most && value == floorf(value)) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: row %" PRId64 ", column %" PRId64 ": %g is no class 0..%" PRId64
                         ": for targets that are numbers, write "
                         "type=value",
                         d->info.place, number, c + 1, (double)value, most);
    }
    return KOLO_OK;
}

/* ---- files ---- */

static kolo_status read_rows(const kolo_dataset *d, const int64_t *indices, int64_t n, char *row,
                             void *const *data) {
    const raw *own = d->own;
    float *x = data[KOLO_FIELD_X];
    char *y = data[KOLO_FIELD_Y];
    const size_t bytes = (size_t)own->columns * sizeof *x;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = own->rows ? own->rows[indices[i]] : indices[i];
        const uint64_t offset = own->begin + (uint64_t)at * bytes;
        KOLO_TRY(kolo_file_read_at(own->file, offset, row, bytes));
        if (check_row(d, row, at) != KOLO_OK) return kolo_file_changed(own->file, offset);
        take_row(own, row, x + i * (own->columns - 1), y + (size_t)i * d->bytes[KOLO_FIELD_Y]);
    }
    return KOLO_OK;
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const size_t bytes = (size_t)((const raw *)d->own)->columns * sizeof(float);
    char *row = kolo_alloc(bytes);
    if (!row) return KOLO_NOMEM(bytes);
    const kolo_status status = read_rows(d, indices, n, row, data);
    kolo_free(row);
    return status;
}

/* By its name or by its contents. */
static bool is_npy(const kolo_dataset *d, const raw *own) {
    const size_t n = strlen(d->place);
    return (n > 4 && strcmp(d->place + n - 4, ".npy") == 0) ||
           kolo_npy_is(own->view.data, own->view.bytes);
}

static kolo_status find_rows(const kolo_dataset *d, raw *own) {
    int64_t columns = 0, rows = 0;
    size_t begin = 0;
    if (is_npy(d, own)) {
        KOLO_TRY(
            kolo_npy_parse(own->view.data, own->view.bytes, d->place, &rows, &columns, &begin));
    }
    if (own->columns == 0) own->columns = columns;
    if (own->columns < 2 || (columns > 0 && columns != own->columns)) {
        return columns > 0
                   ? KOLO_FAIL(KOLO_ERR_FORMAT,
                               "%s has %" PRId64 " columns: a table has features and a target%s",
                               d->place, columns, columns < 2 ? "" : ", or give no columns=")
                   : KOLO_FAIL(KOLO_ERR_ARG,
                               "data set raw: %s has no header: give columns=N, with the target",
                               d->place);
    }
    own->begin = begin;
    own->data = (const char *)own->view.data + begin;
    const size_t row = (size_t)own->columns * sizeof(float), bytes = own->view.bytes - begin;
    own->all = (int64_t)(bytes / row);
    if (bytes % row != 0 || own->all == 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: %zu bytes of numbers are not a whole number of rows of %" PRId64
                         " columns, 4 bytes each: is the file complete?",
                         d->place, bytes, own->columns);
    }
    if (columns == 0 || own->all == rows) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s has %" PRId64 " rows, and %" PRId64
                     " by its header: is the file complete?",
                     d->place, own->all, rows);
}

/* Selects the rows of the split; `part`: of all that are the test split, 0: the file is one split.
 */
static kolo_status choose_rows(kolo_dataset *d, raw *own, double part, uint64_t seed) {
    const bool tests = d->info.split == KOLO_SPLIT_TEST;
    int64_t test = part > 0 ? (int64_t)((double)own->all * part + 0.5) : 0, kept = 0;
    if (part > 0 && test < 1) test = 1;
    if (own->all <= test) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %" PRId64 " rows, too few for two splits: give more",
                         d->place, own->all);
    }
    d->info.count = test == 0 ? own->all : tests ? test : own->all - test;
    if (test == 0) return KOLO_OK;
    own->rows = kolo_alloc((size_t)d->info.count * sizeof *own->rows);
    if (!own->rows) return KOLO_NOMEM((size_t)d->info.count * sizeof *own->rows);
    for (int64_t i = 0, left = test; i < own->all; i++) {
        if (kolo_split_takes(seed, i, own->all, &left) == tests) own->rows[kept++] = i;
    }
    return KOLO_OK;
}

/* Checks all rows, and counts the classes. */
static kolo_status check_rows(const kolo_dataset *d, raw *own) {
    int32_t most = 0;
    for (int64_t i = 0; i < own->all; i++) {
        const char *row = own->data + (size_t)(i * own->columns) * sizeof(float);
        int32_t class;
        KOLO_TRY(check_row(d, row, i));
        if (own->values) continue;
        take_row(own, row, NULL, &class);
        if (class > most) most = class;
    }
    if (own->classes == 0) own->classes = most + 1;
    return KOLO_OK;
}

/* ---- streams ---- */

static kolo_status next_streamed(const kolo_dataset *d, void *const *data, bool *got) {
    raw *own = d->own;
    const char *row;
    size_t there;
    KOLO_TRY(kolo_feed_peek(d->stream->source, d->stream->record, &row, &there));
    *got = there == d->stream->record;
    if (!*got) return KOLO_OK;
    const int64_t number = d->stream->first + own->next;
    if (kolo_feed_place(d->stream->source) == 0 && kolo_npy_is(row, there)) { /* of any run */
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: a stream of f32 has no header, and this is a .npy file: write the "
                         "table with numpy's tofile()",
                         d->info.place);
    }
    KOLO_TRY(check_row(d, row, number));
    own->next++;
    take_row(own, row, data[KOLO_FIELD_X], data[KOLO_FIELD_Y]);
    kolo_feed_consume(d->stream->source, d->stream->record);
    return KOLO_OK;
}

static kolo_status open_streamed(const kolo_dataset *d, raw *own) {
    if (own->columns == 0 || (!own->values && own->classes == 0)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set raw: the shape of a stream is not known before it comes: give "
                         "columns=N, with the target, and classes=N or type=value");
    }
    d->stream->record = (size_t)own->columns * sizeof(float);
    d->stream->next = next_streamed;
    return KOLO_OK;
}

/* ---- data set ---- */

static kolo_status choose_target(const kolo_dataset *d, raw *own, int64_t target) {
    own->target = (target ? target : own->columns) - 1;
    if (own->target < own->columns) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%s: no column %" PRId64 " for target=: there are %" PRId64,
                     d->place, target, own->columns);
}

kolo_status kolo_read_raw(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    double part = 0.1;
    uint64_t seed = 0;
    int64_t target = 0;
    bool whole;
    kolo_split_files files = {0};
    raw *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    d->close = close_raw;
    const kolo_data_key keys[] = {
        {"columns", kolo_key_count, &own->columns, 2, 1 << 24, "columns=NUMBER, at least 2"},
        {"target", kolo_key_count, &target, 1, 1 << 24, "target=NUMBER of a column, from 1"},
        {"type", kolo_key_target_type, &own->values, .write = "type=class or type=value"},
        {"classes", kolo_key_count, &own->classes, 1, MOST_CLASSES, "classes=NUMBER, at least 1"},
        KOLO_SPLIT_FILE_KEYS(files),
        {"split", kolo_key_real, &part, 1e-6, 1 - 1e-6, "split=PART, between 0 and 1"},
        {"seed", kolo_key_seed, &seed, .write = "seed=NUMBER, at least 0"},
        {NULL},
    };
    KOLO_TRY(kolo_keys_parse_after(reader, "FILE", argument, keys, &d->place));
    KOLO_TRY(kolo_reader_choose_split(reader, argument, &files, d, &whole));
    if (d->stream) {
        KOLO_TRY(open_streamed(d, own));
        KOLO_TRY(choose_target(d, own, target));
    } else {
        KOLO_TRY(kolo_file_open(d->place, &own->file));
        KOLO_TRY(kolo_file_map(d->place, &own->view));
        KOLO_TRY(find_rows(d, own));
        KOLO_TRY(choose_target(d, own, target));
        KOLO_TRY(check_rows(d, own));
        kolo_file_unmap(&own->view);
        own->data = NULL;
        KOLO_TRY(choose_rows(d, own, whole ? 0 : part, seed));
        d->gather = gather;
    }
    d->info.classes = own->values ? 1 : (int)own->classes;
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_F32, kolo_shape_1(own->columns - 1),
                            kolo_shape_0());
    if (own->values) d->info.fields[KOLO_FIELD_Y].dtype = KOLO_DTYPE_F32;
    return KOLO_OK;
}
