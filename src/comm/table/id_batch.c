/* An open-addressing table that is not cleared between batches: its entries have the number of
 * their batch. So a batch may use a part of the table of any size. */
#include "comm/table/id_batch.h"

#include "base/memory.h"
#include "comm/table/id_map.h"

#include <string.h>

enum { ROOM_LEAST = 16, AHEAD = 16 };

/* At most half of it is used. */
static size_t room_for(size_t ids) {
    size_t n = ROOM_LEAST;
    while (n < 2 * ids) n *= 2;
    return n;
}

kolo_status kolo_id_batch_init(kolo_id_batch *b, size_t most, uint64_t seed) {
    const size_t n = room_for(most);
    KOLO_ASSERT(most < UINT32_MAX / 2);
    *b = (kolo_id_batch){.most = most, .seed = seed, .room = n, .mask = n - 1, .batch = 1};
    b->ids = kolo_alloc((most + 1) * sizeof *b->ids);
    b->seen = kolo_zalloc(n * sizeof *b->seen);
    if (b->ids && b->seen) return KOLO_OK;
    kolo_id_batch_fini(b);
    return KOLO_NOMEM(n * sizeof *b->seen);
}

void kolo_id_batch_fini(kolo_id_batch *b) {
    kolo_free(b->ids);
    kolo_free(b->seen);
    *b = (kolo_id_batch){0};
}

void kolo_id_batch_begin(kolo_id_batch *b, size_t n) {
    KOLO_ASSERT(n <= b->most);
    b->count = 0;
    b->mask = room_for(n) - 1;
    if (++b->batch > 0) return;
    memset(b->seen, 0, b->room * sizeof *b->seen); /* the numbers begin again */
    b->batch = 1;
}

/* Adds an id whose search begins there. */
static size_t add_at(kolo_id_batch *b, size_t at, uint64_t id) {
    for (; b->seen[at] >> 32 == b->batch; at = (at + 1) & b->mask) {
        const size_t place = (uint32_t)b->seen[at] - 1;
        if (b->ids[place] == id) return place;
    }
    KOLO_ASSERT(b->count < b->most && 2 * b->count <= b->mask);
    b->ids[b->count] = id;
    b->seen[at] = (uint64_t)b->batch << 32 | (uint32_t)(b->count + 1);
    return b->count++;
}

static size_t home_of(const kolo_id_batch *b, uint64_t id) {
    return kolo_id_mix(id, b->seed) & b->mask;
}

size_t kolo_id_batch_add(kolo_id_batch *b, uint64_t id) { return add_at(b, home_of(b, id), id); }

void kolo_id_batch_add_all(kolo_id_batch *b, const uint64_t *ids, size_t n, uint32_t *places) {
    size_t at[AHEAD];
    for (size_t i = 0, some; i < n; i += some) {
        some = n - i < AHEAD ? n - i : AHEAD;
        for (size_t k = 0; k < some; k++) {
            at[k] = home_of(b, ids[i + k]);
            __builtin_prefetch(&b->seen[at[k]], 1);
        }
        for (size_t k = 0; k < some; k++) places[i + k] = (uint32_t)add_at(b, at[k], ids[i + k]);
    }
}
