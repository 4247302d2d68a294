/* An open-addressing table that is not cleared between batches: its entries have the number of
 * their batch. */
#include "comm/table/id_batch.h"

#include "base/memory.h"
#include "comm/table/id_map.h"

#include <string.h>

kolo_status kolo_id_batch_init(kolo_id_batch *b, size_t most, uint64_t seed) {
    size_t n = 16;
    while (n < 2 * most) n *= 2;
    KOLO_ASSERT(most < UINT32_MAX / 2);
    *b = (kolo_id_batch){.most = most, .seed = seed, .mask = n - 1, .batch = 1};
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

void kolo_id_batch_clear(kolo_id_batch *b) {
    b->count = 0;
    if (++b->batch > 0) return;
    memset(b->seen, 0, (b->mask + 1) * sizeof *b->seen); /* the numbers begin again */
    b->batch = 1;
}

size_t kolo_id_batch_add(kolo_id_batch *b, uint64_t id) {
    size_t at = kolo_id_mix(id, b->seed) & b->mask;
    for (; b->seen[at] >> 32 == b->batch; at = (at + 1) & b->mask) {
        const size_t place = (uint32_t)b->seen[at] - 1;
        if (b->ids[place] == id) return place;
    }
    KOLO_ASSERT(b->count < b->most);
    b->ids[b->count] = id;
    b->seen[at] = (uint64_t)b->batch << 32 | (uint32_t)(b->count + 1);
    return b->count++;
}
