/* The index is an open-addressing table with linear probing. A bucket holds the upper half of the
 * hash of an id, its tag, and the number of its slot and 1; 0 is an empty one. The place where the
 * search for an id begins follows from its tag alone, so that buckets move without reading ids. A
 * removal closes its gap, so that there are no tombstones. The table has 3/2 as many buckets as the
 * capacity: the lookup of an absent id visits 5 buckets on average in a full map.
 *
 * Entries form a list in the order of their latest use. While the ids of a moment are saved, dead
 * entries, which the index does not have, stand in it for those that have changed or gone since:
 * so the list up to the tick of the mark is the one of that moment. */
#include "comm/table/id_map.h"

#include "base/memory.h"

#include <string.h>

enum { NONE = -1, AHEAD = 32 };
enum { DEAD = UINT8_MAX }; /* instead of the number of a mark */

typedef struct entry {
    uint64_t id, tick;
    int32_t newer, older; /* NONE: there is none; of a free slot: the next free one, and any */
} entry;

struct kolo_id_map {
    size_t capacity, n_slots, n_buckets, count;
    size_t used; /* slots that were in use at some time */
    uint64_t seed;
    uint64_t *buckets; /* [n_buckets] */
    entry *entries;    /* [n_slots] */
    int32_t newest;    /* dead ones, too */
    int32_t oldest;    /* of those that are not dead */
    int32_t free;
    uint8_t *saved;  /* [n_slots]: the number of the mark for which it was saved last, or DEAD */
    uint8_t mark;    /* its number */
    uint64_t marked; /* its tick */
    int32_t unsaved; /* the next one; NONE: all are saved */
    size_t n_dead;
};

static size_t buckets_of(size_t capacity) { return capacity + capacity / 2 + 4; }

size_t kolo_id_map_bytes(size_t capacity) {
    return buckets_of(capacity) * sizeof(uint64_t) + capacity * sizeof(entry);
}

kolo_status kolo_id_map_create(size_t capacity, size_t spare, uint64_t seed, kolo_id_map **map) {
    KOLO_ASSERT(capacity <= KOLO_ID_MAP_MOST && spare <= KOLO_ID_MAP_MOST - capacity);
    kolo_id_map *m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    *m = (kolo_id_map){.capacity = capacity,
                       .n_slots = capacity + spare,
                       .n_buckets = buckets_of(capacity),
                       .seed = seed,
                       .newest = NONE,
                       .oldest = NONE,
                       .free = NONE,
                       .unsaved = NONE};
    m->buckets = kolo_pages_map(m->n_buckets * sizeof *m->buckets);
    m->entries = kolo_pages_map(m->n_slots * sizeof *m->entries);
    m->saved = kolo_pages_map(m->n_slots * sizeof *m->saved);
    if (!m->buckets || !m->entries || !m->saved) {
        kolo_id_map_destroy(m);
        return KOLO_NOMEM(kolo_id_map_bytes(capacity));
    }
    *map = m;
    return KOLO_OK;
}

void kolo_id_map_destroy(kolo_id_map *m) {
    if (!m) return;
    kolo_pages_unmap(m->buckets, m->n_buckets * sizeof *m->buckets);
    kolo_pages_unmap(m->entries, m->n_slots * sizeof *m->entries);
    kolo_pages_unmap(m->saved, m->n_slots * sizeof *m->saved);
    kolo_free(m);
}

size_t kolo_id_map_count(const kolo_id_map *m) { return m->count; }
bool kolo_id_map_is_full(const kolo_id_map *m) { return m->count == m->capacity; }

/* ---- the index ---- */

static uint32_t tag_of(const kolo_id_map *m, uint64_t id) {
    return (uint32_t)(kolo_id_mix(id, m->seed) >> 32);
}

/* Where the search for a tag begins. */
static size_t home_of(const kolo_id_map *m, uint64_t tag) {
    return (size_t)(tag * m->n_buckets >> 32);
}

static size_t next_bucket(const kolo_id_map *m, size_t b) {
    return b + 1 == m->n_buckets ? 0 : b + 1;
}

static uint32_t bucket_tag(uint64_t bucket) { return (uint32_t)(bucket >> 32); }
static int32_t bucket_slot(uint64_t bucket) { return (int32_t)(uint32_t)bucket - 1; }

/* The first bucket from b on that has the tag, or is empty. */
static size_t search(const kolo_id_map *m, size_t b, uint32_t tag) {
    while (m->buckets[b] != 0 && bucket_tag(m->buckets[b]) != tag) b = next_bucket(m, b);
    return b;
}

/* The slot of an id, whose search has reached bucket b, which has its tag or is empty. */
static int32_t confirm(const kolo_id_map *m, size_t b, uint32_t tag, uint64_t id) {
    for (; m->buckets[b] != 0; b = search(m, next_bucket(m, b), tag)) {
        const int32_t slot = bucket_slot(m->buckets[b]);
        if (m->entries[slot].id == id) return slot;
    }
    return NONE;
}

int32_t kolo_id_map_find(const kolo_id_map *m, uint64_t id) {
    const uint32_t tag = tag_of(m, id);
    return confirm(m, search(m, home_of(m, tag), tag), tag, id);
}

/* The buckets of all are fetched before the first one is read, and then their entries. */
static void find_some(const kolo_id_map *m, const uint64_t *ids, size_t n, int32_t *slots) {
    uint32_t tags[AHEAD];
    size_t at[AHEAD];
    for (size_t i = 0; i < n; i++) {
        tags[i] = tag_of(m, ids[i]);
        at[i] = home_of(m, tags[i]);
        __builtin_prefetch(&m->buckets[at[i]]);
    }
    for (size_t i = 0; i < n; i++) {
        at[i] = search(m, at[i], tags[i]);
        const uint64_t bucket = m->buckets[at[i]];
        if (bucket != 0) __builtin_prefetch(&m->entries[bucket_slot(bucket)]);
    }
    for (size_t i = 0; i < n; i++) slots[i] = confirm(m, at[i], tags[i], ids[i]);
}

void kolo_id_map_find_all(const kolo_id_map *m, const uint64_t *ids, size_t n, int32_t *slots) {
    for (size_t i = 0; i < n; i += AHEAD) {
        find_some(m, ids + i, n - i < AHEAD ? n - i : AHEAD, slots + i);
    }
}

static void index_slot(kolo_id_map *m, uint64_t id, int32_t slot) {
    const uint32_t tag = tag_of(m, id);
    size_t b = home_of(m, tag);
    while (m->buckets[b] != 0) b = next_bucket(m, b);
    m->buckets[b] = (uint64_t)tag << 32 | ((uint32_t)slot + 1);
}

/* Empties a bucket; buckets behind it whose search passes the gap move there. */
static void empty_bucket(kolo_id_map *m, size_t gap) {
    for (size_t b = next_bucket(m, gap); m->buckets[b] != 0; b = next_bucket(m, b)) {
        const size_t home = home_of(m, bucket_tag(m->buckets[b]));
        const bool passes = gap < b ? home <= gap || home > b : home <= gap && home > b;
        if (!passes) continue;
        m->buckets[gap] = m->buckets[b];
        gap = b;
    }
    m->buckets[gap] = 0;
}

static void unindex_slot(kolo_id_map *m, uint64_t id, int32_t slot) {
    const uint32_t tag = tag_of(m, id);
    size_t b = search(m, home_of(m, tag), tag);
    while (bucket_slot(m->buckets[b]) != slot) b = search(m, next_bucket(m, b), tag);
    empty_bucket(m, b);
}

/* ---- the order of use ---- */

static bool is_dead(const kolo_id_map *m, int32_t slot) {
    return m->n_dead > 0 && m->saved[slot] == DEAD;
}

/* The first one that is not dead, from a slot on. */
static int32_t first_alive(const kolo_id_map *m, int32_t slot) {
    while (slot != NONE && is_dead(m, slot)) slot = m->entries[slot].newer;
    return slot;
}

static void unlink_slot(kolo_id_map *m, int32_t slot) {
    const entry *e = &m->entries[slot];
    if (e->newer == NONE) {
        m->newest = e->older;
    } else {
        m->entries[e->newer].older = e->older;
    }
    if (e->older != NONE) m->entries[e->older].newer = e->newer;
    if (m->oldest == slot) m->oldest = first_alive(m, e->newer);
}

static void link_newest(kolo_id_map *m, int32_t slot) {
    m->entries[slot].older = m->newest;
    m->entries[slot].newer = NONE;
    if (m->newest != NONE) m->entries[m->newest].newer = slot;
    if (m->oldest == NONE) m->oldest = slot;
    m->newest = slot;
}

void kolo_id_map_use(kolo_id_map *m, int32_t slot, uint64_t tick) {
    m->entries[slot].tick = tick;
    if (slot == m->newest) return;
    unlink_slot(m, slot);
    link_newest(m, slot);
}

/* The neighbours in the list are fetched before the first one changes. They may be others by then,
 * which only costs time. */
static void use_some(kolo_id_map *m, const int32_t *slots, size_t n, uint64_t tick) {
    for (size_t i = 0; i < n; i++) {
        if (slots[i] < 0) continue;
        const entry *e = &m->entries[slots[i]];
        if (e->newer != NONE) __builtin_prefetch(&m->entries[e->newer], 1);
        if (e->older != NONE) __builtin_prefetch(&m->entries[e->older], 1);
    }
    for (size_t i = 0; i < n; i++) {
        if (slots[i] >= 0) kolo_id_map_use(m, slots[i], tick);
    }
}

void kolo_id_map_use_all(kolo_id_map *m, const int32_t *slots, size_t n, uint64_t tick) {
    for (size_t i = 0; i < n; i += AHEAD) {
        use_some(m, slots + i, n - i < AHEAD ? n - i : AHEAD, tick);
    }
}

int32_t kolo_id_map_oldest(const kolo_id_map *m) { return m->oldest; }

/* ---- ids ---- */

static int32_t take_slot(kolo_id_map *m) {
    const int32_t slot = m->free;
    if (slot == NONE) {
        KOLO_ASSERT(m->used < m->n_slots);
        return (int32_t)m->used++;
    }
    m->free = m->entries[slot].newer;
    return slot;
}

static void free_slot(kolo_id_map *m, int32_t slot) {
    m->entries[slot].newer = m->free;
    m->free = slot;
}

/* Whether it is to be saved. */
static bool is_unsaved(const kolo_id_map *m, int32_t slot) {
    return m->unsaved != NONE && m->entries[slot].tick <= m->marked && m->saved[slot] != m->mark;
}

int32_t kolo_id_map_add(kolo_id_map *m, uint64_t id, uint64_t tick) {
    KOLO_ASSERT(m->count < m->capacity);
    const int32_t slot = take_slot(m);
    m->count++;
    m->entries[slot].id = id;
    m->entries[slot].tick = tick;
    link_newest(m, slot);
    index_slot(m, id, slot);
    return slot;
}

void kolo_id_map_remove(kolo_id_map *m, int32_t slot) {
    unindex_slot(m, m->entries[slot].id, slot);
    m->count--;
    if (!is_unsaved(m, slot)) {
        unlink_slot(m, slot);
        free_slot(m, slot);
        return;
    }
    m->saved[slot] = DEAD;
    m->n_dead++;
    m->oldest = first_alive(m, m->oldest);
}

uint64_t kolo_id_map_id(const kolo_id_map *m, int32_t slot) { return m->entries[slot].id; }
uint64_t kolo_id_map_tick(const kolo_id_map *m, int32_t slot) { return m->entries[slot].tick; }

/* ---- what is saved ---- */

static void free_dead(kolo_id_map *m, int32_t slot) {
    unlink_slot(m, slot);
    m->saved[slot] = 0;
    m->n_dead--;
    free_slot(m, slot);
}

void kolo_id_map_mark(kolo_id_map *m, uint64_t tick) {
    kolo_id_map_forget(m);
    if (++m->mark == DEAD) {
        memset(m->saved, 0, m->used);
        m->mark = 1;
    }
    m->marked = tick;
    m->unsaved = m->oldest;
}

int32_t kolo_id_map_unsaved(const kolo_id_map *m) { return m->unsaved; }

void kolo_id_map_set_saved(kolo_id_map *m) {
    const int32_t slot = m->unsaved, next = m->entries[slot].newer;
    if (is_dead(m, slot)) {
        free_dead(m, slot);
    } else {
        m->saved[slot] = m->mark;
    }
    m->unsaved = next != NONE && m->entries[next].tick <= m->marked ? next : NONE;
}

int32_t kolo_id_map_keep(kolo_id_map *m, int32_t slot) {
    if (!is_unsaved(m, slot)) return NONE;
    const int32_t kept = take_slot(m), older = m->entries[slot].older;
    m->entries[kept] = m->entries[slot];
    m->entries[kept].newer = slot;
    m->entries[slot].older = kept;
    if (older != NONE) m->entries[older].newer = kept;
    if (m->unsaved == slot) m->unsaved = kept;
    m->saved[slot] = m->mark;
    m->saved[kept] = DEAD;
    m->n_dead++;
    return kept;
}

size_t kolo_id_map_spare(const kolo_id_map *m) {
    return m->unsaved == NONE ? SIZE_MAX : m->n_slots - m->count - m->n_dead;
}

void kolo_id_map_forget(kolo_id_map *m) {
    for (size_t i = 0; m->n_dead > 0; i++) {
        if (m->saved[i] == DEAD) free_dead(m, (int32_t)i);
    }
    m->unsaved = NONE;
}
