#pragma once
/* The table of names of a kolo_named, and how ranks tell each other new ones. */

#include "base/compiler.h"
#include "kolo/named.h"

enum { KOLO_NAME_BYTES = 256 };

/* What a name stands for. */
typedef struct kolo_signature {
    size_t count;
    kolo_dtype dtype;
    kolo_reduce_op op;
} kolo_signature;

typedef enum kolo_tensor_state {
    KOLO_TENSOR_IDLE,
    KOLO_TENSOR_POSTED,  /* not agreed on yet */
    KOLO_TENSOR_REDUCED, /* agreed on; in a group of tensors on its way */
} kolo_tensor_state;

typedef struct kolo_named_tensor {
    char *name;
    uint64_t hash;
    kolo_signature signature;
    int first_rank; /* that told of it first; -1: only this rank knows it */
    int id;         /* place in agreements; -1: not agreed yet */
    kolo_tensor_state state;
    void *data;
} kolo_named_tensor;

/* Tensors by handle, and the handles by hash and by id. Zero-initialise. */
typedef struct kolo_name_table {
    kolo_named_tensor *tensors;
    size_t n, capacity;
    int *slots; /* open addressing: handle + 1, 0 empty */
    size_t n_slots;
    int *by_id;
    size_t n_ids, ids_capacity;
} kolo_name_table;

/* The handle of a name, -1 when it is not there. */
KOLO_SHARED int kolo_names_find(const kolo_name_table *table, const char *name, size_t length);
/* A new name, without id. NOMEM. */
KOLO_SHARED kolo_status kolo_names_add(kolo_name_table *table, const char *name, size_t length,
                                       const kolo_signature *signature, int *handle);
KOLO_SHARED void kolo_names_fini(kolo_name_table *table);

/* Appends what this rank has posted and nobody has an id of, for the peers. */
KOLO_SHARED kolo_status kolo_names_write(const kolo_name_table *table, char **bytes,
                                         size_t *length);
/* Takes in what `rank` has written: new names get ids. FORMAT: the bytes are nothing that
 * kolo_names_write makes. ARG: a name stands for something else; the text shows both sides, and is
 * the same wherever the same messages are read in the same order. */
KOLO_SHARED kolo_status kolo_names_read(kolo_name_table *table, int rank, const char *bytes,
                                        size_t length);
/* ARG with both sides of a difference; `rank` is who posts `signature`. */
KOLO_SHARED kolo_status kolo_names_check(const kolo_named_tensor *tensor,
                                         const kolo_signature *signature, int rank);
/* "1000 x f32, mean" */
void kolo_signature_text(const kolo_signature *signature, char *text, size_t bytes);
