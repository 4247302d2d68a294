/* An update first looks up the existing rows, which makes them the most recently used, and then
 * creates the missing ones. So it evicts no row that it updates.
 *
 * Rows are saved as they are at a mark: one that changes before it has been saved is copied to a
 * spare slot first, and one that is removed keeps its slot until then (id_map.h). */
#include "comm/table/rows.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/table/id_map.h"
#include "comm/table/row_copy.h"

#include <string.h>

enum { LINE = 64, LINES_AHEAD = 2, SPARE_PART = 4, SAVED_CHUNK = 64 };
enum { LIFE_PARTS = 64, MARKS = LIFE_PARTS + 2 };

/* Updates of a part of the life of rows: the version of the first one, when it was, and the last.
 */
typedef struct mark {
    uint64_t version;
    int64_t first_ns, last_ns;
} mark;

struct kolo_rows {
    const kolo_table_opts *opts;
    size_t width, room;
    kolo_id_map *map;     /* of the rows */
    kolo_id_map *waiting; /* of the ids that wait for admission; NULL: none does */
    uint32_t *pushes;     /* [slots]: of a waiting id */
    float *values;        /* [slots][width] */
    float *state[KOLO_TABLE_STATES];
    kolo_rng rng;
    uint64_t version, marked; /* marked: the version that is saved */
    size_t most;
    uint64_t *ids;  /* [most]: of an update; those of a request may change meanwhile */
    int32_t *slots; /* [most]: their rows; -1: none */
    int32_t chunk[KOLO_TABLE_CHUNK + 1];
    float *gradients; /* [KOLO_TABLE_CHUNK][width] */
    int64_t (*now_ns)(void);
    mark marks[MARKS]; /* a ring, from the oldest; of the latest expire_ms */
    int first_mark, n_marks;
    uint64_t dead_before; /* rows that were changed last before this version are too old */
    kolo_table_stats stats;
};

/* ---- memory ---- */

static size_t row_bytes(const kolo_rows *r) { return r->width * sizeof(float); }

size_t kolo_rows_saved_width(const kolo_table_opts *o) {
    return (size_t)(1 + o->states) * o->width;
}

static size_t maps_of(const kolo_table_opts *o) { return o->admit > 1 ? 2 : 1; }

/* Of a row, without its place in the maps. */
static size_t numbers_of(const kolo_table_opts *o) {
    return kolo_rows_saved_width(o) * sizeof(float) + (maps_of(o) - 1) * sizeof(uint32_t);
}

/* What `room` rows take. */
static size_t bytes_of(const kolo_table_opts *o, size_t room) {
    return maps_of(o) * kolo_id_map_bytes(room) + room * numbers_of(o);
}

/* Slots beside those of the rows, for what is to be saved. */
static size_t spare_of(size_t room) { return room / SPARE_PART + 1; }

/* While there are few rows, each has a page of a map for itself. */
size_t kolo_rows_needs(const kolo_table_opts *o, uint64_t n, bool saved) {
    enum { PAGE = 4096 };
    const size_t each = maps_of(o) * PAGE + numbers_of(o);
    const size_t bytes = n < o->bytes / each ? (size_t)n * each : o->bytes;
    return bytes + (saved ? bytes / SPARE_PART : 0);
}

/* The largest number of rows within the bound. */
static size_t room_of(const kolo_table_opts *o) {
    size_t room = o->bytes / (bytes_of(o, 1 << 20) >> 20);
    const size_t most = KOLO_ID_MAP_MOST / (SPARE_PART + 1) * SPARE_PART;
    if (room > most) room = most;
    while (room > 0 && bytes_of(o, room) > o->bytes) room -= room / 1024 + 1;
    return room;
}

static size_t slots_of(const kolo_rows *r) { return r->room + spare_of(r->room); }

static kolo_status allocate(kolo_rows *r, uint64_t secret) {
    const kolo_table_opts *o = r->opts;
    const size_t spare = spare_of(r->room), bytes = slots_of(r) * row_bytes(r);
    KOLO_TRY(kolo_id_map_create(r->room, spare, secret, &r->map));
    if (o->admit > 1) {
        KOLO_TRY(kolo_id_map_create(r->room, spare, secret, &r->waiting));
        r->pushes = kolo_pages_map(slots_of(r) * sizeof *r->pushes);
        if (!r->pushes) return KOLO_NOMEM(slots_of(r) * sizeof *r->pushes);
    }
    r->values = kolo_pages_map(bytes);
    bool all = r->values != NULL;
    for (int i = 0; i < o->states; i++) {
        r->state[i] = kolo_pages_map(bytes);
        all = all && r->state[i];
    }
    if (!all) return KOLO_NOMEM(bytes);
    r->ids = kolo_alloc((r->most + 1) * sizeof *r->ids);
    r->slots = kolo_alloc((r->most + 1) * sizeof *r->slots);
    r->gradients = kolo_alloc(KOLO_TABLE_CHUNK * row_bytes(r));
    return r->ids && r->slots && r->gradients ? KOLO_OK : KOLO_NOMEM(r->most * sizeof *r->ids);
}

kolo_status kolo_rows_create(const kolo_table_opts *o, size_t most, uint64_t secret,
                             kolo_rows **rows) {
    const size_t room = room_of(o);
    if (room == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: no row of %zu floats, with its state and its id, fits "
                         "into %zu bytes",
                         o->name, o->width, o->bytes);
    }
    kolo_rows *r = kolo_zalloc(sizeof *r);
    if (!r) return KOLO_NOMEM(sizeof *r);
    r->opts = o;
    r->width = o->width;
    r->room = room;
    r->most = most;
    r->now_ns = kolo_now_ns;
    /* As the store of a plan draws the elements of a parameter of this name, row after row. */
    r->rng = kolo_rng_make(o->seed, KOLO_RNG_INIT, kolo_hash_text(o->name) >> 8);
    kolo_status status = allocate(r, secret);
    if (status != KOLO_OK) {
        kolo_rows_destroy(r);
        return status;
    }
    *rows = r;
    return KOLO_OK;
}

void kolo_rows_set_clock(kolo_rows *r, int64_t (*now_ns)(void)) { r->now_ns = now_ns; }

void kolo_rows_destroy(kolo_rows *r) {
    if (!r) return;
    kolo_pages_unmap(r->values, slots_of(r) * row_bytes(r));
    for (int i = 0; i < r->opts->states; i++) {
        kolo_pages_unmap(r->state[i], slots_of(r) * row_bytes(r));
    }
    kolo_pages_unmap(r->pushes, slots_of(r) * sizeof *r->pushes);
    kolo_id_map_destroy(r->map);
    kolo_id_map_destroy(r->waiting);
    kolo_free(r->ids);
    kolo_free(r->slots);
    kolo_free(r->gradients);
    kolo_free(r);
}

static float *value_at(const kolo_rows *r, int32_t slot) {
    return r->values + (size_t)slot * r->width;
}

static float *state_at(const kolo_rows *r, int i, int32_t slot) {
    return r->state[i] + (size_t)slot * r->width;
}

/* ---- reads ---- */

/* Four numbers per draw. */
static void draw_uniform(const kolo_rows *r, uint64_t first, float *row) {
    uint32_t draw[4];
    for (size_t c = 0; c < r->width; c++) {
        const uint64_t i = first + c;
        if (c == 0 || i % 4 == 0) kolo_rng_draw(&r->rng, i / 4, draw);
        const float uniform = (float)(draw[i % 4] >> 8) * 0x1p-24F;
        row[c] = (float)(r->opts->scale * (2.0 * (double)uniform - 1.0));
    }
}

/* The initial value of a row, by the number of its first element in a matrix of all ids. */
static void draw_row(const kolo_rows *r, uint64_t id, float *row) {
    const uint64_t first = id * r->width;
    if (r->opts->initial == KOLO_TABLE_UNIFORM) {
        draw_uniform(r, first, row);
    } else if (r->opts->initial == KOLO_TABLE_NORMAL) {
        for (size_t c = 0; c < r->width; c++) {
            row[c] = (float)(r->opts->scale * (double)kolo_rng_normal(&r->rng, first + c));
        }
    } else {
        memset(row, 0, row_bytes(r));
    }
}

/* Begins to fetch rows. */
static void fetch(const float *array, size_t width, const int32_t *slots, size_t n) {
    const size_t lines = (width * sizeof(float) + LINE - 1) / LINE;
    for (size_t i = 0; i < n; i++) {
        if (slots[i] < 0) continue;
        const char *row = (const char *)(array + (size_t)slots[i] * width);
        for (size_t k = 0; k < lines && k < LINES_AHEAD; k++) __builtin_prefetch(row + k * LINE);
    }
}

void kolo_rows_read(const kolo_rows *r, const uint64_t *ids, size_t n, float *values) {
    int32_t slots[KOLO_TABLE_CHUNK];
    for (size_t begin = 0; begin < n; begin += KOLO_TABLE_CHUNK) {
        const size_t left = n - begin, count = left < KOLO_TABLE_CHUNK ? left : KOLO_TABLE_CHUNK;
        kolo_id_map_find_all(r->map, ids + begin, count, slots);
        fetch(r->values, r->width, slots, count);
        for (size_t i = 0; i < count; i++) {
            float *row = values + (begin + i) * r->width;
            if (slots[i] >= 0) {
                kolo_row_copy(row, value_at(r, slots[i]), r->width);
            } else {
                draw_row(r, ids[begin + i], row);
            }
        }
    }
}

/* ---- rows that come and go ---- */

/* Before rows change: copies those that are to be saved. */
static void keep_rows(kolo_rows *r, const int32_t *slots, size_t n) {
    if (kolo_id_map_unsaved(r->map) < 0) return;
    for (size_t i = 0; i < n; i++) {
        const int32_t kept = slots[i] < 0 ? -1 : kolo_id_map_keep(r->map, slots[i]);
        if (kept < 0) continue;
        kolo_row_copy(value_at(r, kept), value_at(r, slots[i]), r->width);
        for (int k = 0; k < r->opts->states; k++) {
            kolo_row_copy(state_at(r, k, kept), state_at(r, k, slots[i]), r->width);
        }
    }
}

/* The same of an id that waits. */
static void keep_waiting(kolo_rows *r, int32_t slot) {
    const int32_t kept = kolo_id_map_keep(r->waiting, slot);
    if (kept >= 0) r->pushes[kept] = r->pushes[slot];
}

/* The oldest makes room for it. */
static int32_t add_waiting(kolo_rows *r, uint64_t id, uint64_t tick) {
    if (kolo_id_map_is_full(r->waiting)) {
        kolo_id_map_remove(r->waiting, kolo_id_map_oldest(r->waiting));
        r->stats.forgotten++;
    }
    return kolo_id_map_add(r->waiting, id, tick);
}

/* Counts a push of an id that has no row: whether it gets one. */
static bool is_admitted(kolo_rows *r, uint64_t id) {
    if (!r->waiting) return true;
    int32_t slot = kolo_id_map_find(r->waiting, id);
    if (slot >= 0) {
        keep_waiting(r, slot);
        kolo_id_map_use(r->waiting, slot, r->version);
    } else {
        slot = add_waiting(r, id, r->version);
        r->pushes[slot] = 0;
    }
    if (r->pushes[slot] < r->opts->admit) r->pushes[slot]++;
    return r->pushes[slot] >= r->opts->admit;
}

/* Makes room for a row. Not by those that this update has changed. */
static bool make_room(kolo_rows *r) {
    if (!kolo_id_map_is_full(r->map)) return true;
    const int32_t oldest = kolo_id_map_oldest(r->map);
    if (r->opts->refuse || kolo_id_map_tick(r->map, oldest) == r->version) return false;
    kolo_id_map_remove(r->map, oldest);
    r->stats.evicted++;
    return true;
}

/* A row of an id that has none, without values; -1: there is no room. */
static int32_t add_row(kolo_rows *r, uint64_t id, uint64_t tick) {
    if (!make_room(r)) {
        r->stats.refused++;
        return -1;
    }
    const int32_t waits = r->waiting ? kolo_id_map_find(r->waiting, id) : -1;
    if (waits >= 0) kolo_id_map_remove(r->waiting, waits);
    return kolo_id_map_add(r->map, id, tick);
}

/* The row for the gradient of an id that had none before this update; -1: it is dropped. */
static int32_t create_row(kolo_rows *r, uint64_t id) {
    int32_t slot = kolo_id_map_find(r->map, id);
    if (slot >= 0) return slot; /* the id occurs again */
    if (!is_admitted(r, id)) {
        r->stats.early++;
        return -1;
    }
    slot = add_row(r, id, r->version);
    if (slot < 0) return slot;
    r->stats.created++;
    draw_row(r, id, value_at(r, slot));
    for (int i = 0; i < r->opts->states; i++) memset(state_at(r, i, slot), 0, row_bytes(r));
    return slot;
}

static mark *mark_at(kolo_rows *r, int i) { return &r->marks[(r->first_mark + i) % MARKS]; }

/* Finds which versions are expire_ms old. Instead of a time of each row there are those of at most
 * MARKS versions, so that a row may live a LIFE_PARTS-th longer. */
static void mark_time(kolo_rows *r) {
    const int64_t now = r->now_ns(), life = kolo_ms_to_ns(r->opts->expire_ms);
    while (r->n_marks > 0 && now - mark_at(r, 0)->last_ns >= life) {
        r->first_mark = (r->first_mark + 1) % MARKS;
        r->n_marks--;
        r->dead_before = r->n_marks > 0 ? mark_at(r, 0)->version : r->version;
    }
    mark *latest = r->n_marks > 0 ? mark_at(r, r->n_marks - 1) : NULL;
    if (latest && now - latest->first_ns < life / LIFE_PARTS) {
        latest->last_ns = now;
    } else {
        *mark_at(r, r->n_marks++) = (mark){r->version, now, now};
    }
}

/* Whether rows that were changed last in a version are removed. */
static bool is_old(const kolo_rows *r, uint64_t tick) {
    return tick < r->dead_before || (r->opts->expire > 0 && r->version - tick >= r->opts->expire);
}

/* Removes the ids whose latest push is too old. */
static uint64_t expire(const kolo_rows *r, kolo_id_map *map) {
    uint64_t n = 0;
    for (;; n++) {
        const int32_t oldest = kolo_id_map_oldest(map);
        if (oldest < 0 || !is_old(r, kolo_id_map_tick(map, oldest))) return n;
        kolo_id_map_remove(map, oldest);
    }
}

/* ---- updates ---- */

/* Updates the rows of up to a chunk of gradients, but those that have none. */
static void update_chunk(kolo_rows *r, const int32_t *slots, const float *gradients, size_t n,
                         kolo_table_update *u) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (slots[i] >= 0) r->chunk[m++] = slots[i];
    }
    r->chunk[m] = -1;
    fetch(r->values, r->width, r->chunk, m);
    for (int i = 0; i < r->opts->states; i++) fetch(r->state[i], r->width, r->chunk, m);
    for (size_t i = 0, k = 0; m < n && i < n; i++) {
        if (slots[i] < 0) continue;
        kolo_row_copy(r->gradients + k++ * r->width, gradients + i * r->width, r->width);
    }
    u->gradients = m < n ? r->gradients : gradients;
    u->n = m;
    if (m > 0) r->opts->update(r->opts->arg, u);
}

/* Finds the rows of ids, which become the ones used last. A chunk at a time, whose entries stay in
 * the cache in between. */
static void use_rows(kolo_rows *r, size_t n) {
    for (size_t i = 0; i < n; i += KOLO_TABLE_CHUNK) {
        const size_t count = n - i < KOLO_TABLE_CHUNK ? n - i : KOLO_TABLE_CHUNK;
        kolo_id_map_find_all(r->map, r->ids + i, count, r->slots + i);
        keep_rows(r, r->slots + i, count);
        kolo_id_map_use_all(r->map, r->slots + i, count, r->version);
    }
}

/* A gradient takes up to one spare slot of each map: it keeps a row that is to be saved, or makes
 * one while the row that it removes keeps its slot. */
bool kolo_rows_has_room(const kolo_rows *r, size_t n) {
    return n <= kolo_id_map_spare(r->map) && (!r->waiting || n <= kolo_id_map_spare(r->waiting));
}

void kolo_rows_update(kolo_rows *r, const uint64_t *ids, const float *gradients, size_t n,
                      const kolo_table_update *about) {
    KOLO_ASSERT(n <= r->most);
    r->version++;
    r->stats.gradients += n;
    if (n > 0) memcpy(r->ids, ids, n * sizeof *ids);
    use_rows(r, n);
    for (size_t i = 0; i < n; i++) {
        if (r->slots[i] < 0) r->slots[i] = create_row(r, r->ids[i]);
    }
    kolo_table_update u = *about;
    u.values = r->values;
    memcpy(u.state, r->state, sizeof u.state);
    u.slots = r->chunk;
    u.width = r->width;
    u.version = r->version;
    for (size_t i = 0; i < n; i += KOLO_TABLE_CHUNK) {
        const size_t count = n - i < KOLO_TABLE_CHUNK ? n - i : KOLO_TABLE_CHUNK;
        update_chunk(r, r->slots + i, gradients + i * r->width, count, &u);
    }
    if (r->opts->expire == 0 && r->opts->expire_ms == 0) return;
    if (r->opts->expire_ms > 0) mark_time(r);
    r->stats.expired += expire(r, r->map);
    if (r->waiting) r->stats.forgotten += expire(r, r->waiting);
}

void kolo_rows_add_stats(const kolo_rows *r, kolo_table_stats *s) {
    s->rows += kolo_id_map_count(r->map);
    s->room += r->room;
    s->waiting += r->waiting ? kolo_id_map_count(r->waiting) : 0;
    if (r->version > s->version) s->version = r->version;
    s->gradients += r->stats.gradients;
    s->created += r->stats.created;
    s->restored += r->stats.restored;
    s->early += r->stats.early;
    s->refused += r->stats.refused;
    s->evicted += r->stats.evicted;
    s->expired += r->stats.expired;
    s->forgotten += r->stats.forgotten;
}

/* ---- saved rows ---- */

void kolo_rows_mark(kolo_rows *r) {
    r->marked = r->version;
    kolo_id_map_mark(r->map, r->version);
    if (r->waiting) kolo_id_map_mark(r->waiting, r->version);
}

void kolo_rows_forget(kolo_rows *r) {
    kolo_id_map_forget(r->map);
    if (r->waiting) kolo_id_map_forget(r->waiting);
}

/* Takes up to n ids of a map that are to be saved: their slots, which keep what they have until the
 * next change. */
static size_t take_saved(const kolo_rows *r, kolo_id_map *map, size_t n, kolo_table_rows *to,
                         int32_t *slots) {
    size_t k = 0;
    for (int32_t slot; k < n && (slot = kolo_id_map_unsaved(map)) >= 0; k++) {
        slots[k] = slot;
        to->ids[to->n + k] = kolo_id_map_id(map, slot);
        to->ages[to->n + k] = r->marked - kolo_id_map_tick(map, slot);
        kolo_id_map_set_saved(map);
    }
    return k;
}

/* Whether there may be more. */
static bool save_rows(kolo_rows *r, size_t most, kolo_table_rows *to) {
    const size_t wide = kolo_rows_saved_width(r->opts);
    int32_t slots[SAVED_CHUNK];
    while (to->n < most) {
        const size_t left = most - to->n, want = left < SAVED_CHUNK ? left : SAVED_CHUNK;
        const size_t n = take_saved(r, r->map, want, to, slots);
        fetch(r->values, r->width, slots, n);
        for (int i = 0; i < r->opts->states; i++) fetch(r->state[i], r->width, slots, n);
        for (size_t k = 0; k < n; k++) {
            float *row = to->values + (to->n + k) * wide;
            kolo_row_copy(row, value_at(r, slots[k]), r->width);
            for (int i = 0; i < r->opts->states; i++) {
                kolo_row_copy(row + (size_t)(i + 1) * r->width, state_at(r, i, slots[k]), r->width);
            }
            if (to->pushes) to->pushes[to->n + k] = 0;
        }
        to->n += n;
        if (n < want) return false;
    }
    return true;
}

/* Ids that wait have no values. */
static void save_waiting(kolo_rows *r, size_t most, kolo_table_rows *to) {
    const size_t wide = kolo_rows_saved_width(r->opts);
    int32_t slots[SAVED_CHUNK];
    while (to->n < most) {
        const size_t left = most - to->n, want = left < SAVED_CHUNK ? left : SAVED_CHUNK;
        const size_t n = take_saved(r, r->waiting, want, to, slots);
        for (size_t k = 0; k < n; k++) to->pushes[to->n + k] = r->pushes[slots[k]];
        memset(to->values + to->n * wide, 0, n * wide * sizeof *to->values);
        to->n += n;
        if (n < want) return;
    }
}

bool kolo_rows_save(kolo_rows *r, size_t most, kolo_table_rows *to) {
    const bool waits = to->pushes && r->waiting;
    to->version = r->marked;
    to->n = 0;
    if (!save_rows(r, most, to) && waits) save_waiting(r, most, to);
    if (kolo_id_map_unsaved(r->map) >= 0) return true;
    if (waits && kolo_id_map_unsaved(r->waiting) >= 0) return true;
    kolo_rows_forget(r); /* ids that are left out */
    return false;
}

/* An id that waits for its row, with its pushes so far. */
static void load_waiting(kolo_rows *r, uint64_t id, uint64_t tick, uint32_t pushes) {
    if (!r->waiting || kolo_id_map_find(r->map, id) >= 0) return;
    int32_t slot = kolo_id_map_find(r->waiting, id);
    if (slot < 0) slot = add_waiting(r, id, tick);
    r->pushes[slot] = pushes;
}

void kolo_rows_load(kolo_rows *r, const kolo_table_rows *from) {
    const size_t wide = kolo_rows_saved_width(r->opts);
    if (from->version > r->version) r->version = from->version;
    for (size_t k = 0; k < from->n; k++) {
        const float *row = from->values + k * wide;
        const uint64_t id = from->ids[k], age = from->ages[k];
        const uint64_t tick = age < r->version ? r->version - age : 0;
        if (from->pushes && from->pushes[k] > 0) {
            load_waiting(r, id, tick, from->pushes[k]);
            continue;
        }
        int32_t slot = kolo_id_map_find(r->map, id);
        if (slot < 0) {
            slot = add_row(r, id, tick);
            r->stats.restored += slot >= 0;
        }
        if (slot < 0) continue;
        memcpy(value_at(r, slot), row, row_bytes(r));
        for (int i = 0; i < r->opts->states; i++) {
            memcpy(state_at(r, i, slot), row + (size_t)(i + 1) * r->width, row_bytes(r));
        }
    }
}
