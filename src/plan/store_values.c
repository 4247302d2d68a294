/* Reading and writing the entries of a store in canonical order, row by row, whatever part of them
 * this rank holds: the whole, a slice of a mesh, a range of ZeRO, or a range of a slice. */
#include "base/integer.h"
#include "plan/store_pieces.h"

#include <string.h>

bool kolo_store_entry_is_plain_range(const kolo_store_entry *entry) {
    if (entry->mesh || entry->staged) return false;
    return entry->cuts && entry->versions == 0 && kolo_layout_is_plain(&entry->tensor.layout);
}

const kolo_tensor *kolo_store_entry_ranged(const kolo_store_entry *entry) {
    return entry->mesh ? &entry->slice : &entry->tensor;
}

/* The tensor of an entry in files. */
static kolo_tensor canonical_of(const kolo_store_entry *entry) {
    return kolo_tensor_plain(entry->tensor.dtype, entry->tensor.shape);
}

kolo_status kolo_store_join_parts(const kolo_store *s, char *whole, size_t bytes) {
    const size_t most = KOLO_STORE_PIECE * sizeof(double);
    for (size_t at = 0; s->comm && at < bytes; at += most) {
        const size_t n = bytes - at < most ? bytes - at : most;
        KOLO_TRY(kolo_allreduce(s->comm, whole + at, n, KOLO_DTYPE_U8, KOLO_OR));
    }
    return KOLO_OK;
}

/* Copies what the window has of the slice out of the whole or, with `back`, into it; both begin
 * where the window does. */
static kolo_status copy_window(const kolo_store_entry *entry, kolo_store_window w, char *slice,
                               char *whole, bool back) {
    const kolo_shape *of = &entry->tensor.shape;
    const int64_t element = (int64_t)kolo_dtype_bytes(entry->tensor.dtype);
    kolo_mesh_region r;
    kolo_arena arena = {0};
    if (of->rank == 0) {
        if (w.end > 0 && w.own_end > 0) memcpy(back ? whole : slice, back ? slice : whole, element);
        return KOLO_OK;
    }
    kolo_status status =
        kolo_mesh_region_of(entry->mesh, entry->placements, of, entry->rank, false, &arena, &r);
    int at[KOLO_MAX_RANK] = {0}; /* the interval of each dimension but the last */
    int64_t index[KOLO_MAX_RANK] = {0}, own = 0;
    const int last = of->rank - 1;
    for (int d = 0; status == KOLO_OK && d < last; d++) index[d] = r.intervals[d][0].first;
    for (bool more = status == KOLO_OK; more;) {
        int64_t row = 0;
        for (int d = 0; d < last; d++) row = (row + index[d]) * of->dim[d + 1];
        for (int i = 0; i < r.n[last]; i++) {
            const kolo_interval *run = &r.intervals[last][i];
            const int64_t length = run->end - run->first, from = row + run->first;
            const int64_t first = kolo_max_i64(0, kolo_max_i64(w.first - from, w.own - own));
            const int64_t end = kolo_min_i64(length, kolo_min_i64(w.end - from, w.own_end - own));
            if (end > first) {
                char *in_whole = whole + (from + first - w.first) * element;
                char *in_slice = slice + (own + first - w.own) * element;
                memcpy(back ? in_whole : in_slice, back ? in_slice : in_whole,
                       (size_t)((end - first) * element));
            }
            own += length;
        }
        more = false;
        for (int d = last - 1; d >= 0 && !more; d--) {
            more = true;
            if (++index[d] < r.intervals[d][at[d]].end) break;
            if (++at[d] == r.n[d]) {
                at[d] = 0;
                more = false;
            }
            index[d] = r.intervals[d][at[d]].first;
        }
    }
    kolo_arena_fini(&arena);
    return status;
}

/* The whole slice. */
static kolo_status copy_slice(const kolo_store_entry *entry, char *slice, char *whole, bool back) {
    const kolo_store_window all = {0, INT64_MAX, 0, INT64_MAX};
    return copy_window(entry, all, slice, whole, back);
}

kolo_status kolo_store_read_own(const kolo_store *s, const kolo_store_entry *entry, void *to) {
    const kolo_tensor *is = kolo_store_entry_ranged(entry),
                      plain = kolo_tensor_plain(is->dtype, is->shape);
    if (!entry->cuts) {
        kolo_tensor_reorder(&plain, to, is, kolo_store_data(s, entry));
        return kolo_store_check(s);
    }
    const size_t skip = (size_t)entry->first * kolo_dtype_bytes(is->dtype);
    const size_t bytes = kolo_store_entry_bytes(entry);
    char *all = kolo_zalloc(kolo_tensor_bytes(is) + 1);
    if (!all) return KOLO_NOMEM(kolo_tensor_bytes(is));
    if (bytes > 0) memcpy(all + skip, kolo_store_data(s, entry), bytes);
    kolo_tensor_reorder(&plain, to, is, all);
    kolo_free(all);
    return kolo_store_check(s);
}

/* The whole from the slices of all ranks, of the first stage that has it, in row-major order: each
 * sets its own bits. Collective. */
static kolo_status gather_slices(const kolo_store *s, const kolo_store_entry *entry, void *whole) {
    const size_t bytes = kolo_tensor_bytes(&entry->slice), all = kolo_tensor_bytes(&entry->tensor);
    char *slice = kolo_alloc(bytes + 1);
    memset(whole, 0, all);
    kolo_status status = slice ? KOLO_OK : KOLO_NOMEM(bytes);
    if (status == KOLO_OK && !entry->copied) {
        status = kolo_store_read_own(s, entry, slice);
        if (status == KOLO_OK) status = copy_slice(entry, slice, whole, true);
    }
    kolo_free(slice);
    kolo_status sum = kolo_store_join_parts(s, whole, all); /* all take part */
    return status == KOLO_OK ? sum : status;
}

kolo_status kolo_store_place(const kolo_store_entry *entry, const kolo_tensor *is, const void *data,
                             void *whole) {
    const kolo_tensor plain = kolo_tensor_plain(is->dtype, is->shape);
    if (!entry->mesh) {
        kolo_tensor_reorder(&plain, whole, is, data);
        return KOLO_OK;
    }
    char *slice = kolo_alloc(kolo_tensor_bytes(&plain) + 1);
    if (!slice) return KOLO_NOMEM(kolo_tensor_bytes(&plain));
    kolo_tensor_reorder(&plain, slice, is, data);
    const kolo_status status = copy_slice(entry, slice, whole, true);
    kolo_free(slice);
    return status;
}

kolo_status kolo_store_gather(const kolo_store *s, const kolo_store_entry *entry,
                              const kolo_tensor *is, const void *data, void *canonical) {
    const kolo_tensor plain = canonical_of(entry);
    const size_t bytes = kolo_tensor_bytes(&plain);
    if (!entry->mesh && !entry->staged) return kolo_store_place(entry, is, data, canonical);
    memset(canonical, 0, bytes);
    kolo_status status =
        data && !entry->copied ? kolo_store_place(entry, is, data, canonical) : KOLO_OK;
    const kolo_status sum = kolo_store_join_parts(s, canonical, bytes); /* all take part */
    return status == KOLO_OK ? sum : status;
}

/* Sets the range of this rank from the whole tensor, or its slice, in the layout of the store. */
static void write_range(kolo_store *s, const kolo_store_entry *entry, const char *whole) {
    const size_t skip = (size_t)entry->first * kolo_dtype_bytes(entry->tensor.dtype);
    const size_t bytes = kolo_store_entry_bytes(entry);
    for (int b = 0; bytes > 0 && b < (entry->single ? 1 : 2); b++) {
        memcpy(kolo_store_host(s, entry, b), whole + skip, bytes);
        kolo_store_put(s, entry, b);
    }
}

static kolo_status write_slice(kolo_store *s, const kolo_store_entry *entry, const void *whole) {
    const kolo_tensor plain = kolo_tensor_plain(entry->slice.dtype, entry->slice.shape);
    char *slice = kolo_alloc(kolo_tensor_bytes(&plain) + 1);
    char *ranged = entry->cuts ? kolo_zalloc(kolo_tensor_bytes(&entry->slice) + 1) : NULL;
    kolo_status status = slice && (ranged || !entry->cuts)
                             ? copy_slice(entry, slice, (char *)(uintptr_t)whole, false)
                             : KOLO_NOMEM(kolo_tensor_bytes(&entry->slice));
    for (int b = 0; status == KOLO_OK && !ranged && b < (entry->single ? 1 : 2); b++) {
        kolo_tensor_reorder(&entry->slice, kolo_store_host(s, entry, b), &plain, slice);
        kolo_store_put(s, entry, b);
    }
    if (status == KOLO_OK && ranged) {
        kolo_tensor_reorder(&entry->slice, ranged, &plain, slice);
        write_range(s, entry, ranged);
    }
    kolo_free(ranged);
    kolo_free(slice);
    const kolo_status copied = kolo_store_finish_put(s, entry);
    return status == KOLO_OK ? copied : status;
}

/* Copies the elements [w.first, w.end) in row-major order, but for what this rank lacks: it has
 * those at [w.own, w.own_end) of the tensor's memory, which begin at `own`. */
static void copy_reordered(const kolo_tensor *t, kolo_store_window w, const char *own, char *to) {
    const size_t size = kolo_dtype_bytes(t->dtype);
    int64_t index[KOLO_MAX_RANK], rest = w.first;
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        index[d] = rest % t->shape.dim[d];
        rest /= t->shape.dim[d];
    }
    for (int64_t i = w.first; i < w.end; i++, to += size) {
        const int64_t at = kolo_layout_offset(&t->layout, &t->shape, index);
        if (at >= w.own && at < w.own_end) memcpy(to, own + (size_t)(at - w.own) * size, size);
        for (int d = t->shape.rank - 1; d >= 0 && ++index[d] == t->shape.dim[d]; d--) index[d] = 0;
    }
}

kolo_status kolo_store_copy_own(const kolo_store_entry *entry, kolo_store_window w, char *own,
                                char *piece) {
    const size_t size = kolo_dtype_bytes(entry->tensor.dtype);
    if (entry->mesh) return copy_window(entry, w, own, piece, true);
    if (!kolo_layout_is_plain(&entry->tensor.layout)) {
        copy_reordered(&entry->tensor, w, own, piece);
        return KOLO_OK;
    }
    const int64_t first = kolo_max_i64(w.first, w.own), end = kolo_min_i64(w.end, w.own_end);
    if (end <= first) return KOLO_OK;
    memcpy(piece + (size_t)(first - w.first) * size, own + (size_t)(first - w.own) * size,
           (size_t)(end - first) * size);
    return KOLO_OK;
}

kolo_store_window kolo_store_own_window(const kolo_store_entry *entry) {
    if (!entry->cuts) return (kolo_store_window){.own_end = INT64_MAX};
    return (kolo_store_window){.own = entry->first, .own_end = entry->first + entry->count};
}

/* The whole from the ranges of all ranks, or from the first stage that has it: sums over other axes
 * may round differently on the others. Collective. */
static kolo_status gather_whole(const kolo_store *s, const kolo_store_entry *entry, void *whole) {
    const kolo_tensor plain = canonical_of(entry);
    const size_t bytes = kolo_tensor_bytes(&plain);
    kolo_store_window w = kolo_store_own_window(entry);
    w.end = kolo_shape_count(&entry->tensor.shape);
    memset(whole, 0, bytes);
    kolo_status status =
        entry->copied ? KOLO_OK : kolo_store_copy_own(entry, w, kolo_store_data(s, entry), whole);
    if (status == KOLO_OK) status = kolo_store_check(s);
    kolo_status sum = kolo_store_join_parts(s, whole, bytes); /* all take part */
    return status == KOLO_OK ? sum : status;
}

kolo_status kolo_store_read(const kolo_store *s, const kolo_store_entry *entry, void *canonical) {
    kolo_tensor plain = canonical_of(entry);
    if (entry->mesh) return gather_slices(s, entry, canonical);
    if (kolo_store_entry_is_sharded(entry)) return gather_whole(s, entry, canonical);
    kolo_tensor_reorder(&plain, canonical, &entry->tensor, kolo_store_data(s, entry));
    return kolo_store_check(s);
}

kolo_status kolo_store_write(kolo_store *s, const kolo_store_entry *entry, const void *canonical) {
    KOLO_ASSERT(!s->deferring);
    kolo_tensor plain = canonical_of(entry);
    if (entry->joins && s->follows) return KOLO_OK;
    if (entry->elsewhere) return KOLO_OK;
    if (entry->mesh) return write_slice(s, entry, canonical);
    for (int b = 0; !entry->cuts && b < (entry->single ? 1 : 2); b++) {
        kolo_tensor_reorder(&entry->tensor, kolo_store_host(s, entry, b), &plain, canonical);
        kolo_store_put(s, entry, b);
    }
    if (!entry->cuts) return kolo_store_finish_put(s, entry);
    if (kolo_layout_is_plain(&entry->tensor.layout)) {
        write_range(s, entry, canonical);
        return kolo_store_finish_put(s, entry);
    }
    size_t bytes = kolo_tensor_bytes(&entry->tensor);
    char *whole = kolo_zalloc(bytes);
    if (!whole) return KOLO_NOMEM(bytes);
    kolo_tensor_reorder(&entry->tensor, whole, &plain, canonical);
    write_range(s, entry, whole);
    kolo_free(whole);
    return kolo_store_finish_put(s, entry);
}
