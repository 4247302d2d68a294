#pragma once
/* A map of 64-bit ids to slots, of a fixed capacity, in the order of their latest use.
 *
 * Slots are small numbers, at which the caller keeps arrays of what belongs to an id. Freed slots
 * are used again, so that the slots in use are below the largest number of ids there has been. All
 * memory is mapped at the creation, and touched as slots are used. */

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_ID_MAP_MOST = INT32_MAX - 1 }; /* ids */

typedef struct kolo_id_map kolo_id_map;

/* A bijection of ids that spreads them; `seed` makes it another one. */
static inline uint64_t kolo_id_mix(uint64_t id, uint64_t seed) {
    id ^= seed;
    id = (id ^ id >> 32) * UINT64_C(0xe9846af9b1a615d5);
    id = (id ^ id >> 29) * UINT64_C(0xd6e8feb86659fd93);
    return id ^ id >> 32;
}

/* `seed` places ids in the index: with one that is drawn, nobody else can choose ids that collide.
 * NOMEM. */
kolo_status kolo_id_map_create(size_t capacity, uint64_t seed, kolo_id_map **map);
void kolo_id_map_destroy(kolo_id_map *map);
/* The memory of a map of this capacity. */
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
/* The one used next after it; -1: there is none. */
int32_t kolo_id_map_newer(const kolo_id_map *map, int32_t slot);
/* Whether a number is a slot in use. */
bool kolo_id_map_has(const kolo_id_map *map, int64_t slot);
uint64_t kolo_id_map_id(const kolo_id_map *map, int32_t slot);
uint64_t kolo_id_map_tick(const kolo_id_map *map, int32_t slot);
