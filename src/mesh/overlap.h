#pragma once
/* The elements that two ranks have in common: of two regions of a tensor, the common part, and
 * where it lies in both. Along each dimension it is a list of runs; the elements of a message are
 * the product of the runs in row-major order. */

#include "mesh/placement.h"

typedef struct kolo_run {
    int64_t source, target, length; /* local indices */
} kolo_run;

typedef struct kolo_overlap {
    int rank;
    int n[KOLO_MAX_RANK];
    kolo_run *runs[KOLO_MAX_RANK];
    kolo_shape source, target; /* local shapes */
    int64_t count;             /* elements; 0: nothing in common */
} kolo_overlap;

/* The number of elements that two regions of one tensor have in common. */
int64_t kolo_overlap_count(const kolo_mesh_region *source, const kolo_mesh_region *target);
/* The overlap of two regions of one tensor; its runs are in the arena. NOMEM. */
kolo_status kolo_overlap_of(const kolo_mesh_region *source, const kolo_mesh_region *target,
                            kolo_arena *arena, kolo_overlap *overlap);

/* Copies the overlap out of the source's tensor into a message, out of a message into the target's
 * tensor, or straight from tensor to tensor. Tensors are local and in row-major order. */
void kolo_overlap_pack(const kolo_overlap *overlap, size_t element_bytes, const void *source,
                       void *message);
void kolo_overlap_unpack(const kolo_overlap *overlap, size_t element_bytes, const void *message,
                         void *target);
void kolo_overlap_copy(const kolo_overlap *overlap, size_t element_bytes, const void *source,
                       void *target);
/* Adds a message of floating-point numbers to the target's tensor. */
void kolo_overlap_add(const kolo_overlap *overlap, kolo_dtype dtype, const void *message,
                      void *target);
/* Whether the overlap is one contiguous range, of the source or of the target; it begins at
 * element *first. */
bool kolo_overlap_contiguous(const kolo_overlap *overlap, bool of_source, int64_t *first);
