/* Where the parts of a pipeline begin, and entries that move to other stages when that changes. */
#include "comm/sync/agree.h"
#include "plan/store.h"

#include <string.h>

kolo_status kolo_store_set_cuts(kolo_store *s, const char *lines) {
    int n = 0;
    KOLO_ASSERT(s->n_entries == 0);
    for (const char *at = lines; (at = strchr(at, '\n')); at++) n++;
    const char **names = kolo_arena_alloc(&s->names, ((size_t)n + 1) * sizeof *names);
    char *copy = kolo_arena_strdup(&s->names, lines);
    if (!names || !copy) return KOLO_NOMEM(strlen(lines));
    for (int i = 0; i < n; i++) {
        names[i] = copy;
        copy = strchr(copy, '\n');
        *copy++ = '\0';
    }
    s->cuts = (kolo_stage_cuts){n, names};
    return KOLO_OK;
}

const kolo_stage_cuts *kolo_store_cuts(const kolo_store *s) { return &s->cuts; }

/* The arena of plans and the region of gradients stay: requests may point to the latter. */
kolo_status kolo_store_detach(kolo_store *s, kolo_store **old) {
    kolo_store *o = kolo_alloc(sizeof *o);
    if (!o) return KOLO_NOMEM(sizeof *o);
    KOLO_ASSERT(!s->deferring && s->n_background == 0 && !s->shares);
    *o = *s;
    o->detached = true;
    o->arena = o->gradients = NULL;
    o->arena_bytes = o->gradient_bytes = 0;
    *s = (kolo_store){
        .regions = s->regions,
        .alone = s->alone,
        .moves = s->moves + 1,
        .arena = s->arena,
        .arena_bytes = s->arena_bytes,
        .gradients = s->gradients,
        .gradient_bytes = s->gradient_bytes,
        .own_gradients = s->own_gradients,
        .spare = s->spare,
        .spare_bytes = s->spare_bytes,
        .rollbacks = s->rollbacks,
        .comm = s->comm,
    };
    *old = o;
    return KOLO_OK;
}

/* Whether the same ranks have an entry as before, which all ranks find alike. */
static bool stays(const kolo_store_entry *entry, const kolo_store_entry *was) {
    const char *now = entry->holders ? entry->holders : "";
    return strcmp(now, was->holders ? was->holders : "") == 0;
}

/* What a rank has of an entry that no ranges of ZeRO divide. */
static kolo_tensor own_tensor(const kolo_store_entry *entry) {
    if (entry->mesh) return entry->slice;
    return entry->versions > 0 ? kolo_tensor_unstack(&entry->tensor) : entry->tensor;
}

/* Copies what this rank has of an entry in another layout, both banks of it. */
static kolo_status copy_own(const kolo_store *s, const kolo_store_entry *entry,
                            const kolo_store *old, const kolo_store_entry *was) {
    const kolo_tensor to = own_tensor(entry), from = own_tensor(was);
    const bool divided = (entry->versions == 0 && entry->cuts) || (was->versions == 0 && was->cuts);
    if (entry->elsewhere) return KOLO_OK;
    if (divided || !kolo_shape_equal(&to.shape, &from.shape)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s has another shape than before", entry->name);
    }
    const void *data = kolo_store_data(old, was);
    for (int b = 0; b < (entry->single ? 1 : 2); b++) {
        kolo_tensor_reorder(&to, kolo_store_host(s, entry, b), &from, data);
        kolo_store_put(s, entry, b);
    }
    return kolo_store_finish_put(s, entry);
}

/* Whether an entry comes from other ranks. */
static bool is_gathered(const kolo_store_entry *entry, const kolo_store_entry *was, bool ranges) {
    return !stays(entry, was) || (ranges && kolo_name_is_optimizer(entry->name));
}

/* The bytes of the largest entry that is gathered, as a whole. */
static size_t largest_gathered(const kolo_store *s, const kolo_store *old, bool ranges) {
    size_t most = 0;
    for (size_t i = 0; i < s->n_entries; i++) {
        const kolo_store_entry *entry = &s->entries[i], *was = kolo_store_find(old, entry->name);
        if (!was) continue;
        const size_t bytes =
            (size_t)kolo_shape_count(&was->tensor.shape) * kolo_dtype_bytes(was->tensor.dtype);
        if (is_gathered(entry, was, ranges) && bytes > most) most = bytes;
    }
    return most;
}

/* Gathers an entry from the ranks that had it, for those that have it now. */
static kolo_status gather(kolo_store *s, const kolo_store_entry *entry, const kolo_store *old,
                          const kolo_store_entry *was, char *whole) {
    KOLO_TRY(kolo_store_read(old, was, whole));
    return kolo_store_write(s, entry, whole);
}

/* A rank that fails at one entry takes part in gathering the others, whose ranks wait for it. */
static kolo_status take_entries(kolo_store *s, const kolo_store *old, bool ranges, char *whole) {
    kolo_status status = KOLO_OK;
    for (size_t i = 0; i < s->n_entries; i++) {
        const kolo_store_entry *entry = &s->entries[i], *was = kolo_store_find(old, entry->name);
        if (!was) continue;
        const kolo_status taken = is_gathered(entry, was, ranges)
                                      ? gather(s, entry, old, was, whole)
                                      : copy_own(s, entry, old, was);
        if (status == KOLO_OK) status = taken;
    }
    return status;
}

kolo_status kolo_store_take_over(kolo_store *s, kolo_store *old, bool ranges) {
    const size_t most = largest_gathered(s, old, ranges);
    char *whole = kolo_alloc(most + 1);
    kolo_status status = kolo_agree(s->comm, whole ? KOLO_OK : KOLO_NOMEM(most));
    if (status == KOLO_OK) status = kolo_agree(s->comm, take_entries(s, old, ranges, whole));
    kolo_free(whole);
    KOLO_TRY(status);
    if (old->registered && old->joined_mapped[0] > s->spare_bytes) {
        s->spare = old->joined[0];
        s->spare_bytes = old->joined_mapped[0];
    }
    return KOLO_OK;
}
