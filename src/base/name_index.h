#pragma once
/* An index of names: finds the number that was stored for a name, in constant time. */

#include "base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kolo_name_slot {
    const char *name; /* borrowed; NULL: free */
    int32_t number;
} kolo_name_slot;

/* Zero-initialize it. */
typedef struct kolo_name_index {
    kolo_name_slot *slots;
    size_t capacity, count; /* capacity: a power of 2 */
} kolo_name_index;

/* The number of a name; -1: none. */
KOLO_SHARED int32_t kolo_name_index_find(const kolo_name_index *index, const char *name);
/* Adds a name that the index does not have. False: out of memory. */
KOLO_SHARED bool kolo_name_index_add(kolo_name_index *index, const char *name, int32_t number);
KOLO_SHARED void kolo_name_index_fini(kolo_name_index *index);
