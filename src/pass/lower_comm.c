/* Lowers redistributions to communication: groups them into buckets, each with a POST and a WAIT.
 *
 * Sums that only updates read, the gradients of data parallelism, are taken in the order in which
 * the backward pass computes them; a bucket is closed once it holds enough bytes. Its POST follows
 * the last producer of its gradients *and* the last reader of their parameters: once all ranks have
 * posted, shared parameters may be overwritten. Updates stand behind the WAITs, bucket by bucket.
 * The first buckets thus overlap with the rest of the backward pass, the last ones with the first
 * updates. Li et al., "PyTorch Distributed", VLDB 2020.
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
 * to which all ranks contribute slices of equal size. */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/comm_order.h"
#include "pass/pass.h"
#include "pass/slices.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* In the order of their buckets. */
typedef enum member_class {
    SUM,      /* for updates */
    METRIC,   /* for outputs alone: in the last bucket of SUM */
    ROWS,     /* gathered */
    SCATTER,  /* sums of which each rank gets its range */
    GATHER,   /* ranges */
    JOIN,     /* ranges, each in its place in the next version of a parameter */
    INSIDE,   /* sums that the forward or backward pass reads */
    COLLECT,  /* slices of the samples that it reads as a whole */
    DEAL,     /* sums of which each rank gets a slice of the samples */
    EXCHANGE, /* moved by a link */
} member_class;

typedef struct member {
    kolo_value value;  /* posted: the source of a redistribution */
    kolo_value synced; /* its result */
    member_class class;
    int32_t made; /* producer of value */
    int32_t held; /* the last reader of the parameters that it updates; -1: none */
    int32_t read; /* the first reader; INT32_MAX: none */
    int stage;    /* sums and gathers that lead to it, one after another */
    int unit, place;
    int order;      /* of the redistributions */
    kolo_axes axes; /* of the ranks that communicate */
    kolo_reduce_op op;
    kolo_dtype dtype;
    uint32_t chunks; /* of a stage, a bit each; 0: it has one */
    bool tied;       /* the gradient of a parameter that several stages have */
    bool early;      /* it is there before the step: nothing delays its POST */
    bool late;       /* of the backward pass, though it is there since the forward pass */
    bool of_leaf;    /* a parameter, which is there at any time */
    bool inside;     /* the forward or backward pass reads it, or the sum over micro-batches */
    int bucket;
    const kolo_redistribution *move;
} member;

typedef struct lowerer {
    kolo_graph *g;
    member *members; /* by bucket */
    int n_members;
    int *member_of;      /* by value: of which it is the result; -1: none */
    int32_t *posted;     /* by value: the result of the member whose memory it is; -1: none */
    int32_t *reads;      /* by value: readers, outputs included */
    kolo_value *arrived; /* by member: the output of WAIT */
    kolo_comm_bucket *buckets;
    int n_buckets;
    size_t in_flight;
    bool keep;  /* what is summed over logical shards */
    bool share; /* the ranks read each other's gradients */
} lowerer;

/* ---- members ---- */

/* Whether a collective may overwrite v: its memory is that of the output of a node that runs, not
 * of another redistribution, and of no other member. Sums inside the passes also need that nothing
 * else reads it, as the reader may need the sum; other POSTs wait for such readers. */
static bool owns_memory(const lowerer *b, kolo_value v, member_class class) {
    for (;;) {
        int32_t producer = kolo_info(b->g, v)->producer;
        if (producer < 0 || b->posted[v.id] >= 0) return false;
        if (class >= INSIDE && b->reads[v.id] > 1) return false;
        const kolo_op *op = b->g->nodes[producer]->op;
        if (op->comm == KOLO_OP_REDISTRIBUTE) return false;
        if (!op->view) return true;
        v = b->g->nodes[producer]->in[0];
    }
}

/* Marks the memory of v as that of the member with this result. */
static void own_memory(const lowerer *b, kolo_value v, kolo_value synced) {
    b->posted[v.id] = synced.id;
    int32_t producer = kolo_info(b->g, v)->producer;
    if (b->g->nodes[producer]->op->view) own_memory(b, b->g->nodes[producer]->in[0], synced);
}

/* Whether v is made by a node that runs. */
static bool is_computed(const kolo_graph *g, kolo_value v) {
    const int32_t producer = kolo_info(g, v)->producer;
    return producer >= 0 && g->nodes[producer]->op->comm == KOLO_OP_LOCAL;
}

/* Chooses what members post: their sources, or copies of these. */
static kolo_status choose_values(const lowerer *b) {
    for (int i = 0; i < b->n_members; i++) {
        member *m = &b->members[i];
        const bool halo = kolo_axis_of_halo(&b->g->mesh, m->move) >= 0; /* it only reads rows */
        if (halo ? !is_computed(b->g, m->value) : !owns_memory(b, m->value, m->class)) {
            const kolo_value_info source = *kolo_info(b->g, m->value);
            m->value = kolo_graph_add1(b->g, &kolo_op_reorder, &m->value, 1, NULL);
            KOLO_TRY(kolo_graph_check(b->g));
            kolo_info(b->g, m->value)->tensor = source.tensor;
            kolo_info(b->g, m->value)->placements = source.placements;
        }
        if (!halo) own_memory(b, m->value, m->synced);
        m->made = kolo_info(b->g, m->value)->producer;
    }
    return KOLO_OK;
}

static kolo_status refuse(const kolo_graph *g, const kolo_redistribution *move) {
    char from[KOLO_PLACEMENT_TEXT], to[KOLO_PLACEMENT_TEXT];
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "no collective of a plan redistributes [%s] to [%s]",
                     kolo_placements_text(&g->mesh, &move->from, from),
                     kolo_placements_text(&g->mesh, &move->to, to));
}

static bool is_whole(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_INVARIANT || p->kind == KOLO_PLACEMENT_REPLICATED;
}

static bool is_flat(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->dim == KOLO_DIM_FLAT && p->cuts;
}

/* Equal slices, which lie one behind the other: of dimension 0, or stacked (slices.c). */
static bool is_rows(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->dim != KOLO_DIM_FLAT && !p->cuts &&
           p->blocks < 2;
}

/* What a redistribution becomes along one axis. False: nothing that a plan has. */
static bool class_on(const kolo_placement *from, const kolo_placement *to, member_class *class) {
    bool sum = from->kind == KOLO_PLACEMENT_PARTIAL && from->op == KOLO_SUM;
    if (is_whole(to) && from->kind == KOLO_PLACEMENT_PARTIAL) {
        *class = METRIC;
    } else if (is_whole(to) && from->kind == KOLO_PLACEMENT_LOCAL) {
        *class = ROWS;
    } else if (is_flat(to) && sum) {
        *class = SCATTER;
    } else if (is_whole(to) && is_flat(from)) {
        *class = GATHER;
    } else if (is_whole(to) && is_rows(from)) {
        *class = COLLECT;
    } else if (is_rows(to) && sum) {
        *class = DEAL;
    } else {
        return false;
    }
    return true;
}

/* Whether dimensions of slices are counted anew, where slices of another axis are stacked along a
 * dimension of their own (slices.c). */
static bool is_shifted(const kolo_graph *g, const kolo_node *n, int axis) {
    const kolo_placement *from = &n->move->from.axis[axis], *to = &n->move->to.axis[axis];
    return kolo_info(g, n->in[0])->tensor.shape.rank !=
               kolo_info(g, n->out[0])->tensor.shape.rank &&
           from->kind == KOLO_PLACEMENT_SHARDED && to->kind == KOLO_PLACEMENT_SHARDED;
}

/* Whether a redistribution changes nothing along an axis. */
static bool is_same(const kolo_placement *from, const kolo_placement *to, int size) {
    return (is_whole(from) && is_whole(to)) || kolo_placement_equal(from, to, size);
}

/* Whether slices are exchanged by a link, whatever their lengths: those of positions and experts.
 */
static bool is_exchanged(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->depth >= KOLO_DEPTH_POSITIONS;
}

/* What a redistribution becomes; METRIC unless a node reads the sum. UNSUPPORTED: nothing that a
 * plan has, or of different kinds on several axes. */
static kolo_status class_of(const kolo_graph *g, const kolo_node *n, member_class *class,
                            kolo_axes *among, kolo_reduce_op *op) {
    int axes = 0;
    *class = METRIC;
    *among = 0;
    *op = KOLO_SUM;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        member_class on_axis;
        if (is_same(from, to, g->mesh.axes[a].size) || is_shifted(g, n, a)) continue;
        if (g->mesh.axes[a].size > 1) {
            if (*among && *op != from->op) return refuse(g, n->move);
            *among |= (kolo_axes)1 << a;
            *op = from->op;
        }
        if (g->mesh.axes[a].size > 1 && (is_exchanged(from) || is_exchanged(to))) {
            on_axis = EXCHANGE;
        } else if (!class_on(from, to, &on_axis)) {
            if (g->mesh.axes[a].size > 1) return refuse(g, n->move);
            continue;
        }
        bool slices = on_axis == COLLECT || on_axis == DEAL;
        if (slices && g->mesh.axes[a].size == 1) continue; /* one rank has all of them */
        bool sums = *class == METRIC && on_axis == METRIC;
        if (axes++ > 0 && !sums) return refuse(g, n->move);
        *class = on_axis;
    }
    return KOLO_OK;
}

/* Whether a redistribution only states which gradient the ranks compute; makes it a view. */
static bool make_view(const kolo_graph *g, kolo_node *n) {
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        if (!is_same(from, to, g->mesh.axes[a].size)) return false;
    }
    n->op = &kolo_op_own_range;
    n->attr[KOLO_RANGE_FIRST].i = 0;
    return true;
}

/* Whether a redistribution makes a summand of a whole; all ranks but one multiply it by 0. */
static bool make_pad(const kolo_graph *g, kolo_node *n) {
    bool keeps = true, pads = false;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        if (is_same(from, to, g->mesh.axes[a].size)) continue;
        if (!is_whole(from) || to->kind != KOLO_PLACEMENT_PARTIAL) return false;
        pads = true;
        keeps &= kolo_mesh_coordinate(&g->mesh, g->rank, a) == 0;
    }
    if (!pads) return false;
    n->op = &kolo_op_scale;
    memset(n->attr, 0, sizeof n->attr);
    n->attr[KOLO_SCALE_FACTOR].f = keeps;
    return true;
}

/* Whether a redistribution only drops what other ranks hold; makes it a view. */
static bool make_slice(const kolo_graph *g, kolo_node *n) {
    int64_t first = -1, count = kolo_tensor_elements(&kolo_info(g, n->out[0])->tensor);
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        if (is_same(from, to, g->mesh.axes[a].size)) continue;
        if (!is_whole(from) || !(is_rows(to) || is_flat(to)) || is_exchanged(to)) return false;
        if (is_rows(to)) first = kolo_mesh_coordinate(&g->mesh, g->rank, a) * count;
    }
    if (first < 0 && !kolo_flat_range(g, n->out[0], &first, &count)) return false;
    n->op = &kolo_op_own_range;
    n->attr[KOLO_RANGE_FIRST].i = first;
    return true;
}

static kolo_status collect(lowerer *b) {
    kolo_graph *g = b->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) b->reads[n->in[k].id]++;
        bool moves = n->op->comm == KOLO_OP_REDISTRIBUTE && !make_view(g, n) && !make_pad(g, n) &&
                     !make_slice(g, n);
        if (!moves) continue;
        member m = {.value = n->in[0], .synced = n->out[0], .move = n->move};
        m.of_leaf = kolo_info(g, m.value)->producer < 0;
        m.held = -1;
        m.read = INT32_MAX;
        m.unit = (int)n->attr[KOLO_REDISTRIBUTE_UNIT].i;
        m.place = (int)n->attr[KOLO_REDISTRIBUTE_PLACE].i;
        m.early = n->attr[KOLO_REDISTRIBUTE_EARLY].i;
        m.late = n->recomputed && kolo_axis_of_halo(&g->mesh, n->move) >= 0;
        m.dtype = kolo_info(g, m.value)->tensor.dtype;
        KOLO_TRY(class_of(g, n, &m.class, &m.axes, &m.op));
        bool in_place = m.class == GATHER && kolo_value_ok(kolo_info(g, m.synced)->next_of);
        if (in_place) m.class = JOIN;
        b->member_of[m.synced.id] = m.order = b->n_members;
        b->members[b->n_members++] = m;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) b->reads[g->outputs[i].value.id]++;
    return KOLO_OK;
}

/* A node reads a member's result. UNSUPPORTED: rows, for another node than an update. */
static kolo_status find_class(const kolo_graph *g, member *m, int32_t node, bool update) {
    if (m->read > node) m->read = node;
    if (m->class == METRIC) m->class = SUM;
    if (update) return KOLO_OK;
    m->inside = true;
    if (m->class == SUM) m->class = INSIDE;
    return m->class == ROWS ? refuse(g, m->move) : KOLO_OK;
}

/* Whether an output is sent to another stage, in each micro-batch. */
static bool is_sent(const kolo_named_value *output) { return output->crossing.number > 0; }

/* Whether a node is of an update: or a view that makes a range of a sum for one. */
static bool is_for_update(const kolo_graph *g, const kolo_node *n) {
    if (n->op != &kolo_op_own_range) return kolo_node_is_update(g, n);
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].value.id == n->out[0].id && is_sent(&g->outputs[i])) return false;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const bool reads = g->nodes[i]->in[k].id == n->out[0].id;
            if (reads && !kolo_node_is_update(g, g->nodes[i])) return false;
        }
    }
    return true;
}

/* Who reads the results: classes and first readers; and the last readers, in the passes, of the
 * parameters that their readers update. last_reader: by value, zeroed. */
static kolo_status find_readers(const lowerer *b, int32_t *last_reader) {
    const kolo_graph *g = b->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool update = kolo_node_is_update(g, n);
        for (int k = 0; k < n->n_in; k++) {
            int m = b->member_of[n->in[k].id];
            if (!update && n->op->comm == KOLO_OP_LOCAL) last_reader[n->in[k].id] = i;
            if (m >= 0) KOLO_TRY(find_class(g, &b->members[m], i, update || is_for_update(g, n)));
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const int m = b->member_of[g->outputs[i].value.id];
        if (m < 0 || !is_sent(&g->outputs[i])) continue;
        KOLO_TRY(find_class(g, &b->members[m], g->n_nodes, false));
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        int32_t last = 0;
        if (!kolo_node_is_update(g, n)) continue;
        for (int k = 0; k < n->n_in; k++) {
            bool synced = b->member_of[n->in[k].id] >= 0;
            if (!synced && last_reader[n->in[k].id] > last) last = last_reader[n->in[k].id];
        }
        for (int k = 0; k < n->n_in; k++) {
            int m = b->member_of[n->in[k].id];
            if (m < 0 || b->members[m].class == INSIDE || b->members[m].early) continue;
            if (last > 0 && last > b->members[m].held) b->members[m].held = last;
        }
    }
    return KOLO_OK;
}

/* Sums of which one leads to the other cannot share a bucket. Those inside the passes lead to no
 * other of them. Sums of an update, such as norms, have a stage of at least 1. stage: by value,
 * zeroed. */
static void find_stages(const lowerer *b, int *stage) {
    const kolo_graph *g = b->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        int own = 0;
        for (int k = 0; k < n->n_in; k++) {
            if (stage[n->in[k].id] > own) own = stage[n->in[k].id];
        }
        int m = n->op->comm == KOLO_OP_REDISTRIBUTE ? b->member_of[n->out[0].id] : -1;
        int32_t producer = m >= 0 ? kolo_info(g, n->in[0])->producer : -1;
        if (own == 0 && producer >= 0 && kolo_node_is_update(g, g->nodes[producer])) own = 1;
        if (m >= 0) b->members[m].stage = own;
        if (m >= 0 && !b->members[m].inside) own++;
        for (int k = 0; k < n->n_out; k++) stage[n->out[k].id] = own;
    }
}

/* Marks gradients of parameters that several stages of a pipeline have. */
static void find_tied(const lowerer *b) {
    const kolo_graph *g = b->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *param = &g->values[v];
        const bool tied = (param->holders & (param->holders - 1)) != 0;
        if (param->kind != KOLO_VALUE_PARAM || !tied || !kolo_value_ok(param->grad)) continue;
        for (int i = 0; i < b->n_members; i++) {
            member *m = &b->members[i];
            m->tied |= m->value.id == param->grad.id || m->synced.id == param->grad.id;
        }
    }
}

/* Marks the chunks of a stage, which run at different times. */
static kolo_status find_chunks(const lowerer *b) {
    const kolo_graph *g = b->g;
    if (g->chunks <= 1) return KOLO_OK;
    kolo_node_chunks *chunks = kolo_alloc(((size_t)g->n_nodes + 1) * sizeof *chunks);
    if (!chunks) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *chunks);
    kolo_status status = kolo_find_chunks(g, chunks);
    for (int i = 0; status == KOLO_OK && i < b->n_members; i++) {
        const int32_t made = kolo_info(g, b->members[i].value)->producer;
        b->members[i].chunks = made >= 0 ? chunks[made].bits : 0;
    }
    kolo_free(chunks);
    return status;
}

/* ---- buckets ---- */

static int by_class(const void *a, const void *b) {
    const member *x = a, *y = b;
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
static bool starts(const member *m, const member *first, const member *previous, bool full) {
    if (!first || m->axes != previous->axes || m->op != previous->op) return true;
    switch (m->class) {
    case SUM:
        return full || m->tied || previous->tied || m->stage != previous->stage ||
               m->early != previous->early;
    case METRIC:
        return previous->early || previous->tied || m->stage != previous->stage;
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
    for (const member *i = first; i <= previous; i++) read = i->read < read ? i->read : read;
    return previous->class != INSIDE || m->made > read || m->dtype != previous->dtype ||
           m->chunks != previous->chunks;
}

/* Divides the members into buckets. */
static void cut(lowerer *b, const kolo_bucket_sizes *sizes) {
    size_t filled = 0, size = 0;
    const member *first = NULL;
    qsort(b->members, (size_t)b->n_members, sizeof *b->members, by_class);
    for (int i = 0; i < b->n_members; i++) {
        member *m = &b->members[i];
        b->member_of[m->synced.id] = i;
        const kolo_tensor *tensor = &kolo_info(b->g, m->value)->tensor;
        bool full = filled >= size && tensor->shape.rank > 0;
        if (starts(m, first, m - 1, full)) {
            size = b->n_buckets < sizes->n ? sizes->each[b->n_buckets] : sizes->least;
            b->n_buckets++;
            filled = 0;
            first = m;
        }
        m->bucket = b->n_buckets - 1;
        const kolo_tensor *whole = &kolo_info(b->g, m->synced)->tensor;
        filled += kolo_tensor_bytes(m->class == GATHER ? whole : tensor);
        b->buckets[m->bucket].bytes = filled;
        b->buckets[m->bucket].limited = (m->class == SCATTER && !b->keep) || m->class == GATHER;
        b->buckets[m->bucket].on_demand = m->class == GATHER && m->of_leaf;
    }
}

/* Whether a bucket is a sum over the samples, of which each logical shard has a summand. */
static bool is_of_samples(const member *m) {
    return m->stage == 0 && (m->class == SUM || m->class == METRIC || m->class == SCATTER);
}

static kolo_collective collective_of(const member *m) {
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
    const member *m = &b->members[first];
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
static bool is_late(const kolo_graph *g, const member *m) {
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &m->move->from.axis[a], *to = &m->move->to.axis[a];
        const bool both = is_exchanged(from) && is_exchanged(to);
        if (m->late) return true;
        if (m->class == EXCHANGE && both && from->rotation != to->rotation) return true;
    }
    return false;
}

/* Whether a node only gathers what a member sends: keys, or the rows of a layout without blocks. */
static bool gathers(const member *m, const kolo_node *n) {
    return n->op == &kolo_op_window || n->op == &kolo_op_concat ||
           (m->late && n->op == &kolo_op_reorder);
}

/* Where the backward pass sends keys, which are there since the forward pass, it gathers and sends
 * them when it needs them: after the node before those that only gather them. -1: there is none. */
static int32_t node_before(const kolo_graph *g, const member *m) {
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
        const member *m = &b->members[i];
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
        const member *m = &b->members[i];
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
    KOLO_TRY(collect(b));
    if (b->n_members == 0) return KOLO_OK; /* nothing to communicate */
    KOLO_TRY(find_readers(b, last_reader));
    find_stages(b, stage);
    find_tied(b);
    KOLO_TRY(find_chunks(b));
    KOLO_TRY(choose_values(b));
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
    b.share = share && in_flight == SIZE_MAX && !keep; /* gradients are scattered in place */
    kolo_arena arena = {0};
    kolo_status status = lower(&b, sizes, &arena);
    kolo_arena_fini(&arena);
    return status;
}
