#pragma once
/* The table of names of a kolo_named, and the message that announces new names. */

#include "base/compiler.h"
#include "kolo/named.h"

enum { KOLO_NAME_BYTES = 256 };

/* What all ranks must post under a name. */
typedef struct kolo_signature {
    size_t count;
    kolo_dtype dtype;
    kolo_reduce_op op;
} kolo_signature;

typedef enum kolo_tensor_state {
    KOLO_TENSOR_IDLE,
    KOLO_TENSOR_POSTED,  /* not agreed on yet */
    KOLO_TENSOR_REDUCED, /* agreed on; its reduction is in flight */
} kolo_tensor_state;

typedef struct kolo_named_tensor {
    char *name;
    uint64_t hash;
    kolo_signature signature;
    int first_rank; /* the rank that announced it first; -1: not announced */
    int id;         /* number in agreements; -1: none yet */
    kolo_tensor_state state;
    void *data;
} kolo_named_tensor;

/* Tensors by handle, and the handles by hash and by id. Zero-initialize. */
typedef struct kolo_name_table {
    kolo_named_tensor *tensors;
    size_t n, capacity;
    int *slots; /* open addressing: handle + 1, 0 empty */
    size_t n_slots;
    int *by_id;
    size_t n_ids, ids_capacity;
} kolo_name_table;

/* The handle of a name; -1: unknown. */
KOLO_SHARED int kolo_names_find(const kolo_name_table *table, const char *name, size_t length);
/* Adds a name without id. NOMEM. */
KOLO_SHARED kolo_status kolo_names_add(kolo_name_table *table, const char *name, size_t length,
                                       const kolo_signature *signature, int *handle);
KOLO_SHARED void kolo_names_fini(kolo_name_table *table);

/* Allocates the message that announces the names without id. ARG: too long; NOMEM. */
KOLO_SHARED kolo_status kolo_names_write(const kolo_name_table *table, char **bytes,
                                         size_t *length);
/* Reads the message of `rank` and gives new names their ids. FORMAT: an invalid message. ARG: a
 * name has another signature; the text shows both, and is the same on all ranks that read the same
 * messages in the same order. NOMEM. */
KOLO_SHARED kolo_status kolo_names_read(kolo_name_table *table, int rank, const char *bytes,
                                        size_t length);
/* Compares the signature posted by `rank` with the known one. ARG: they differ; the text shows
 * both. */
KOLO_SHARED kolo_status kolo_names_check(const kolo_named_tensor *tensor,
                                         const kolo_signature *signature, int rank);
/* "1000 x f32, mean" */
void kolo_signature_text(const kolo_signature *signature, char *text, size_t bytes);
