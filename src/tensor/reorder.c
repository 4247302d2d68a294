/* Copies between layouts. A dimension in blocks is several loops, one for each of its blocks and
 * one over them; where the blocks of both layouts divide each other, the copy is a nest of loops of
 * fixed steps in both. Neighbouring loops that are one in both layouts are merged, and the smallest
 * steps are innermost. Dimensions that are no whole number of blocks, and blocks that do not divide
 * each other, are copied one element at a time. */
#include "base/status.h"
#include "tensor/tensor.h"

#include <string.h>

enum { MOST_LOOPS = KOLO_MAX_RANK + 2 * KOLO_MAX_BLOCKS };

/* `count` elements, this many apart in both tensors. */
typedef struct loop {
    int64_t count, to, from;
} loop;

typedef struct nest {
    loop loops[MOST_LOOPS]; /* innermost first */
    int n;
} nest;

/* ---- one element at a time ---- */

static void copy_elements(const kolo_tensor *to, char *dst, const kolo_tensor *from,
                          const char *src) {
    const kolo_shape *shape = &to->shape;
    const size_t bytes = kolo_dtype_bytes(to->dtype);
    int64_t index[KOLO_MAX_RANK] = {0};
    memset(dst, 0, kolo_tensor_bytes(to));
    for (int64_t n = kolo_shape_count(shape); n > 0; n--) {
        const int64_t at = kolo_layout_offset(&to->layout, shape, index);
        const int64_t from_at = kolo_layout_offset(&from->layout, shape, index);
        memcpy(dst + bytes * (size_t)at, src + bytes * (size_t)from_at, bytes);
        for (int i = shape->rank - 1; i >= 0 && ++index[i] == shape->dim[i]; i--) index[i] = 0;
    }
}

/* ---- loops ---- */

/* The loops of dimension `dim`, innermost first: its blocks, then what is outside them. */
static int split(const kolo_tensor *t, int dim, loop loops[KOLO_MAX_BLOCKS + 1]) {
    const kolo_layout *layout = &t->layout;
    int64_t stride = 1, block = 1;
    int n = 0;
    for (int i = layout->n_blocks - 1; i >= 0; i--) {
        const int64_t size = layout->block_size[i];
        if (layout->block_dim[i] == dim) {
            loops[n++] = (loop){.count = size, .to = stride};
            block *= size;
        }
        stride *= size;
    }
    for (int i = layout->rank - 1; layout->order[i] != dim; i--) {
        const int other = layout->order[i];
        int64_t size = kolo_layout_padded(layout, &t->shape, other);
        for (int k = 0; k < layout->n_blocks; k++) {
            if (layout->block_dim[k] == other) size /= layout->block_size[k];
        }
        stride *= size;
    }
    loops[n++] = (loop){.count = t->shape.dim[dim] / block, .to = stride};
    return n;
}

/* Adds the loops of a dimension in both layouts; false: they do not fit each other. */
static bool add_dim(nest *s, const kolo_tensor *to, const kolo_tensor *from, int dim) {
    loop a[KOLO_MAX_BLOCKS + 1], b[KOLO_MAX_BLOCKS + 1];
    const int n = split(to, dim, a), m = split(from, dim, b);
    for (int i = 0, k = 0; i < n && k < m;) {
        const int64_t count = a[i].count < b[k].count ? a[i].count : b[k].count;
        if (count == 0 || a[i].count % count != 0 || b[k].count % count != 0) return false;
        if (count > 1) s->loops[s->n++] = (loop){count, a[i].to, b[k].to};
        a[i].count /= count;
        b[k].count /= count;
        a[i].to *= count;
        b[k].to *= count;
        const bool ends[2] = {a[i].count == 1, b[k].count == 1};
        i += ends[0];
        k += ends[1];
    }
    return true;
}

static bool is_before(const loop *a, const loop *b) {
    const int64_t least_a = a->to < a->from ? a->to : a->from;
    const int64_t least_b = b->to < b->from ? b->to : b->from;
    return least_a != least_b ? least_a < least_b : a->to < b->to;
}

/* By their steps, innermost first. */
static void sort(nest *s) {
    for (int i = 1; i < s->n; i++) {
        const loop moved = s->loops[i];
        int k = i;
        for (; k > 0 && is_before(&moved, &s->loops[k - 1]); k--) s->loops[k] = s->loops[k - 1];
        s->loops[k] = moved;
    }
}

/* Makes one loop of two of which one goes on where the other ends, in both tensors; false: there
 * are none. */
static bool merge_two(nest *s) {
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < s->n; k++) {
            loop *in = &s->loops[i], *out = &s->loops[k];
            if (i == k || out->to != in->count * in->to || out->from != in->count * in->from) {
                continue;
            }
            in->count *= out->count;
            *out = s->loops[--s->n];
            return true;
        }
    }
    return false;
}

/* False: the layouts do not fit each other. */
static bool make_nest(nest *s, const kolo_tensor *to, const kolo_tensor *from) {
    const kolo_shape *shape = &to->shape;
    *s = (nest){.n = 0};
    for (int dim = 0; dim < shape->rank; dim++) {
        const int64_t size = shape->dim[dim];
        if (kolo_layout_padded(&to->layout, shape, dim) != size) return false;
        if (kolo_layout_padded(&from->layout, shape, dim) != size) return false;
        if (!add_dim(s, to, from, dim)) return false;
    }
    while (merge_two(s)) continue;
    sort(s);
    while (s->n < 2) s->loops[s->n++] = (loop){1, 0, 0};
    return true;
}

/* ---- copying ---- */

/* The two innermost loops, for elements of an unsigned type. */
#define COPY(type)                                                                 \
    for (int64_t k = 0; k < outer->count; k++) {                                   \
        char *to = dst + (size_t)(k * outer->to) * sizeof(type);                   \
        const char *from = src + (size_t)(k * outer->from) * sizeof(type);         \
        for (int64_t i = 0; i < inner->count; i++) {                               \
            memcpy(to + (size_t)(i * inner->to) * sizeof(type),                    \
                   from + (size_t)(i * inner->from) * sizeof(type), sizeof(type)); \
        }                                                                          \
    }

static void copy_two(const nest *s, size_t bytes, char *dst, const char *src) {
    const loop *inner = &s->loops[0], *outer = &s->loops[1];
    switch (bytes) {
    case 1:
        COPY(uint8_t)
        break;
    case 2:
        COPY(uint16_t)
        break;
    case 4:
        COPY(uint32_t)
        break;
    default:
        KOLO_ASSERT(bytes == 8);
        COPY(uint64_t)
    }
}

static void copy_nest(const nest *s, size_t bytes, char *dst, const char *src) {
    int64_t index[MOST_LOOPS] = {0}, rest = 1;
    for (int i = 2; i < s->n; i++) rest *= s->loops[i].count;
    for (; rest > 0; rest--) {
        int64_t to = 0, from = 0;
        for (int i = 2; i < s->n; i++) {
            to += index[i] * s->loops[i].to;
            from += index[i] * s->loops[i].from;
        }
        copy_two(s, bytes, dst + (size_t)to * bytes, src + (size_t)from * bytes);
        for (int i = 2; i < s->n && ++index[i] == s->loops[i].count; i++) index[i] = 0;
    }
}

void kolo_tensor_reorder(const kolo_tensor *dst_desc, void *dst, const kolo_tensor *src_desc,
                         const void *src) {
    nest s;
    KOLO_ASSERT(dst_desc->dtype == src_desc->dtype);
    KOLO_ASSERT(kolo_shape_equal(&dst_desc->shape, &src_desc->shape));
    if (kolo_layout_equal(&dst_desc->layout, &src_desc->layout)) {
        memcpy(dst, src, kolo_tensor_bytes(dst_desc));
    } else if (make_nest(&s, dst_desc, src_desc)) {
        copy_nest(&s, kolo_dtype_bytes(dst_desc->dtype), dst, src);
    } else {
        copy_elements(dst_desc, dst, src_desc, src);
    }
}
