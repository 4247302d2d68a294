/* Reading ONNX files: unpacking with protobuf-c, tensors, external data. */
#include "onnx/import/file.h"

#include "base/status.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32 }; /* nested messages: protobuf-c unpacks by recursion */

/* ---- unpacking ---- */

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

/* Whether the messages inside are nested at most `depth` deep; unknown fields are skipped. */
static bool is_shallow(const ProtobufCMessageDescriptor *d, const uint8_t *at, const uint8_t *end,
                       int depth) {
    enum { VARINT, EIGHT, LENGTH, FOUR = 5 };
    if (depth == 0) return false;
    while (at < end) {
        uint64_t tag, size = 0;
        if (!read_varint(&at, end, &tag)) return true; /* damaged: unpacking finds that */
        switch (tag & 7) {
        case VARINT:
            if (!read_varint(&at, end, &size)) return true;
            continue;
        case EIGHT:
            size = 8;
            break;
        case FOUR:
            size = 4;
            break;
        case LENGTH:
            if (!read_varint(&at, end, &size)) return true;
            break;
        default:
            return true;
        }
        if (size > (uint64_t)(end - at)) return true;
        const ProtobufCFieldDescriptor *field =
            (tag & 7) == LENGTH ? protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3))
                                : NULL;
        if (field && field->type == PROTOBUF_C_TYPE_MESSAGE &&
            !is_shallow(field->descriptor, at, at + size, depth - 1)) {
            return false;
        }
        at += size;
    }
    return true;
}

/* ---- tensors ---- */

int64_t host_count(const kolo_shape *shape, int64_t most) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0 || (shape->dim[i] > 0 && count > most / shape->dim[i])) return -1;
        count *= shape->dim[i];
    }
    return count;
}

/* A row for each element type: bytes in raw data, and how it is kept. */
typedef enum element_kind { FLOATS, INTEGERS, BOOLEANS } element_kind;
static const struct {
    int type;
    int bytes;
    element_kind kind;
} elements[] = {
    {ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 4, FLOATS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, 8, FLOATS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16, 2, FLOATS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16, 2, FLOATS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 8, INTEGERS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__INT32, 4, INTEGERS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__INT16, 2, INTEGERS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__INT8, 1, INTEGERS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__UINT16, 2, INTEGERS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, 1, INTEGERS},
    {ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, 1, BOOLEANS},
};

static float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * (float)mantissa * 0x1p-24f;
    uint32_t bits = sign | (exponent == 31 ? 0xffU : exponent + 112) << 23 | mantissa << 13;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float float_at(int type, const uint8_t *at) {
    double d;
    float f;
    uint16_t h;
    switch (type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        memcpy(&d, at, sizeof d);
        return (float)d;
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16:
        memcpy(&h, at, sizeof h);
        return half_to_float(h);
    case ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16: {
        memcpy(&h, at, sizeof h);
        uint32_t bits = (uint32_t)h << 16;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    default:
        memcpy(&f, at, sizeof f);
        return f;
    }
}

static int64_t integer_at(int type, const uint8_t *at) {
    int64_t i64;
    int32_t i32;
    int16_t i16;
    uint16_t u16;
    switch (type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
        memcpy(&i64, at, sizeof i64);
        return i64;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT32:
        memcpy(&i32, at, sizeof i32);
        return i32;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT16:
        memcpy(&i16, at, sizeof i16);
        return i16;
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT16:
        memcpy(&u16, at, sizeof u16);
        return u16;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT8:
        return (int8_t)*at;
    case ONNX__TENSOR_PROTO__DATA_TYPE__BOOL:
        return *at != 0;
    default:
        return *at;
    }
}

static const char *entry_of(const Onnx__TensorProto *t, const char *key) {
    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__StringStringEntryProto *e = t->external_data[i];
        if (e->key && e->value && strcmp(e->key, key) == 0) return e->value;
    }
    return NULL;
}

/* A number without sign of an external tensor; 0 if there is none. */
static bool read_size(const char *text, uint64_t *size) {
    char *end;
    *size = 0;
    if (!text) return true;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *size = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* Whether a location stays in the folder of the model. */
static bool is_inside(const char *location) {
    if (*location == '\0' || *location == '/') return false;
    for (const char *at = location; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL) {
        if (at[0] == '.' && at[1] == '.' && (at[2] == '/' || at[2] == '\0')) return false;
    }
    return true;
}

static kolo_status map_external(kolo_onnx *onnx, const char *location, const char *what,
                                const kolo_file_view **view) {
    for (size_t i = 0; i < onnx->n_views; i++) {
        if (strcmp(onnx->view_names[i], location) == 0) {
            *view = &onnx->views[i];
            return KOLO_OK;
        }
    }
    const char *slash = strrchr(onnx->path, '/');
    int folder = slash ? (int)(slash - onnx->path) + 1 : 0;
    char *path = kolo_format("%.*s%s", folder, onnx->path, location);
    char *name = kolo_arena_strdup(&onnx->arena, location);
    if (!path || !name || !KOLO_GROW(onnx->views, onnx->n_views, onnx->cap_views) ||
        !KOLO_GROW(onnx->view_names, onnx->n_views, onnx->cap_names)) {
        kolo_free(path);
        return KOLO_NOMEM(64);
    }
    kolo_status status = kolo_file_map(path, &onnx->views[onnx->n_views]);
    kolo_free(path);
    if (status != KOLO_OK) return kolo_fail_in(status, "%s: its external data", what);
    onnx->view_names[onnx->n_views] = name;
    *view = &onnx->views[onnx->n_views++];
    return KOLO_OK;
}

/* The bytes of a tensor in another file. */
static kolo_status external_data(kolo_onnx *onnx, const Onnx__TensorProto *t, const char *what,
                                 size_t bytes, const uint8_t **data) {
    const char *location = entry_of(t, "location");
    uint64_t offset, length;
    const kolo_file_view *view = NULL;
    if (!location || !is_inside(location)) {
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: its data is in \"%s\", which is not a file in the folder of the model", what,
            location ? location : "");
    }
    bool valid =
        read_size(entry_of(t, "offset"), &offset) && read_size(entry_of(t, "length"), &length);
    if (!valid || (length != 0 && length != bytes)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %zu bytes of external data needed, \"%s\" stated",
                         what, bytes, entry_of(t, "length") ? entry_of(t, "length") : "");
    }
    KOLO_TRY(map_external(onnx, location, what, &view));
    if (offset > view->bytes || bytes > view->bytes - offset) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: bytes %" PRIu64 " to %" PRIu64 " of %s, which has %zu", what, offset,
                         offset + bytes, location, view->bytes);
    }
    *data = (const uint8_t *)view->data + offset;
    return KOLO_OK;
}

/* Elements in the repeated fields of the message. */
static size_t field_elements(const Onnx__TensorProto *t) {
    switch (t->data_type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
        return t->n_float_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        return t->n_double_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
        return t->n_int64_data;
    default:
        return t->n_int32_data;
    }
}

static float field_float(const Onnx__TensorProto *t, int64_t k) {
    uint8_t bits[8] = {0};
    if (t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) return t->float_data[k];
    if (t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE) return (float)t->double_data[k];
    bits[0] = (uint8_t)t->int32_data[k]; /* both types of 16 bits */
    bits[1] = (uint8_t)((uint32_t)t->int32_data[k] >> 8);
    return float_at(t->data_type, bits);
}

static int64_t field_integer(const Onnx__TensorProto *t, int64_t k) {
    return t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64 ? t->int64_data[k]
                                                                : t->int32_data[k];
}

/* Converts the elements; `raw` NULL: from the repeated fields. */
static kolo_status convert(const Onnx__TensorProto *t, const uint8_t *raw, int size,
                           kolo_arena *arena, host_tensor *out) {
    bool aligned = raw && (uintptr_t)raw % sizeof(float) == 0;
    size_t bytes = (size_t)(out->count ? out->count : 1) * (out->integer ? 8 : 4);
    if (!out->integer && aligned && t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) {
        out->f = (const float *)(const void *)raw;
        return KOLO_OK;
    }
    void *copy = kolo_arena_alloc(arena, bytes);
    if (!copy) return KOLO_NOMEM(bytes);
    float *f = copy;
    int64_t *i = copy;
    for (int64_t k = 0; k < out->count; k++) {
        const uint8_t *at = raw ? raw + k * size : NULL;
        if (out->integer) {
            i[k] = at ? integer_at(t->data_type, at) : field_integer(t, k);
        } else {
            f[k] = at ? float_at(t->data_type, at) : field_float(t, k);
        }
    }
    out->i = out->integer ? i : NULL;
    out->f = out->integer ? NULL : f;
    return KOLO_OK;
}

kolo_status onnx_read_tensor(kolo_onnx *onnx, const Onnx__TensorProto *t, const char *what,
                             kolo_arena *arena, host_tensor *out) {
    size_t row = 0;
    while (row < KOLO_COUNT(elements) && elements[row].type != t->data_type) row++;
    if (row == KOLO_COUNT(elements)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: elements of ONNX type %d", what,
                         (int)t->data_type);
    }
    *out = (host_tensor){.integer = elements[row].kind != FLOATS,
                         .boolean = elements[row].kind == BOOLEANS};
    if (t->n_dims > KOLO_MAX_RANK) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: %zu dimensions; at most %d fit", what,
                         t->n_dims, KOLO_MAX_RANK);
    }
    out->shape.rank = (int)t->n_dims;
    for (size_t d = 0; d < t->n_dims; d++) out->shape.dim[d] = t->dims[d];
    out->count = host_count(&out->shape, INT64_MAX / 16);
    if (out->count < 0) return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: impossible dimensions", what);

    const size_t bytes = (size_t)out->count * (size_t)elements[row].bytes;
    const uint8_t *raw = NULL;
    size_t have = field_elements(t) * (size_t)elements[row].bytes;
    if (t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        KOLO_TRY(external_data(onnx, t, what, bytes, &raw));
        have = bytes;
    } else if (t->has_raw_data) {
        raw = t->raw_data.data;
        have = t->raw_data.len;
    }
    if (have != bytes) {
        char text[KOLO_SHAPE_TEXT];
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: %zu bytes of data for the shape %s, which needs %zu",
                         what, have, kolo_shape_text(&out->shape, text), bytes);
    }
    return convert(t, raw, elements[row].bytes, arena, out);
}

/* ---- files ---- */

static kolo_status read_initializers(kolo_onnx *onnx) {
    const Onnx__GraphProto *graph = onnx->model->graph;
    /* A node may get a bias that the file leaves out. */
    size_t bytes = (graph->n_initializer + graph->n_node + 1) * sizeof *onnx->initializers;
    if (graph->n_sparse_initializer > 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: sparse initializers", onnx->path);
    }
    onnx->initializers = kolo_zalloc(bytes);
    if (!onnx->initializers) return KOLO_NOMEM(bytes);
    for (size_t k = 0; k < graph->n_initializer; k++) {
        const Onnx__TensorProto *t = graph->initializer[k];
        onnx_initializer *to = &onnx->initializers[k];
        to->name = t->name ? t->name : "";
        char *what = kolo_format("%s: initializer \"%.200s\"", onnx->path, to->name);
        if (!what) return KOLO_NOMEM(64);
        kolo_status status = onnx_read_tensor(onnx, t, what, &onnx->arena, &to->tensor);
        if (status == KOLO_OK && kolo_name_index_find(&onnx->index, to->name) >= 0) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "%s is there twice", what);
        }
        kolo_free(what);
        KOLO_TRY(status);
        if (!kolo_name_index_add(&onnx->index, to->name, (int32_t)k)) return KOLO_NOMEM(64);
        onnx->n_initializers++;
    }
    return KOLO_OK;
}

static kolo_status find_opset(kolo_onnx *onnx) {
    enum { OLDEST = 7, NEWEST = 28 };
    for (size_t i = 0; i < onnx->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = onnx->model->opset_import[i];
        bool standard = !set->domain || !*set->domain || strcmp(set->domain, "ai.onnx") == 0;
        if (standard) onnx->opset = set->version;
    }
    if (onnx->opset >= OLDEST && onnx->opset <= NEWEST) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "%s: ONNX opset %" PRId64
                     "; %d to %d are supported: export it with one of these",
                     onnx->path, onnx->opset, OLDEST, NEWEST);
}

static void *pb_alloc(void *unused, size_t bytes) { return kolo_alloc(bytes ? bytes : 1); }
static void pb_free(void *unused, void *block) { kolo_free(block); }
static ProtobufCAllocator pb_allocator = {.alloc = pb_alloc, .free = pb_free};

static kolo_status parse(const uint8_t *bytes, size_t length, kolo_onnx *onnx) {
    if (length > INT32_MAX) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s has %zu bytes; ONNX allows 2 GiB: store the tensors as external data",
                         onnx->path, length);
    }
    if (!is_shallow(&onnx__model_proto__descriptor, bytes, bytes + length, DEEPEST)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: messages nested more than %d deep", onnx->path,
                         DEEPEST);
    }
    onnx->model = onnx__model_proto__unpack(&pb_allocator, length, bytes);
    if (!onnx->model || !onnx->model->graph) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s is not an ONNX model, or it is damaged", onnx->path);
    }
    KOLO_TRY(find_opset(onnx));
    KOLO_TRY(read_initializers(onnx));
    return onnx_find_parameters(onnx);
}

kolo_status onnx_parse(const uint8_t *bytes, size_t length, const char *path,
                       const kolo_onnx_opts *opts, kolo_onnx **result) {
    kolo_onnx *onnx = kolo_zalloc(sizeof *onnx);
    if (!onnx) return KOLO_NOMEM(sizeof *onnx);
    if (opts) onnx->opts = *opts;
    onnx->path = kolo_strdup(path);
    kolo_status status = onnx->path ? parse(bytes, length, onnx) : KOLO_NOMEM(64);
    if (status != KOLO_OK) {
        kolo_onnx_close(onnx);
        return status;
    }
    *result = onnx;
    return KOLO_OK;
}

void kolo_onnx_close(kolo_onnx *onnx) {
    if (!onnx) return;
    if (onnx->model) onnx__model_proto__free_unpacked(onnx->model, &pb_allocator);
    for (size_t i = 0; i < onnx->n_views; i++) kolo_file_unmap(&onnx->views[i]);
    kolo_name_index_fini(&onnx->index);
    kolo_arena_fini(&onnx->arena);
    kolo_free(onnx->views);
    kolo_free((void *)onnx->view_names);
    kolo_free(onnx->initializers);
    kolo_free(onnx->notice);
    kolo_free(onnx->path);
    kolo_free(onnx);
}
