/* Tokens from files: the bytes of a text, or little-endian numbers of two or four bytes without a
 * header, as preprocessing scripts write them to train.bin and val.bin.
 *
 * A sample is a window of T tokens; the label of a token is the next one. Windows do not overlap,
 * so every token but the first is a label once per epoch; an incomplete last window is dropped. Of
 * a single file, the last tenth of the windows, at least one, is the test split. All tokens
 * are checked against the vocabulary on opening, those of a stream on arrival. */
#include "base/file.h"
#include "base/memory.h"
#include "data/readers/keys.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <string.h>

typedef struct tokens {
    kolo_file *file;
    int bytes;     /* per token: 1, 2 or 4 */
    int64_t first; /* window of sample 0 in the file; of a stream the next one since it began */
} tokens;

static void close_tokens(kolo_dataset *d) {
    tokens *own = d->own;
    if (!own) return;
    kolo_file_close(own->file);
    kolo_free(own);
}

/* Token i of those in `data`. */
static uint32_t token_at(const tokens *t, const void *data, int64_t i) {
    const uint8_t *p = (const uint8_t *)data + i * t->bytes;
    uint32_t token = 0;
    for (int b = 0; b < t->bytes; b++) token |= (uint32_t)p[b] << (8 * b);
    return token;
}

/* Takes a window and the token after it into x and y [length]; returns the first token that exceeds
 * the vocabulary, or -1. */
static int64_t take_window(const kolo_dataset *d, const void *data, int32_t *x, int32_t *y) {
    const int64_t length = d->info.fields[KOLO_FIELD_X].shape.dim[0];
    for (int64_t i = 0; i <= length; i++) {
        const int64_t token = token_at(d->own, data, i);
        if (token >= d->opts.vocabulary) return token;
        if (i < length) x[i] = (int32_t)token;
        if (i > 0) y[i - 1] = (int32_t)token;
    }
    return -1;
}

static kolo_status read_windows(const kolo_dataset *d, const int64_t *indices, int64_t n,
                                char *window, void *const *data) {
    const tokens *own = d->own;
    const int64_t length = d->info.fields[KOLO_FIELD_X].shape.dim[0];
    int32_t *x = data[KOLO_FIELD_X], *y = data[KOLO_FIELD_Y];
    for (int64_t i = 0; i < n; i++, x += length, y += length) {
        const uint64_t at = (uint64_t)((own->first + indices[i]) * length * own->bytes);
        KOLO_TRY(kolo_file_read_at(own->file, at, window, (size_t)((length + 1) * own->bytes)));
        if (take_window(d, window, x, y) >= 0) return kolo_file_changed(own->file, at);
    }
    return KOLO_OK;
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const tokens *own = d->own;
    const int64_t bytes = (d->info.fields[KOLO_FIELD_X].shape.dim[0] + 1) * own->bytes;
    char *window = kolo_alloc((size_t)bytes);
    if (!window) return KOLO_NOMEM(bytes);
    const kolo_status status = read_windows(d, indices, n, window, data);
    kolo_free(window);
    return status;
}

/* Sets the place to the file of the split, or the stream; *whole: the split is all of it. */
static kolo_status find_file(const kolo_reader *reader, const char *argument, kolo_dataset *d,
                             bool *whole) {
    kolo_split_files files = {0};
    const kolo_data_key keys[] = {KOLO_SPLIT_FILE_KEYS(files), {NULL}};
    if (!argument || !*argument) {
        return KOLO_FAIL(KOLO_ERR_ARG, "data set %s needs a file: write %s:FILE", reader->name,
                         reader->name);
    }
    if (kolo_file_exists(argument)) { /* also with a comma */
        d->place = kolo_strdup(argument);
        if (!d->place) return KOLO_NOMEM(strlen(argument));
    } else {
        KOLO_TRY(kolo_keys_parse_after(reader, "FILE", argument, keys, &d->place));
    }
    KOLO_TRY(kolo_reader_choose_split(reader, argument, &files, d, whole));
    if (d->stream || !kolo_folder_exists(d->place)) return KOLO_OK;
    if (reader->token_bytes == 1) {
        return KOLO_FAIL(KOLO_ERR_IO, "%s: a folder: give a file", d->place);
    }
    char *path;
    *whole = true;
    KOLO_TRY(kolo_reader_file(d->place, d->info.split == KOLO_SPLIT_TRAIN ? "train.bin" : "val.bin",
                              "a folder has train.bin and val.bin; else give the path of a file",
                              &path));
    kolo_free(d->place);
    d->info.place = d->place = path;
    return KOLO_OK;
}

/* The next window of a stream, and the token after it. */
static kolo_status next_streamed(const kolo_dataset *d, void *const *data, bool *got) {
    const int64_t length = d->info.fields[KOLO_FIELD_X].shape.dim[0];
    tokens *own = d->own;
    const size_t bytes = (size_t)(length + 1) * (size_t)own->bytes;
    const char *come;
    size_t there;
    KOLO_TRY(kolo_feed_peek(d->stream->source, bytes, &come, &there));
    *got = there == bytes;
    if (!*got) return KOLO_OK;
    const int64_t beyond = take_window(d, come, data[KOLO_FIELD_X], data[KOLO_FIELD_Y]);
    if (beyond >= 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: token %" PRId64 " of window %" PRId64
                         " exceeds the vocabulary of %" PRId64
                         ": give the model a larger vocabulary, or another stream",
                         d->info.place, beyond, d->stream->first + own->first, d->opts.vocabulary);
    }
    own->first++;
    kolo_feed_consume(d->stream->source, d->stream->record);
    return KOLO_OK;
}

static kolo_status check_tokens(const kolo_dataset *d, const kolo_file_view *view) {
    const tokens *own = d->own;
    for (int64_t i = 0; i < (int64_t)view->bytes / own->bytes; i++) {
        const uint32_t token = token_at(own, view->data, i);
        if ((int64_t)token < d->opts.vocabulary) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: token %" PRIu32 " at index %" PRId64
                         " exceeds the vocabulary of %" PRId64
                         ": give the model a larger vocabulary, or another file",
                         d->info.place, token, i, d->opts.vocabulary);
    }
    return KOLO_OK;
}

static kolo_status check_file(const kolo_dataset *d) {
    kolo_file_view view = {0};
    KOLO_TRY(kolo_file_map(d->place, &view));
    const kolo_status status = check_tokens(d, &view);
    kolo_file_unmap(&view);
    return status;
}

/* Divides the file into windows and selects those of the split. */
static kolo_status take_windows(kolo_dataset *d, tokens *t, bool whole) {
    const uint64_t bytes = kolo_file_bytes(t->file);
    int64_t count = (int64_t)bytes / t->bytes, length = d->opts.context;
    if (bytes % (uint64_t)t->bytes != 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: %" PRIu64
                         " bytes are not a multiple of the token size of %d bytes: is it a "
                         "file of tokens?",
                         d->info.place, bytes, t->bytes);
    }
    int64_t windows = count > 0 ? (count - 1) / length : 0, test = whole ? 0 : (windows + 9) / 10;
    if (windows < (whole ? 1 : 2)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: %" PRId64 " tokens are too few for windows of %" PRId64
                         ": give a longer file, or the model a shorter context",
                         d->info.place, count, length);
    }
    bool train = d->info.split == KOLO_SPLIT_TRAIN;
    d->info.count = whole ? windows : train ? windows - test : test;
    t->first = whole || train ? 0 : windows - test;
    return check_file(d);
}

kolo_status kolo_tokens_describe(const kolo_reader *reader, kolo_dataset *d) {
    if (d->opts.context < 1 || d->opts.vocabulary < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set %s holds tokens: choose a model that reads them, such as gpt2",
                         reader->name);
    }
    if (d->opts.vocabulary > INT32_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a vocabulary of %" PRId64 ": choose at most %d",
                         d->opts.vocabulary, INT32_MAX);
    }
    kolo_shape window = kolo_shape_1(d->opts.context);
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_I32, window, window);
    d->info.classes = (int)d->opts.vocabulary;
    return KOLO_OK;
}

kolo_status kolo_read_tokens(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    bool whole;
    KOLO_TRY(kolo_tokens_describe(reader, d));
    KOLO_TRY(find_file(reader, argument, d, &whole));
    d->close = close_tokens;
    tokens *own = d->own = kolo_zalloc(sizeof *own);
    if (!own) return KOLO_NOMEM(sizeof *own);
    size_t length = strlen(d->place);
    bool wide = reader->token_bytes > 1 && length > 4 && !strcmp(d->place + length - 4, ".u32");
    own->bytes = wide ? 4 : reader->token_bytes;
    if (d->stream) {
        d->stream->record = (size_t)d->opts.context * (size_t)own->bytes;
        d->stream->next = next_streamed;
        return KOLO_OK;
    }
    KOLO_TRY(kolo_file_open(d->place, &own->file));
    d->gather = gather;
    return take_windows(d, own, whole);
}
