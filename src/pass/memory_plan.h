#pragma once
/* What the files of memory planning share: the groups of values, by which memory_plan.c plans the
 * arena, and memory_buckets.c what is communicated. */

#include "pass/pass.h"

enum { KOLO_MEMORY_ALIGN = 64 };

typedef struct memory_group {
    int32_t first, last; /* node indices: alive in [first, last] */
    size_t bytes;
    bool fixed;     /* placed outside the arena */
    bool slot;      /* placed in the slot of a micro-batch, */
    int chunk;      /* of this chunk of the stage; -1: of each of them, at the same place */
    bool sent;      /* to another stage */
    bool kept;      /* from one step to the next */
    bool left;      /* to the next step, which computes it: placed behind the values of that step */
    int region;     /* the last one whose nodes use it; 0: none */
    unsigned lanes; /* of that region, a bit each */
} memory_group;

typedef struct memory_planner {
    const kolo_graph *g;
    kolo_memory_map *map;
    int32_t *root;        /* by value: a value of its group, towards the group's first */
    memory_group *groups; /* by root value */
} memory_planner;

static inline int32_t root_of(memory_planner *p, int32_t v) {
    while (p->root[v] != v) v = p->root[v] = p->root[p->root[v]];
    return v;
}

/* The last node of the region of node i; i itself where it has none. */
static inline int32_t region_last(const kolo_graph *g, int32_t i) {
    while (i >= 0 && i + 1 < g->n_nodes && g->nodes[i]->region > 0 &&
           g->nodes[i + 1]->region == g->nodes[i]->region) {
        i++;
    }
    return i;
}

static inline size_t bytes_at(const kolo_graph *g, kolo_value v, int64_t elements) {
    return (size_t)elements * kolo_dtype_bytes(kolo_info(g, v)->tensor.dtype);
}

/* Places what buckets hold. NOMEM. */
kolo_status kolo_memory_place_buckets(memory_planner *p);
