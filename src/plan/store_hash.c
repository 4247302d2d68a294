/* The hash of all entries, in canonical order: a polynomial in 31 of the hashes of blocks. */
#include "base/integer.h"
#include "base/rng.h"
#include "comm/sync/agree.h"
#include "plan/store_pieces.h"

#include <string.h>

/* Copies n elements in canonical order from *index on, and advances *index. */
static void gather(const kolo_tensor *t, const char *data, int64_t *index, int64_t n, char *to) {
    size_t size = kolo_dtype_bytes(t->dtype);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = kolo_layout_offset(&t->layout, &t->shape, index);
        memcpy(to + (size_t)k * size, data + (size_t)at * size, size);
        for (int i = t->shape.rank - 1; i >= 0 && ++index[i] == t->shape.dim[i]; i--) index[i] = 0;
    }
}

/* Appends an entry to a hash, which is a polynomial in 31 of the hashes of all blocks. */
static uint64_t hash_entry(const kolo_tensor *t, const char *data, uint64_t hash) {
    char gathered[KOLO_STORE_BLOCK * sizeof(double)];
    int64_t index[KOLO_MAX_RANK] = {0}, count = kolo_shape_count(&t->shape);
    bool plain = kolo_layout_is_plain(&t->layout);
    size_t size = kolo_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < count; i += KOLO_STORE_BLOCK) {
        int64_t n = kolo_min_i64(KOLO_STORE_BLOCK, count - i);
        if (!plain) gather(t, data, index, n, gathered);
        const char *from = plain ? data + (size_t)i * size : gathered;
        hash = 31 * hash + kolo_hash_bytes(from, (size_t)n * size);
    }
    return hash;
}

uint64_t kolo_store_hash(const kolo_store *s) {
    uint64_t hash = 0;
    for (size_t i = 0; i < s->n_entries; i++) {
        const kolo_store_entry *entry = &s->entries[i];
        KOLO_ASSERT(!kolo_store_entry_is_sharded(entry));
        hash = hash_entry(&entry->tensor, kolo_store_data(s, entry), hash);
    }
    return hash;
}

/* Whether the ranks have parts of an entry whose blocks are not those of its memory, or stages have
 * it: what lies in memory may differ. */
static bool is_divided(const kolo_store_entry *entry) {
    return kolo_store_entry_is_sharded(entry) && !kolo_store_entry_is_plain_range(entry);
}

/* Appends a divided entry, a piece at a time. A failure of this rank alone goes to *own_status, as
 * the others wait for its part of the pieces. Collective. */
static kolo_status hash_pieces(const kolo_store *s, const kolo_store_entry *entry, char *piece,
                               kolo_status *own_status, uint64_t *hash) {
    const kolo_tensor *is = kolo_store_entry_ranged(entry);
    const int64_t all = kolo_shape_count(&entry->tensor.shape);
    const size_t size = kolo_dtype_bytes(entry->tensor.dtype), bytes = kolo_tensor_bytes(is);
    const bool copies = entry->mesh && !kolo_layout_is_plain(&is->layout);
    kolo_store_window w =
        copies ? (kolo_store_window){.own_end = INT64_MAX} : kolo_store_own_window(entry);
    KOLO_ASSERT(piece);
    kolo_status sum = KOLO_OK;
    char *copy = copies && !entry->copied ? kolo_alloc(bytes) : NULL;
    if (copies && !entry->copied && *own_status == KOLO_OK) {
        *own_status = copy ? kolo_store_read_own(s, entry, copy) : KOLO_NOMEM(bytes);
    }
    for (; sum == KOLO_OK && w.first < all; w.first += KOLO_STORE_PIECE) {
        const int64_t count = kolo_min_i64(KOLO_STORE_PIECE, all - w.first);
        const kolo_tensor flat = kolo_tensor_plain(entry->tensor.dtype, kolo_shape_1(count));
        w.end = w.first + count;
        memset(piece, 0, (size_t)count * size);
        if (!entry->copied && *own_status == KOLO_OK) {
            char *own = copies ? copy : kolo_store_data(s, entry);
            *own_status = kolo_store_copy_own(entry, w, own, piece);
        }
        sum = kolo_store_join_parts(s, piece, (size_t)count * size);
        *hash = hash_entry(&flat, piece, *hash);
    }
    kolo_free(copy);
    return sum;
}

/* Appends zeros in place of the hashes of `elements`. */
static uint64_t skip_blocks(uint64_t hash, int64_t elements) {
    for (int64_t i = 0; i < elements; i += KOLO_STORE_BLOCK) hash *= 31;
    return hash;
}

/* Appends an entry of which this rank has a range; zeros in place of the others. */
static uint64_t hash_range(const kolo_store *s, const kolo_store_entry *entry, uint64_t hash) {
    const int64_t all = kolo_tensor_elements(&entry->tensor), end = entry->first + entry->count;
    const kolo_tensor range = kolo_tensor_plain(entry->tensor.dtype, kolo_shape_1(entry->count));
    KOLO_ASSERT(entry->count == 0 || entry->first % KOLO_STORE_BLOCK == 0);
    KOLO_ASSERT(end % KOLO_STORE_BLOCK == 0 || end == all);
    hash = hash_entry(&range, kolo_store_data(s, entry), skip_blocks(hash, entry->first));
    return skip_blocks(hash, all - end);
}

/* Appends all entries: to of_ranges those of which this rank has a range, to of_all the others. */
static kolo_status hash_entries(const kolo_store *s, char *piece, kolo_status *own_status,
                                uint64_t *of_all, uint64_t *of_ranges) {
    for (size_t i = 0; i < s->n_entries; i++) {
        const kolo_store_entry *entry = &s->entries[i];
        const int64_t elements = kolo_shape_count(&entry->tensor.shape);
        if (kolo_store_entry_is_plain_range(entry)) {
            *of_all = skip_blocks(*of_all, elements);
            *of_ranges = hash_range(s, entry, *of_ranges);
            continue;
        }
        *of_ranges = skip_blocks(*of_ranges, elements);
        if (is_divided(entry)) {
            KOLO_TRY(hash_pieces(s, entry, piece, own_status, of_all));
        } else {
            *of_all = hash_entry(&entry->tensor, kolo_store_data(s, entry), *of_all);
        }
    }
    return KOLO_OK;
}

/* The hash is linear in those of blocks, so the ranks add up those of their ranges; what has other
 * blocks in memory is exchanged in pieces. */
kolo_status kolo_store_hash_shards(const kolo_store *s, uint64_t *hash) {
    uint64_t of_all = 0, of_ranges = 0;
    bool ranges = false, divided = false;
    for (size_t i = 0; i < s->n_entries; i++) {
        ranges = ranges || kolo_store_entry_is_plain_range(&s->entries[i]);
        divided = divided || is_divided(&s->entries[i]);
    }
    kolo_status own_status = KOLO_OK;
    const size_t bytes = KOLO_STORE_PIECE * sizeof(double);
    char *piece = divided ? kolo_alloc(bytes) : NULL;
    if (divided && !piece) own_status = KOLO_NOMEM(bytes);
    kolo_status status = divided ? kolo_agree(s->comm, own_status) : KOLO_OK;
    if (status == KOLO_OK) status = hash_entries(s, piece, &own_status, &of_all, &of_ranges);
    if (status == KOLO_OK && divided) status = kolo_agree(s->comm, own_status);
    kolo_free(piece);
    if (status == KOLO_OK && ranges && s->comm) {
        status = kolo_allreduce(s->comm, &of_ranges, 1, KOLO_DTYPE_I64, KOLO_SUM);
    }
    if (status != KOLO_OK) return status;
    *hash = of_all + of_ranges;
    return KOLO_OK;
}
