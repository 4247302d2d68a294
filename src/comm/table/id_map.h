#pragma once
/* A map of 64-bit ids to slots, of a fixed capacity, in the order of their latest use.
 *
 * Slots are small numbers, at which the caller keeps arrays of what belongs to an id. Freed slots
 * are used again, so that the slots in use are below the largest number of ids there has been, with
 * those that were kept to be saved. All memory is mapped at the creation, and touched as slots are
 * used. */

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_ID_MAP_MOST = INT32_MAX - 1 }; /* slots */

typedef struct kolo_id_map kolo_id_map;

/* A bijection of ids that spreads them; `seed` makes it another one. */
static inline uint64_t kolo_id_mix(uint64_t id, uint64_t seed) {
    id ^= seed;
    id = (id ^ id >> 32) * UINT64_C(0xe9846af9b1a615d5);
    id = (id ^ id >> 29) * UINT64_C(0xd6e8feb86659fd93);
    return id ^ id >> 32;
}

/* `seed` places ids in the index: with one that is drawn, nobody else can choose ids that collide.
 * `spare`: slots beside those of the capacity, for what is to be saved; both together at most
 * KOLO_ID_MAP_MOST. NOMEM. */
kolo_status kolo_id_map_create(size_t capacity, size_t spare, uint64_t seed, kolo_id_map **map);
void kolo_id_map_destroy(kolo_id_map *map);
/* The memory of a map of this capacity, without spare slots. */
size_t kolo_id_map_bytes(size_t capacity);
size_t kolo_id_map_count(const kolo_id_map *map);
bool kolo_id_map_is_full(const kolo_id_map *map);
/* The slot of an id; -1: it is not there. */
int32_t kolo_id_map_find(const kolo_id_map *map, uint64_t id);
/* The slots of n ids. Overlaps the accesses to memory, so it takes a fraction of the time of n
 * calls of kolo_id_map_find. */
void kolo_id_map_find_all(const kolo_id_map *map, const uint64_t *ids, size_t n, int32_t *slots);
/* Adds an id that is not there, used at `tick`, to a map that is not full; returns its slot. */
int32_t kolo_id_map_add(kolo_id_map *map, uint64_t id, uint64_t tick);
/* The slot becomes the one that was used last. Ticks never decrease. */
void kolo_id_map_use(kolo_id_map *map, int32_t slot, uint64_t tick);
/* The same of n slots, one after the other; negative ones are skipped. Overlaps the accesses to
 * memory. */
void kolo_id_map_use_all(kolo_id_map *map, const int32_t *slots, size_t n, uint64_t tick);
void kolo_id_map_remove(kolo_id_map *map, int32_t slot);
/* The slot that was used least recently; -1: there is none. */
int32_t kolo_id_map_oldest(const kolo_id_map *map);
uint64_t kolo_id_map_id(const kolo_id_map *map, int32_t slot);
uint64_t kolo_id_map_tick(const kolo_id_map *map, int32_t slot);

/* ---- saving the ids of a moment while the map goes on ---- */

/* The ids that there are now, which were used up to `tick`, are to be saved; those that were to be
 * saved before no longer are. */
void kolo_id_map_mark(kolo_id_map *map, uint64_t tick);
/* The next one to be saved, from the one used least recently at the mark; -1: there is none. Its
 * id and tick are those of the mark. */
int32_t kolo_id_map_unsaved(const kolo_id_map *map);
/* It has been saved. */
void kolo_id_map_set_saved(kolo_id_map *map);
/* Before a slot, or what the caller keeps there, changes: if it is to be saved, another slot takes
 * its place in that, to which the caller copies what it keeps; returns that slot, else -1. A slot
 * that is removed stays as it is until it has been saved. */
int32_t kolo_id_map_keep(kolo_id_map *map, int32_t slot);
/* How many ids may be kept or added before the next one is saved; SIZE_MAX: none is to be saved. */
size_t kolo_id_map_spare(const kolo_id_map *map);
/* Nothing is to be saved any more. */
void kolo_id_map_forget(kolo_id_map *map);
