/* The store: parameters and optimizer state in two banks, or in one version, see plan.h. This file
 * has the entries and their memory; store_init.c draws values, store_values.c reads and writes
 * them, store_hash.c hashes them.
 *
 * Compiling a plan adds its missing entries, which may move the banks; they never move within a
 * step. */
#include "plan/store.h"

#include "base/integer.h"
#include "kolo/embed.h"
#include "kolo/host_memory.h"

#include <string.h>

kolo_status kolo_store_create(kolo_device *device, kolo_store **store) {
    kolo_store *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    const kolo_status status = kolo_regions_create(device, &s->regions);
    if (status != KOLO_OK) {
        kolo_free(s);
        return status;
    }
    *store = s;
    return KOLO_OK;
}

void kolo_store_set_alone(kolo_store *s) {
    KOLO_ASSERT(s->n_entries == 0);
    s->alone = true;
}

void kolo_store_set_comm(kolo_store *s, kolo_comm *comm) { s->comm = comm; }

void kolo_store_destroy(kolo_store *s) {
    if (!s) return;
    for (int b = 0; b < 2 && s->detached; b++) {
        kolo_regions_unmap(s->regions, s->bank[b]);
        if (!s->registered) kolo_regions_unmap(s->regions, s->joined[b]);
    }
    if (s->detached) kolo_regions_unmap(s->regions, s->single);
    if (!s->detached) kolo_regions_destroy(s->regions);
    kolo_arena_fini(&s->names);
    kolo_name_index_fini(&s->index);
    kolo_free(s->entries);
    kolo_free(s);
}

int kolo_store_count(const kolo_store *s) { return (int)s->n_entries; }

const kolo_store_entry *kolo_store_entry_at(const kolo_store *s, int i) {
    KOLO_ASSERT(i >= 0 && (size_t)i < s->n_entries);
    return &s->entries[i];
}

const kolo_store_entry *kolo_store_find(const kolo_store *s, const char *name) {
    int32_t i = kolo_name_index_find(&s->index, name);
    return i >= 0 ? &s->entries[i] : NULL;
}

/* Each rank has a version of its own. */
static kolo_status add_version_cuts(kolo_store *s, kolo_store_entry *entry) {
    size_t bytes = ((size_t)entry->versions + 1) * sizeof *entry->cuts;
    int64_t *cuts = kolo_arena_alloc(&s->names, bytes);
    if (!cuts) return KOLO_NOMEM(bytes);
    for (int r = 0; r <= entry->versions; r++) cuts[r] = r * entry->count;
    entry->cuts = cuts;
    return KOLO_OK;
}

/* Copies the cuts of a flat shard. */
static kolo_status copy_cuts(kolo_store *s, const kolo_graph *g, kolo_value v,
                             const int64_t **copies) {
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const int64_t *cuts = kolo_info(g, v)->placements.axis[a].cuts;
        size_t bytes = ((size_t)g->mesh.axes[a].size + 1) * sizeof *cuts;
        if (!cuts || kolo_info(g, v)->placements.axis[a].dim != KOLO_DIM_FLAT) continue;
        int64_t *copy = kolo_arena_alloc(&s->names, bytes);
        if (!copy) return KOLO_NOMEM(bytes);
        memcpy(copy, cuts, bytes);
        *copies = copy;
    }
    return KOLO_OK;
}

static kolo_status add_cuts(kolo_store *s, const kolo_graph *g, kolo_value v,
                            kolo_store_entry *entry) {
    entry->count = kolo_tensor_elements(&entry->tensor);
    if (!kolo_flat_range(g, v, &entry->first, &entry->count)) return KOLO_OK;
    return entry->versions > 0 ? add_version_cuts(s, entry) : copy_cuts(s, g, v, &entry->cuts);
}

bool kolo_store_entry_is_sharded(const kolo_store_entry *entry) {
    return entry->cuts || entry->mesh || entry->staged;
}

bool kolo_store_slices(const kolo_graph *g, kolo_value v) {
    int64_t first, count;
    if (kolo_is_slice(g, v)) return true;
    const bool range = kolo_info(g, v)->versions == 0 && kolo_flat_range(g, v, &first, &count);
    return range && kolo_mesh_has_model_axis(&g->mesh);
}

/* Describes a slice of tensor parallelism, or what the ranks along dp have ranges of. */
static kolo_status add_slice(kolo_store *s, const kolo_graph *g, kolo_value v,
                             kolo_store_entry *entry) {
    const kolo_value_info *value = kolo_info(g, v);
    kolo_mesh *mesh = kolo_arena_alloc(&s->names, sizeof *mesh);
    kolo_placements *placements = kolo_arena_alloc(&s->names, sizeof *placements);
    if (!mesh || !placements) return KOLO_NOMEM(sizeof *placements);
    *mesh = g->mesh;
    *placements = value->placements;
    for (int a = 0; a < mesh->n_axes; a++) {
        if (placements->axis[a].dim == KOLO_DIM_FLAT) placements->axis[a] = (kolo_placement){0};
    }
    entry->tensor = kolo_tensor_plain(value->whole.dtype, value->whole.shape);
    entry->slice = entry->cuts ? value->slice : value->tensor;
    if (!entry->cuts) entry->count = kolo_tensor_elements(&value->tensor);
    entry->mesh = mesh;
    entry->placements = placements;
    entry->rank = g->rank;
    return KOLO_OK;
}

size_t kolo_store_entry_bytes(const kolo_store_entry *entry) {
    return (size_t)entry->count * kolo_dtype_bytes(entry->tensor.dtype);
}

kolo_status kolo_store_add(kolo_store *s, const kolo_graph *g, kolo_value v) {
    const kolo_value_info *value = kolo_info(g, v);
    int64_t first, count;
    bool single = s->alone || value->in_place;
    char *name = kolo_arena_strdup(&s->names, value->name);
    kolo_store_entry entry = {
        .name = name,
        .kind = value->kind,
        .tensor = value->versions > 0                     ? value->whole
                  : kolo_flat_range(g, v, &first, &count) ? value->slice
                                                          : value->tensor,
        .canon = value->canon,
        .init = value->init,
        .initial = value->initial,
        .single = single,
        .unit = value->unit,
        .place = value->place,
        .versions = value->versions,
        .staged = value->holders != 0,
        .elsewhere = !kolo_is_held(g, value),
        .copied = value->holders != 0 && !kolo_is_held_first(g, value),
    };
    if (!name || !KOLO_GROW(s->entries, s->n_entries, s->capacity)) return KOLO_NOMEM(64);
    KOLO_TRY(add_cuts(s, g, v, &entry));
    if (kolo_store_slices(g, v)) KOLO_TRY(add_slice(s, g, v, &entry));
    if (entry.elsewhere) entry.count = 0;
    KOLO_TRY(kolo_store_describe_holders(s, g, v, &entry.holders));
    if (!kolo_name_index_add(&s->index, name, (int32_t)s->n_entries)) return KOLO_NOMEM(64);
    size_t *bytes = single ? &s->single_bytes : &s->bytes;
    entry.offset = *bytes;
    s->entries[s->n_entries++] = entry;
    if (!kolo_find_join(g, v)) *bytes += kolo_round_up(kolo_store_entry_bytes(&entry), 64);
    return KOLO_OK;
}

kolo_status kolo_store_join(kolo_store *s, const kolo_graph *g, const kolo_node *wait) {
    const kolo_node *post = g->nodes[kolo_info(g, wait->in[0])->producer];
    s->shares = wait->attr[KOLO_COMM_COLLECTIVE].i == KOLO_COLLECTIVE_BARRIER;
    for (int k = 0; k < wait->n_out; k++) {
        const char *name = kolo_info(g, kolo_info(g, wait->out[k])->next_of)->name;
        kolo_store_entry *entry = &s->entries[kolo_name_index_find(&s->index, name)];
        if (entry->joins) continue;
        KOLO_TRY(copy_cuts(s, g, post->in[k], &entry->joins));
        entry->offset = s->joined_bytes;
        s->joined_bytes += kolo_round_up(kolo_store_entry_bytes(entry), 64);
    }
    return KOLO_OK;
}

/* Grows *memory, of *mapped bytes, to at least `bytes`; keeps its contents if `keep`. NOMEM: no
 * change. */
static kolo_status grow(kolo_store *s, char **memory, size_t *mapped, size_t bytes, bool keep) {
    if (bytes <= *mapped) return KOLO_OK;
    char *bigger;
    KOLO_TRY(kolo_regions_map(s->regions, NULL, bytes, &bigger)); /* not used until written */
    if (keep && *mapped) kolo_regions_copy(s->regions, bigger, *memory, *mapped);
    KOLO_TRY(kolo_regions_wait(s->regions));
    kolo_regions_unmap(s->regions, *memory);
    *memory = bigger;
    *mapped = bytes;
    s->moves++;
    return KOLO_OK;
}

/* Makes registered memory, of `bytes` for each, the banks of joined entries. */
static void take_joined(kolo_store *s, char *memory, size_t bytes) {
    for (int b = 0; b < 2; b++) {
        kolo_regions_unmap(s->regions, s->joined[b]);
        s->joined[b] = memory + (size_t)b * bytes;
        s->joined_mapped[b] = bytes;
    }
    s->registered = true;
    s->moves++;
}

static kolo_status grow_joined(kolo_store *s, kolo_comm *comm) {
    const size_t bytes = kolo_round_up(s->joined_bytes, 4096);
    char *memory;
    if (bytes <= s->joined_mapped[0]) return KOLO_OK;
    if (s->registered) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "a later plan updates parameters that the first one does not");
    }
    if (comm && !s->shares && s->joined_mapped[0] == 0 && s->spare_bytes >= bytes) {
        take_joined(s, s->spare, s->spare_bytes);
        s->spare = NULL;
        s->spare_bytes = 0;
    } else if (comm && !s->shares && s->joined_mapped[0] == 0) {
        KOLO_TRY(kolo_regions_map(s->regions, comm, 2 * bytes, &memory));
        take_joined(s, memory, bytes);
    }
    for (int b = 0; b < 2; b++) {
        KOLO_TRY(grow(s, &s->joined[b], &s->joined_mapped[b], bytes, true));
    }
    return KOLO_OK;
}

kolo_status kolo_store_grow(kolo_store *s, kolo_comm *comm) {
    KOLO_TRY(grow(s, &s->single, &s->single_mapped, s->single_bytes, true));
    for (int b = 0; b < 2; b++) {
        KOLO_TRY(grow(s, &s->bank[b], &s->mapped[b], s->bytes, true));
    }
    return grow_joined(s, comm);
}

kolo_status kolo_store_share(kolo_store *s, kolo_comm *comm) {
    const size_t bytes = s->joined_mapped[0];
    void *memory;
    KOLO_ASSERT(!s->registered);
    if (bytes == 0) return KOLO_OK;
    KOLO_TRY(kolo_comm_alloc_shared(comm, 2 * bytes, &memory));
    KOLO_TRY(kolo_regions_take(s->regions, memory, 2 * bytes));
    take_joined(s, memory, bytes);
    s->follows = kolo_comm_rank(comm) > 0;
    return KOLO_OK;
}

char *kolo_store_at(const kolo_store *s, const kolo_store_entry *entry, int bank) {
    char *base = entry->single ? s->single : entry->joins ? s->joined[bank] : s->bank[bank];
    return base + entry->offset;
}

char *kolo_store_host(const kolo_store *s, const kolo_store_entry *entry, int bank) {
    char *at = kolo_store_at(s, entry, bank);
    return kolo_store_entry_bytes(entry) > 0 ? kolo_regions_host(s->regions, at) : at;
}

kolo_status kolo_store_finish_put(const kolo_store *s, const kolo_store_entry *entry) {
    const kolo_status status = kolo_regions_wait(s->regions);
    for (int b = 0; b < (entry->single ? 1 : 2); b++) {
        kolo_regions_release(s->regions, kolo_store_at(s, entry, b), kolo_store_entry_bytes(entry));
    }
    return status;
}

void kolo_store_put(const kolo_store *s, const kolo_store_entry *entry, int bank) {
    kolo_regions_push(s->regions, kolo_store_at(s, entry, bank), kolo_store_entry_bytes(entry));
}

kolo_status kolo_store_reserve(kolo_store *s, size_t bytes) {
    return grow(s, &s->arena, &s->arena_bytes, bytes, false);
}

kolo_status kolo_store_reserve_gradients(kolo_store *s, kolo_comm *comm, size_t bytes) {
    const bool registers = comm && s->own_gradients; /* what plans without one have */
    if (bytes <= s->gradient_bytes && !registers) return KOLO_OK;
    if (bytes < s->gradient_bytes) bytes = s->gradient_bytes;
    /* Memory of the communicator is not freed: requests may point to it. */
    char *memory = s->own_gradients ? s->gradients : NULL;
    size_t mapped = s->own_gradients ? s->gradient_bytes : 0;
    if (comm) {
        char *registered;
        KOLO_TRY(kolo_regions_map(s->regions, comm, bytes, &registered));
        if (memory) s->moves++;
        kolo_regions_unmap(s->regions, memory);
        memory = registered;
    } else {
        KOLO_TRY(grow(s, &memory, &mapped, bytes, false));
    }
    s->gradients = memory;
    s->gradient_bytes = bytes;
    s->own_gradients = !comm;
    return KOLO_OK;
}

bool kolo_name_is_optimizer(const char *name) { return strncmp(name, "optimizer.", 10) == 0; }

bool kolo_store_entry_is_model(const kolo_store_entry *entry) {
    const bool buffer = strncmp(entry->name, "__", 2) == 0;
    return entry->kind == KOLO_VALUE_PARAM || !(buffer || kolo_name_is_optimizer(entry->name));
}

void *kolo_store_data(const kolo_store *s, const kolo_store_entry *entry) {
    KOLO_ASSERT(!s->deferring);
    return kolo_regions_stage(s->regions, kolo_store_at(s, entry, s->current),
                              kolo_store_entry_bytes(entry));
}

kolo_status kolo_store_check(const kolo_store *s) { return kolo_regions_wait(s->regions); }

void kolo_store_abort_if_failed(const kolo_store *s, kolo_comm *comm) {
    const kolo_status status = comm ? kolo_store_check(s) : KOLO_OK;
    if (status == KOLO_OK) return;
    (void)kolo_fail_in(status, "rank %d", kolo_comm_rank(comm));
    kolo_comm_abort(comm, kolo_last_error());
}

bool kolo_store_is_sharded(const kolo_store *s) {
    for (size_t i = 0; i < s->n_entries; i++) {
        if (kolo_store_entry_is_sharded(&s->entries[i])) return true;
    }
    return false;
}

kolo_comm *kolo_store_shard_comm(const kolo_store *s) {
    return kolo_store_is_sharded(s) ? s->comm : NULL;
}
