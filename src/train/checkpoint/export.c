/* Exporting the parameters of a checkpoint, under our names or those of another convention. */
#include "base/file.h"
#include "base/memory.h"
#include "kolo/checkpoint.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/name_conventions.h"

#include <string.h>

const char *kolo_checkpoint_format_name(kolo_checkpoint_format format) {
    static const char *const names[] = {
#define NAME(code, name, help) name,
        KOLO_CHECKPOINT_FORMAT_LIST(NAME)
#undef NAME
    };
    return (size_t)format < KOLO_COUNT(names) ? names[format] : "unknown";
}

static kolo_status find_names(const kolo_checkpoint *c, kolo_checkpoint_format format,
                              const kolo_names **names) {
    *names = NULL;
    if ((size_t)format >= KOLO_FORMAT_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown checkpoint format %d: choose 0 to %d", (int)format,
                         KOLO_FORMAT_COUNT - 1);
    }
    if (format == KOLO_FORMAT_NATIVE) return KOLO_OK;
    const kolo_names *known = kolo_names_of(c->info.model);
    if (known && known->format == format) {
        *names = known;
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "%s is of model %s, which %s does not have: export it as %s",
                     c->path, c->info.model, kolo_checkpoint_format_name(format),
                     kolo_checkpoint_format_name(known ? known->format : KOLO_FORMAT_NATIVE));
}

/* Transposes a matrix into a copy in `arena`. */
static kolo_status transpose(kolo_dtype dtype, kolo_arena *arena, kolo_shape *shape,
                             const void **data) {
    size_t bytes = kolo_dtype_bytes(dtype), all = bytes * (size_t)kolo_shape_count(shape);
    char *copy = kolo_arena_alloc(arena, all);
    if (!copy) return KOLO_NOMEM(all);
    int64_t rows = shape->dim[0], columns = shape->dim[1];
    for (int64_t i = 0; i < rows * columns; i++) {
        memcpy(copy + (size_t)(i % columns * rows + i / columns) * bytes,
               (const char *)*data + (size_t)i * bytes, bytes);
    }
    *shape = kolo_shape_2(columns, rows);
    *data = copy;
    return KOLO_OK;
}

/* Writes one of our tensors as one or several of the convention's. */
static kolo_status add_tensor(kolo_safetensors_writer *writer, const kolo_safetensors_entry *e,
                              const kolo_names *names, kolo_arena *arena) {
    for (int part = 0, parts = 1; part < parts; part++) {
        kolo_tensor_name name = kolo_name_theirs(names, e->name, part);
        kolo_shape shape = e->shape;
        parts = name.parts;
        if (parts > 1) shape.dim[0] /= parts;
        const void *data = (const char *)e->data + e->bytes / (size_t)parts * (size_t)part;
        if (name.kind == KOLO_NAME_TRANSPOSED && shape.rank == 2) {
            KOLO_TRY(transpose(e->dtype, arena, &shape, &data));
        }
        KOLO_TRY(kolo_safetensors_add(writer, name.text, e->dtype, &shape, data));
    }
    return KOLO_OK;
}

static kolo_status add_tensors(kolo_safetensors_writer *writer, const kolo_checkpoint *c,
                               const kolo_names *names, kolo_arena *arena) {
    for (int i = 0; i < kolo_safetensors_count(c->file); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(c->file, i);
        if (c->info.options && kolo_name_is_optimizer(e->name)) continue;
        KOLO_TRY(add_tensor(writer, e, names, arena));
    }
    return KOLO_OK;
}

/* Only the format in a file of another convention; all metadata in one of ours. */
static kolo_status add_metadata(kolo_safetensors_writer *writer, const kolo_checkpoint *c,
                                const kolo_names *names) {
    if (names) return kolo_safetensors_set(writer, "format", "pt");
    for (const char *const *key = kolo_checkpoint_keys; *key; key++) {
        const char *value = kolo_safetensors_metadata(c->file, *key);
        if (value) KOLO_TRY(kolo_safetensors_set(writer, *key, value));
    }
    return KOLO_OK;
}

kolo_status kolo_checkpoint_export(const char *from, const char *to,
                                   kolo_checkpoint_format format) {
    kolo_checkpoint c;
    const kolo_names *names;
    kolo_safetensors_writer *writer = NULL;
    kolo_arena arena = {0};
    if (kolo_file_same(from, to)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is the checkpoint to export: choose another file", to);
    }
    KOLO_TRY(kolo_checkpoint_open(from, &c));
    if (format == KOLO_FORMAT_ONNX) {
        kolo_status exported = kolo_checkpoint_export_onnx(&c, to);
        kolo_checkpoint_close(&c);
        return exported;
    }
    kolo_status status = find_names(&c, format, &names);
    if (status == KOLO_OK) status = kolo_safetensors_create(to, &writer);
    if (status == KOLO_OK) status = add_metadata(writer, &c, names);
    if (status == KOLO_OK) status = add_tensors(writer, &c, names, &arena);
    if (status == KOLO_OK) status = kolo_safetensors_finish(writer);
    kolo_safetensors_destroy(writer);
    kolo_arena_fini(&arena);
    kolo_checkpoint_close(&c);
    return status;
}
