#pragma once
/* The elements of an entry that this rank holds. */

#include "plan/store.h"

enum { KOLO_STORE_BLOCK = 1024 };                   /* elements with a hash of their own */
enum { KOLO_STORE_PIECE = 256 * KOLO_STORE_BLOCK }; /* elements that ranks exchange at once */

/* Elements [first, end) of a whole, and [own, own_end) of a slice, in row-major order. */
typedef struct kolo_store_window {
    int64_t first, end, own, own_end;
} kolo_store_window;

/* Whether this rank has a range of an entry that is in row-major order, and all ranks together have
 * the entry once. */
bool kolo_store_entry_is_plain_range(const kolo_store_entry *entry);
/* What this rank has a range of, if it has one: its slice, or the whole, as in memory. */
const kolo_tensor *kolo_store_entry_ranged(const kolo_store_entry *entry);
/* The elements of memory that this rank has. */
kolo_store_window kolo_store_own_window(const kolo_store_entry *entry);
/* Copies what the window has of `own` to where it begins: of a slice in row-major order, or of the
 * tensor as it is in memory. NOMEM. */
kolo_status kolo_store_copy_own(const kolo_store_entry *entry, kolo_store_window w, char *own,
                                char *piece);
/* Copies what this rank has of its slice, or of the whole, in row-major order; zeros in place of
 * other ranges. NOMEM. */
kolo_status kolo_store_read_own(const kolo_store *store, const kolo_store_entry *entry, void *to);
/* Copies a tensor that this rank holds as it does an entry, laid out as `is`, to its place in the
 * whole in row-major order. NOMEM. */
kolo_status kolo_store_place(const kolo_store_entry *entry, const kolo_tensor *is, const void *data,
                             void *whole);
/* Completes `whole`, in which each rank has set its own elements and the others are zero; a piece
 * at a time, as an allreduce may need as much memory as it sums. Collective. */
kolo_status kolo_store_join_parts(const kolo_store *store, char *whole, size_t bytes);
