/* The checkpoint folder: file names (checkpoint-STEP.safetensors; the final one is named in
 * train/record/run_files.c), the pointer to the latest, removal of old ones. */
#include "train/checkpoint/folder.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "checkpoint-", suffix[] = ".safetensors";
static const char tables_suffix[] = ".tables.safetensors"; /* of the rows beside a checkpoint */
enum { MOST_NAME = 255 };

char *kolo_checkpoint_folder_path(const char *folder, int64_t step) {
    return kolo_format("%s/%s%" PRId64 "%s", folder, prefix, step, suffix);
}

char *kolo_checkpoint_tables_path(const char *path) {
    const size_t length = strlen(path), end = sizeof suffix - 1;
    const bool named = length > end && strcmp(path + length - end, suffix) == 0;
    return kolo_format("%.*s%s", (int)(named ? length - end : length), path, tables_suffix);
}

/* Parses "checkpoint-500" and a suffix; false for other names. */
static bool parse_with(const char *name, const char *ending, int64_t *step) {
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    const char *digits = name + sizeof prefix - 1;
    char *end;
    errno = 0;
    long long number = strtoll(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || errno || strcmp(end, ending) != 0) return false;
    *step = number;
    return true;
}

static bool parse_name(const char *name, int64_t *step) { return parse_with(name, suffix, step); }

static kolo_status remove_from(const char *folder, const char *name) {
    char *path = kolo_format("%s/%s", folder, name);
    if (!path) return KOLO_NOMEM(strlen(folder));
    kolo_status status = kolo_file_remove(path);
    kolo_free(path);
    return status;
}

/* ---- the latest ---- */

/* Reads the name in folder/latest; free it with kolo_free. *name NULL: no such file, or other
 * contents, as after a power failure. */
static kolo_status read_latest(const char *folder, char **name) {
    char *path = kolo_format("%s/latest", folder), *text = NULL;
    size_t bytes;
    int64_t step;
    *name = NULL;
    if (!path) return KOLO_NOMEM(strlen(folder));
    kolo_status status = KOLO_OK;
    if (kolo_file_exists(path)) status = kolo_file_read(path, MOST_NAME, &text, &bytes);
    kolo_free(path);
    if (text) text[strcspn(text, "\n")] = '\0';
    if (text && parse_name(text, &step)) {
        *name = text;
    } else {
        kolo_free(text);
    }
    return status;
}

static kolo_status write_latest(const char *folder, int64_t step) {
    char *path = kolo_format("%s/latest", folder);
    char *text = kolo_format("%s%" PRId64 "%s\n", prefix, step, suffix);
    kolo_status status =
        path && text ? kolo_file_write(path, text, strlen(text)) : KOLO_NOMEM(strlen(folder));
    kolo_free(path);
    kolo_free(text);
    return status;
}

typedef struct search {
    int64_t before, best; /* largest step below `before`; -1: none yet */
} search;

static kolo_status try_name(void *arg, const char *name) {
    search *s = arg;
    int64_t step;
    if (parse_name(name, &step) && step < s->before && step > s->best) s->best = step;
    return KOLO_OK;
}

/* The name of the newest checkpoint before a step; free it with kolo_free. NULL: there is none. */
static kolo_status newest_before(const char *folder, int64_t step, char **name) {
    search s = {.before = step, .best = -1};
    *name = NULL;
    KOLO_TRY(kolo_folder_each(folder, try_name, &s));
    if (s.best < 0) return KOLO_OK;
    *name = kolo_format("%s%" PRId64 "%s", prefix, s.best, suffix);
    return *name ? KOLO_OK : KOLO_NOMEM(strlen(folder));
}

kolo_status kolo_checkpoint_folder_older(const char *path, char **older) {
    const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
    int64_t step;
    char *name;
    *older = NULL;
    if (!parse_name(own, &step)) return KOLO_OK;
    char *folder = slash ? kolo_format("%.*s", (int)(slash - path), path) : kolo_strdup(".");
    if (!folder) return KOLO_NOMEM(strlen(path));
    kolo_status status = newest_before(folder, step, &name);
    if (status == KOLO_OK && name) {
        *older = kolo_format("%s/%s", folder, name);
        if (!*older) status = KOLO_NOMEM(strlen(path));
        kolo_free(name);
    }
    kolo_free(folder);
    return status;
}

/* The newest checkpoint of a folder: of the file "latest" and the names of the files, the one of
 * the later step, as a kill may come between a checkpoint and "latest". */
static kolo_status newest_name(const char *folder, char **name) {
    char *latest, *newest;
    int64_t a, b;
    KOLO_TRY(read_latest(folder, &latest));
    kolo_status status = newest_before(folder, INT64_MAX, &newest);
    bool later = latest && newest && parse_name(latest, &a) && parse_name(newest, &b) && b > a;
    *name = latest && !later ? latest : newest;
    kolo_free(*name == latest ? newest : latest);
    return status;
}

kolo_status kolo_checkpoint_folder_find(const char *where, bool if_any, char **path) {
    char *name;
    *path = NULL;
    if (!kolo_folder_exists(where)) {
        if (if_any && !kolo_file_exists(where)) return KOLO_OK;
        *path = kolo_strdup(where);
        return *path ? KOLO_OK : KOLO_NOMEM(strlen(where));
    }
    KOLO_TRY(newest_name(where, &name));
    if (!name) {
        if (if_any) return KOLO_OK;
        return KOLO_FAIL(KOLO_ERR_IO,
                         "%s holds no checkpoint to resume from: --checkpoint-every writes them",
                         where);
    }
    *path = kolo_format("%s/%s", where, name);
    kolo_free(name);
    return *path ? KOLO_OK : KOLO_NOMEM(strlen(where));
}

/* ---- removal ---- */

typedef struct sweep {
    const char *folder;
    int64_t from, to; /* steps [from, to] are removed */
    bool temporary;   /* so are temporary files of killed writers */
    int64_t *steps;   /* found, if not NULL */
    size_t n, capacity;
} sweep;

/* ".checkpoint-500.safetensors.1234.tmp", as kolo_file_create names it; ".latest.1234.tmp". */
static bool is_temporary(const char *name) {
    const size_t length = strlen(name);
    return (strncmp(name, ".checkpoint-", 12) == 0 || strncmp(name, ".tables-", 8) == 0 ||
            strncmp(name, ".latest.", 8) == 0) &&
           length > 4 && strcmp(name + length - 4, ".tmp") == 0;
}

static kolo_status sweep_one(void *arg, const char *name) {
    const sweep *s = arg;
    int64_t step;
    if (parse_name(name, &step) || parse_with(name, tables_suffix, &step)) {
        return step >= s->from && step <= s->to ? remove_from(s->folder, name) : KOLO_OK;
    }
    return s->temporary && is_temporary(name) ? remove_from(s->folder, name) : KOLO_OK;
}

static kolo_status note_one(void *arg, const char *name) {
    sweep *s = arg;
    int64_t step;
    if (!parse_name(name, &step)) return KOLO_OK;
    if (!KOLO_GROW(s->steps, s->n, s->capacity)) return KOLO_NOMEM(sizeof step);
    s->steps[s->n++] = step;
    return KOLO_OK;
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* A checkpoint that "latest" does not name is found by its own name. */
static kolo_status name_complete(const char *folder, int64_t step) {
    return KOLO_FAIL(KOLO_ERR_IO, "%s; %s/%s%" PRId64 "%s is complete: --resume %s goes on from it",
                     kolo_last_error(), folder, prefix, step, suffix, folder);
}

kolo_status kolo_checkpoint_folder_commit(const char *folder, int64_t step, int64_t keep) {
    sweep s = {.folder = folder};
    const kolo_status written = write_latest(folder, step);
    if (written == KOLO_ERR_IO) return name_complete(folder, step);
    KOLO_TRY(written);
    s.from = step + 1; /* could not be read when the run was resumed */
    s.to = INT64_MAX;
    KOLO_TRY(kolo_folder_each(folder, sweep_one, &s));
    if (keep == 0) return KOLO_OK;
    kolo_status status = kolo_folder_each(folder, note_one, &s);
    if (status == KOLO_OK && (int64_t)s.n > keep) {
        qsort(s.steps, s.n, sizeof *s.steps, newest_first);
        s.from = 0;
        s.to = s.steps[keep];
        status = kolo_folder_each(folder, sweep_one, &s);
    }
    kolo_free(s.steps);
    return status;
}

kolo_status kolo_checkpoint_folder_count(const char *folder, int64_t *n) {
    sweep s = {.folder = folder};
    const kolo_status status = kolo_folder_each(folder, note_one, &s);
    *n = (int64_t)s.n;
    kolo_free(s.steps);
    return status;
}

typedef struct remains {
    const char *folder;
    uint64_t bytes;
} remains;

static kolo_status add_remains(void *arg, const char *name) {
    remains *r = arg;
    if (!is_temporary(name)) return KOLO_OK;
    char *path = kolo_format("%s/%s", r->folder, name);
    if (!path) return KOLO_NOMEM(strlen(name));
    r->bytes += kolo_file_disk_bytes(path);
    kolo_free(path);
    return KOLO_OK;
}

kolo_status kolo_checkpoint_folder_remains(const char *folder, uint64_t *bytes) {
    remains r = {.folder = folder};
    KOLO_TRY(kolo_folder_each(folder, add_remains, &r));
    *bytes = r.bytes;
    return KOLO_OK;
}

kolo_status kolo_checkpoint_folder_check_empty(const char *folder) {
    char *name = NULL;
    KOLO_TRY(read_latest(folder, &name));
    if (!name && kolo_folder_exists(folder)) KOLO_TRY(newest_before(folder, INT64_MAX, &name));
    if (!name) return KOLO_OK;
    kolo_status status = KOLO_FAIL(KOLO_ERR_ARG,
                                   "%s holds %s of an earlier run: resume it with --resume %s, "
                                   "or choose another folder with --out",
                                   folder, name, folder);
    kolo_free(name);
    return status;
}

kolo_status kolo_checkpoint_folder_check_latest(const char *folder, int64_t step) {
    search s = {.before = INT64_MAX, .best = -1};
    KOLO_TRY(kolo_folder_each(folder, try_name, &s));
    if (s.best <= step) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s holds checkpoint-%" PRId64 ", later than step %" PRId64
                     " that the run resumes from: resume from the latest, choose another "
                     "folder with --out, or remove the later checkpoints",
                     folder, s.best, step);
}

kolo_status kolo_checkpoint_folder_begin(const char *folder, int64_t step) {
    sweep s = {.folder = folder, .from = 1, .to = 0, .temporary = true};
    if (!kolo_folder_exists(folder)) return KOLO_OK;
    KOLO_TRY(kolo_folder_each(folder, sweep_one, &s));
    char *path = kolo_checkpoint_folder_path(folder, step);
    if (!path) return KOLO_NOMEM(strlen(folder));
    bool here = kolo_file_exists(path); /* not for step 0, nor if it was renamed */
    kolo_free(path);
    return here ? write_latest(folder, step) : remove_from(folder, "latest");
}
