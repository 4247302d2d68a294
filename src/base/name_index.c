/* A hash table with linear probing, at most half full. */
#include "base/name_index.h"

#include "base/memory.h"
#include "base/rng.h"

#include <string.h>

/* The slot of a name, or the free one where it belongs. */
static kolo_name_slot *slot_of(const kolo_name_index *index, const char *name) {
    size_t i = (size_t)kolo_hash_text(name) & (index->capacity - 1);
    while (index->slots[i].name && strcmp(index->slots[i].name, name) != 0) {
        i = (i + 1) & (index->capacity - 1);
    }
    return &index->slots[i];
}

int32_t kolo_name_index_find(const kolo_name_index *index, const char *name) {
    if (index->count == 0) return -1;
    const kolo_name_slot *slot = slot_of(index, name);
    return slot->name ? slot->number : -1;
}

static bool grow(kolo_name_index *index) {
    kolo_name_index bigger = {.capacity = index->capacity ? 2 * index->capacity : 64,
                              .count = index->count};
    bigger.slots = kolo_zalloc(bigger.capacity * sizeof *bigger.slots);
    if (!bigger.slots) return false;
    for (size_t i = 0; i < index->capacity; i++) {
        const kolo_name_slot *slot = &index->slots[i];
        if (slot->name) *slot_of(&bigger, slot->name) = *slot;
    }
    kolo_free(index->slots);
    *index = bigger;
    return true;
}

bool kolo_name_index_add(kolo_name_index *index, const char *name, int32_t number) {
    if (2 * (index->count + 1) > index->capacity && !grow(index)) return false;
    *slot_of(index, name) = (kolo_name_slot){name, number};
    index->count++;
    return true;
}

void kolo_name_index_fini(kolo_name_index *index) {
    kolo_free(index->slots);
    *index = (kolo_name_index){0};
}
