/* Reduce, broadcast and allreduce along trees, and the dissemination barrier (Hensgen, Finkel,
 * Manber, "Two algorithms for barrier synchronization", 1988), in about log2 n steps of messages.
 *
 * Reduce: a rank reduces its own chunk and its children's in SCRATCH (the root in DATA) and sends
 * the sum to its parent. Broadcast: complete chunks are received from the parent and sent to the
 * children. Chunks are pipelined: in each step, ranks at different depths work on different chunks,
 * one on the next chunk of each direction. So an allreduce broadcasts early chunks while it reduces
 * later ones. All ranks count the same steps, and a message is sent and received in the same step,
 * so no cycle of waits exists.
 *
 * Binomial tree: ranks are numbered from the root; the parent of m is m without its highest bit.
 * The root's link carries the vector log2 n times in each direction: for short vectors.
 * Double tree: two binary trees, each for half of the vector, in which no rank is an inner node
 * twice. Each rank sends and receives each half at most once upwards and once downwards for each
 * of its edges: twice the vector in each direction, for any number of ranks, in logarithmic steps
 * (Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
 * Parallel Computing 2009). The edges have two colours, so that a rank's two messages of a kind
 * take turns with those of its peers. Nodes are numbered in order from 1, odd nodes are leaves; the
 * second tree is the first one mirrored (even n) or shifted by one (odd n), which turns leaves into
 * inner nodes.
 *
 * Barrier: in the step of distance d = 1, 2, 4, ... each rank sends an empty message to the rank d
 * above and receives one from the rank d below; after the last step all ranks are known to have
 * arrived. */
#include "comm/schedule/writers.h"

enum {
    CHILDREN_MOST = 32,
    NO_PARENT = -1,
    CHUNKS_PER_LEVEL = 16, /* then the pipeline fills and drains in an eighth of the time */
    CHUNK_LEAST = 64,      /* in units of the alignment of slices */
    CHUNK_PARTS = 4,       /* but no chunk is shorter than that part of the longest message */
};

/* A rank's place in a tree. */
typedef struct node {
    int parent; /* NO_PARENT at the root */
    int depth;  /* edges from the root */
    int children[CHILDREN_MOST], n_children;
} node;

/* Depth of the lowest leaf of the trees of n ranks: log2 n, rounded down. */
static int levels(int n) {
    int k = 0;
    while (n >>= 1) k++;
    return k;
}

/* What this rank does along a tree. */
typedef struct tree {
    node node;
    range whole;  /* of DATA */
    size_t chunk; /* elements */
    size_t slots; /* in SCRATCH: one chunk per child, one sum per step_up */
    bool reduces, broadcasts;
    int step_up; /* steps from level to level upwards; 1 downwards */
    /* Steps before this rank reduces its first chunk, sends the sum up, and sends that of all ranks
     * down. */
    int sum, up, down;
} tree;

/* The chunks are as long as the pipeline needs to be full most of the time, within limits that keep
 * a message long enough to hide its latency. */
static size_t chunk_length(const kolo_schedule_spec *spec, size_t count) {
    size_t align = spec->align, most = spec->chunk;
    size_t wanted = count / ((size_t)CHUNKS_PER_LEVEL * (size_t)levels(spec->size));
    size_t least = (most + CHUNK_PARTS - 1) / CHUNK_PARTS;
    if (least < CHUNK_LEAST * align) least = CHUNK_LEAST * align;
    size_t chunk = ((wanted > least ? wanted : least) + align - 1) / align * align;
    if (chunk > most) chunk = most;
    return chunk < count ? chunk : count;
}

static tree tree_make(const kolo_schedule_spec *spec, kolo_schedule *s, node self, range whole,
                      int step_up, bool reduces, bool broadcasts) {
    tree t = {.node = self,
              .whole = whole,
              .step_up = step_up,
              .reduces = reduces,
              .broadcasts = broadcasts};
    t.chunk = chunk_length(spec, whole.count);
    t.up = step_up * (levels(spec->size) - self.depth);
    t.sum = t.up - 1;
    t.down = (reduces ? step_up * levels(spec->size) - (step_up == 1) : 0) + self.depth;
    if (reduces && self.n_children > 0) {
        t.slots = kolo_schedule_scratch(s, (size_t)(self.n_children + step_up) * t.chunk);
    }
    return t;
}

static size_t chunks_of(const tree *t) {
    return t->whole.count ? (t->whole.count + t->chunk - 1) / t->chunk : 0;
}

/* The chunk whose turn is `delay` steps after that of the first one, empty if there is none. */
static range due(const tree *t, size_t step, int delay) {
    size_t after = (size_t)delay;
    if (step < after || step - after >= chunks_of(t)) return (range){0, 0};
    return kolo_range_chunk(t->whole, t->chunk, step - after);
}

/* Where the sum of a chunk is in SCRATCH. A sum is sent while the next one is computed, unless
 * these are in rounds of their own. */
static size_t sum_of(const tree *t, size_t step, int delay) {
    size_t slot = (step - (size_t)delay) % (size_t)t->step_up;
    return t->slots + ((size_t)t->node.n_children + slot) * t->chunk;
}

/* Reduces a chunk of this rank and its children, at the root into DATA. */
static void reduce_chunk(const kolo_schedule_spec *spec, kolo_schedule *s, const tree *t,
                         size_t step) {
    const node *n = &t->node;
    if (n->n_children == 0) return;
    range part = due(t, step, t->sum);
    bool root = n->parent == NO_PARENT;
    kolo_schedule_accumulate(s, spec->rank, spec->source, part.first, part.count, true);
    for (int i = 0; i < n->n_children; i++) {
        kolo_schedule_accumulate(s, spec->rank, KOLO_BUFFER_SCRATCH,
                                 t->slots + (size_t)i * t->chunk, part.count, false);
    }
    kolo_schedule_store(s, spec->rank, root ? KOLO_BUFFER_DATA : KOLO_BUFFER_SCRATCH,
                        root ? part.first : sum_of(t, step, t->sum), part.count);
}

static void send_up(const kolo_schedule_spec *spec, kolo_schedule *s, const tree *t, size_t step) {
    const node *n = &t->node;
    if (n->parent == NO_PARENT) return;
    range part = due(t, step, t->up);
    bool leaf = n->n_children == 0;
    kolo_schedule_send(s, n->parent, leaf ? spec->source : KOLO_BUFFER_SCRATCH,
                       leaf ? part.first : sum_of(t, step, t->up), part.count);
}

static void receive_up(kolo_schedule *s, const tree *t, size_t step, int child) {
    if (child >= t->node.n_children) return;
    kolo_schedule_recv(s, t->node.children[child], KOLO_BUFFER_SCRATCH,
                       t->slots + (size_t)child * t->chunk, due(t, step, t->up - t->step_up).count);
}

static void send_down(kolo_schedule *s, const tree *t, size_t step, int child) {
    if (child >= t->node.n_children) return;
    range part = due(t, step, t->down);
    kolo_schedule_send(s, t->node.children[child], KOLO_BUFFER_DATA, part.first, part.count);
}

static void receive_down(kolo_schedule *s, const tree *t, size_t step) {
    if (t->node.parent == NO_PARENT) return;
    range part = due(t, step, t->down - 1);
    kolo_schedule_recv(s, t->node.parent, KOLO_BUFFER_DATA, part.first, part.count);
}

static size_t steps_of(const kolo_schedule_spec *spec, const tree *t) {
    size_t chunks = chunks_of(t);
    int levels_passed = (t->reduces ? t->step_up : 0) + t->broadcasts;
    return chunks ? chunks + (size_t)(levels_passed * levels(spec->size)) : 0;
}

/* ---- the binomial tree ---- */

static node binomial(const kolo_schedule_spec *spec) {
    int n = spec->size, me = (spec->rank - spec->root + n) % n, bit = 1;
    node self = {.parent = NO_PARENT};
    while (bit <= me) bit *= 2; /* the lowest bit above the highest of `me` */
    if (me > 0) self.parent = (me - bit / 2 + spec->root) % n;
    for (int rest = me; rest > 0; rest &= rest - 1) self.depth++;
    for (; me + bit < n; bit *= 2) {
        self.children[self.n_children++] = (me + bit + spec->root) % n;
    }
    return self;
}

/* Each step is one round: what has been received in one step is reduced in the next, behind sends,
 * and sent in the one after it. */
static void binomial_write(const kolo_schedule_spec *spec, kolo_schedule *s, bool reduces,
                           bool broadcasts) {
    range whole = {0, spec->count};
    tree t = tree_make(spec, s, binomial(spec), whole, 2, reduces, broadcasts);
    for (size_t step = 0; step < steps_of(spec, &t); step++) {
        kolo_schedule_round(s);
        for (int i = 0; broadcasts && i < t.node.n_children; i++) send_down(s, &t, step, i);
        if (reduces) send_up(spec, s, &t, step);
        if (reduces) reduce_chunk(spec, s, &t, step);
        for (int i = 0; reduces && i < t.node.n_children; i++) receive_up(s, &t, step, i);
        if (broadcasts) receive_down(s, &t, step);
    }
}

static void broadcast_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    binomial_write(spec, s, false, true);
}

static void reduce_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    binomial_write(spec, s, true, false);
}

static void allreduce_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    binomial_write(spec, s, true, true);
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

/* The parent and children of node k, as node numbers (0: none). Returns its depth. */
static int find_node(int k, int n, int *parent, int children[2]) {
    int depth = 0;
    *parent = 0;
    for (int at = 1 << levels(n); at != k; depth++) { /* in-order numbering: left is less */
        *parent = at;
        at = k < at ? left_child(at) : right_child(at, n);
    }
    children[0] = left_child(k);
    children[1] = right_child(k, n);
    return depth;
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

static node in_order(int rank, int n, bool second) {
    int parent, children[2];
    int depth = find_node(node_of(rank, n, second), n, &parent, children);
    node self = {.parent = parent ? rank_of(parent, n, second) : NO_PARENT, .depth = depth};
    for (int i = 0; i < 2; i++) {
        if (children[i]) self.children[self.n_children++] = rank_of(children[i], n, second);
    }
    return self;
}

/* The edge between a rank and its parent in one of the trees. */
typedef struct edge {
    int child;
    bool second;
} edge;

/* Replaces an edge by that of the same rank in the other tree, or that of its sibling; false if
 * there is none. */
static bool next_edge(edge *e, int n, bool sibling) {
    node at = in_order(e->child, n, e->second != !sibling);
    if (!sibling) {
        e->second = !e->second;
        return at.parent != NO_PARENT;
    }
    at = in_order(at.parent, n, e->second);
    if (at.n_children < 2) return false;
    e->child = at.children[at.children[0] == e->child];
    return true;
}

/* The colour, 0 or 1, of an edge. A rank's edges to its two parents have different colours, and so
 * have those to its two children. The edges that exclude each other form paths and even cycles; the
 * least edge of each has colour 0. */
static int colour_of(edge e, int n) {
    edge least = e;
    int colour = 0;
    for (int way = 0; way < 2; way++) {
        edge at = e;
        bool sibling = way;
        for (int distance = 1; next_edge(&at, n, sibling); distance++, sibling = !sibling) {
            if (at.child == e.child && at.second == e.second) return colour; /* a cycle */
            if (at.child > least.child || (at.child == least.child && at.second >= least.second)) {
                continue;
            }
            least = at;
            colour = distance % 2;
        }
    }
    return colour;
}

/* What a rank does along both trees. */
typedef struct double_tree {
    tree trees[2];
    const tree *inner; /* in which the rank has children, if it has any */
    int first;         /* the tree whose edge to the parent has colour 0 */
    int first_child;   /* in `inner`, the child whose edge has colour 0; possibly none */
} double_tree;

static void double_tree_make(const kolo_schedule_spec *spec, kolo_schedule *s, double_tree *d) {
    int n = spec->size, rank = spec->rank;
    size_t half = kolo_slice_first(spec->count, 2, 1, spec->align);
    range parts[2] = {{0, half}, {half, spec->count - half}};
    for (int i = 0; i < 2; i++) {
        d->trees[i] = tree_make(spec, s, in_order(rank, n, i), parts[i], 1, true, true);
    }
    bool second = d->trees[1].node.n_children > 0;
    d->inner = &d->trees[second];
    const node *self = &d->inner->node;
    d->first_child = self->n_children > 0 ? colour_of((edge){self->children[0], second}, n) : 0;
    bool parent = d->trees[0].node.parent == NO_PARENT; /* the tree with a parent */
    d->first = colour_of((edge){rank, parent}, n) != parent;
}

/* Each step has four rounds: upwards and downwards, along the edges of colour 0 and of colour 1.
 * In a round a rank sends at most one message and receives at most one. A chunk is reduced while
 * another one is sent down. */
static void double_tree_write(const kolo_schedule_spec *spec, kolo_schedule *s) {
    double_tree d;
    double_tree_make(spec, s, &d);
    bool root = d.inner->node.parent == NO_PARENT; /* sends down what it has reduced */
    size_t steps = steps_of(spec, &d.trees[0]);    /* the first half is not the shorter one */
    for (size_t step = 0; step < steps; step++) {
        for (int colour = 0; colour < 2; colour++) {
            kolo_schedule_round(s);
            send_up(spec, s, &d.trees[d.first ^ colour], step);
            receive_up(s, d.inner, step, d.first_child ^ colour);
        }
        for (int colour = 0; colour < 2; colour++) {
            kolo_schedule_round(s);
            if (colour == 0 && root) reduce_chunk(spec, s, d.inner, step);
            send_down(s, d.inner, step, d.first_child ^ colour);
            if (colour == 0 && !root) reduce_chunk(spec, s, d.inner, step);
            receive_down(s, &d.trees[d.first ^ colour], step);
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

static double tree_steps(int n, int hosts) { return 2 * levels(n); }

/* Both directions at once. */
static double tree_volume(int n, int hosts) { return kolo_log2_up(n); }

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

/* In about every second level one message waits for another. */
static double double_tree_steps(int n, int hosts) { return 3 * levels(n); }

/* Twice the vector, and filling the pipeline; two ranks are root and leaf of each other. */
static double double_tree_volume(int n, int hosts) {
    return (n == 2 ? 1 : 2.25) * kolo_ranks_per_link(n, hosts);
}

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
