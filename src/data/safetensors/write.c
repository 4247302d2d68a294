/* The safetensors writer. `add` records tensors; `finish` hashes them, writes length, header and
 * data to the temporary file, and renames it by kolo_file_commit. In a file that is written in
 * parts the header comes last, in the place that `begin` kept for it: the number of hashes gives
 * its length. The header is padded so that the data begin at a multiple of 64 bytes. */
#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/safetensors/names.h"
#include "data/safetensors/safetensors.h"

#include <inttypes.h>
#include <unistd.h>

enum { DATA_ALIGNMENT = 64 };

typedef struct piece {
    const void *data; /* NULL: put in parts */
    size_t bytes, element;
    size_t begin, block; /* the first byte, and the first of its hashes */
} piece;

struct kolo_safetensors_writer {
    char *path;
    kolo_file_writer *file; /* NULL after finish */
    json_t *header;
    piece *pieces;
    size_t n_pieces, cap_pieces;
    int64_t data_bytes;
    uint64_t data_at; /* in parts: where the data begin */
    uint64_t *hashes; /* by block; NULL: not needed yet */
    size_t n_hashes;
};

/* Creates the file `path`, or joins the one at `place` if that is given. */
static kolo_status open_writer(const char *path, const kolo_safetensors_place *place,
                               kolo_safetensors_writer **writer) {
    kolo_safetensors_writer *w = kolo_zalloc(sizeof *w);
    if (!w) return KOLO_NOMEM(sizeof *w);
    w->path = kolo_strdup(path);
    w->header = json_object();
    kolo_status status = w->path && w->header ? KOLO_OK : KOLO_NOMEM(strlen(path));
    if (status == KOLO_OK) {
        status =
            place ? kolo_file_join(path, place->mark, &w->file) : kolo_file_create(path, &w->file);
    }
    if (status != KOLO_OK) {
        kolo_safetensors_destroy(w);
        return status;
    }
    *writer = w;
    return KOLO_OK;
}

kolo_status kolo_safetensors_create(const char *path, kolo_safetensors_writer **writer) {
    return open_writer(path, NULL, writer);
}

kolo_status kolo_safetensors_join(const kolo_safetensors_place *place,
                                  kolo_safetensors_writer **writer) {
    KOLO_TRY(open_writer(place->temporary, place, writer));
    (*writer)->data_at = place->data_at;
    return KOLO_OK;
}

void kolo_safetensors_destroy(kolo_safetensors_writer *writer) {
    if (!writer) return;
    kolo_file_abandon(writer->file);
    json_decref(writer->header);
    kolo_free(writer->path);
    kolo_free(writer->pieces);
    kolo_free(writer->hashes);
    kolo_free(writer);
}

/* Stores `value`, whose reference it takes, under a new key. */
static kolo_status put_new(json_t *object, const char *key, json_t *value,
                           const kolo_safetensors_writer *w) {
    if (json_object_get(object, key)) {
        json_decref(value);
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: \"%s\" exists already", w->path, key);
    }
    /* jansson does not distinguish the two causes. */
    if (!value || json_object_set_new(object, key, value) != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: \"%s\" cannot be written: not UTF-8, or no memory",
                         w->path, key);
    }
    return KOLO_OK;
}

static kolo_status set(kolo_safetensors_writer *writer, const char *key, const char *value) {
    json_t *metadata = json_object_get(writer->header, "__metadata__");
    if (!metadata) {
        KOLO_TRY(put_new(writer->header, "__metadata__", json_object(), writer));
        metadata = json_object_get(writer->header, "__metadata__");
    }
    return put_new(metadata, key, json_string(value), writer);
}

kolo_status kolo_safetensors_set(kolo_safetensors_writer *writer, const char *key,
                                 const char *value) {
    if (strcmp(key, kolo_safetensors_hashes) == 0 ||
        strcmp(key, kolo_safetensors_whole_hashes) == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: \"%s\" is reserved for hashes", writer->path, key);
    }
    return set(writer, key, value);
}

/* The bytes of a tensor at offset `begin`; false if they exceed the range of offsets. */
static bool count_bytes(kolo_dtype dtype, const kolo_shape *shape, int64_t begin, int64_t *bytes) {
    int64_t product = (int64_t)kolo_dtype_bytes(dtype);
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dim[i];
        if (dim < 0 || (dim > 0 && product > (INT64_MAX - begin) / dim)) return false;
        product *= dim;
    }
    *bytes = product;
    return true;
}

/* The header entry of a tensor; NULL: no memory. */
static json_t *describe(kolo_dtype dtype, const kolo_shape *shape, int64_t begin, int64_t end) {
    json_t *dims = json_array();
    bool good = dims != NULL;
    for (int i = 0; i < shape->rank && good; i++) {
        good = json_array_append_new(dims, json_integer(shape->dim[i])) == 0;
    }
    if (!good) {
        json_decref(dims);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", kolo_safetensors_dtype[dtype], "shape", dims,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

kolo_status kolo_safetensors_add(kolo_safetensors_writer *writer, const char *name,
                                 kolo_dtype dtype, const kolo_shape *shape, const void *data) {
    int64_t begin = writer->data_bytes, bytes;
    if (strcmp(name, "__metadata__") == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: the name \"%s\" is reserved", writer->path, name);
    }
    if (!count_bytes(dtype, shape, begin, &bytes)) {
        char text[KOLO_SHAPE_TEXT];
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: tensor \"%s\" of shape %s cannot be written",
                         writer->path, name, kolo_shape_text(shape, text));
    }
    if (!KOLO_GROW(writer->pieces, writer->n_pieces, writer->cap_pieces)) {
        return KOLO_NOMEM(sizeof *writer->pieces);
    }
    KOLO_TRY(put_new(writer->header, name, describe(dtype, shape, begin, begin + bytes), writer));
    const size_t element = kolo_dtype_bytes(dtype);
    writer->pieces[writer->n_pieces++] =
        (piece){data, (size_t)bytes, element, (size_t)begin, writer->n_hashes};
    writer->n_hashes += kolo_safetensors_blocks_of(bytes / (int64_t)element);
    writer->data_bytes += bytes;
    return KOLO_OK;
}

kolo_status kolo_safetensors_declare(kolo_safetensors_writer *writer, const char *name,
                                     kolo_dtype dtype, const kolo_shape *shape) {
    return kolo_safetensors_add(writer, name, dtype, shape, NULL);
}

/* ---- hashes and header ---- */

kolo_status kolo_safetensors_hashes_of(kolo_safetensors_writer *w, uint64_t **hashes,
                                       size_t *count) {
    if (!w->hashes) w->hashes = kolo_zalloc((w->n_hashes + 1) * sizeof *w->hashes);
    if (!w->hashes) return KOLO_NOMEM(w->n_hashes * sizeof *w->hashes);
    *hashes = w->hashes;
    *count = w->n_hashes;
    return KOLO_OK;
}

/* Sets the hashes in the header; those of a file begun in parts replace zeros. */
static kolo_status set_hashes(kolo_safetensors_writer *w) {
    kolo_text text = {0};
    uint64_t hash, *hashes = NULL;
    size_t count = 0;
    KOLO_TRY(kolo_safetensors_hashes_of(w, &hashes, &count));
    kolo_safetensors_drop_hashes(w->header);
    if (!kolo_safetensors_hash_header(w->header, &hash)) return KOLO_NOMEM(w->n_pieces);
    kolo_text_add(&text, "%016" PRIx64, hash);
    for (size_t i = 0; i < w->n_pieces; i++) {
        const size_t first = w->pieces[i].block,
                     end = i + 1 < w->n_pieces ? w->pieces[i + 1].block : count;
        kolo_text_add(&text, "%016" PRIx64,
                      kolo_hash_bytes(hashes + first, (end - first) * sizeof *hashes));
    }
    kolo_status status =
        text.failed ? KOLO_NOMEM(text.length) : set(w, kolo_safetensors_hashes, text.text);
    kolo_text_fini(&text);
    return status;
}

/* The beginning of the file, with its hashes, for kolo_free. */
static kolo_status make_header(kolo_safetensors_writer *w, char **header, size_t *bytes) {
    KOLO_TRY(set_hashes(w));
    const size_t length = json_dumpb(w->header, NULL, 0, JSON_COMPACT);
    const size_t all = kolo_round_up(8 + length, DATA_ALIGNMENT);
    const uint64_t header_bytes = all - 8;
    char *made = length > 0 ? kolo_alloc(all) : NULL;
    if (!made) return KOLO_NOMEM(all);
    memcpy(made, &header_bytes, sizeof header_bytes);
    memset(made + 8, ' ', all - 8);
    if (json_dumpb(w->header, made + 8, length, JSON_COMPACT) != length) {
        kolo_free(made);
        return KOLO_NOMEM(length);
    }
    *header = made;
    *bytes = all;
    return KOLO_OK;
}

/* ---- in parts ---- */

kolo_status kolo_safetensors_begin(kolo_safetensors_writer *w, kolo_safetensors_place *place) {
    char *header, *temporary;
    size_t bytes;
    const int64_t own[] = {kolo_now_ns(), (int64_t)getpid(), (int64_t)(intptr_t)w};
    const uint64_t mark = kolo_hash_bytes(own, sizeof own);
    KOLO_TRY(kolo_file_temporary(w->file, &temporary));
    kolo_status status = make_header(w, &header, &bytes); /* for its length */
    if (status == KOLO_OK) {
        kolo_free(header);
        w->data_at = bytes;
        status = kolo_file_put(w->file, 0, &mark, sizeof mark);
    }
    if (status == KOLO_OK) status = kolo_file_sync(w->file); /* others see it */
    if (status != KOLO_OK) {
        kolo_free(temporary);
        return status;
    }
    *place = (kolo_safetensors_place){mark, w->data_at, temporary};
    return KOLO_OK;
}

kolo_status kolo_safetensors_put(kolo_safetensors_writer *w, int i, int64_t first, int64_t count,
                                 const void *data) {
    uint64_t *hashes;
    size_t n;
    KOLO_ASSERT(w->data_at > 0 && i >= 0 && (size_t)i < w->n_pieces);
    if (count == 0) return KOLO_OK;
    KOLO_TRY(kolo_safetensors_hashes_of(w, &hashes, &n));
    const piece *p = &w->pieces[i];
    const size_t at = (size_t)first * p->element, bytes = (size_t)count * p->element;
    KOLO_ASSERT(first % KOLO_SAFETENSORS_BLOCK == 0 && at + bytes <= p->bytes);
    KOLO_ASSERT(count % KOLO_SAFETENSORS_BLOCK == 0 || at + bytes == p->bytes);
    hashes += p->block + kolo_safetensors_blocks_of(first);
    kolo_safetensors_hash_blocks(data, bytes, p->element, hashes);
    return kolo_file_put(w->file, w->data_at + p->begin + at, data, bytes);
}

kolo_status kolo_safetensors_sync(kolo_safetensors_writer *w) { return kolo_file_sync(w->file); }

/* ---- finishing ---- */

static kolo_status write_header(kolo_safetensors_writer *w) {
    char *header;
    size_t bytes;
    KOLO_TRY(make_header(w, &header, &bytes));
    KOLO_ASSERT(w->data_at == 0 || w->data_at == bytes);
    kolo_status status = w->data_at ? kolo_file_put(w->file, 0, header, bytes)
                                    : kolo_file_append(w->file, header, bytes);
    kolo_free(header);
    return status;
}

/* The hashes of what was added. */
static kolo_status hash_pieces(kolo_safetensors_writer *w) {
    uint64_t *hashes;
    size_t count;
    KOLO_TRY(kolo_safetensors_hashes_of(w, &hashes, &count));
    for (size_t i = 0; i < w->n_pieces; i++) {
        const piece *p = &w->pieces[i];
        kolo_safetensors_hash_blocks(p->data, p->bytes, p->element, hashes + p->block);
    }
    return KOLO_OK;
}

static kolo_status finish(kolo_safetensors_writer *writer,
                          kolo_status (*commit)(kolo_file_writer *file)) {
    KOLO_ASSERT(writer->file != NULL);
    const bool in_parts = writer->data_at > 0;
    if (!in_parts) KOLO_TRY(hash_pieces(writer));
    KOLO_TRY(write_header(writer));
    for (size_t i = 0; i < writer->n_pieces && !in_parts; i++) {
        KOLO_TRY(kolo_file_append(writer->file, writer->pieces[i].data, writer->pieces[i].bytes));
    }
    kolo_file_writer *file = writer->file;
    writer->file = NULL;
    return commit(file);
}

kolo_status kolo_safetensors_finish(kolo_safetensors_writer *writer) {
    return finish(writer, kolo_file_commit);
}

kolo_status kolo_safetensors_finish_new(kolo_safetensors_writer *writer) {
    return finish(writer, kolo_file_commit_new);
}
