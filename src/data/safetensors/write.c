/* The safetensors writer. `add` records tensors; `finish` hashes them, writes length, header and
 * data to the temporary file, and renames it by kolo_file_commit. The header is padded so that the
 * data begin at a multiple of 64 bytes. */
#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/safetensors/names.h"
#include "data/safetensors/safetensors.h"

#include <inttypes.h>

enum { DATA_ALIGNMENT = 64 };

typedef struct piece {
    const void *data;
    size_t bytes;
} piece;

struct kolo_safetensors_writer {
    char *path;
    kolo_file_writer *file; /* NULL after finish */
    json_t *header;
    piece *pieces;
    size_t n_pieces, cap_pieces;
    int64_t data_bytes;
};

kolo_status kolo_safetensors_create(const char *path, kolo_safetensors_writer **writer) {
    kolo_safetensors_writer *w = kolo_zalloc(sizeof *w);
    if (!w) return KOLO_NOMEM(sizeof *w);
    w->path = kolo_strdup(path);
    w->header = json_object();
    kolo_status status =
        w->path && w->header ? kolo_file_create(path, &w->file) : KOLO_NOMEM(strlen(path));
    if (status != KOLO_OK) {
        kolo_safetensors_destroy(w);
        return status;
    }
    *writer = w;
    return KOLO_OK;
}

void kolo_safetensors_destroy(kolo_safetensors_writer *writer) {
    if (!writer) return;
    kolo_file_abandon(writer->file);
    json_decref(writer->header);
    kolo_free(writer->path);
    kolo_free(writer->pieces);
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
    if (strcmp(key, kolo_safetensors_hashes) == 0) {
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
    writer->pieces[writer->n_pieces++] = (piece){data, (size_t)bytes};
    writer->data_bytes += bytes;
    return KOLO_OK;
}

static kolo_status add_hashes(kolo_safetensors_writer *w) {
    kolo_text text = {0};
    uint64_t hash;
    if (!kolo_safetensors_hash_header(w->header, &hash)) return KOLO_NOMEM(w->n_pieces);
    kolo_text_add(&text, "%016" PRIx64, hash);
    for (size_t i = 0; i < w->n_pieces; i++) {
        kolo_text_add(&text, "%016" PRIx64, kolo_hash_bytes(w->pieces[i].data, w->pieces[i].bytes));
    }
    kolo_status status =
        text.failed ? KOLO_NOMEM(text.length) : set(w, kolo_safetensors_hashes, text.text);
    kolo_text_fini(&text);
    return status;
}

static kolo_status append_header(kolo_safetensors_writer *w) {
    char *text = json_dumps(w->header, JSON_COMPACT);
    if (!text) return KOLO_NOMEM(json_object_size(w->header));
    char spaces[DATA_ALIGNMENT];
    memset(spaces, ' ', sizeof spaces);
    size_t length = strlen(text), padded = kolo_round_up(8 + length, DATA_ALIGNMENT) - 8;
    uint64_t header_bytes = padded;
    kolo_status status = kolo_file_append(w->file, &header_bytes, sizeof header_bytes);
    if (status == KOLO_OK) status = kolo_file_append(w->file, text, length);
    if (status == KOLO_OK) status = kolo_file_append(w->file, spaces, padded - length);
    free(text);
    return status;
}

kolo_status kolo_safetensors_finish(kolo_safetensors_writer *writer) {
    KOLO_ASSERT(writer->file != NULL);
    KOLO_TRY(add_hashes(writer));
    KOLO_TRY(append_header(writer));
    for (size_t i = 0; i < writer->n_pieces; i++) {
        KOLO_TRY(kolo_file_append(writer->file, writer->pieces[i].data, writer->pieces[i].bytes));
    }
    kolo_file_writer *file = writer->file;
    writer->file = NULL;
    return kolo_file_commit(file);
}
