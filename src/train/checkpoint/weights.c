/* Loading weights: all tensors are matched with the store before any is copied. */
#include "train/checkpoint/weights.h"

#include "base/bf16.h"
#include "data/safetensors/safetensors.h"
#include "train/checkpoint/finite.h"
#include "train/checkpoint/name_conventions.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 4 }; /* tensors of each kind that an error lists */

/* The source of a tensor of the store: a tensor of the file for each part. */
typedef struct source {
    const kolo_safetensors_entry *stored[KOLO_NAME_PARTS]; /* NULL: none yet */
    int parts;
    bool transposed;
    bool other; /* one has another type or shape */
} source;

/* Tensors with one kind of mismatch. */
typedef struct faults {
    const char *what;
    int shown; /* at most */
    int count;
    kolo_text names;
} faults;

typedef struct loading {
    const char *path, *model;
    kolo_safetensors *file;
    kolo_store *store;
    source *sources; /* by entry of the store */
    faults missing, unexpected, shapes, copies;
} loading;

static void add_fault(faults *f, const char *name, const char *more) {
    if (f->count++ < f->shown) {
        kolo_text_add(&f->names, "%s%s%s", f->count > 1 ? ", " : "", name, more ? more : "");
    } else if (f->count == f->shown + 1) {
        kolo_text_add(&f->names, ", ...");
    }
}

static bool is_float(kolo_dtype dtype) {
    return dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64 || dtype == KOLO_DTYPE_F16 ||
           dtype == KOLO_DTYPE_BF16;
}

/* The shape of a part of an entry in the file. */
static kolo_shape shape_there(const kolo_store_entry *entry, const kolo_tensor_name *name) {
    kolo_shape s = entry->canon;
    if (name->parts > 1) {
        KOLO_ASSERT(s.rank > 0 && s.dim[0] % name->parts == 0);
        s.dim[0] /= name->parts;
    }
    if (name->kind == KOLO_NAME_TRANSPOSED && s.rank == 2) s = kolo_shape_2(s.dim[1], s.dim[0]);
    return s;
}

static int entry_index(const kolo_store *store, const char *name) {
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (kolo_store_entry_is_model(entry) && strcmp(entry->name, name) == 0) return i;
    }
    return -1;
}

static void place(loading *l, const kolo_safetensors_entry *stored, const kolo_tensor_name *name) {
    int i = entry_index(l->store, name->text);
    if (i < 0 && name->kind == KOLO_NAME_OPTIONAL) return;
    if (i < 0 || l->sources[i].stored[name->part]) {
        add_fault(&l->unexpected, stored->name, NULL);
        return;
    }
    const kolo_store_entry *entry = kolo_store_entry_at(l->store, i);
    kolo_shape shape = shape_there(entry, name);
    l->sources[i].stored[name->part] = stored;
    l->sources[i].parts = name->parts;
    l->sources[i].transposed = name->kind == KOLO_NAME_TRANSPOSED;
    if (kolo_shape_equal(&shape, &stored->shape) && is_float(stored->dtype)) return;
    l->sources[i].other = true;
    char have[KOLO_SHAPE_TEXT], want[KOLO_SHAPE_TEXT], more[2 * KOLO_SHAPE_TEXT + 32];
    snprintf(more, sizeof more, " %s %s, not %s", kolo_dtype_name(stored->dtype),
             kolo_shape_text(&stored->shape, have), kolo_shape_text(&shape, want));
    add_fault(&l->shapes, stored->name, more);
}

/* A duplicate replaces a tensor that the file lacks; otherwise the two must be equal. An untied
 * model has it under its own name. */
static void place_copy(loading *l, const kolo_safetensors_entry *stored,
                       const kolo_tensor_name *name) {
    if (entry_index(l->store, stored->name) >= 0) {
        kolo_tensor_name apart = {.parts = 1};
        snprintf(apart.text, sizeof apart.text, "%s", stored->name);
        place(l, stored, &apart);
        return;
    }
    int i = entry_index(l->store, name->text);
    const kolo_safetensors_entry *other = i < 0 ? NULL : l->sources[i].stored[0];
    if (!other) {
        place(l, stored, name);
    } else if (other->dtype != stored->dtype || other->bytes != stored->bytes ||
               memcmp(other->data, stored->data, stored->bytes) != 0) {
        char more[KOLO_TENSOR_NAME + 8];
        snprintf(more, sizeof more, " unlike %.240s", other->name);
        add_fault(&l->copies, stored->name, more);
    }
}

/* All tensors of the file, duplicates last. Our own files may hold optimizer state too. */
static void place_all(loading *l, const kolo_names *names, bool own) {
    for (int copies = 0; copies < 2; copies++) {
        for (int i = 0; i < kolo_safetensors_count(l->file); i++) {
            const kolo_safetensors_entry *stored = kolo_safetensors_get(l->file, i);
            if (own && kolo_name_is_optimizer(stored->name)) continue;
            kolo_tensor_name name = kolo_name_ours(names, stored->name);
            if (name.ignored || (name.kind == KOLO_NAME_COPY) != copies) continue;
            if (copies) {
                place_copy(l, stored, &name);
            } else {
                place(l, stored, &name);
            }
        }
    }
}

static void find_missing(loading *l, const kolo_names *names) {
    for (int i = 0; i < kolo_store_count(l->store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(l->store, i);
        if (!kolo_store_entry_is_model(entry)) continue;
        for (int part = 0, parts = 1; part < parts; part++) {
            kolo_tensor_name name = kolo_name_theirs(names, entry->name, part);
            parts = name.parts;
            if (!l->sources[i].stored[part]) add_fault(&l->missing, name.text, NULL);
        }
    }
}

static void describe(kolo_text *text, const faults *f) {
    if (f->count == 0 || !f->names.text) return;
    kolo_text_add(text, "%s%d %s (%s)", text->length ? ", " : "", f->count, f->what, f->names.text);
}

/* Drops what does not fit, and lists it. */
static kolo_status keep_fitting(loading *l, kolo_text *rest) {
    const faults *all[] = {&l->missing, &l->unexpected, &l->shapes, &l->copies};
    int fitting = 0;
    for (int i = 0; i < kolo_store_count(l->store); i++) {
        source *from = &l->sources[i];
        bool whole = !from->other;
        for (int part = 0; part < from->parts; part++) whole &= from->stored[part] != NULL;
        if (!whole) from->parts = 0;
        fitting += from->parts > 0;
    }
    if (fitting == 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "no tensor of %s fits model %s: is it the right file, and has the model "
                         "the options that it was trained with?",
                         l->path, l->model);
    }
    for (size_t k = 0; k < KOLO_COUNT(all); k++) {
        if (all[k]->count > 0) kolo_text_add(rest, "%s: %s\n", all[k]->what, all[k]->names.text);
    }
    return rest->failed ? KOLO_NOMEM(rest->length) : KOLO_OK;
}

static kolo_status find_sources(loading *l, kolo_text *rest) {
    bool own = kolo_safetensors_metadata(l->file, "kolo") != NULL;
    const kolo_names *names = own ? NULL : kolo_names_of(l->model);
    place_all(l, names, own);
    find_missing(l, names);
    if (l->missing.count + l->unexpected.count + l->shapes.count + l->copies.count == 0) {
        return KOLO_OK;
    }
    if (rest) return keep_fitting(l, rest);
    kolo_text text = {0};
    describe(&text, &l->missing);
    describe(&text, &l->unexpected);
    describe(&text, &l->shapes);
    describe(&text, &l->copies);
    kolo_status status = KOLO_FAIL(
        KOLO_ERR_FORMAT,
        "%s does not match model %s; of its tensors %s: give weights of that model, and the "
        "model the options that they were trained with",
        l->path, l->model, text.text ? text.text : "some do not");
    kolo_text_fini(&text);
    return status;
}

static kolo_status check_finite(const loading *l) {
    for (int i = 0; i < kolo_store_count(l->store); i++) {
        for (int part = 0; part < l->sources[i].parts; part++) {
            KOLO_TRY(kolo_check_finite(l->path, l->sources[i].stored[part]));
        }
    }
    return KOLO_OK;
}

/* ---- numbers ---- */

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, part = half & 1023;
    if (exponent == 0) return from_bits(sign) + (sign ? -1.0F : 1.0F) * (float)part * 0x1p-24F;
    if (exponent == 31) return from_bits(sign | 0x7f800000U | part << 13);
    return from_bits(sign | (exponent + 112) << 23 | part << 13);
}

/* Element i, of any alignment. */
static double element(const kolo_safetensors_entry *stored, int64_t i) {
    const char *at = (const char *)stored->data + (size_t)i * kolo_dtype_bytes(stored->dtype);
    uint16_t half;
    double wide;
    float f;
    switch (stored->dtype) {
    case KOLO_DTYPE_F64:
        memcpy(&wide, at, sizeof wide);
        return wide;
    case KOLO_DTYPE_F16:
        memcpy(&half, at, sizeof half);
        return (double)from_f16(half);
    case KOLO_DTYPE_BF16:
        memcpy(&half, at, sizeof half);
        return (double)kolo_bf16_widen(half);
    default:
        memcpy(&f, at, sizeof f);
        return (double)f;
    }
}

/* As elements `first` and on of f32 or f64. */
static void copy_part(const kolo_safetensors_entry *stored, bool transposed, kolo_dtype dtype,
                      void *to, int64_t first) {
    const int64_t count = kolo_shape_count(&stored->shape);
    const int64_t rows = transposed ? stored->shape.dim[1] : 1;
    const int64_t columns = transposed ? stored->shape.dim[0] : count;
    for (int64_t i = 0; i < count; i++) {
        const double number = element(stored, transposed ? i % columns * rows + i / columns : i);
        if (dtype == KOLO_DTYPE_F64) {
            ((double *)to)[first + i] = number;
        } else {
            ((float *)to)[first + i] = (float)number;
        }
    }
}

static kolo_status copy_one(kolo_store *store, const kolo_store_entry *entry, const source *from) {
    const kolo_dtype dtype = entry->tensor.dtype;
    const size_t bytes = (size_t)kolo_shape_count(&entry->canon) * kolo_dtype_bytes(dtype);
    void *copy = kolo_alloc(bytes);
    if (!copy) return KOLO_NOMEM(bytes);
    KOLO_ASSERT(dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64);
    for (int64_t part = 0, at = 0; part < from->parts; part++) {
        copy_part(from->stored[part], from->transposed, dtype, copy, at);
        at += kolo_shape_count(&from->stored[part]->shape);
    }
    kolo_status status = kolo_store_write(store, entry, copy);
    kolo_free(copy);
    return status;
}

kolo_status kolo_weights_load(const char *path, const char *model, kolo_store *store,
                              kolo_text *rest) {
    const int shown = rest ? INT_MAX : SHOWN;
    loading l = {.path = path,
                 .model = model,
                 .store = store,
                 .missing = {.what = "missing", .shown = shown},
                 .unexpected = {.what = "unexpected", .shown = shown},
                 .shapes = {.what = "of another type or shape", .shown = shown},
                 .copies = {.what = "different from what they duplicate", .shown = shown}};
    KOLO_TRY(kolo_safetensors_open(path, &l.file));
    kolo_status status = kolo_safetensors_check(l.file);
    l.sources = kolo_zalloc(((size_t)kolo_store_count(store) + 1) * sizeof *l.sources);
    if (status == KOLO_OK && !l.sources)
        status = KOLO_NOMEM((size_t)kolo_store_count(store) * sizeof *l.sources);
    if (status == KOLO_OK) status = find_sources(&l, rest);
    if (status == KOLO_OK) status = check_finite(&l);
    for (int i = 0; status == KOLO_OK && i < kolo_store_count(store); i++) {
        if (l.sources[i].parts == 0) continue;
        status = copy_one(store, kolo_store_entry_at(store, i), &l.sources[i]);
    }
    kolo_text_fini(&l.missing.names);
    kolo_text_fini(&l.unexpected.names);
    kolo_text_fini(&l.shapes.names);
    kolo_text_fini(&l.copies.names);
    kolo_free(l.sources);
    kolo_safetensors_close(l.file);
    return status;
}
