/* What readers have in common. */
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"
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

bool kolo_split_takes(uint64_t seed, int64_t i, int64_t count, int64_t *left) {
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_SPLIT, 0);
    bool takes = (int64_t)kolo_rng_below(&rng, (uint64_t)i, (uint64_t)(count - i)) < *left;
    *left -= takes;
    return takes;
}
