/* Overlaps of two regions of a tensor, and copies of them. */
#include "mesh/overlap.h"

#include "base/bf16.h"
#include "base/compiler.h"
#include "base/integer.h"

#include <string.h>

/* Walks along one dimension of two regions: the elements that both have. Writes their runs to
 * `runs`, unless that is NULL, and their number to *n. */
static int64_t walk_dim(const kolo_mesh_region *source, const kolo_mesh_region *target, int dim,
                        kolo_run *runs, int *n) {
    int64_t in_source = 0, in_target = 0, common = 0; /* local indices of intervals i and k */
    *n = 0;
    for (int i = 0, k = 0; i < source->n[dim] && k < target->n[dim];) {
        const kolo_interval *s = &source->intervals[dim][i], *t = &target->intervals[dim][k];
        int64_t first = kolo_max_i64(s->first, t->first), end = kolo_min_i64(s->end, t->end);
        if (first < end) {
            if (runs) {
                runs[*n] = (kolo_run){in_source + first - s->first, in_target + first - t->first,
                                      end - first};
            }
            ++*n;
            common += end - first;
        }
        if (s->end < t->end) {
            in_source += s->end - s->first;
            i++;
        } else {
            in_target += t->end - t->first;
            k++;
        }
    }
    return common;
}

int64_t kolo_overlap_count(const kolo_mesh_region *source, const kolo_mesh_region *target) {
    int64_t count = 1;
    int n;
    for (int d = 0; d < source->rank; d++) count *= walk_dim(source, target, d, NULL, &n);
    return count;
}

kolo_status kolo_overlap_of(const kolo_mesh_region *source, const kolo_mesh_region *target,
                            kolo_arena *arena, kolo_overlap *overlap) {
    kolo_overlap o = {
        .rank = source->rank, .source = source->shape, .target = target->shape, .count = 1};
    for (int d = 0; d < o.rank; d++) {
        size_t most = (size_t)source->n[d] + (size_t)target->n[d] + 1;
        o.runs[d] = kolo_arena_alloc(arena, most * sizeof *o.runs[d]);
        if (!o.runs[d]) return KOLO_NOMEM(most * sizeof *o.runs[d]);
        o.count *= walk_dim(source, target, d, o.runs[d], &o.n[d]);
    }
    *overlap = o;
    return KOLO_OK;
}

/* ---- copies ---- */

/* Elements between two neighbours along `dim`. */
static int64_t stride_of(const kolo_shape *shape, int dim) {
    int64_t stride = 1;
    for (int d = dim + 1; d < shape->rank; d++) stride *= shape->dim[d];
    return stride;
}

typedef enum copy_mode { PACK, UNPACK, COPY, ADD } copy_mode;

/* One copy, recursing through the dimensions: `message` walks on. */
typedef struct copier {
    const kolo_overlap *overlap;
    copy_mode mode;
    size_t element_bytes;
    kolo_dtype dtype;   /* ADD */
    const char *source; /* tensor; UNPACK, ADD: the message */
    char *target;       /* tensor; PACK: the message */
} copier;

static void add(kolo_dtype dtype, int64_t count, const void *from, void *to) {
    switch (dtype) {
    case KOLO_DTYPE_F64:
        for (int64_t i = 0; i < count; i++) ((double *)to)[i] += ((const double *)from)[i];
        break;
    case KOLO_DTYPE_F32:
        for (int64_t i = 0; i < count; i++) ((float *)to)[i] += ((const float *)from)[i];
        break;
    case KOLO_DTYPE_BF16:
        for (int64_t i = 0; i < count; i++) {
            const float sum = kolo_bf16_widen(((const uint16_t *)from)[i]) +
                              kolo_bf16_widen(((const uint16_t *)to)[i]);
            ((uint16_t *)to)[i] = kolo_bf16_narrow(sum);
        }
        break;
    default:
        KOLO_ASSERT(false);
    }
}

static void copy_dim(copier *c, int dim, int64_t at_source, int64_t at_target) {
    const kolo_overlap *o = c->overlap;
    int64_t source_stride = stride_of(&o->source, dim), target_stride = stride_of(&o->target, dim);
    bool last = dim == o->rank - 1;
    for (int i = 0; i < o->n[dim]; i++) {
        const kolo_run *run = &o->runs[dim][i];
        int64_t s = at_source + run->source * source_stride;
        int64_t t = at_target + run->target * target_stride;
        if (last) {
            size_t bytes = (size_t)run->length * c->element_bytes;
            if (c->mode == ADD) {
                add(c->dtype, run->length, c->source, c->target + (size_t)t * c->element_bytes);
                c->source += bytes;
                continue;
            }
            memcpy(c->target + (c->mode == PACK ? 0 : (size_t)t * c->element_bytes),
                   c->source + (c->mode == UNPACK ? 0 : (size_t)s * c->element_bytes), bytes);
            if (c->mode == PACK) c->target += bytes;
            if (c->mode == UNPACK) c->source += bytes;
            continue;
        }
        for (int64_t k = 0; k < run->length; k++) {
            copy_dim(c, dim + 1, s + k * source_stride, t + k * target_stride);
        }
    }
}

static void copy(const kolo_overlap *overlap, copy_mode mode, size_t element_bytes,
                 const void *source, void *target) {
    copier c = {overlap, mode, element_bytes, KOLO_DTYPE_U8, source, target};
    if (overlap->count > 0) copy_dim(&c, 0, 0, 0);
}

void kolo_overlap_add(const kolo_overlap *overlap, kolo_dtype dtype, const void *message,
                      void *target) {
    copier c = {overlap, ADD, kolo_dtype_bytes(dtype), dtype, message, target};
    if (overlap->count > 0) copy_dim(&c, 0, 0, 0);
}

void kolo_overlap_pack(const kolo_overlap *overlap, size_t element_bytes, const void *source,
                       void *message) {
    copy(overlap, PACK, element_bytes, source, message);
}

void kolo_overlap_unpack(const kolo_overlap *overlap, size_t element_bytes, const void *message,
                         void *target) {
    copy(overlap, UNPACK, element_bytes, message, target);
}

void kolo_overlap_copy(const kolo_overlap *overlap, size_t element_bytes, const void *source,
                       void *target) {
    copy(overlap, COPY, element_bytes, source, target);
}

bool kolo_overlap_contiguous(const kolo_overlap *overlap, bool of_source, int64_t *first) {
    const kolo_shape *shape = of_source ? &overlap->source : &overlap->target;
    bool whole = true; /* all dimensions behind are taken whole */
    int64_t at = 0;
    if (overlap->count == 0) return false;
    for (int d = overlap->rank - 1; d >= 0; d--) {
        const kolo_run *run = &overlap->runs[d][0];
        for (int i = 1; i < overlap->n[d]; i++) { /* runs that follow each other are one */
            const kolo_run *a = &overlap->runs[d][i - 1], *b = &overlap->runs[d][i];
            if ((of_source ? a->source : a->target) + a->length !=
                (of_source ? b->source : b->target)) {
                return false;
            }
        }
        int64_t length = 0;
        for (int i = 0; i < overlap->n[d]; i++) length += overlap->runs[d][i].length;
        if (!whole && length != 1) return false;
        at += (of_source ? run->source : run->target) * stride_of(shape, d);
        whole = whole && length == shape->dim[d];
    }
    *first = at;
    return true;
}
