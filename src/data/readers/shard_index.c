/* Indexes of tar shards on disk: a header, the text of the key, the samples, and the XXH3 of all of
 * that. */
#define _DEFAULT_SOURCE
#include "data/readers/shard_index.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BITS = 24 /* of a class */ };

typedef struct header {
    char magic[16];
    uint64_t bytes;
    int64_t modified[2], changed[2];
    uint64_t text_bytes, samples;
} header;

_Static_assert(sizeof(header) == 72 && sizeof(kolo_shard_sample) == 24, "the format of the file");
_Static_assert(sizeof KOLO_SHARD_INDEX_MAGIC == sizeof((header){0}.magic) + 1, "its magic");

/* ---- keys ---- */

kolo_status kolo_shard_key_init(kolo_shard_key *key, const char *folder, const char *path,
                                const char *kind, const char *label) {
    struct stat info;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (stat(path, &info) != 0) return kolo_file_fail("read", path, errno);
    *key = (kolo_shard_key){
        .bytes = (uint64_t)info.st_size,
        .modified = {info.st_mtim.tv_sec, info.st_mtim.tv_nsec},
        .changed = {info.st_ctim.tv_sec, info.st_ctim.tv_nsec},
    };
    char *absolute = kolo_file_absolute(path);
    if (absolute) key->text = kolo_format("%s\n%s\n%s", kind, label, absolute);
    kolo_free(absolute);
    if (key->text) {
        key->path = kolo_format("%s/%.128s-%016" PRIx64 ".kolo-index", folder, name,
                                kolo_hash_text(key->text));
    }
    return key->path ? KOLO_OK : KOLO_NOMEM(strlen(path));
}

void kolo_shard_key_fini(kolo_shard_key *key) {
    kolo_free(key->text);
    kolo_free(key->path);
    *key = (kolo_shard_key){0};
}

/* ---- contents ---- */

static header make_header(const kolo_shard_key *key, size_t samples) {
    header h = {.bytes = key->bytes, .text_bytes = strlen(key->text), .samples = samples};
    memcpy(h.magic, KOLO_SHARD_INDEX_MAGIC, sizeof h.magic);
    memcpy(h.modified, key->modified, sizeof h.modified);
    memcpy(h.changed, key->changed, sizeof h.changed);
    return h;
}

/* The text is padded, so that samples are aligned. */
static size_t samples_at(const header *h) { return sizeof *h + (h->text_bytes + 7) / 8 * 8; }

/* Whether `length` bytes are a header, and samples and a hash that fit each other. */
static bool is_whole(const uint8_t *bytes, size_t length, const kolo_shard_key *key, header *h) {
    uint64_t hash;
    const size_t least = sizeof *h + sizeof hash;
    if (length < least) return false;
    memcpy(h, bytes, sizeof *h);
    const header wanted = make_header(key, h->samples);
    const size_t at = samples_at(&wanted);
    if (memcmp(h, &wanted, sizeof *h) != 0 || length < at + sizeof hash) return false;
    if (h->samples != (length - at - sizeof hash) / sizeof(kolo_shard_sample)) return false;
    if ((length - at - sizeof hash) % sizeof(kolo_shard_sample) != 0) return false;
    memcpy(&hash, bytes + length - sizeof hash, sizeof hash);
    return memcmp(bytes + sizeof *h, key->text, h->text_bytes) == 0 &&
           kolo_hash_bytes(bytes, length - sizeof hash) == hash;
}

bool kolo_shard_index_parse(const void *bytes, size_t length, const kolo_shard_key *key,
                            const kolo_shard_sample **samples, size_t *n) {
    header h;
    if (!is_whole(bytes, length, key, &h)) return false;
    const kolo_shard_sample *all = (const void *)((const uint8_t *)bytes + samples_at(&h));
    for (uint64_t i = 0; i < h.samples; i++) {
        if (all[i].at > key->bytes || all[i].length > key->bytes - all[i].at) return false;
        if (all[i].label >> MAX_BITS != 0) return false;
    }
    *samples = all;
    *n = h.samples;
    return true;
}

/* ---- files ---- */

/* A damaged index may be shorter than its magic. */
static kolo_status check_ours(const kolo_file_view *view, const kolo_shard_key *key) {
    const size_t all = sizeof KOLO_SHARD_INDEX_MAGIC - 1, n = view->bytes < all ? view->bytes : all;
    if (memcmp(view->data, KOLO_SHARD_INDEX_MAGIC, n) == 0) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "%s is no index of a shard: move it, or give another folder with index=", key->path);
}

kolo_status kolo_shard_index_read(const kolo_shard_key *key, kolo_shard_sample **samples,
                                  size_t *n) {
    kolo_file_view view;
    const kolo_shard_sample *found;
    *samples = NULL;
    *n = 0;
    if (!kolo_file_exists(key->path)) return KOLO_OK;
    KOLO_TRY(kolo_file_map(key->path, &view));
    kolo_status status = check_ours(&view, key);
    if (status == KOLO_OK && kolo_shard_index_parse(view.data, view.bytes, key, &found, n)) {
        *samples = kolo_alloc((*n + 1) * sizeof *found);
        if (*samples && *n > 0) memcpy(*samples, found, *n * sizeof *found);
        if (!*samples) status = KOLO_NOMEM(*n * sizeof *found);
    }
    kolo_file_unmap(&view);
    return status;
}

static kolo_status write_locked(const kolo_shard_key *key, const kolo_shard_sample *samples,
                                size_t n) {
    static const char zeros[8];
    const header h = make_header(key, n);
    const size_t at = samples_at(&h), bytes = at + n * sizeof *samples;
    uint64_t hash;
    uint8_t *all = kolo_alloc(bytes + sizeof hash);
    if (!all) return KOLO_NOMEM(bytes);
    memcpy(all, &h, sizeof h);
    memcpy(all + sizeof h, key->text, h.text_bytes);
    memcpy(all + sizeof h + h.text_bytes, zeros, at - sizeof h - h.text_bytes);
    if (n > 0) memcpy(all + at, samples, n * sizeof *samples);
    hash = kolo_hash_bytes(all, bytes);
    memcpy(all + bytes, &hash, sizeof hash);
    kolo_status status = kolo_file_write(key->path, all, bytes + sizeof hash);
    kolo_free(all);
    return status;
}

/* Under the lock, unless another process has written it meanwhile. */
static kolo_status write_missing(const kolo_shard_key *key, const kolo_shard_sample *samples,
                                 size_t n) {
    kolo_shard_sample *others;
    size_t count;
    KOLO_TRY(kolo_shard_index_read(key, &others, &count)); /* nothing of others is replaced */
    const bool is_there = others != NULL;
    kolo_free(others);
    return is_there ? KOLO_OK : write_locked(key, samples, n);
}

kolo_status kolo_shard_index_write(const char *folder, const kolo_shard_key *key,
                                   const kolo_shard_sample *samples, size_t n) {
    KOLO_TRY(kolo_folder_make(folder));
    char *path = kolo_format("%s/.kolo-index.lock", folder);
    if (!path) return KOLO_NOMEM(strlen(folder));
    kolo_status status = KOLO_OK;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = kolo_file_fail("write", path, errno);
    } else if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        status = write_missing(key, samples, n);
    } else if (errno != EWOULDBLOCK) {
        status = kolo_file_fail("lock", path, errno);
    }
    if (fd >= 0) close(fd);
    kolo_free(path);
    return status;
}
