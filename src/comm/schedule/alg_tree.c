/* Reduce, broadcast and allreduce along trees, and the dissemination barrier (Hensgen, Finkel,
 * Manber, "Two algorithms for barrier synchronization", 1988), in about log2 n steps of messages.
 *
 * Reduce: a rank reduces its own chunk and its children's in SCRATCH (the root in DATA) and sends
 * the sum to its parent. Broadcast: complete chunks are received from the parent and sent to the
 * children. Chunks are pipelined: ranks at different depths work on different chunks. An allreduce
 * is a reduce followed by a broadcast.
 *
 * Binomial tree: ranks are numbered from the root; the parent of m is m without its highest bit.
 * Double tree: two binary trees, each for half of the vector, in which no rank is an inner node
 * twice. Each rank sends and receives each half once upwards and once downwards, the volume of a
 * ring in logarithmic steps (Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", Parallel Computing 2009). Nodes are numbered in order from 1, odd
 * nodes are leaves; the second tree is the first one mirrored (even n) or shifted by one (odd n),
 * which turns leaves into inner nodes.
 *
 * Barrier: in the step of distance d = 1, 2, 4, ... each rank sends an empty message to the rank d
 * above and receives one from the rank d below; after the last step all ranks are known to have
 * arrived. */
#include "comm/schedule/writers.h"

enum { CHILDREN_MOST = 32, NO_PARENT = -1 };

/* A rank's parent and children. */
typedef struct node {
    int parent; /* NO_PARENT at the root */
    int children[CHILDREN_MOST], n_children;
} node;

/* A reduction or broadcast along a tree. */
typedef struct tree {
    node node;
    range whole;  /* of DATA */
    size_t chunk; /* elements */
    size_t slots; /* in SCRATCH: one chunk per child and the sum */
} tree;

static tree tree_make(const kolo_schedule_spec *spec, kolo_schedule *s, node self, range whole,
                      bool reduces) {
    tree t = {.node = self, .whole = whole};
    t.chunk = whole.count < spec->chunk ? whole.count : spec->chunk;
    if (reduces && self.n_children > 0) {
        t.slots = kolo_schedule_scratch(s, (size_t)(self.n_children + 1) * t.chunk);
    }
    return t;
}

static size_t chunks_of(const tree *t) {
    return t->whole.count ? (t->whole.count + t->chunk - 1) / t->chunk : 0;
}

/* Reduces one chunk from the children and sends it to the parent. */
static void reduce_chunk(const kolo_schedule_spec *spec, kolo_schedule *s, const tree *t,
                         size_t c) {
    const node *n = &t->node;
    range part = kolo_range_chunk(t->whole, t->chunk, c);
    bool root = n->parent == NO_PARENT;
    kolo_schedule_round(s);
    for (int i = 0; i < n->n_children; i++) {
        kolo_schedule_recv(s, n->children[i], KOLO_BUFFER_SCRATCH, t->slots + (size_t)i * t->chunk,
                           part.count);
    }
    size_t sum = t->slots + (size_t)n->n_children * t->chunk;
    if (n->n_children > 0) {
        kolo_schedule_round(s);
        kolo_schedule_accumulate(s, spec->rank, spec->source, part.first, part.count, true);
        for (int i = 0; i < n->n_children; i++) {
            kolo_schedule_accumulate(s, spec->rank, KOLO_BUFFER_SCRATCH,
                                     t->slots + (size_t)i * t->chunk, part.count, false);
        }
        kolo_schedule_store(s, spec->rank, root ? KOLO_BUFFER_DATA : KOLO_BUFFER_SCRATCH,
                            root ? part.first : sum, part.count);
    }
    if (root) return;
    kolo_schedule_round(s);
    if (n->n_children > 0) {
        kolo_schedule_send(s, n->parent, KOLO_BUFFER_SCRATCH, sum, part.count);
    } else {
        kolo_schedule_send(s, n->parent, spec->source, part.first, part.count);
    }
}

/* Receives one chunk from the parent and sends it to the children. */
static void broadcast_chunk(kolo_schedule *s, const tree *t, size_t c) {
    const node *n = &t->node;
    range part = kolo_range_chunk(t->whole, t->chunk, c);
    kolo_schedule_round(s);
    if (n->parent != NO_PARENT) {
        kolo_schedule_recv(s, n->parent, KOLO_BUFFER_DATA, part.first, part.count);
        kolo_schedule_round(s);
    }
    for (int i = 0; i < n->n_children; i++) {
        kolo_schedule_send(s, n->children[i], KOLO_BUFFER_DATA, part.first, part.count);
    }
}

/* ---- the binomial tree ---- */

static node binomial(const kolo_schedule_spec *spec) {
    int n = spec->size, me = (spec->rank - spec->root + n) % n, bit = 1;
    node self = {.parent = NO_PARENT};
    while (bit <= me) bit *= 2; /* the lowest bit above the highest of `me` */
    if (me > 0) self.parent = (me - bit / 2 + spec->root) % n;
    for (; me + bit < n; bit *= 2) {
        self.children[self.n_children++] = (me + bit + spec->root) % n;
    }
    return self;
}

static void broadcast_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    tree t = tree_make(spec, s, binomial(spec), (range){0, spec->count}, false);
    for (size_t c = 0; c < chunks_of(&t); c++) broadcast_chunk(s, &t, c);
}

static void reduce_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    tree t = tree_make(spec, s, binomial(spec), (range){0, spec->count}, true);
    for (size_t c = 0; c < chunks_of(&t); c++) reduce_chunk(spec, s, &t, c);
}

static void allreduce_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    reduce_write(spec, s);
    broadcast_write(spec, s);
}

/* ---- the double tree ---- */

static int left_child(int k) {
    int low = k & -k;
    return low > 1 ? k - low / 2 : 0;
}

/* In a tree of n nodes; a right subtree with nodes above n is replaced by its part up to n. */
static int right_child(int k, int n) {
    for (int step = (k & -k) / 2; step > 0; step /= 2) {
        if (k + step <= n) return k + step;
    }
    return 0;
}

/* The parent and children of node k, as node numbers (0: none). */
static void find_node(int k, int n, int *parent, int children[2]) {
    int root = 1;
    while (2 * root <= n) root *= 2;
    *parent = 0;
    for (int at = root; at != k;) { /* in-order numbering: left is less */
        *parent = at;
        at = k < at ? left_child(at) : right_child(at, n);
    }
    children[0] = left_child(k);
    children[1] = right_child(k, n);
}

/* Converts between nodes of the first or second tree and ranks. */
static int rank_of(int k, int n, bool second) {
    if (!second) return k - 1;
    return n % 2 == 0 ? n - k : (k - 2 + n) % n;
}

static int node_of(int rank, int n, bool second) {
    if (!second) return rank + 1;
    return n % 2 == 0 ? n - rank : (rank + 1) % n + 1;
}

static node in_order(const kolo_schedule_spec *spec, bool second) {
    int n = spec->size, parent, children[2];
    find_node(node_of(spec->rank, n, second), n, &parent, children);
    node self = {.parent = parent ? rank_of(parent, n, second) : NO_PARENT};
    for (int i = 0; i < 2; i++) {
        if (children[i]) self.children[self.n_children++] = rank_of(children[i], n, second);
    }
    return self;
}

/* Alternates between chunks of the two trees, in the same order on all ranks. A rank waits only for
 * chunks that are earlier in this order, or at another depth of the same tree, so no cycle of waits
 * exists. */
static void double_tree_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    size_t half = kolo_slice_first(spec->count, 2, 1, spec->align);
    tree t[2] = {
        tree_make(spec, s, in_order(spec, false), (range){0, half}, true),
        tree_make(spec, s, in_order(spec, true), (range){half, spec->count - half}, true),
    };
    for (size_t c = 0; c < chunks_of(&t[0]); c++) {
        for (int i = 0; i < 2; i++) {
            if (c < chunks_of(&t[i])) reduce_chunk(spec, s, &t[i], c);
        }
    }
    for (size_t c = 0; c < chunks_of(&t[0]); c++) {
        for (int i = 0; i < 2; i++) {
            if (c < chunks_of(&t[i])) broadcast_chunk(s, &t[i], c);
        }
    }
}

/* ---- the barrier ---- */

static void barrier_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    int n = spec->size;
    for (int distance = 1; distance < n; distance *= 2) {
        kolo_schedule_round(s);
        kolo_schedule_add(
            s, (kolo_entry){.kind = KOLO_ENTRY_SEND, .peer = (spec->rank + distance) % n});
        kolo_schedule_add(
            s, (kolo_entry){.kind = KOLO_ENTRY_RECV, .peer = (spec->rank - distance + n) % n});
    }
}

static double tree_steps(int n, int hosts) { return 2 * kolo_log2_up(n); }

static double tree_volume(int n, int hosts) { return 2 * kolo_log2_up(n); }

const kolo_algorithm_info kolo_allreduce_tree = {
    .steps = tree_steps,
    .volume = tree_volume,
    .memory_cost = {0.4, 70},
    .network_cost = {30, 950},
    .rows = {{.name = "tree",
              .algorithm = KOLO_ALGORITHM_TREE,
              .variant = KOLO_VARIANT_MESSAGES,
              .write = allreduce_write}},
};

static double double_tree_steps(int n, int hosts) { return 2 * kolo_log2_up(n); }

static double double_tree_volume(int n, int hosts) { return 2 * kolo_ranks_per_link(n, hosts); }

const kolo_algorithm_info kolo_allreduce_double_tree = {
    .steps = double_tree_steps,
    .volume = double_tree_volume,
    .memory_cost = {0.5, 80},
    .network_cost = {35, 950},
    .rows = {{.name = "double-tree",
              .algorithm = KOLO_ALGORITHM_DOUBLE_TREE,
              .variant = KOLO_VARIANT_MESSAGES,
              .write = double_tree_write}},
};

const kolo_algorithm_row kolo_tree_broadcast = {
    .name = "broadcast-tree",
    .kind = KOLO_COLLECTIVE_BROADCAST,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = broadcast_write,
};

const kolo_algorithm_row kolo_tree_reduce = {
    .name = "reduce-tree",
    .kind = KOLO_COLLECTIVE_REDUCE,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = reduce_write,
};

const kolo_algorithm_row kolo_dissemination_barrier = {
    .name = "barrier-dissemination",
    .kind = KOLO_COLLECTIVE_BARRIER,
    .algorithm = KOLO_ALGORITHM_AUTO,
    .variant = KOLO_VARIANT_MESSAGES,
    .write = barrier_write,
};
