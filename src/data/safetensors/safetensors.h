#pragma once
/* safetensors, the common file format of weights: a 64-bit little-endian length, that many bytes of
 * JSON
 *
 *     {"__metadata__": {"key": "text"},
 *      "name": {"dtype": "F32", "shape": [10,84], "data_offsets": [begin,end]}, ...}
 *
 * padded with spaces, then the data: the elements of the tensors, little-endian and row-major,
 * without gaps. Offsets count from the end of the JSON.
 *
 * The reader maps the file and validates the whole header before use. The writer writes a temporary
 * file, syncs it, and renames it: the target is always the old file or the new one.
 *
 * Files written here have hashes in the metadata: "kolo_xxh3_blocks" is the XXH3 of the header
 * without hashes, then of the hashes of the blocks of each tensor in data order, 16 digits each. A
 * block has KOLO_SAFETENSORS_BLOCK elements, so that several processes can each write some blocks,
 * and hash only them. Earlier files have "kolo_xxh3", with hashes of the bytes of each tensor. Both
 * detect corruption, not forgery. Files of other programs have none. */

#include "kolo/tensor.h"

enum { KOLO_SAFETENSORS_BLOCK = 4096 }; /* elements */

/* ---- reading ---- */

typedef struct kolo_safetensors kolo_safetensors;

typedef struct kolo_safetensors_entry {
    const char *name;
    kolo_dtype dtype;
    kolo_shape shape;
    const void *data; /* of any alignment: copy it */
    size_t bytes;
} kolo_safetensors_entry;

/* Maps and validates a file. IO: cannot be read; FORMAT: not a safetensors file, or damaged;
 * UNSUPPORTED: an element type or rank that Kolo does not have; NOMEM. */
kolo_status kolo_safetensors_open(const char *path, kolo_safetensors **file);
/* The same from memory, which must outlive `file`; `where` names it in errors. */
kolo_status kolo_safetensors_parse(const uint8_t *bytes, size_t length, const char *where,
                                   kolo_safetensors **file);
/* Whether the file has hashes. */
bool kolo_safetensors_has_hashes(const kolo_safetensors *file);
/* Verifies the hash of the header, and no data; a file without hashes passes. FORMAT, NOMEM. */
kolo_status kolo_safetensors_check_header(const kolo_safetensors *file);
/* Reads the whole file and verifies its hashes; a file without hashes passes. FORMAT, naming the
 * damaged tensor; NOMEM. */
kolo_status kolo_safetensors_check(const kolo_safetensors *file);
/* Frees the file and all pointers into it. NULL is allowed. */
void kolo_safetensors_close(kolo_safetensors *file);

/* Tensors, in data order. */
int kolo_safetensors_count(const kolo_safetensors *file);
const kolo_safetensors_entry *kolo_safetensors_get(const kolo_safetensors *file, int i);
/* The tensor of that name, or NULL. */
const kolo_safetensors_entry *kolo_safetensors_find(const kolo_safetensors *file, const char *name);
/* Copies bytes [first, first + bytes) of a tensor. FORMAT: the file was truncated since it was
 * opened, where the use of `data` ends the process; IO. */
kolo_status kolo_safetensors_read(const kolo_safetensors *file, const kolo_safetensors_entry *entry,
                                  size_t first, void *to, size_t bytes);
/* The metadata value of `key`, or NULL. */
const char *kolo_safetensors_metadata(const kolo_safetensors *file, const char *key);

/* ---- writing ---- */

typedef struct kolo_safetensors_writer kolo_safetensors_writer;

/* Creates the temporary file beside `path`, so that a folder without write access is detected
 * early. IO, NOMEM. */
kolo_status kolo_safetensors_create(const char *path, kolo_safetensors_writer **writer);
/* Adds a metadata entry. ARG: the key exists or is reserved for the hashes, or a string is not
 * UTF-8. */
kolo_status kolo_safetensors_set(kolo_safetensors_writer *writer, const char *key,
                                 const char *value);
/* Adds a tensor; `data` is row-major and borrowed until finish. ARG: the name exists, is reserved
 * or not UTF-8, or a dimension is negative. */
kolo_status kolo_safetensors_add(kolo_safetensors_writer *writer, const char *name,
                                 kolo_dtype dtype, const kolo_shape *shape, const void *data);
/* Writing in parts, maybe by several processes. One creates the file, sets the metadata and
 * declares the tensors; begin fixes where the data are. The others join it and declare the same
 * tensors. All put ranges, together everything, and sync; the first needs the hashes of all blocks
 * and finishes. */
typedef struct kolo_safetensors_place {
    uint64_t mark, data_at; /* a number that identifies the file; where the data begin */
    char *temporary;        /* the path of the temporary file; free it with kolo_free */
} kolo_safetensors_place;

/* Adds a tensor as kolo_safetensors_add does; its data follow. */
kolo_status kolo_safetensors_declare(kolo_safetensors_writer *writer, const char *name,
                                     kolo_dtype dtype, const kolo_shape *shape);
/* After the last tensor. IO: the target is a pipe or a device, or cannot be written; NOMEM. */
kolo_status kolo_safetensors_begin(kolo_safetensors_writer *writer, kolo_safetensors_place *place);
/* Opens the file that another process has begun. IO: it is not there. */
kolo_status kolo_safetensors_join(const kolo_safetensors_place *place,
                                  kolo_safetensors_writer **writer);
/* Writes elements [first, first + count) of tensor i: whole blocks, or up to its end. IO, NOMEM. */
kolo_status kolo_safetensors_put(kolo_safetensors_writer *writer, int i, int64_t first,
                                 int64_t count, const void *data);
/* The hashes of all blocks, 0 of those that this writer has not put; they belong to the writer.
 * NOMEM. */
kolo_status kolo_safetensors_hashes_of(kolo_safetensors_writer *writer, uint64_t **hashes,
                                       size_t *count);
/* Makes what was put durable. IO. */
kolo_status kolo_safetensors_sync(kolo_safetensors_writer *writer);

/* Hashes and writes everything that was added, syncs the file and renames it to `path`. Call
 * destroy afterwards in any case. IO (disk full, ...): the target is unchanged. */
kolo_status kolo_safetensors_finish(kolo_safetensors_writer *writer);
/* The same, but a target that exists stays: IO. */
kolo_status kolo_safetensors_finish_new(kolo_safetensors_writer *writer);
/* Frees the writer; deletes the temporary file unless finish succeeded. NULL is allowed. */
void kolo_safetensors_destroy(kolo_safetensors_writer *writer);
