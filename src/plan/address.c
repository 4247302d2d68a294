/* Where the values of a plan are. */
#include "plan/internal.h"

const kolo_store_entry *kolo_plan_entry(const kolo_plan *p, int32_t v) {
    return kolo_store_entry_at(p->store, p->entries[v]);
}

int kolo_plan_chunk(const kolo_plan *p, int slot) {
    int c = 0;
    while (c + 1 < p->chunks && slot >= p->first_slot[c + 1]) c++;
    return c;
}

size_t kolo_plan_slot_offset(const kolo_plan *p, int slot) {
    size_t bytes = 0;
    for (int c = 0; c < p->chunks && slot > p->first_slot[c]; c++) {
        const int end = slot < p->first_slot[c + 1] ? slot : p->first_slot[c + 1];
        bytes += (size_t)(end - p->first_slot[c]) * p->map.slot_bytes[c];
    }
    return bytes;
}

/* The address of the region's value at a location while `bank` of the store is current. */
static char *base_of(const kolo_plan *p, const kolo_location *location, int bank) {
    switch (location->region) {
    case KOLO_REGION_ARENA:
        return kolo_plan_arena(p) + location->offset;
    case KOLO_REGION_BUCKET:
        return (p->gradients ? p->gradients : p->store->gradients) + location->offset;
    case KOLO_REGION_MODEL:
        return p->model + (size_t)p->slot * p->map.model_bytes + location->offset;
    case KOLO_REGION_SLOT:
        return p->slot_memory + kolo_plan_slot_offset(p, p->slot) + location->offset;
    case KOLO_REGION_TABLE:
        return p->table + location->offset;
    case KOLO_REGION_STORE:
        return kolo_store_at(p->store, kolo_plan_entry(p, (int32_t)location->offset), bank);
    case KOLO_REGION_NEXT:
        return kolo_store_at(p->store, kolo_plan_entry(p, (int32_t)location->offset), !bank);
    }
    return NULL;
}

/* The address of value v on the device while `bank` of the store is current. */
void *kolo_plan_address(const kolo_plan *p, int32_t v, int bank) {
    const kolo_location *location = &p->map.locations[v];
    return base_of(p, location, bank) + location->skip;
}

void *kolo_plan_host(const kolo_plan *p, int32_t v, int bank) {
    return kolo_regions_host(p->store->regions, kolo_plan_address(p, v, bank));
}

void *kolo_plan_data(const kolo_plan *p, kolo_value input) {
    return kolo_plan_host(p, input.id, 0);
}
