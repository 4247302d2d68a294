/* The sum of the gradients of logical shards.
 *
 * Shard s is leaf P + s of the tree, P the smallest power of two not below L; node v has the
 * children 2v and 2v + 1. When a shard is complete, its value rises: a right child is combined with
 * the value kept last, its left sibling; a left child whose sibling has no shards rises as it is.
 * It stops at a node of this rank, or at a left child that waits for its sibling. */
#include "plan/shards.h"

#include "base/memory.h"

#include <string.h>

kolo_status kolo_shard_sum_create(int shards, size_t bytes, kolo_comm *comm, int places, int place,
                                  kolo_shard_sum **sum) {
    const size_t n = (size_t)places, all = (size_t)shards;
    kolo_shard_sum *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    *s = (kolo_shard_sum){
        .shards = shards, .places = places, .place = place, .bytes = bytes, .comm = comm};
    s->counts = kolo_zalloc(n * sizeof *s->counts);
    s->before = kolo_zalloc((all + 1) * sizeof *s->before);
    if (!s->counts || !s->before) {
        kolo_shard_sum_destroy(s);
        return KOLO_NOMEM((n + all) * sizeof *s->counts);
    }
    *sum = s;
    return KOLO_OK;
}

void kolo_shard_sum_destroy(kolo_shard_sum *s) {
    if (!s) return;
    if (!s->comm) kolo_pages_unmap(s->kept, (size_t)s->most * s->bytes);
    kolo_free(s->counts);
    kolo_free(s->before);
    kolo_free(s);
}

static bool is_node(const kolo_shard_sum *s, uint32_t v) {
    for (int i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i] == v) return true;
    }
    return false;
}

/* The number of kept values that shard `shard` is combined with as it rises. */
static int count_pairs(const kolo_shard_sum *s, int shard) {
    uint32_t shards = (uint32_t)s->shards, width = 1, level = 1; /* level: its first node */
    while (level < shards) level *= 2;
    int pairs = 0;
    for (uint32_t v = level + (uint32_t)shard; !is_node(s, v); v /= 2, width *= 2, level /= 2) {
        bool right = v % 2 == 1, sibling = (v + 1 - level) * width < shards;
        if (!right && sibling) break;
        pairs += right;
    }
    return pairs;
}

static kolo_status reserve(kolo_shard_sum *s, int most) {
    if (most <= s->most) return KOLO_OK;
    size_t bytes = (size_t)most * s->bytes;
    void *memory = NULL;
    if (s->comm) { /* not freed: earlier requests may point to the old memory */
        KOLO_TRY(kolo_comm_alloc(s->comm, bytes, &memory));
    } else {
        memory = kolo_pages_map(bytes);
        if (!memory) return KOLO_NOMEM(bytes);
        kolo_pages_unmap(s->kept, (size_t)s->most * s->bytes);
    }
    s->kept = memory;
    s->most = most;
    return KOLO_OK;
}

kolo_status kolo_shard_sum_deal(kolo_shard_sum *s, const int *counts) {
    int dealt = 0, most = 0;
    for (int p = 0; p < s->places; p++) {
        if (p == s->place) s->first = dealt;
        dealt += counts[p];
        if (p == s->place) s->end = dealt;
        s->counts[p] = (size_t)counts[p];
    }
    if (dealt != s->shards) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the ranks have %d shards of %d", dealt, s->shards);
    }
    s->n_nodes = kolo_tree_range_nodes(s->shards, s->first, s->end, s->nodes);
    s->before[0] = 0;
    for (int i = s->first; i < s->end - 1; i++) {
        const int kept = s->before[i - s->first] + 1 - count_pairs(s, i);
        s->before[i + 1 - s->first] = kept;
        if (kept > most) most = kept;
    }
    return reserve(s, most);
}

void kolo_shard_sum_begin(kolo_shard_sum *s, int shard) {
    KOLO_ASSERT(shard >= s->first && shard < s->end);
    s->depth = s->before[shard - s->first];
    s->pairs = count_pairs(s, shard);
    s->shard = shard;
}

void kolo_shard_sum_fold(const kolo_shard_sum *s, char *region, size_t offset, size_t bytes,
                         kolo_dtype dtype) {
    char *value = region + offset;
    for (int i = 1; i <= s->pairs; i++) {
        const char *left = s->kept + (size_t)(s->depth - i) * s->bytes + offset;
        (void)kolo_combine(value, left, bytes / kolo_dtype_bytes(dtype), dtype, KOLO_SUM);
    }
    if (s->shard == s->end - 1) return;
    memcpy(s->kept + (size_t)(s->depth - s->pairs) * s->bytes + offset, value, bytes);
}

char *kolo_shard_sum_node(const kolo_shard_sum *s, int i, char *region) {
    return i == s->n_nodes - 1 ? region : s->kept + (size_t)i * s->bytes;
}

void kolo_shard_sum_request(const kolo_shard_sum *s, char *region, size_t offset,
                            kolo_request_opts *opts, kolo_part *parts) {
    for (int i = 0; i < s->n_nodes; i++) {
        char *value = kolo_shard_sum_node(s, i, region) + offset;
        parts[i] = (kolo_part){s->nodes[i], value, opts->count};
    }
    opts->shards = s->shards;
    opts->counts = s->counts;
    opts->parts = parts;
    opts->n_parts = s->n_nodes;
}
