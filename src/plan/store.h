#pragma once
/* The store, as plans see it. */

#include "plan/plan.h"
#include "plan/regions.h"

struct kolo_store {
    kolo_regions *regions; /* all memory that follows is in them */
    bool detached;         /* they are those of the store that it was detached from */
    kolo_store_entry *entries;
    size_t n_entries, capacity;
    kolo_name_index index; /* of the entries, by name */
    kolo_arena names;
    char *bank[2];
    size_t bytes;     /* of one bank, required by the entries */
    size_t mapped[2]; /* of each bank, allocated */
    /* Banks of joined entries: the ranks' or this rank's own, registered with a communicator. */
    char *joined[2];
    size_t joined_bytes, joined_mapped[2]; /* required, and allocated */
    char *spare; /* two such banks of an earlier store (store_cuts.c), of this many bytes each */
    size_t spare_bytes;
    bool shares;     /* the ranks share them, once kolo_store_share has been called */
    bool registered; /* `joined` is the communicator's: requests may point to it */
    bool follows;    /* another rank writes shared entries, except for its own ranges in steps */
    char *single;    /* entries with one version */
    size_t single_bytes, single_mapped;
    bool alone;  /* all entries have one version */
    int current; /* the bank that holds the committed version */
    int moves;   /* counts moves of banks and arena, after which plans bind their kernels anew */
    char *arena; /* shared by the plans */
    size_t arena_bytes;
    char *gradients; /* shared by the plans */
    size_t gradient_bytes;
    bool own_gradients;    /* else the communicator's */
    kolo_stage_cuts cuts;  /* of a pipeline; allocated in `names` */
    const char *mesh;      /* that divides entries; NULL: none does */
    kolo_comm *background; /* kernels make progress in it, as it has requests in flight that no
                              step of a run has posted: of plans that have begun, and messages
                              between stages; NULL: it has none */
    int n_background;      /* these plans and messages */
    kolo_plan *deferring;  /* that has left updates of the latest step; NULL: none has */
    int64_t rollbacks; /* of steps that were complete but for what they deferred, which failed */
    kolo_comm *comm;   /* borrowed: of the ranks that flat shards are of; NULL: one rank */
};

/* Steps whose runs had succeeded, and which were rolled back because what they had deferred to the
 * next one failed. */
int64_t kolo_store_rollbacks(const kolo_store *store);
/* The address of an entry on the device while `bank` is current. */
char *kolo_store_at(const kolo_store *store, const kolo_store_entry *entry, int bank);
/* The same on the host side, for what the host writes; kolo_store_put takes it to the device. */
char *kolo_store_host(const kolo_store *store, const kolo_store_entry *entry, int bank);
void kolo_store_put(const kolo_store *store, const kolo_store_entry *entry, int bank);
/* Waits for what was put, whose host side is undefined afterwards. The error of the device. */
kolo_status kolo_store_finish_put(const kolo_store *store, const kolo_store_entry *entry);
/* Adds an entry for a PARAM or STATE of a graph; call kolo_store_grow after the last. */
kolo_status kolo_store_add(kolo_store *store, const kolo_graph *g, kolo_value v);
/* Whether an entry for a PARAM or STATE of a graph has a `slice`: the ranks of a mesh have slices
 * of it, or those along dp ranges of what they have, while other axes divide the model. */
bool kolo_store_slices(const kolo_graph *g, kolo_value v);
/* Sets `holders` (kolo_store_entry) of a PARAM or STATE; the text is of the store. NOMEM. */
kolo_status kolo_store_describe_holders(kolo_store *store, const kolo_graph *g, kolo_value v,
                                        const char **holders);
/* Places the entries whose next versions a WAIT joins, one behind the other, unless they have a
 * place. NOMEM. */
kolo_status kolo_store_join(kolo_store *store, const kolo_graph *g, const kolo_node *wait);
/* Grows the banks to the size of the entries; new entries are zero. Banks of joined entries that
 * ranks do not share are registered with `comm` if it is not NULL. NOMEM; UNSUPPORTED: joined
 * entries are added to those of requests. */
kolo_status kolo_store_grow(kolo_store *store, kolo_comm *comm);
/* Grows the arena to at least `bytes`; its contents are lost. NOMEM: no change. */
kolo_status kolo_store_reserve(kolo_store *store, size_t bytes);
/* Grows the region of gradients to at least `bytes`, in memory registered with `comm` if it is not
 * NULL. NOMEM: no change. */
kolo_status kolo_store_reserve_gradients(kolo_store *store, kolo_comm *comm, size_t bytes);
