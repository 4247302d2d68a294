/* The safetensors reader. jansson parses the JSON; the checks here are that each tensor has exactly
 * dtype, shape and data_offsets, that its range has the size of its shape, and that the sorted
 * ranges cover the data without gap or overlap. */
#include "base/file.h"
#include "base/memory.h"
#include "data/safetensors/names.h"
#include "data/safetensors/safetensors.h"

#include <inttypes.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold little-endian elements");

/* As in the reference implementation. */
static const uint64_t max_header_bytes = 100000000;

struct kolo_safetensors {
    kolo_safetensors_entry *entries;
    int count;
    json_t *root;        /* owns the names and the metadata */
    kolo_file_view view; /* mapping of a file opened by name */
    kolo_file *opened;   /* the same file */
    char *where;
};

/* The input, with its name for errors. */
typedef struct source {
    const char *where;
    const uint8_t *data;
    uint64_t data_bytes;
} source;

/* ---- the header's JSON ---- */

static kolo_status load_header(const uint8_t *bytes, size_t length, const char *where,
                               uint64_t *header_bytes, json_t **root) {
    if (length < 8) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file", where,
                         length);
    }
    uint64_t n;
    memcpy(&n, bytes, sizeof n);
    if (n > max_header_bytes) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: not a safetensors file: its header would take %" PRIu64 " bytes",
                         where, n);
    }
    if (n > length - 8) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: truncated: the header takes %" PRIu64 " bytes, %zu remain", where, n,
                         length - 8);
    }
    if (n < 2 || bytes[8] != '{') {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: not a safetensors file: the header is not JSON",
                         where);
    }
    json_error_t error;
    json_t *loaded = json_loadb((const char *)bytes + 8, n, JSON_REJECT_DUPLICATES, &error);
    if (!loaded) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: bad JSON in the header at byte %d: %s", where,
                         error.position, error.text);
    }
    *header_bytes = n;
    *root = loaded; /* an object: the text begins with { */
    return KOLO_OK;
}

static kolo_status check_metadata(const json_t *metadata, const char *where) {
    if (!json_is_object(metadata)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: __metadata__ is not an object of strings", where);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)metadata, key, value) {
        if (!json_is_string(value)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: metadata \"%s\" is not a string", where, key);
        }
    }
    return KOLO_OK;
}

/* ---- one tensor ---- */

static kolo_status read_dtype(const json_t *value, const char *name, const source *src,
                              kolo_dtype *dtype) {
    const char *text = json_string_value(value);
    if (!text) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: tensor \"%s\" has no dtype", src->where, name);
    }
    for (int i = 0; i < KOLO_TENSOR_DTYPE_COUNT; i++) {
        if (strcmp(text, kolo_safetensors_dtype[i]) == 0) {
            *dtype = (kolo_dtype)i;
            return KOLO_OK;
        }
    }
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "%s: tensor \"%s\" has element type \"%.16s\", which Kolo does not support",
                     src->where, name, text);
}

/* Parses the shape and computes the size in bytes. */
static kolo_status read_shape(const json_t *value, const char *name, const source *src,
                              kolo_safetensors_entry *entry) {
    if (!json_is_array(value)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: tensor \"%s\" has no shape", src->where, name);
    }
    size_t rank = json_array_size(value);
    if (rank > KOLO_MAX_RANK) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s: tensor \"%s\" has %zu dimensions, Kolo supports %d", src->where, name,
                         rank, KOLO_MAX_RANK);
    }
    uint64_t bytes = kolo_dtype_bytes(entry->dtype);
    bool too_large = false, empty = false;
    entry->shape.rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *item = json_array_get(value, i);
        int64_t dim = json_integer_value(item);
        if (!json_is_integer(item) || dim < 0) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: tensor \"%s\": dimension %zu is not a count",
                             src->where, name, i);
        }
        entry->shape.dim[i] = dim;
        empty = empty || dim == 0;
        if (dim > 0 && bytes > INT64_MAX / (uint64_t)dim) {
            too_large = true;
        } else if (dim > 0) {
            bytes *= (uint64_t)dim;
        }
    }
    /* Also for empty tensors: products over part of a shape must not overflow later. */
    if (too_large) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: tensor \"%s\": the shape exceeds the address space",
                         src->where, name);
    }
    entry->bytes = empty ? 0 : (size_t)bytes;
    return KOLO_OK;
}

static kolo_status read_range(const json_t *value, const char *name, const source *src,
                              kolo_safetensors_entry *entry) {
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: tensor \"%s\" has no data_offsets [begin,end]",
                         src->where, name);
    }
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > src->data_bytes) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: tensor \"%s\": data_offsets [%" PRId64 ",%" PRId64
                         "] outside the %" PRIu64
                         " bytes of data: the file is truncated or damaged",
                         src->where, name, begin, end, src->data_bytes);
    }
    if ((uint64_t)(end - begin) != entry->bytes) {
        char text[KOLO_SHAPE_TEXT];
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: tensor \"%s\": %s of shape %s takes %zu bytes, data_offsets give %" PRId64,
            src->where, name, kolo_dtype_name(entry->dtype), kolo_shape_text(&entry->shape, text),
            entry->bytes, end - begin);
    }
    entry->data = src->data + begin;
    return KOLO_OK;
}

static kolo_status read_entry(const char *name, const json_t *value, const source *src,
                              kolo_safetensors_entry *entry) {
    kolo_safetensors_entry read = {.name = name};
    if (!json_is_object(value) || json_object_size(value) != 3) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: tensor \"%s\" is not described by dtype, shape and data_offsets",
                         src->where, name);
    }
    KOLO_TRY(read_dtype(json_object_get(value, "dtype"), name, src, &read.dtype));
    KOLO_TRY(read_shape(json_object_get(value, "shape"), name, src, &read));
    KOLO_TRY(read_range(json_object_get(value, "data_offsets"), name, src, &read));
    *entry = read;
    return KOLO_OK;
}

/* ---- all tensors ---- */

/* By offset; empty tensors before others at the same offset. */
static int by_data(const void *a, const void *b) {
    const kolo_safetensors_entry *x = a, *y = b;
    const uint8_t *p = x->data, *q = y->data;
    if (p != q) return p < q ? -1 : 1;
    if ((x->bytes > 0) != (y->bytes > 0)) return x->bytes > 0 ? 1 : -1;
    return strcmp(x->name, y->name);
}

static kolo_status check_cover(const kolo_safetensors *file, const source *src) {
    uint64_t end = 0;
    for (int i = 0; i < file->count; i++) {
        const kolo_safetensors_entry *e = &file->entries[i];
        uint64_t begin = (uint64_t)((const uint8_t *)e->data - src->data);
        if (begin != end) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: tensor \"%s\" begins at byte %" PRIu64 " of the data, %s %" PRIu64
                             ": the file is damaged",
                             src->where, e->name, begin,
                             begin < end ? "inside another, which ends at" : "after a gap from",
                             end);
        }
        end = begin + e->bytes;
    }
    if (end != src->data_bytes) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: %" PRIu64 " bytes of data, the tensors take %" PRIu64
                         ": the file is too long or damaged",
                         src->where, src->data_bytes, end);
    }
    return KOLO_OK;
}

static kolo_status read_all(kolo_safetensors *file, const source *src) {
    size_t most = json_object_size(file->root);
    if (most == 0) {
        return src->data_bytes == 0 ? KOLO_OK : check_cover(file, src);
    }
    file->entries = kolo_alloc(most * sizeof *file->entries);
    if (!file->entries) return KOLO_NOMEM(most * sizeof *file->entries);
    const char *name;
    json_t *value;
    json_object_foreach(file->root, name, value) {
        if (strcmp(name, "__metadata__") == 0) {
            KOLO_TRY(check_metadata(value, src->where));
        } else {
            KOLO_TRY(read_entry(name, value, src, &file->entries[file->count]));
            file->count++;
        }
    }
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_data);
    return check_cover(file, src);
}

kolo_status kolo_safetensors_parse(const uint8_t *bytes, size_t length, const char *where,
                                   kolo_safetensors **file) {
    uint64_t header_bytes = 0;
    json_t *root = NULL;
    KOLO_TRY(load_header(bytes, length, where, &header_bytes, &root));
    kolo_safetensors *made = kolo_zalloc(sizeof *made);
    if (!made) {
        json_decref(root);
        return KOLO_NOMEM(sizeof *made);
    }
    made->root = root;
    made->where = kolo_strdup(where);
    if (!made->where) {
        kolo_safetensors_close(made);
        return KOLO_NOMEM(strlen(where));
    }
    source src = {where, bytes + 8 + header_bytes, length - 8 - header_bytes};
    kolo_status status = read_all(made, &src);
    if (status != KOLO_OK) {
        kolo_safetensors_close(made);
        return status;
    }
    *file = made;
    return KOLO_OK;
}

kolo_status kolo_safetensors_open(const char *path, kolo_safetensors **file) {
    kolo_file_view view = {0};
    kolo_file *opened = NULL;
    kolo_safetensors *made = NULL;
    if (kolo_folder_exists(path)) {
        return KOLO_FAIL(KOLO_ERR_IO, "%s is a folder: give a .safetensors file in it", path);
    }
    KOLO_TRY(kolo_file_map(path, &view));
    kolo_status status = kolo_file_open(path, &opened);
    if (status == KOLO_OK) status = kolo_safetensors_parse(view.data, view.bytes, path, &made);
    if (status != KOLO_OK) {
        kolo_file_close(opened);
        kolo_file_unmap(&view);
        return status;
    }
    made->view = view;
    made->opened = opened;
    *file = made;
    return KOLO_OK;
}

kolo_status kolo_safetensors_read(const kolo_safetensors *file, const kolo_safetensors_entry *entry,
                                  size_t first, void *to, size_t bytes) {
    const uint8_t *from = (const uint8_t *)entry->data + first;
    if (!file->opened) {
        memcpy(to, from, bytes);
        return KOLO_OK;
    }
    const uint64_t offset = (uint64_t)(from - (const uint8_t *)file->view.data);
    return kolo_file_read_at(file->opened, offset, to, bytes);
}

/* ---- hashes ---- */

/* Parses hash i of the text; false if a digit is invalid. */
static bool hash_at(const char *text, int i, uint64_t *hash) {
    char digits[KOLO_SAFETENSORS_DIGITS + 1], *end;
    memcpy(digits, text + (size_t)i * KOLO_SAFETENSORS_DIGITS, KOLO_SAFETENSORS_DIGITS);
    digits[KOLO_SAFETENSORS_DIGITS] = '\0';
    *hash = strtoull(digits, &end, 16);
    return end == digits + KOLO_SAFETENSORS_DIGITS &&
           strspn(digits, "0123456789abcdef") == KOLO_SAFETENSORS_DIGITS;
}

/* The text of the hashes, of blocks or of whole tensors; NULL: the file has none. */
static const char *hashes_of(const kolo_safetensors *file, bool *blocks) {
    const char *hashes = kolo_safetensors_metadata(file, kolo_safetensors_hashes);
    *blocks = hashes != NULL;
    return hashes ? hashes : kolo_safetensors_metadata(file, kolo_safetensors_whole_hashes);
}

bool kolo_safetensors_has_hashes(const kolo_safetensors *file) {
    bool blocks;
    return hashes_of(file, &blocks) != NULL;
}

kolo_status kolo_safetensors_check_header(const kolo_safetensors *file) {
    bool blocks;
    const char *hashes = hashes_of(file, &blocks);
    uint64_t should, hash = 0;
    if (!hashes) return KOLO_OK;
    if (strlen(hashes) != ((size_t)file->count + 1) * KOLO_SAFETENSORS_DIGITS) {
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: the metadata do not have one hash for each of %d tensors: the file is "
            "damaged",
            file->where, file->count);
    }
    /* Without the hashes. */
    json_t *bare = json_deep_copy(file->root);
    bool made = bare != NULL;
    if (made) {
        kolo_safetensors_drop_hashes(bare);
        made = kolo_safetensors_hash_header(bare, &hash);
    }
    json_decref(bare);
    if (!made) return KOLO_NOMEM(json_object_size(file->root));
    if (hash_at(hashes, 0, &should) && hash == should) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the header does not match its hash: the file is damaged",
                     file->where);
}

/* The hash of a tensor: of its bytes, or of the hashes of its blocks. NOMEM. */
static kolo_status hash_tensor(const kolo_safetensors_entry *e, bool blocks, uint64_t *hash) {
    const size_t n = kolo_safetensors_blocks_of(kolo_shape_count(&e->shape));
    if (!blocks) {
        *hash = kolo_hash_bytes(e->data, e->bytes);
        return KOLO_OK;
    }
    uint64_t *hashes = kolo_alloc((n + 1) * sizeof *hashes);
    if (!hashes) return KOLO_NOMEM(n * sizeof *hashes);
    kolo_safetensors_hash_blocks(e->data, e->bytes, kolo_dtype_bytes(e->dtype), hashes);
    *hash = kolo_hash_bytes(hashes, n * sizeof *hashes);
    kolo_free(hashes);
    return KOLO_OK;
}

kolo_status kolo_safetensors_check(const kolo_safetensors *file) {
    bool blocks;
    const char *hashes = hashes_of(file, &blocks);
    if (!hashes) return KOLO_OK;
    KOLO_TRY(kolo_safetensors_check_header(file));
    for (int i = 0; i < file->count; i++) {
        const kolo_safetensors_entry *e = &file->entries[i];
        uint64_t should, hash;
        KOLO_TRY(hash_tensor(e, blocks, &hash));
        if (!hash_at(hashes, i + 1, &should) || hash != should) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: the data of tensor \"%s\" do not match their hash: the file is "
                             "damaged",
                             file->where, e->name);
        }
    }
    return KOLO_OK;
}

void kolo_safetensors_close(kolo_safetensors *file) {
    if (!file) return;
    json_decref(file->root);
    kolo_file_unmap(&file->view);
    kolo_file_close(file->opened);
    kolo_free(file->where);
    kolo_free(file->entries);
    kolo_free(file);
}

int kolo_safetensors_count(const kolo_safetensors *file) { return file->count; }

const kolo_safetensors_entry *kolo_safetensors_get(const kolo_safetensors *file, int i) {
    KOLO_ASSERT(i >= 0 && i < file->count);
    return &file->entries[i];
}

const kolo_safetensors_entry *kolo_safetensors_find(const kolo_safetensors *file,
                                                    const char *name) {
    for (int i = 0; i < file->count; i++) {
        if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
    }
    return NULL;
}

const char *kolo_safetensors_metadata(const kolo_safetensors *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->root, "__metadata__"), key));
}
