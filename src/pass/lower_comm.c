/* Lowers redistributions to communication: groups them into buckets, each with a POST and a WAIT.
 *
 * Sums that only updates read, the gradients of data parallelism, are taken in the order in which
 * the backward pass computes them; a bucket is closed once it holds enough bytes. Its POST follows
 * the last producer of its gradients *and* the last reader of their parameters: once all ranks have
 * posted, shared parameters may be overwritten. Updates stand behind the WAITs, bucket by bucket.
 * The first buckets thus overlap with the rest of the backward pass, the last ones with the first
 * updates. Li et al., "PyTorch Distributed", VLDB 2020. Where the number of buckets is limited,
 * each of the last ones has half of what is left: when the last of them is summed, no kernel is
 * left to run meanwhile.
 *
 * A gradient of a parameter that several stages of a pipeline have is a bucket of its own: the
 * order of a sum may depend on the place in the bucket, and the copies must stay equal.
 *
 * Sums that the forward or backward pass reads have buckets of their own, with all that can be
 * posted before the first of them is read.
 *
 * Flat shards (zero.c) form a bucket for each unit: a reduce-scatter of gradients, an allgather of
 * parameters. That of next versions is in place in the store. Ranges of parameters that the ranks
 * share are not gathered: one bucket of all, a barrier, makes the ranks wait until each has written
 * its own. Ranks that share memory do not reduce gradients either: they wait until all have posted,
 * and an update reads the summands of its range (KOLO_COMM_SUMMANDS) before that barrier.
 *
 * Slices of the samples that the passes read as a whole, and sums of which each rank gets such a
 * slice, form buckets of one.
 *
 * What changes the positions of sequences that a rank has moves by a link (mesh/link.h), alone in
 * its bucket: any redistribution does.
 *
 * Rows and ids of row-sparse gradients are gathered instead of summed: each forms its own bucket,
 * to which all ranks contribute slices of equal size.
 *
 * lower_members.c finds what is communicated; this file makes the buckets. */
#include "pass/lower_comm.h"

#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/comm_order.h"
#include "pass/slices.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- buckets ---- */

static int by_class(const void *a, const void *b) {
    const lower_member *x = a, *y = b;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    if (x->axes != y->axes) return x->axes < y->axes ? -1 : 1;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    if (x->class == INSIDE && x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
    if (x->class == METRIC) return x->synced.id < y->synced.id ? -1 : 1; /* as outputs */
    if (x->early != y->early) return x->early ? -1 : 1;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
    if (x->made != y->made) return x->made < y->made ? -1 : 1;
    return x->value.id < y->value.id ? -1 : x->value.id > y->value.id;
}

/* Whether a member starts a bucket. `first`: the first member of the bucket before, which is full
 * or not. */
static bool starts(const lower_member *m, const lower_member *first, const lower_member *previous,
                   bool full) {
    if (!first || m->axes != previous->axes || m->op != previous->op) return true;
    switch (m->class) {
    case SUM:
        return full || m->tied || previous->tied || m->stage != previous->stage ||
               m->early != previous->early || m->behind != previous->behind;
    case METRIC:
        return previous->early || previous->behind || previous->tied || m->stage != previous->stage;
    case ROWS:
        return true;
    case SCATTER:
    case GATHER:
    case JOIN:
        return m->class != previous->class || m->unit != previous->unit;
    case COLLECT:
    case DEAL:
    case EXCHANGE:
        return true;
    case INSIDE:
        break;
    }
    int32_t read = INT32_MAX; /* of any in the bucket */
    for (const lower_member *i = first; i <= previous; i++) read = i->read < read ? i->read : read;
    return previous->class != INSIDE || m->made > read || m->dtype != previous->dtype ||
           m->chunks != previous->chunks || m->stage != previous->stage;
}

static int64_t bytes_of_sums(const lowerer *b) {
    int64_t bytes = 0;
    for (int i = 0; i < b->n_members; i++) {
        const lower_member *m = &b->members[i];
        if (m->class != SUM) continue;
        bytes += (int64_t)kolo_tensor_bytes(&kolo_info(b->g, m->value)->tensor);
    }
    return bytes;
}

/* The bytes after which a bucket is full. Of `all` bytes of sums `rest` are in no bucket yet. */
static size_t full_bytes(const kolo_bucket_sizes *sizes, int64_t all, int64_t rest) {
    enum { HALVINGS = 4, LEAST_PARTS = 4 };
    const int64_t least = (int64_t)sizes->least, n = kolo_max_i64(sizes->most - HALVINGS, 1);
    if (sizes->most == 0) return sizes->least;
    const int64_t most = kolo_max_i64(least, (all + n - 1) / n);
    const int64_t last = kolo_max_i64(least / LEAST_PARTS, most >> HALVINGS);
    return (size_t)kolo_max_i64(last, kolo_min_i64(most, rest / 2));
}

/* Divides the members into buckets. */
static void cut(lowerer *b, const kolo_bucket_sizes *sizes) {
    const int64_t all = bytes_of_sums(b);
    int64_t rest = all;
    size_t filled = 0, size = 0;
    const lower_member *first = NULL;
    qsort(b->members, (size_t)b->n_members, sizeof *b->members, by_class);
    for (int i = 0; i < b->n_members; i++) {
        lower_member *m = &b->members[i];
        b->member_of[m->synced.id] = i;
        const kolo_tensor *tensor = &kolo_info(b->g, m->value)->tensor;
        bool full = filled >= size && tensor->shape.rank > 0;
        if (starts(m, first, m - 1, full)) {
            size =
                b->n_buckets < sizes->n ? sizes->each[b->n_buckets] : full_bytes(sizes, all, rest);
            b->n_buckets++;
            filled = 0;
            first = m;
        }
        m->bucket = b->n_buckets - 1;
        const kolo_tensor *whole = &kolo_info(b->g, m->synced)->tensor;
        filled += kolo_tensor_bytes(m->class == GATHER ? whole : tensor);
        if (m->class == SUM) rest -= (int64_t)kolo_tensor_bytes(tensor);
        b->buckets[m->bucket].bytes = filled;
        b->buckets[m->bucket].limited = (m->class == SCATTER && !b->keep) || m->class == GATHER;
        b->buckets[m->bucket].on_demand = m->class == GATHER && m->of_leaf;
    }
}

/* Whether a bucket is a sum over the samples, of which each logical shard has a summand. */
static bool is_of_samples(const lower_member *m) {
    return m->stage == 0 && (m->class == SUM || m->class == METRIC || m->class == SCATTER);
}

static kolo_collective collective_of(const lower_member *m) {
    switch (m->class) {
    case SCATTER:
    case DEAL:
        return KOLO_COLLECTIVE_REDUCE_SCATTER;
    case GATHER:
    case ROWS:
    case COLLECT:
        return KOLO_COLLECTIVE_ALLGATHER;
    case JOIN:
        return m->unit > 0 ? KOLO_COLLECTIVE_ALLGATHER : KOLO_COLLECTIVE_BARRIER; /* shared */
    case EXCHANGE:
        return KOLO_COLLECTIVE_ALLTOALL;
    case SUM:
    case METRIC:
    case INSIDE:
        break;
    }
    return KOLO_COLLECTIVE_ALLREDUCE;
}

/* Adds POST and WAIT of the bucket of members [first, end). */
static kolo_status add_bucket(lowerer *b, int first, int end, kolo_value *values,
                              kolo_tensor *tensors) {
    const lower_member *m = &b->members[first];
    const int n = end - first;
    kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_COMM_BUCKET].i = m->bucket,
        [KOLO_COMM_COLLECTIVE].i = collective_of(m),
        [KOLO_COMM_INSIDE].i = m->inside,
        [KOLO_COMM_AXES].i = (int64_t)m->axes,
        [KOLO_COMM_OF_SAMPLES].i = is_of_samples(m),
        [KOLO_COMM_IN_PLACE].i = m->class == SCATTER && (b->keep || b->in_flight == SIZE_MAX),
        [KOLO_COMM_KEPT].i = b->keep && is_of_samples(m),
        [KOLO_COMM_OP].i = m->op,
        [KOLO_COMM_SUMMANDS].i = m->class == SCATTER && b->share,
        [KOLO_COMM_ORDER].i = m->order,
    };
    for (int i = 0; i < n; i++) {
        values[i] = m[i].value;
        tensors[i] = kolo_info(b->g, m[i].value)->tensor;
    }
    kolo_node *post = kolo_graph_add_raw(b->g, &kolo_op_post, values, n, n, tensors, attr);
    if (!post) return kolo_graph_check(b->g);
    kolo_redistribution *moves = kolo_arena_alloc(&b->g->arena, (size_t)n * sizeof *moves);
    if (!moves) return KOLO_NOMEM((size_t)n * sizeof *moves);
    for (int i = 0; i < n; i++) moves[i] = *m[i].move;
    post->move = moves;
    for (int i = 0; i < n; i++) { /* larger than what is posted where it is gathered */
        tensors[i] = kolo_info(b->g, m[i].synced)->tensor;
    }
    kolo_node *wait = kolo_graph_add_raw(b->g, &kolo_op_wait, post->out, n, n, tensors, attr);
    if (!wait) return kolo_graph_check(b->g);
    b->buckets[m->bucket].post = post;
    b->buckets[m->bucket].wait = wait;
    for (int i = 0; i < n; i++) {
        b->arrived[first + i] = wait->out[i];
        if (m->class != JOIN) continue;
        kolo_info(b->g, wait->out[i])->next_of = kolo_info(b->g, m[i].synced)->next_of;
        kolo_info(b->g, m[i].synced)->next_of = KOLO_NONE;
    }
    return KOLO_OK;
}

static kolo_status add_buckets(lowerer *b, kolo_arena *arena) {
    kolo_value *values = kolo_arena_alloc(arena, (size_t)b->n_members * sizeof *values);
    kolo_tensor *tensors = kolo_arena_alloc(arena, (size_t)b->n_members * sizeof *tensors);
    if (!values || !tensors) return KOLO_NOMEM((size_t)b->n_members * sizeof *tensors);
    for (int first = 0, end; first < b->n_members; first = end) {
        for (end = first; end < b->n_members; end++) {
            if (b->members[end].bucket != b->members[first].bucket) break;
        }
        KOLO_TRY(add_bucket(b, first, end, values, tensors));
    }
    return KOLO_OK;
}

/* ---- the whole ---- */

/* Readers take the outputs of WAIT. */
static void redirect(const lowerer *b, int32_t n_nodes) {
    for (int32_t i = 0; i < n_nodes; i++) {
        kolo_node *n = b->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            int m = b->member_of[n->in[k].id];
            if (m >= 0) n->in[k] = b->arrived[m];
        }
    }
    for (int32_t i = 0; i < b->g->n_outputs; i++) {
        int m = b->member_of[b->g->outputs[i].value.id];
        if (m >= 0) b->g->outputs[i].value = b->arrived[m];
    }
}

/* Whether an exchange moves the keys of a ring, or their gradients, to another rank, or what the
 * backward pass gathers anew. */
static bool is_late(const kolo_graph *g, const lower_member *m) {
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &m->move->from.axis[a], *to = &m->move->to.axis[a];
        const bool both = is_exchanged(from) && is_exchanged(to);
        if (m->late) return true;
        if (m->class == EXCHANGE && both && from->rotation != to->rotation) return true;
    }
    return false;
}

/* Whether a node only gathers what a member sends: keys, or the rows of a layout without blocks. */
static bool gathers(const lower_member *m, const kolo_node *n) {
    return n->op == &kolo_op_window || n->op == &kolo_op_concat ||
           (m->late && n->op == &kolo_op_reorder);
}

/* Where the backward pass sends keys, which are there since the forward pass, it gathers and sends
 * them when it needs them: after the node before those that only gather them. -1: there is none. */
static int32_t node_before(const kolo_graph *g, const lower_member *m) {
    int32_t i = kolo_info(g, m->synced)->producer - 1;
    while (i >= 0 && (gathers(m, g->nodes[i]) || g->nodes[i]->op->comm != KOLO_OP_LOCAL ||
                      g->nodes[i]->op->view)) {
        i--;
    }
    return i;
}

/* The nodes that precede each POST: producers, the last readers of parameters, and all other
 * readers of what it overwrites. Counts them if `before` is NULL. */
static int find_before(const lowerer *b, int32_t n_nodes, kolo_comm_before *before) {
    int n = 0;
    for (int i = 0; i < b->n_members; i++) {
        const lower_member *m = &b->members[i];
        if (before) before[n] = (kolo_comm_before){m->made, m->bucket};
        n++;
        const int32_t node = is_late(b->g, m) ? node_before(b->g, m) : -1;
        if (node >= 0 && node != m->made) {
            if (before) before[n] = (kolo_comm_before){node, m->bucket};
            n++;
        }
        if (m->held < 0) continue;
        if (before) before[n] = (kolo_comm_before){m->held, m->bucket};
        n++;
    }
    for (int32_t i = 0; i < n_nodes; i++) {
        const kolo_node *node = b->g->nodes[i];
        for (int k = 0; k < node->n_in && node->op->comm != KOLO_OP_REDISTRIBUTE; k++) {
            int32_t synced = b->posted[node->in[k].id];
            if (synced < 0) continue;
            if (before) before[n] = (kolo_comm_before){i, b->members[b->member_of[synced]].bucket};
            n++;
        }
    }
    return n;
}

/* The nodes that gather keys, each with the one that they come after. Counts them if `after` is
 * NULL. */
static int find_after(const lowerer *b, kolo_comm_after *after) {
    const kolo_graph *g = b->g;
    int n = 0;
    for (int i = 0; i < b->n_members; i++) {
        const lower_member *m = &b->members[i];
        const int32_t node = is_late(g, m) ? node_before(g, m) : -1;
        for (int32_t k = node + 1; node >= 0 && k < kolo_info(g, m->synced)->producer; k++) {
            if (!gathers(m, g->nodes[k])) continue;
            if (after) after[n] = (kolo_comm_after){k, node};
            n++;
        }
    }
    return n;
}

static kolo_status place(lowerer *b, int32_t n_nodes, kolo_arena *arena) {
    kolo_comm_order_opts opts = {
        .buckets = b->buckets, .n_buckets = b->n_buckets, .in_flight = b->in_flight};
    opts.n_after = find_after(b, NULL);
    kolo_comm_after *after = kolo_arena_alloc(arena, ((size_t)opts.n_after + 1) * sizeof *after);
    if (!after) return KOLO_NOMEM((size_t)opts.n_after * sizeof *after);
    (void)find_after(b, after);
    opts.after = after;
    opts.n_before = find_before(b, n_nodes, NULL);
    kolo_comm_before *before = kolo_arena_alloc(arena, (size_t)opts.n_before * sizeof *before);
    if (!before) return KOLO_NOMEM((size_t)opts.n_before * sizeof *before);
    (void)find_before(b, n_nodes, before);
    opts.before = before;
    return kolo_comm_order(b->g, &opts);
}

static kolo_status lower(lowerer *b, const kolo_bucket_sizes *sizes, kolo_arena *arena) {
    kolo_graph *g = b->g;
    const size_t most = (size_t)g->n_nodes + 1;
    const size_t values = (size_t)g->n_values + 3 * most; /* with copies, posts and waits */
    int32_t *last_reader = kolo_arena_alloc(arena, values * sizeof *last_reader);
    b->members = kolo_arena_alloc(arena, most * sizeof *b->members);
    b->arrived = kolo_arena_alloc(arena, most * sizeof *b->arrived);
    b->buckets = kolo_arena_alloc(arena, most * sizeof *b->buckets);
    b->member_of = kolo_arena_alloc(arena, values * sizeof *b->member_of);
    b->posted = kolo_arena_alloc(arena, values * sizeof *b->posted);
    b->reads = kolo_arena_alloc(arena, values * sizeof *b->reads);
    int *stage = kolo_arena_alloc(arena, values * sizeof *stage);
    if (!last_reader || !b->members || !b->arrived || !b->buckets || !b->member_of || !b->posted ||
        !b->reads || !stage) {
        return KOLO_NOMEM(most * sizeof *b->members);
    }
    for (size_t v = 0; v < values; v++) b->member_of[v] = b->posted[v] = -1;
    KOLO_TRY(kolo_lower_find_members(b, last_reader, stage));
    if (b->n_members == 0) return KOLO_OK; /* nothing to communicate */
    cut(b, sizes);
    const int32_t n_nodes = g->n_nodes;
    KOLO_TRY(add_buckets(b, arena));
    redirect(b, n_nodes);
    return place(b, n_nodes, arena);
}

kolo_status kolo_pass_lower_comm(kolo_graph *g, const kolo_bucket_sizes *sizes, size_t in_flight,
                                 bool keep, bool share) {
    KOLO_TRY(kolo_pass_slices(g));
    lowerer b = {.g = g, .in_flight = in_flight, .keep = keep};
    b.ahead = sizes->ahead;
    b.share = share && in_flight == SIZE_MAX && !keep; /* gradients are scattered in place */
    kolo_arena arena = {0};
    kolo_status status = lower(&b, sizes, &arena);
    kolo_arena_fini(&arena);
    return status;
}
