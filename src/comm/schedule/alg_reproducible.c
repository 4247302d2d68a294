/* Reproducible allreduce: the bits of the result depend on the number of logical shards only.
 *
 * All sums follow the fixed tree of shard_tree.c. A node's value is the reduction of its left and
 * its right child, or the left child's value if the right subtree has no shards. Each rank has
 * reduced its shards up to its largest whole subtrees; its INPUT holds the values of these nodes,
 * one after the other (kolo_spec_nodes). Every rank derives the nodes of all ranks from the number
 * of shards and each rank's part of them.
 *
 * Rank r reduces slice r of all nodes' values along the tree and distributes the result.
 *
 * messages  The values are sent to the slice's owner, as in alg_mesh.c.
 * window    The owner reads all values in place, in pieces that stay in the cache, and writes the
 *           result to every rank's vector.
 * eager     Tiny values are sent with the announcement; every rank reduces all of them.
 *
 * Each element goes through the same operations in the same order, each rounded to its type,
 * independent of variant, ranks, slices and chunks. */
#include "base/memory.h"
#include "comm/schedule/writers.h"

enum { LEVELS_MOST = 31, PIECE = 4096 /* elements */ };

/* A node of some rank's INPUT. */
typedef struct leaf {
    uint32_t node;
    int rank, index; /* among the rank's nodes */
} leaf;

typedef struct reproducible {
    const kolo_schedule_spec *spec;
    kolo_variant variant;
    leaf *leaves;       /* of all ranks, in shard order */
    int n_leaves, most; /* most nodes of one rank */
    size_t chunk, half, scratch;
} reproducible;

static bool find_leaves(reproducible *x) {
    const kolo_schedule_spec *spec = x->spec;
    uint32_t nodes[2 * LEVELS_MOST];
    for (int r = 0; r < spec->size; r++) x->n_leaves += kolo_spec_nodes(spec, r, NULL);
    x->leaves = kolo_alloc((size_t)x->n_leaves * sizeof *x->leaves);
    if (!x->leaves) return false;
    int at = 0;
    for (int r = 0; r < spec->size; r++) {
        int n = kolo_spec_nodes(spec, r, nodes);
        for (int i = 0; i < n; i++) x->leaves[at++] = (leaf){nodes[i], r, i};
        if (n > x->most) x->most = n;
    }
    return true;
}

static range chunk_of(const reproducible *x, int rank, size_t c) {
    range whole = {0, x->spec->count};
    return kolo_range_chunk(kolo_team_slice(whole, x->spec->size, rank, x->spec->align), x->chunk,
                            c);
}

/* The range that this rank reduces as chunk c. */
static range own_chunk(const reproducible *x, size_t c) {
    return x->variant == KOLO_VARIANT_EAGER ? (range){0, x->spec->count}
                                            : chunk_of(x, x->spec->rank, c);
}

/* The location of a value while chunk c is reduced. */
typedef struct location {
    int rank;
    kolo_buffer buffer;
    size_t first;
    int slot; /* of this rank's SCRATCH, for the result of reducing into it */
} location;

static size_t slot_first(const reproducible *x, size_t c, int slot) {
    return x->scratch + c % 2 * x->half + (size_t)slot * x->chunk;
}

static location leaf_location(const reproducible *x, int slot, size_t c) {
    const leaf *l = &x->leaves[slot];
    size_t first = (size_t)l->index * x->spec->count + own_chunk(x, c).first;
    if (x->variant == KOLO_VARIANT_EAGER)
        return (location){l->rank, KOLO_BUFFER_SCRATCH, first, slot};
    if (x->variant == KOLO_VARIANT_WINDOW || l->rank == x->spec->rank) {
        return (location){l->rank, KOLO_BUFFER_INPUT, first, slot};
    }
    return (location){x->spec->rank, KOLO_BUFFER_SCRATCH, slot_first(x, c, slot), slot};
}

/* SUM = left op right. */
static void add_pair(kolo_schedule *s, location left, location right, size_t count) {
    kolo_schedule_accumulate(s, left.rank, left.buffer, left.first, count, true);
    kolo_schedule_accumulate(s, right.rank, right.buffer, right.first, count, false);
}

/* Computes node v for chunk c; `*at` is the next leaf in shard order. */
static location add_node(const reproducible *x, kolo_schedule *s, uint32_t v, size_t c, int *at) {
    const kolo_schedule_spec *spec = x->spec;
    if (x->leaves[*at].node == v) return leaf_location(x, (*at)++, c);
    location left = add_node(x, s, 2 * v, c, at);
    if (!kolo_tree_has(2 * v + 1, (uint32_t)spec->shards)) return left;
    location right = add_node(x, s, 2 * v + 1, c, at);
    size_t first = slot_first(x, c, left.slot), count = own_chunk(x, c).count;
    add_pair(s, left, right, count);
    kolo_schedule_store(s, spec->rank, KOLO_BUFFER_SCRATCH, first, count);
    return (location){spec->rank, KOLO_BUFFER_SCRATCH, first, left.slot};
}

/* One rank holds the root: copies its value to this rank's DATA and, with windows, to all ranks. */
static void add_only(const reproducible *x, kolo_schedule *s, range own, location value) {
    kolo_entry e = {.kind = KOLO_ENTRY_COPY_FROM,
                    .peer = value.rank,
                    .to = KOLO_BUFFER_DATA,
                    .to_first = own.first,
                    .from = value.buffer,
                    .from_first = value.first,
                    .count = own.count};
    if (value.rank == x->spec->rank) e.kind = KOLO_ENTRY_COPY;
    kolo_schedule_add(s, e);
    e.kind = KOLO_ENTRY_COPY_TO;
    e.from = KOLO_BUFFER_DATA;
    e.from_first = own.first;
    for (int p = 0; p < x->spec->size && x->variant == KOLO_VARIANT_WINDOW; p++) {
        e.peer = p;
        if (p != x->spec->rank) kolo_schedule_add(s, e);
    }
}

/* Computes the root for chunk c from values that are available. */
static void add_root(const reproducible *x, kolo_schedule *s, size_t c) {
    range own = own_chunk(x, c);
    int at = 0;
    if (own.count == 0) return;
    if (x->n_leaves == 1) {
        add_only(x, s, own, leaf_location(x, 0, c));
        return;
    }
    location left = add_node(x, s, 2, c, &at), right = add_node(x, s, 3, c, &at);
    add_pair(s, left, right, own.count);
    for (int p = 0; p < x->spec->size; p++) {
        if (p == x->spec->rank || x->variant == KOLO_VARIANT_WINDOW)
            kolo_schedule_store(s, p, KOLO_BUFFER_DATA, own.first, own.count);
    }
}

/* Sends chunk c of every slice to its owner: the i-th node of each rank in round i. */
static void add_exchange(const reproducible *x, kolo_schedule *s, size_t c) {
    const kolo_schedule_spec *spec = x->spec;
    for (int i = 0; i < x->most; i++) {
        if (i > 0) kolo_schedule_round(s);
        for (int slot = 0; slot < x->n_leaves; slot++) {
            const leaf *l = &x->leaves[slot];
            if (l->index != i) continue;
            for (int p = 0; p < spec->size && l->rank == spec->rank; p++) {
                range out = chunk_of(x, p, c);
                size_t first = (size_t)i * spec->count + out.first;
                if (p != spec->rank) kolo_schedule_send(s, p, KOLO_BUFFER_INPUT, first, out.count);
            }
            if (l->rank == spec->rank) continue;
            kolo_schedule_recv(s, l->rank, KOLO_BUFFER_SCRATCH, slot_first(x, c, slot),
                               chunk_of(x, spec->rank, c).count);
        }
    }
}

static void messages_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    range whole = {0, spec->count};
    size_t longest = kolo_team_slice(whole, spec->size, 0, spec->align).count;
    reproducible x = {.spec = spec, .variant = KOLO_VARIANT_MESSAGES};
    if (longest == 0) return;
    if (!find_leaves(&x)) {
        s->failed = true;
        return;
    }
    x.chunk = longest < spec->chunk ? longest : spec->chunk;
    x.half = (size_t)x.n_leaves * x.chunk;
    x.scratch = kolo_schedule_scratch(s, 2 * x.half);
    size_t chunks = (longest + x.chunk - 1) / x.chunk;
    for (size_t c = 0; c < chunks; c++) {
        kolo_schedule_round(s);
        if (c > 0) add_root(&x, s, c - 1);
        add_exchange(&x, s, c);
    }
    kolo_schedule_round(s);
    add_root(&x, s, chunks - 1);
    kolo_team all = {.size = spec->size, .me = spec->rank};
    kolo_mesh_allgather_write(spec, s, &all, spec->size, whole);
    kolo_free(x.leaves);
}

/* Reduces this rank's slice piece by piece. A single sum needs no SCRATCH. */
static void window_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    reproducible x = {.spec = spec, .variant = KOLO_VARIANT_WINDOW};
    size_t longest = kolo_slice_first(spec->count, spec->size, 1, spec->align);
    if (longest == 0) return;
    if (!find_leaves(&x)) {
        s->failed = true;
        return;
    }
    size_t piece = spec->chunk < PIECE ? spec->chunk : PIECE;
    x.chunk = x.n_leaves <= 2 || longest < piece ? longest : piece;
    if (x.n_leaves > 2) x.scratch = kolo_schedule_scratch(s, (size_t)x.n_leaves * x.chunk);
    for (size_t c = 0; c * x.chunk < longest; c++) add_root(&x, s, c);
    kolo_schedule_round(s);
    kolo_schedule_add(s, (kolo_entry){.kind = KOLO_ENTRY_BARRIER});
    kolo_free(x.leaves);
}

/* SCRATCH starts with this rank's values, which the others read, followed by room for sums. */
static void eager_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    reproducible x = {.spec = spec, .variant = KOLO_VARIANT_EAGER, .chunk = spec->count};
    if (spec->count == 0) return;
    if (!find_leaves(&x)) {
        s->failed = true;
        return;
    }
    (void)kolo_schedule_scratch(s, (size_t)x.most * spec->count);
    x.scratch = kolo_schedule_scratch(s, (size_t)x.n_leaves * spec->count);
    kolo_schedule_copy(s, KOLO_BUFFER_SCRATCH, 0, KOLO_BUFFER_INPUT, 0, kolo_spec_input(spec));
    s->prologue = kolo_spec_input(spec) > 0 ? s->n_rounds : 0;
    kolo_schedule_round(s);
    add_root(&x, s, 0);
    kolo_free(x.leaves);
}

const kolo_algorithm_row kolo_reproducible_allreduce = {
    .name = "fixed-tree",
    .kind = KOLO_COLLECTIVE_ALLREDUCE,
    .algorithm = KOLO_ALGORITHM_REPRODUCIBLE,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = messages_write,
};

const kolo_algorithm_row kolo_reproducible_window_allreduce = {
    .name = "fixed-tree-direct",
    .kind = KOLO_COLLECTIVE_ALLREDUCE,
    .algorithm = KOLO_ALGORITHM_REPRODUCIBLE,
    .variant = KOLO_VARIANT_WINDOW,
    .write = window_write,
};

const kolo_algorithm_row kolo_reproducible_eager_allreduce = {
    .name = "fixed-tree-eager",
    .kind = KOLO_COLLECTIVE_ALLREDUCE,
    .algorithm = KOLO_ALGORITHM_REPRODUCIBLE,
    .variant = KOLO_VARIANT_EAGER,
    .write = eager_write,
};
