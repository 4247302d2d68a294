#pragma once
/* What the plan and the store share. */

#include "plan/plan.h"

struct kolo_store {
    kolo_store_entry *entries;
    size_t n_entries, capacity;
    kolo_arena names;
    char *bank[2];
    size_t bytes;     /* of one bank, as the entries need */
    size_t mapped[2]; /* of each bank, as it is */
    char *single;     /* entries that have one version */
    size_t single_bytes, single_mapped;
    bool alone;  /* all have */
    int current; /* the bank that holds the committed version */
    int moves;   /* how often banks or arena moved: plans bind again when it changes */
    char *arena; /* of the plans, in turns */
    size_t arena_bytes;
    char *gradients; /* of the plans, in turns */
    size_t gradient_bytes;
    bool own_gradients; /* else the communicator's */
};

/* Where an entry lies when `bank` is current. */
char *kolo_store_at(const kolo_store *store, const kolo_store_entry *entry, int bank);
/* Adds an entry for a PARAM or STATE; call kolo_store_grow after the last. */
kolo_status kolo_store_add(kolo_store *store, const kolo_value_info *value);
/* Gives the banks the memory that the entries need; new entries are zero. NOMEM. */
kolo_status kolo_store_grow(kolo_store *store);
/* Makes the arena hold at least `bytes`; what was in it is lost. NOMEM: it is as it was. */
kolo_status kolo_store_reserve(kolo_store *store, size_t bytes);
/* Makes the region of gradients hold at least `bytes`, in memory registered with `comm` where there
 * is one. NOMEM: it is as it was. */
kolo_status kolo_store_reserve_gradients(kolo_store *store, kolo_comm *comm, size_t bytes);
