/* Comparison of the replicas of a store: of one hash of everything, and only where that differs of
 * one for each tensor. Layouts are equal on all ranks, so memory is hashed as it is. */
#include "train/session/replicas.h"

#include "base/memory.h"
#include "base/rng.h"

#include <string.h>

static void hash_entries(const kolo_store *store, bool own_state, uint64_t *hashes) {
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        bool replicated = !kolo_store_entry_is_sharded(entry) &&
                          !(own_state && kolo_name_is_optimizer(entry->name));
        hashes[i] = replicated ? kolo_hash_bytes(kolo_store_data(store, entry),
                                                 kolo_store_entry_bytes(entry))
                               : 0;
    }
}

/* The number of ranks that have the value of `rank`. */
static int count_equal(const uint64_t *of_rank, int ranks, int rank) {
    int n = 0;
    for (int r = 0; r < ranks; r++) n += of_rank[r] == of_rank[rank];
    return n;
}

/* The first tensor in which two ranks differ. all: n hashes of each rank. */
static const char *first_difference(const kolo_store *store, const uint64_t *all, int a, int b) {
    int n = kolo_store_count(store);
    for (int i = 0; i < n; i++) {
        if (all[(size_t)a * (size_t)n + (size_t)i] != all[(size_t)b * (size_t)n + (size_t)i]) {
            return kolo_store_entry_at(store, i)->name;
        }
    }
    return "nothing";
}

/* The error; equal on all ranks, which have equal numbers. */
static kolo_status report(const kolo_store *store, const uint64_t *of_rank, const uint64_t *all,
                          int ranks, const char *when) {
    int most = 0, odd = 0;
    for (int r = 1; r < ranks; r++) {
        if (count_equal(of_rank, ranks, r) > count_equal(of_rank, ranks, most)) most = r;
    }
    while (of_rank[odd] == of_rank[most]) odd++;
    const char *tensor = first_difference(store, all, most, odd);
    if (2 * count_equal(of_rank, ranks, most) <= ranks) {
        return KOLO_FAIL(KOLO_ERR_PEER,
                         "%s the ranks have different parameters: rank %d and rank %d differ first "
                         "in %s; use the same build of kolo and the same kind of processor on all "
                         "ranks, and check the memory of their machines",
                         when, most, odd, tensor);
    }
    return KOLO_FAIL(KOLO_ERR_PEER,
                     "%s rank %d has other parameters than most ranks, first in %s: check its "
                     "build of kolo, its kind of processor and the memory of its machine",
                     when, odd, tensor);
}

kolo_status kolo_compare_replicas(kolo_comm *comm, const kolo_store *store, bool own_state,
                                  const char *when) {
    int ranks = comm ? kolo_comm_size(comm) : 1;
    size_t n = (size_t)kolo_store_count(store), words = (n + 1) * (size_t)(ranks + 1);
    if (ranks == 1) return KOLO_OK;
    uint64_t *own = kolo_alloc(words * sizeof *own);
    if (!own) return KOLO_NOMEM(words * sizeof *own);
    uint64_t *all = own + n, *of_rank = all + n * (size_t)ranks;
    hash_entries(store, own_state, own);
    uint64_t hash = kolo_hash_bytes(own, n * sizeof *own);
    kolo_status status = kolo_allgather(comm, &hash, of_rank, sizeof hash, KOLO_DTYPE_U8);
    if (status == KOLO_OK && count_equal(of_rank, ranks, 0) < ranks) {
        status = kolo_allgather(comm, own, all, n * sizeof *own, KOLO_DTYPE_U8);
        if (status == KOLO_OK) status = report(store, of_rank, all, ranks, when);
    }
    kolo_free(own);
    return status;
}
