/* The store: parameters and optimizer state in two banks, or in one version, see plan.h.
 *
 * Compiling a plan adds its missing entries, which may move the banks; they never move within a
 * step. Initial values are drawn in canonical order from a random stream keyed by the seed and the
 * name of the parameter, so that they depend neither on the layout nor on the number of workers. */
#include "plan/store.h"

#include "base/integer.h"
#include "base/rng.h"
#include "comm/sync/agree.h"
#include "kolo/host_memory.h"

#include <string.h>

kolo_status kolo_store_create(kolo_store **store) {
    kolo_store *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    *store = s;
    return KOLO_OK;
}

kolo_status kolo_store_cut_stages(kolo_store *s, const kolo_graph *g, int parts) {
    return kolo_pass_cuts(g, parts, &s->cuts, &s->names);
}

void kolo_store_set_alone(kolo_store *s) {
    KOLO_ASSERT(s->n_entries == 0);
    s->alone = true;
}

void kolo_store_destroy(kolo_store *s) {
    if (!s) return;
    for (int b = 0; b < 2; b++) {
        kolo_pages_unmap(s->bank[b], s->mapped[b]);
        if (!s->registered) kolo_pages_unmap(s->joined[b], s->joined_mapped[b]);
    }
    kolo_pages_unmap(s->single, s->single_mapped);
    kolo_pages_unmap(s->arena, s->arena_bytes);
    if (s->own_gradients) kolo_pages_unmap(s->gradients, s->gradient_bytes);
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
    char *bigger = kolo_pages_map(bytes); /* uses no memory until written */
    if (!bigger) return KOLO_NOMEM(bytes);
    if (keep && *mapped) memcpy(bigger, *memory, *mapped);
    kolo_pages_unmap(*memory, *mapped);
    *memory = bigger;
    *mapped = bytes;
    s->moves++;
    return KOLO_OK;
}

/* Makes memory of the communicator, of `bytes` for each, the banks of joined entries. */
static void take_joined(kolo_store *s, void *memory, size_t bytes) {
    for (int b = 0; b < 2; b++) {
        kolo_pages_unmap(s->joined[b], s->joined_mapped[b]);
        s->joined[b] = (char *)memory + (size_t)b * bytes;
        s->joined_mapped[b] = bytes;
    }
    s->registered = true;
    s->moves++;
}

static kolo_status grow_joined(kolo_store *s, kolo_comm *comm) {
    const size_t bytes = kolo_round_up(s->joined_bytes, 4096);
    void *memory;
    if (bytes <= s->joined_mapped[0]) return KOLO_OK;
    if (s->registered) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "a later plan updates parameters that the first one does not");
    }
    if (comm && !s->shares && s->joined_mapped[0] == 0) {
        KOLO_TRY(kolo_comm_alloc(comm, 2 * bytes, &memory));
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
    take_joined(s, memory, bytes);
    s->follows = kolo_comm_rank(comm) > 0;
    return KOLO_OK;
}

char *kolo_store_at(const kolo_store *s, const kolo_store_entry *entry, int bank) {
    char *base = entry->single ? s->single : entry->joins ? s->joined[bank] : s->bank[bank];
    return base + entry->offset;
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
        void *registered;
        KOLO_TRY(kolo_comm_alloc(comm, bytes, &registered));
        if (memory) s->moves++;
        kolo_pages_unmap(memory, mapped);
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
    KOLO_ASSERT(!s->unsettled);
    return kolo_store_at(s, entry, s->current);
}

/* Whether this rank has a range of an entry that is in row-major order, and all ranks together have
 * the entry once. */
static bool is_canonical_range(const kolo_store_entry *entry) {
    if (entry->mesh || entry->staged) return false;
    return entry->cuts && entry->versions == 0 && kolo_layout_is_plain(&entry->tensor.layout);
}

/* What this rank has a range of, if it has one: its slice, or the whole, as in memory. */
static const kolo_tensor *ranged_by(const kolo_store_entry *entry) {
    return entry->mesh ? &entry->slice : &entry->tensor;
}

/* The tensor of an entry in files. */
static kolo_tensor canonical_of(const kolo_store_entry *entry) {
    return kolo_tensor_plain(entry->tensor.dtype, entry->tensor.shape);
}

enum { HASHED = 1024 };        /* elements of a block with a hash of its own */
enum { PIECE = 256 * HASHED }; /* elements that the ranks exchange at once */

/* Completes `whole`, in which each rank has set its own elements and the others are zero; a piece
 * at a time, as an allreduce may need as much memory as it sums. Collective. */
static kolo_status join_parts(const kolo_store *s, char *whole, size_t bytes) {
    const size_t most = PIECE * sizeof(double);
    for (size_t at = 0; s->comm && at < bytes; at += most) {
        const size_t n = bytes - at < most ? bytes - at : most;
        KOLO_TRY(kolo_allreduce(s->comm, whole + at, n, KOLO_DTYPE_U8, KOLO_OR));
    }
    return KOLO_OK;
}

/* Elements [first, end) of a whole, and [own, own_end) of a slice, in row-major order. */
typedef struct window {
    int64_t first, end, own, own_end;
} window;

/* Copies what the window has of the slice out of the whole or, with `back`, into it; both begin
 * where the window does. */
static kolo_status copy_window(const kolo_store_entry *entry, window w, char *slice, char *whole,
                               bool back) {
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
    const window all = {0, INT64_MAX, 0, INT64_MAX};
    return copy_window(entry, all, slice, whole, back);
}

/* Copies what this rank has of its slice, or of the whole, in row-major order; zeros in the place
 * of other ranges. */
static kolo_status read_own(const kolo_store *s, const kolo_store_entry *entry, void *to) {
    const kolo_tensor *is = ranged_by(entry), plain = kolo_tensor_plain(is->dtype, is->shape);
    if (!entry->cuts) {
        kolo_tensor_reorder(&plain, to, is, kolo_store_data(s, entry));
        return KOLO_OK;
    }
    const size_t skip = (size_t)entry->first * kolo_dtype_bytes(is->dtype);
    const size_t bytes = kolo_store_entry_bytes(entry);
    char *all = kolo_zalloc(kolo_tensor_bytes(is) + 1);
    if (!all) return KOLO_NOMEM(kolo_tensor_bytes(is));
    if (bytes > 0) memcpy(all + skip, kolo_store_data(s, entry), bytes);
    kolo_tensor_reorder(&plain, to, is, all);
    kolo_free(all);
    return KOLO_OK;
}

/* The whole from the slices of all ranks, of the first stage that has it, in row-major order: each
 * sets its own bits. Collective. */
static kolo_status gather_slices(const kolo_store *s, const kolo_store_entry *entry, void *whole) {
    const size_t bytes = kolo_tensor_bytes(&entry->slice), all = kolo_tensor_bytes(&entry->tensor);
    char *slice = kolo_alloc(bytes + 1);
    memset(whole, 0, all);
    kolo_status status = slice ? KOLO_OK : KOLO_NOMEM(bytes);
    if (status == KOLO_OK && !entry->copied) {
        status = read_own(s, entry, slice);
        if (status == KOLO_OK) status = copy_slice(entry, slice, whole, true);
    }
    kolo_free(slice);
    kolo_status sum = join_parts(s, whole, all); /* all take part */
    return status == KOLO_OK ? sum : status;
}

/* Sets the range of this rank from the whole tensor, or its slice, in the layout of the store. */
static void write_range(kolo_store *s, const kolo_store_entry *entry, const char *whole) {
    const size_t skip = (size_t)entry->first * kolo_dtype_bytes(entry->tensor.dtype);
    const size_t bytes = kolo_store_entry_bytes(entry);
    for (int b = 0; bytes > 0 && b < (entry->single ? 1 : 2); b++) {
        memcpy(kolo_store_at(s, entry, b), whole + skip, bytes);
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
        kolo_tensor_reorder(&entry->slice, kolo_store_at(s, entry, b), &plain, slice);
    }
    if (status == KOLO_OK && ranged) {
        kolo_tensor_reorder(&entry->slice, ranged, &plain, slice);
        write_range(s, entry, ranged);
    }
    kolo_free(ranged);
    kolo_free(slice);
    return status;
}

/* Copies the elements [w.first, w.end) in row-major order, but for what this rank lacks: it has
 * those at [w.own, w.own_end) of the tensor's memory, which begin at `own`. */
static void copy_reordered(const kolo_tensor *t, window w, const char *own, char *to) {
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

/* Copies what the window has of `own` to where it begins: of a slice in row-major order, or of the
 * tensor as it is in memory. */
static kolo_status copy_own(const kolo_store_entry *entry, window w, char *own, char *piece) {
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

/* The elements of memory that this rank has. */
static window own_window(const kolo_store_entry *entry) {
    if (!entry->cuts) return (window){.own_end = INT64_MAX};
    return (window){.own = entry->first, .own_end = entry->first + entry->count};
}

/* The whole from the ranges of all ranks, or from the first stage that has it: sums over other axes
 * may round differently on the others. Collective. */
static kolo_status gather_whole(const kolo_store *s, const kolo_store_entry *entry, void *whole) {
    const kolo_tensor plain = canonical_of(entry);
    const size_t bytes = kolo_tensor_bytes(&plain);
    window w = own_window(entry);
    w.end = kolo_shape_count(&entry->tensor.shape);
    memset(whole, 0, bytes);
    kolo_status status =
        entry->copied ? KOLO_OK : copy_own(entry, w, kolo_store_data(s, entry), whole);
    kolo_status sum = join_parts(s, whole, bytes); /* all take part */
    return status == KOLO_OK ? sum : status;
}

kolo_status kolo_store_read(const kolo_store *s, const kolo_store_entry *entry, void *canonical) {
    kolo_tensor plain = canonical_of(entry);
    if (entry->mesh) return gather_slices(s, entry, canonical);
    if (kolo_store_entry_is_sharded(entry)) return gather_whole(s, entry, canonical);
    kolo_tensor_reorder(&plain, canonical, &entry->tensor, kolo_store_data(s, entry));
    return KOLO_OK;
}

kolo_status kolo_store_write(kolo_store *s, const kolo_store_entry *entry, const void *canonical) {
    KOLO_ASSERT(!s->unsettled);
    kolo_tensor plain = canonical_of(entry);
    if (entry->joins && s->follows) return KOLO_OK;
    if (entry->elsewhere) return KOLO_OK;
    if (entry->mesh) return write_slice(s, entry, canonical);
    for (int b = 0; !entry->cuts && b < (entry->single ? 1 : 2); b++) {
        kolo_tensor_reorder(&entry->tensor, kolo_store_at(s, entry, b), &plain, canonical);
    }
    if (!entry->cuts) return KOLO_OK;
    if (kolo_layout_is_plain(&entry->tensor.layout)) {
        write_range(s, entry, canonical);
        return KOLO_OK;
    }
    size_t bytes = kolo_tensor_bytes(&entry->tensor);
    char *whole = kolo_zalloc(bytes);
    if (!whole) return KOLO_NOMEM(bytes);
    kolo_tensor_reorder(&entry->tensor, whole, &plain, canonical);
    write_range(s, entry, whole);
    kolo_free(whole);
    return KOLO_OK;
}

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
        memset(kolo_store_at(s, entry, b), 0, bytes);
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
static void init_range(kolo_store *s, const kolo_store_entry *entry, uint64_t seed) {
    char *range = kolo_store_at(s, entry, 0);
    const size_t bytes = kolo_store_entry_bytes(entry);
    draw_elements(entry, seed, entry->first, entry->count, range);
    if (bytes > 0 && !entry->single) memcpy(kolo_store_at(s, entry, 1), range, bytes);
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
    KOLO_ASSERT(!s->unsettled);
    for (size_t e = 0; e < s->n_entries; e++) {
        const kolo_store_entry *entry = &s->entries[e];
        bool zero = !entry->initial && entry->init.kind == KOLO_INIT_ZERO;
        if (entry->joins && s->follows) continue; /* rank 0 writes it */
        if (kolo_store_entry_is_sharded(entry) && zero) {
            clear(s, entry);
        } else if (is_canonical_range(entry)) {
            init_range(s, entry, seed);
        } else {
            KOLO_TRY(init_whole(s, entry, seed));
        }
    }
    return KOLO_OK;
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

/* Flat shards are not broadcast: each rank has its own. */
static kolo_status broadcast_wholes(kolo_store *s, kolo_comm *comm) {
    for (size_t e = 0; e < s->n_entries; e++) {
        const kolo_store_entry *entry = &s->entries[e];
        char *current = kolo_store_at(s, entry, s->current);
        size_t bytes = kolo_store_entry_bytes(entry);
        bool shared = entry->joins && s->shares;
        if (kolo_store_entry_is_sharded(entry) || shared || bytes == 0) continue;
        KOLO_TRY(kolo_broadcast(comm, current, bytes, KOLO_DTYPE_U8, 0));
        if (!entry->single) memcpy(kolo_store_at(s, entry, !s->current), current, bytes);
    }
    return KOLO_OK;
}

kolo_status kolo_store_broadcast(kolo_store *s, kolo_comm *comm) {
    KOLO_ASSERT(!s->unsettled);
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
    if (s->single_bytes) {
        KOLO_TRY(kolo_broadcast(comm, s->single, s->single_bytes, KOLO_DTYPE_U8, 0));
    }
    if (!s->bytes) return KOLO_OK;
    KOLO_TRY(kolo_broadcast(comm, s->bank[s->current], s->bytes, KOLO_DTYPE_U8, 0));
    memcpy(s->bank[!s->current], s->bank[s->current], s->bytes);
    return KOLO_OK;
}

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
    char gathered[HASHED * sizeof(double)];
    int64_t index[KOLO_MAX_RANK] = {0}, count = kolo_shape_count(&t->shape);
    bool plain = kolo_layout_is_plain(&t->layout);
    size_t size = kolo_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < count; i += HASHED) {
        int64_t n = kolo_min_i64(HASHED, count - i);
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
    return kolo_store_entry_is_sharded(entry) && !is_canonical_range(entry);
}

/* Appends a divided entry, a piece at a time. A failure of this rank alone goes to *own_status, as
 * the others wait for its part of the pieces. Collective. */
static kolo_status hash_pieces(const kolo_store *s, const kolo_store_entry *entry, char *piece,
                               kolo_status *own_status, uint64_t *hash) {
    const kolo_tensor *is = ranged_by(entry);
    const int64_t all = kolo_shape_count(&entry->tensor.shape);
    const size_t size = kolo_dtype_bytes(entry->tensor.dtype), bytes = kolo_tensor_bytes(is);
    const bool copies = entry->mesh && !kolo_layout_is_plain(&is->layout);
    window w = copies ? (window){.own_end = INT64_MAX} : own_window(entry);
    KOLO_ASSERT(piece);
    kolo_status sum = KOLO_OK;
    char *copy = copies && !entry->copied ? kolo_alloc(bytes) : NULL;
    if (copies && !entry->copied && *own_status == KOLO_OK) {
        *own_status = copy ? read_own(s, entry, copy) : KOLO_NOMEM(bytes);
    }
    for (; sum == KOLO_OK && w.first < all; w.first += PIECE) {
        const int64_t count = kolo_min_i64(PIECE, all - w.first);
        const kolo_tensor flat = kolo_tensor_plain(entry->tensor.dtype, kolo_shape_1(count));
        w.end = w.first + count;
        memset(piece, 0, (size_t)count * size);
        if (!entry->copied && *own_status == KOLO_OK) {
            char *own = copies ? copy : kolo_store_data(s, entry);
            *own_status = copy_own(entry, w, own, piece);
        }
        sum = join_parts(s, piece, (size_t)count * size);
        *hash = hash_entry(&flat, piece, *hash);
    }
    kolo_free(copy);
    return sum;
}

/* Appends zeros in the place of the hashes of `elements`. */
static uint64_t skip_blocks(uint64_t hash, int64_t elements) {
    for (int64_t i = 0; i < elements; i += HASHED) hash *= 31;
    return hash;
}

/* Appends an entry of which this rank has a range; zeros in the place of the others. */
static uint64_t hash_range(const kolo_store *s, const kolo_store_entry *entry, uint64_t hash) {
    const int64_t all = kolo_tensor_elements(&entry->tensor), end = entry->first + entry->count;
    const kolo_tensor range = kolo_tensor_plain(entry->tensor.dtype, kolo_shape_1(entry->count));
    KOLO_ASSERT(entry->count == 0 || entry->first % HASHED == 0);
    KOLO_ASSERT(end % HASHED == 0 || end == all);
    hash = hash_entry(&range, kolo_store_data(s, entry), skip_blocks(hash, entry->first));
    return skip_blocks(hash, all - end);
}

/* Appends all entries: to of_ranges those of which this rank has a range, to of_all the others. */
static kolo_status hash_entries(const kolo_store *s, char *piece, kolo_status *own_status,
                                uint64_t *of_all, uint64_t *of_ranges) {
    for (size_t i = 0; i < s->n_entries; i++) {
        const kolo_store_entry *entry = &s->entries[i];
        const int64_t elements = kolo_shape_count(&entry->tensor.shape);
        if (is_canonical_range(entry)) {
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
        ranges = ranges || is_canonical_range(&s->entries[i]);
        divided = divided || is_divided(&s->entries[i]);
    }
    kolo_status own_status = KOLO_OK;
    const size_t bytes = PIECE * sizeof(double);
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

bool kolo_store_is_sharded(const kolo_store *s) {
    for (size_t i = 0; i < s->n_entries; i++) {
        if (kolo_store_entry_is_sharded(&s->entries[i])) return true;
    }
    return false;
}

kolo_comm *kolo_store_shard_comm(const kolo_store *s) {
    return kolo_store_is_sharded(s) ? s->comm : NULL;
}
