/* The fixed summation tree of a reproducible allreduce.
 *
 * The logical shards 0 .. L-1 are the leaves of one binary tree: the root is node 1, node v has the
 * children 2v and 2v + 1, and the leaves, padded to the smallest power of two not below L, form one
 * level. Each rank owns a contiguous range of shards and contributes the largest subtrees within
 * it. */
#include "comm/schedule/schedule.h"

void kolo_tree_span(uint32_t v, uint32_t shards, uint32_t *first, uint32_t *end) {
    uint32_t width = 1, level_first = 1;
    while (width < shards) width *= 2;
    while (level_first * 2 <= v) {
        level_first *= 2;
        width /= 2;
    }
    *first = (v - level_first) * width;
    *end = *first + width < shards ? *first + width : shards;
}

bool kolo_tree_has(uint32_t v, uint32_t shards) {
    uint32_t first, end;
    kolo_tree_span(v, shards, &first, &end);
    return first < end;
}

static int list_nodes(uint32_t v, uint32_t shards, uint32_t from, uint32_t to, uint32_t *nodes) {
    uint32_t first, end;
    kolo_tree_span(v, shards, &first, &end);
    if (first >= end || end <= from || first >= to) return 0;
    if (first >= from && end <= to) {
        if (nodes) *nodes = v;
        return 1;
    }
    int left = list_nodes(2 * v, shards, from, to, nodes);
    return left + list_nodes(2 * v + 1, shards, from, to, nodes ? nodes + left : NULL);
}

int kolo_tree_range_nodes(int shards, int first, int end, uint32_t *nodes) {
    if (shards < 1 || first < 0 || end > shards || first >= end) return 0;
    return list_nodes(1, (uint32_t)shards, (uint32_t)first, (uint32_t)end, nodes);
}

int kolo_tree_nodes(int shards, int size, int rank, uint32_t *nodes) {
    if (shards < 1 || size < 1 || rank < 0 || rank >= size) return 0;
    int first = (int)kolo_slice_first((size_t)shards, size, rank, 1);
    int end = (int)kolo_slice_first((size_t)shards, size, rank + 1, 1);
    return kolo_tree_range_nodes(shards, first, end, nodes);
}

int kolo_spec_nodes(const kolo_schedule_spec *spec, int rank, uint32_t *nodes) {
    const size_t *firsts = spec->shard_firsts;
    if (!firsts) return kolo_tree_nodes(spec->shards, spec->size, rank, nodes);
    return kolo_tree_range_nodes(spec->shards, (int)firsts[rank], (int)firsts[rank + 1], nodes);
}
