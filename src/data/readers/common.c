/* What readers have in common. */
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/readers/keys.h"
#include "data/readers/readers.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static kolo_status check_folder(const kolo_reader *reader, const char *folder, bool given,
                                const char *holds) {
    struct stat st;
    if (stat(folder, &st) == 0) {
        if (S_ISDIR(st.st_mode)) return KOLO_OK;
        return KOLO_FAIL(KOLO_ERR_IO, "%s: not a folder: give the folder that holds %s", folder,
                         holds);
    }
    const char *why = kolo_errno_text(errno);
    if (!given) {
        return KOLO_FAIL(KOLO_ERR_IO, "%s: %s: apt-get install %s, or give another folder: %s:DIR",
                         folder, why, reader->package, reader->name);
    }
    return KOLO_FAIL(KOLO_ERR_IO, "%s: %s: give the folder that holds %s", folder, why, holds);
}

kolo_status kolo_reader_folder(const kolo_reader *reader, const char *argument, const char *holds,
                               kolo_dataset *d) {
    const char *folder = argument ? argument : reader->folder;
    if (!folder || !*folder) {
        return KOLO_FAIL(KOLO_ERR_ARG, "data set %s needs a folder: write %s:DIR", reader->name,
                         reader->name);
    }
    KOLO_TRY(check_folder(reader, folder, argument != NULL, holds));
    d->info.place = d->place = kolo_strdup(folder);
    return d->place ? KOLO_OK : KOLO_NOMEM(strlen(folder));
}

kolo_status kolo_reader_file(const char *folder, const char *name, const char *hint, char **path) {
    char *whole = kolo_format("%s/%s", folder, name);
    if (!whole) return KOLO_NOMEM(strlen(folder) + strlen(name));
    if (kolo_file_exists(whole)) {
        *path = whole;
        return KOLO_OK;
    }
    kolo_free(whole);
    return KOLO_FAIL(KOLO_ERR_IO, "%s: no file %s: %s", folder, name, hint);
}

void kolo_reader_moments(const kolo_reader *reader, kolo_field *images) {
    for (int64_t c = 0; c < images->shape.dim[0]; c++) {
        images->mean[c] = reader->mean[c];
        images->std[c] = reader->std[c];
    }
}

size_t kolo_byte_order_mark(const char *text, size_t length) {
    return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Most lines are short: those that exceed the room are read once more, with twice as much. */
kolo_status kolo_line_read(const kolo_file *file, uint64_t at, kolo_line *line) {
    const uint64_t rest = kolo_file_bytes(file) - at;
    const char *end = NULL;
    for (size_t n = 0; !end && n < rest;) {
        if (n == line->room) {
            const size_t room = n > 0 ? 2 * n : 1024;
            kolo_free(line->text);
            line->room = 0;
            line->text = kolo_alloc(room);
            if (!line->text) return KOLO_NOMEM(room);
            line->room = room;
        }
        n = rest < line->room ? (size_t)rest : line->room;
        KOLO_TRY(kolo_file_read_at(file, at, line->text, n));
        end = memchr(line->text, '\n', n);
        line->length = end ? (size_t)(end - line->text) + 1 : n;
    }
    return KOLO_OK;
}

bool kolo_split_takes(uint64_t seed, int64_t i, int64_t count, int64_t *left) {
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_SPLIT, 0);
    bool takes = (int64_t)kolo_rng_below(&rng, (uint64_t)i, (uint64_t)(count - i)) < *left;
    *left -= takes;
    return takes;
}

/* ---- files of splits ---- */

static kolo_status make_stream(const kolo_reader *reader, const char *argument, double follow,
                               kolo_dataset *d) {
    KOLO_TRY(kolo_keys_refuse_split(reader->name, argument, "for a stream, all of which trains"));
    d->stream = kolo_zalloc(sizeof *d->stream);
    if (!d->stream) return KOLO_NOMEM(sizeof *d->stream);
    d->stream->path = d->place;
    d->stream->follow = follow;
    d->info.count = KOLO_STREAM_SAMPLES;
    return KOLO_OK;
}

kolo_status kolo_reader_choose_split(const kolo_reader *reader, const char *argument,
                                     const kolo_split_files *files, kolo_dataset *d, bool *whole) {
    const bool pipe = kolo_feed_is_pipe(d->place), tests = d->info.split == KOLO_SPLIT_TEST;
    d->info.place = d->place;
    *whole = pipe || files->follow > 0 || *files->test;
    if (files->follow > 0 && (pipe || kolo_folder_exists(d->place))) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set %s: follow= is for a file that grows, and %s is a %s: omit it",
                         reader->name, d->place, pipe ? "pipe, which its writer ends" : "folder");
    }
    if (tests && *files->test) {
        kolo_free(d->place);
        d->info.place = d->place = kolo_strdup(files->test);
        return d->place ? KOLO_OK : KOLO_NOMEM(strlen(files->test));
    }
    if (tests && *whole) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set %s: %s is a stream, without a test split: give test=FILE, or "
                         "train with --no-eval",
                         reader->name, d->place);
    }
    if (pipe || files->follow > 0) return make_stream(reader, argument, files->follow, d);
    if (!*whole) return KOLO_OK;
    return kolo_keys_refuse_split(reader->name, argument, "with test=");
}
