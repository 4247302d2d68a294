#pragma once
/* safetensors, the file format of weights that other frameworks read: a 64-bit little-endian
 * length, that many bytes of JSON
 *
 *     {"__metadata__": {"key": "text"},
 *      "name": {"dtype": "F32", "shape": [10,84], "data_offsets": [begin,end]}, ...}
 *
 * padded with spaces, then the data: the tensors' elements, little-endian and row-major, back to
 * back without a gap; offsets count from the end of the JSON.
 *
 * Reading maps the file and checks all of the header before anything is believed. Writing goes to a
 * file beside the target that takes its name when it is complete and on disk: whatever happens, the
 * target is the old file or the new one.
 *
 * A file that is written here holds hashes of what is in it, in its metadata: "kolo_xxh3" is XXH3
 * of the header without them, then of each tensor's bytes in the order of the data, 16 digits each.
 * They find damage, no forgery. Files of others lack them. */

#include "kolo/tensor.h"

/* ---- reading ---- */

typedef struct kolo_safetensors kolo_safetensors;

typedef struct kolo_safetensors_entry {
    const char *name;
    kolo_dtype dtype;
    kolo_shape shape;
    const void *data; /* as aligned as the file's writer made it: copy, don't dereference */
    size_t bytes;
} kolo_safetensors_entry;

/* Maps and checks a file. IO: cannot be read; FORMAT: no safetensors file, or damaged; UNSUPPORTED:
 * a tensor's element type or rank is one that Kolo does not have; NOMEM. */
kolo_status kolo_safetensors_open(const char *path, kolo_safetensors **file);
/* The same from memory, which must outlive `file`; `where` names it in errors. */
kolo_status kolo_safetensors_parse(const uint8_t *bytes, size_t length, const char *where,
                                   kolo_safetensors **file);
/* Reads all of the file and holds it against its hashes; a file without them passes. FORMAT, naming
 * the file and the tensor that is not what was written; NOMEM. */
kolo_status kolo_safetensors_check(const kolo_safetensors *file);
/* Frees the file and all pointers it gave. NULL is allowed. */
void kolo_safetensors_close(kolo_safetensors *file);

/* Tensors, in the order of their data. */
int kolo_safetensors_count(const kolo_safetensors *file);
const kolo_safetensors_entry *kolo_safetensors_get(const kolo_safetensors *file, int i);
/* The tensor of that name, or NULL. */
const kolo_safetensors_entry *kolo_safetensors_find(const kolo_safetensors *file, const char *name);
/* The metadata text under `key`, or NULL. */
const char *kolo_safetensors_metadata(const kolo_safetensors *file, const char *key);

/* ---- writing ---- */

typedef struct kolo_safetensors_writer kolo_safetensors_writer;

/* Creates the file beside `path`, at once, so that a folder that cannot be written is known before
 * there is anything to lose. IO, NOMEM. */
kolo_status kolo_safetensors_create(const char *path, kolo_safetensors_writer **writer);
/* Adds a text to the metadata. ARG: the key is there already, or is that of the hashes, or a text
 * is not UTF-8. */
kolo_status kolo_safetensors_set(kolo_safetensors_writer *writer, const char *key,
                                 const char *value);
/* Adds a tensor; `data` is plain row-major and borrowed until finish. ARG: the name is taken,
 * reserved or not UTF-8, or a dimension is negative. */
kolo_status kolo_safetensors_add(kolo_safetensors_writer *writer, const char *name,
                                 kolo_dtype dtype, const kolo_shape *shape, const void *data);
/* Hashes and writes everything, waits until it is on disk, and gives the file its name. Call
 * destroy next, whether it worked or not. IO: disk full, ...: the target is as it was. */
kolo_status kolo_safetensors_finish(kolo_safetensors_writer *writer);
/* Frees the writer; without a finish that worked, also deletes what it wrote. NULL is allowed. */
void kolo_safetensors_destroy(kolo_safetensors_writer *writer);
