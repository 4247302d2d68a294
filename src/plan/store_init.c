/* Initial values: drawn by each rank, then replaced by those of rank 0. They are drawn in canonical
 * order from a random stream keyed by the seed and the name of the parameter, so that they depend
 * neither on the layout nor on the number of workers. */
#include "base/rng.h"
#include "plan/store_pieces.h"

enum { BROADCAST_PIECE = 16 << 20 };

static double draw(const kolo_init *init, const kolo_rng *rng, uint64_t i) {
    switch (init->kind) {
    case KOLO_INIT_ONE:
        return 1;
    case KOLO_INIT_UNIFORM:
        return init->scale * (2.0 * (double)kolo_rng_uniform(rng, i) - 1.0);
    case KOLO_INIT_NORMAL:
        return init->scale * (double)kolo_rng_normal(rng, i);
    case KOLO_INIT_ZERO:
        break;
    }
    return 0;
}

/* Sets what this rank holds to zero, without a copy of the whole. */
static void clear(kolo_store *s, const kolo_store_entry *entry) {
    const size_t bytes = kolo_store_entry_bytes(entry);
    for (int b = 0; bytes > 0 && b < (entry->single ? 1 : 2); b++) { /* a range may be empty */
        kolo_regions_fill(s->regions, kolo_store_at(s, entry, b), 0, bytes);
    }
}

/* Draws `count` elements from `first` on, in canonical order. */
static void draw_elements(const kolo_store_entry *entry, uint64_t seed, int64_t first,
                          int64_t count, void *to) {
    const kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_INIT, kolo_hash_text(entry->name) >> 8);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = first + i;
        double number =
            entry->initial ? (double)entry->initial[at] : draw(&entry->init, &rng, (uint64_t)at);
        if (entry->tensor.dtype == KOLO_DTYPE_F64) {
            ((double *)to)[i] = number;
        } else {
            ((float *)to)[i] = (float)number;
        }
    }
}

/* Draws the range of this rank of an entry in canonical order. */
static kolo_status init_range(kolo_store *s, const kolo_store_entry *entry, uint64_t seed) {
    const size_t bytes = kolo_store_entry_bytes(entry);
    if (bytes == 0) return KOLO_OK;
    draw_elements(entry, seed, entry->first, entry->count, kolo_store_host(s, entry, 0));
    kolo_store_put(s, entry, 0);
    if (!entry->single) {
        kolo_regions_copy(s->regions, kolo_store_at(s, entry, 1), kolo_store_at(s, entry, 0),
                          bytes);
    }
    return kolo_store_finish_put(s, entry);
}

static kolo_status init_whole(kolo_store *s, const kolo_store_entry *entry, uint64_t seed) {
    const int64_t count = kolo_shape_count(&entry->tensor.shape);
    const size_t bytes = (size_t)count * kolo_dtype_bytes(entry->tensor.dtype);
    void *canonical = kolo_zalloc(bytes);
    if (!canonical) return KOLO_NOMEM(bytes);
    draw_elements(entry, seed, 0, count, canonical);
    kolo_status status = kolo_store_write(s, entry, canonical);
    kolo_free(canonical);
    return status;
}

kolo_status kolo_store_init(kolo_store *s, uint64_t seed) {
    KOLO_ASSERT(!s->deferring);
    for (size_t e = 0; e < s->n_entries; e++) {
        const kolo_store_entry *entry = &s->entries[e];
        bool zero = !entry->initial && entry->init.kind == KOLO_INIT_ZERO;
        if (entry->joins && s->follows) continue; /* rank 0 writes it */
        if (kolo_store_entry_is_sharded(entry) && zero) {
            clear(s, entry);
        } else if (kolo_store_entry_is_plain_range(entry)) {
            KOLO_TRY(init_range(s, entry, seed));
        } else {
            KOLO_TRY(init_whole(s, entry, seed));
        }
    }
    return kolo_regions_wait(s->regions);
}

/* A hash of the layouts, which have to agree before ranks exchange raw memory. */
static uint64_t hash_layouts(const kolo_store *s) {
    bool sharded = kolo_store_is_sharded(s);
    uint64_t hash = sharded ? 0 : s->bytes + s->single_bytes;
    for (size_t e = 0; e < s->n_entries; e++) {
        const kolo_store_entry *entry = &s->entries[e];
        const bool same = entry->cuts && !entry->mesh && !entry->staged; /* on all ranks */
        size_t cuts = same ? (size_t)kolo_comm_size(s->comm) * sizeof *entry->cuts : 0;
        char shape[KOLO_SHAPE_TEXT], layout[KOLO_LAYOUT_TEXT];
        const kolo_tensor plain = kolo_tensor_plain(entry->tensor.dtype, entry->canon);
        const kolo_tensor *t = entry->staged ? &plain : &entry->tensor; /* stages have their own */
        (void)kolo_shape_text(&t->shape, shape);
        (void)kolo_layout_text(&t->layout, layout);
        const uint64_t of_entry[] = {hash,
                                     kolo_hash_text(entry->name),
                                     (uint64_t)entry->tensor.dtype,
                                     kolo_hash_text(shape),
                                     kolo_hash_text(layout),
                                     kolo_hash_bytes(entry->cuts, cuts)};
        hash = kolo_hash_bytes(of_entry, sizeof of_entry);
    }
    return hash;
}

/* In pieces, which bound staging memory. */
static kolo_status broadcast(const kolo_store *s, kolo_comm *comm, char *at, size_t bytes) {
    for (size_t done = 0; done < bytes; done += BROADCAST_PIECE) {
        const size_t left = bytes - done, n = left < BROADCAST_PIECE ? left : BROADCAST_PIECE;
        void *piece = kolo_regions_stage(s->regions, at + done, n);
        KOLO_TRY(kolo_broadcast(comm, piece, n, KOLO_DTYPE_U8, 0));
        kolo_regions_push(s->regions, at + done, n);
    }
    return KOLO_OK;
}

/* Flat shards are not broadcast: each rank has its own. */
static kolo_status broadcast_wholes(kolo_store *s, kolo_comm *comm) {
    for (size_t e = 0; e < s->n_entries; e++) {
        const kolo_store_entry *entry = &s->entries[e];
        size_t bytes = kolo_store_entry_bytes(entry);
        bool shared = entry->joins && s->shares;
        if (kolo_store_entry_is_sharded(entry) || shared || bytes == 0) continue;
        KOLO_TRY(broadcast(s, comm, kolo_store_at(s, entry, s->current), bytes));
        if (entry->single) continue;
        kolo_regions_copy(s->regions, kolo_store_at(s, entry, !s->current),
                          kolo_store_at(s, entry, s->current), bytes);
    }
    return kolo_regions_wait(s->regions);
}

kolo_status kolo_store_broadcast(kolo_store *s, kolo_comm *comm) {
    KOLO_ASSERT(!s->deferring);
    if (!comm || kolo_comm_size(comm) == 1) return KOLO_OK;
    uint64_t mine = hash_layouts(s), rank0 = mine;
    KOLO_TRY(kolo_broadcast(comm, &rank0, sizeof rank0, KOLO_DTYPE_U8, 0));
    uint8_t differs = mine != rank0;
    KOLO_TRY(kolo_allreduce(comm, &differs, 1, KOLO_DTYPE_U8, KOLO_MAX));
    if (differs) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "rank %d: the ranks chose different layouts or models for their parameters "
            "(other processors or options?); give all the same",
            kolo_comm_rank(comm));
    }
    if (kolo_store_is_sharded(s) || s->joined_bytes) return broadcast_wholes(s, comm);
    if (s->single_bytes) KOLO_TRY(broadcast(s, comm, s->single, s->single_bytes));
    if (s->bytes) {
        KOLO_TRY(broadcast(s, comm, s->bank[s->current], s->bytes));
        kolo_regions_copy(s->regions, s->bank[!s->current], s->bank[s->current], s->bytes);
    }
    return kolo_regions_wait(s->regions);
}
