/* Lowers the redistributions that updates read to communication: groups them into buckets, and
 * places the POST and WAIT of each bucket.
 *
 * Gradients are taken in the order in which the backward pass computes them; a bucket is closed
 * once it holds bucket_bytes. POST follows the last producer of the gradients of the bucket *and*
 * the last reader of its parameters: once all ranks have posted, shared parameters may be
 * overwritten. The updates move to the end, bucket by bucket, each after its WAIT. The first
 * buckets thus overlap with the rest of the backward pass, the last ones with the first updates.
 *
 * The result is a new order of the nodes: all but the updates as before, with POSTs in between,
 * then WAIT and updates of bucket 0, of bucket 1, ... Li et al., "PyTorch Distributed", VLDB 2020.
 *
 * Rows and ids of row-sparse gradients are gathered instead of summed: each forms
 * its own bucket, after the summed ones, to which all ranks contribute slices of equal size.
 * In-place updates come last: no WAIT follows them, so the step can no longer fail after parameters
 * have changed. The default bucket size is KOLO_BUCKET_BYTES (kolo/pass.h). */
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

typedef struct member {
    kolo_value value;  /* posted: the source of a redistribution */
    kolo_value synced; /* its result, which updates and outputs read */
    int32_t made;      /* producer of value */
    int32_t ready;     /* node after which it may be posted */
    bool gathered;     /* else summed */
    const kolo_redistribution *move;
} member;

typedef struct lowerer {
    kolo_graph *g;
    member *members;         /* read by updates, by producer; then by outputs alone */
    int n_members, n_summed; /* those that are summed come first */
    int *bucket_of;          /* by member */
    kolo_value *arrived;     /* by member: the output of WAIT */
    kolo_node **posts, **waits;
    int32_t *post_after;         /* by bucket: node index */
    int n_buckets, first_bucket; /* first_bucket: those before are of exchanges (exchange.c) */
    int32_t n_old;               /* nodes before this pass (copies included) */
} lowerer;

/* The value that owns the memory of v, through views. */
static kolo_value root_of(const kolo_graph *g, kolo_value v) {
    int32_t p = kolo_info(g, v)->producer;
    while (p >= 0 && g->nodes[p]->op->view) {
        v = g->nodes[p]->in[0];
        p = kolo_info(g, v)->producer;
    }
    return v;
}

static int by_made(const void *a, const void *b) {
    const member *x = a, *y = b;
    if (x->gathered != y->gathered) return x->gathered ? 1 : -1;
    if (x->made != y->made) return x->made < y->made ? -1 : 1;
    return x->value.id < y->value.id ? -1 : x->value.id > y->value.id;
}

/* The member of which v is the result; -1: none. */
static int member_of(const lowerer *b, kolo_value v) {
    for (int i = 0; i < b->n_members; i++) {
        if (b->members[i].synced.id == v.id) return i;
    }
    return -1;
}

/* A value with memory of its own: v, or a copy of v if its memory is that of a leaf or of another
 * member. */
static kolo_value own_memory(const lowerer *b, kolo_value v) {
    kolo_value root = root_of(b->g, v);
    bool own = kolo_info(b->g, root)->producer >= 0;
    for (int i = 0; own && i < b->n_members; i++) {
        own = root_of(b->g, b->members[i].value).id != root.id;
    }
    return own ? v : kolo_graph_add1(b->g, &kolo_op_reorder, &v, 1, NULL);
}

/* What a redistribution becomes: a sum, or versions gathered. UNSUPPORTED: neither. */
static kolo_status kind_of(const kolo_graph *g, const kolo_node *n, bool *gathered) {
    int sums = 0, gathers = 0, others = 0;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        bool whole = to->kind == KOLO_PLACEMENT_INVARIANT || to->kind == KOLO_PLACEMENT_REPLICATED;
        if (whole && from->kind == KOLO_PLACEMENT_LOCAL) {
            gathers++;
        } else if (whole && from->kind == KOLO_PLACEMENT_PARTIAL && from->op == KOLO_SUM) {
            sums++;
        } else if (g->mesh.axes[a].size > 1) {
            others++;
        }
    }
    *gathered = gathers > 0;
    if (others == 0 && (sums == 0 || gathers == 0)) return KOLO_OK;
    char from[KOLO_PLACEMENT_TEXT], to[KOLO_PLACEMENT_TEXT];
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "no collective of a plan redistributes [%s] to [%s]",
                     kolo_placements_text(&g->mesh, &n->move->from, from),
                     kolo_placements_text(&g->mesh, &n->move->to, to));
}

static kolo_status add_member(lowerer *b, kolo_value synced) {
    int32_t producer = kolo_info(b->g, synced)->producer;
    if (producer < 0 || member_of(b, synced) >= 0) return KOLO_OK;
    const kolo_node *n = b->g->nodes[producer];
    bool gathered;
    if (n->op->comm != KOLO_OP_REDISTRIBUTE) return KOLO_OK;
    KOLO_TRY(kind_of(b->g, n, &gathered));
    kolo_value own = own_memory(b, n->in[0]);
    KOLO_TRY(kolo_graph_check(b->g));
    int32_t made = kolo_info(b->g, own)->producer;
    b->members[b->n_members++] = (member){own, synced, made, made, gathered, n->move};
    return KOLO_OK;
}

/* Collects what updates read, each value once. */
static kolo_status collect_members(lowerer *b) {
    kolo_graph *g = b->g;
    int32_t n_nodes = g->n_nodes; /* copies are added behind */
    for (int32_t i = 0; i < n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (!kolo_node_is_update(g, n)) continue;
        for (int k = 0; k < n->n_in; k++) KOLO_TRY(add_member(b, n->in[k]));
    }
    qsort(b->members, (size_t)b->n_members, sizeof *b->members, by_made);
    for (int i = 0; i < b->n_members; i++) b->n_summed += !b->members[i].gathered;
    return KOLO_OK;
}

/* Delays each member until the last reader of the parameters that it updates. last_reader: by
 * value, allocated by the caller. */
static void hold_back(lowerer *b, int32_t *last_reader) {
    const kolo_graph *g = b->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; !kolo_node_is_update(g, n) && k < n->n_in; k++)
            last_reader[n->in[k].id] = i;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (!kolo_node_is_update(g, n)) continue;
        int32_t last = 0;
        for (int k = 0; k < n->n_in; k++) {
            bool synced = member_of(b, n->in[k]) >= 0;
            if (!synced && last_reader[n->in[k].id] > last) last = last_reader[n->in[k].id];
        }
        for (int k = 0; k < n->n_in; k++) {
            int m = member_of(b, n->in[k]);
            if (m >= 0 && last > b->members[m].ready) b->members[m].ready = last;
        }
    }
}

/* Outputs, sums over the batch, share the last bucket that is summed. */
static kolo_status add_metrics(lowerer *b) {
    for (int32_t i = 0; i < b->g->n_outputs; i++) {
        const int had = b->n_members;
        KOLO_TRY(add_member(b, b->g->outputs[i].value));
        if (b->n_members == had) continue;
        const member metric = b->members[had];
        member *place = &b->members[b->n_summed++];
        memmove(place + 1, place, (size_t)(&b->members[had] - place) * sizeof *place);
        *place = metric;
    }
    b->n_old = b->g->n_nodes;
    return KOLO_OK;
}

/* Divides the members into buckets. Outputs, which are scalars, join the last summed bucket. */
static void cut(lowerer *b, size_t bucket_bytes) {
    size_t filled = 0;
    for (int i = 0; i < b->n_members; i++) {
        const kolo_tensor *tensor = &kolo_info(b->g, b->members[i].value)->tensor;
        bool full = filled >= bucket_bytes && tensor->shape.rank > 0;
        if (i == 0 || full || b->members[i].gathered) {
            b->n_buckets++;
            filled = 0;
        }
        b->bucket_of[i] = b->n_buckets - 1;
        filled += kolo_tensor_bytes(tensor);
        int32_t *after = &b->post_after[b->n_buckets - 1];
        if (b->members[i].ready > *after) *after = b->members[i].ready;
    }
}

/* Adds POST and WAIT of one bucket. */
static kolo_status add_bucket(lowerer *b, int bucket, kolo_value *values, kolo_tensor *tensors) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {0};
    attr[KOLO_COMM_BUCKET].i = b->first_bucket + bucket;
    int n = 0;
    for (int i = 0; i < b->n_members; i++) {
        if (b->bucket_of[i] != bucket) continue;
        values[n] = b->members[i].value;
        tensors[n++] = kolo_info(b->g, b->members[i].value)->tensor;
        attr[KOLO_COMM_GATHERS].i = b->members[i].gathered;
    }
    kolo_node *post = kolo_graph_add_raw(b->g, &kolo_op_post, values, n, n, tensors, attr);
    if (!post) return kolo_graph_check(b->g);
    n = 0;
    for (int i = 0; i < b->n_members; i++) { /* larger than what is posted where it is gathered */
        if (b->bucket_of[i] != bucket) continue;
        tensors[n++] = kolo_info(b->g, b->members[i].synced)->tensor;
        post->move = b->members[i].move;
    }
    kolo_node *wait = kolo_graph_add_raw(b->g, &kolo_op_wait, post->out, n, n, tensors, attr);
    if (!wait) return kolo_graph_check(b->g);
    b->posts[bucket] = post;
    b->waits[bucket] = wait;
    n = 0;
    for (int i = 0; i < b->n_members; i++) {
        if (b->bucket_of[i] == bucket) b->arrived[i] = wait->out[n++];
    }
    return KOLO_OK;
}

/* The last bucket that an update depends on, directly or through earlier updates, whose buckets are
 * in `due`. Redirects its inputs to the outputs of WAIT. */
static int await(const lowerer *b, kolo_node *update, const int *due) {
    int bucket = update->op->in_place ? b->n_buckets - 1 : 0;
    for (int k = 0; k < update->n_in; k++) {
        int32_t producer = kolo_info(b->g, update->in[k])->producer;
        if (producer >= 0 && producer < b->n_old && due[producer] > bucket) bucket = due[producer];
        int m = member_of(b, update->in[k]);
        if (m < 0) continue;
        update->in[k] = b->arrived[m];
        if (b->bucket_of[m] > bucket) bucket = b->bucket_of[m];
    }
    return bucket;
}

/* The new order of the nodes. due: by node, allocated by the caller. */
static kolo_status reorder(lowerer *b, int *due) {
    kolo_graph *g = b->g;
    kolo_node **order = kolo_alloc((size_t)g->n_nodes * sizeof *order);
    if (!order) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *order);
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_old; i++) {
        due[i] = -1;
        if (kolo_node_is_update(g, g->nodes[i])) due[i] = await(b, g->nodes[i], due);
        bool lowered = g->nodes[i]->op->comm == KOLO_OP_REDISTRIBUTE;
        if (due[i] < 0 && !lowered) order[n++] = g->nodes[i];
        for (int k = 0; k < b->n_buckets; k++) {
            if (b->post_after[k] == i) order[n++] = b->posts[k];
        }
    }
    for (int k = 0; k < b->n_buckets; k++) {
        order[n++] = b->waits[k];
        for (int32_t i = 0; i < b->n_old; i++) {
            if (due[i] == k) order[n++] = g->nodes[i];
        }
    }
    KOLO_ASSERT(n == g->n_nodes - b->n_members);
    kolo_status status = kolo_graph_set_nodes(g, order, n);
    kolo_free(order);
    return status;
}

/* Redirects synchronised outputs to the outputs of WAIT. */
static void redirect_outputs(const lowerer *b) {
    for (int32_t i = 0; i < b->g->n_outputs; i++) {
        int m = member_of(b, b->g->outputs[i].value);
        if (m >= 0) b->g->outputs[i].value = b->arrived[m];
    }
}

kolo_status kolo_pass_lower_comm(kolo_graph *g, size_t bucket_bytes) {
    size_t most = (size_t)g->n_values + (size_t)g->n_outputs; /* members, and so buckets */
    lowerer b = {.g = g};
    kolo_arena arena = {0};
    kolo_status status = KOLO_OK;
    b.members = kolo_arena_alloc(&arena, most * sizeof *b.members);
    b.bucket_of = kolo_arena_alloc(&arena, most * sizeof *b.bucket_of);
    b.arrived = kolo_arena_alloc(&arena, most * sizeof *b.arrived);
    b.posts = kolo_arena_alloc(&arena, most * sizeof *b.posts);
    b.waits = kolo_arena_alloc(&arena, most * sizeof *b.waits);
    b.post_after = kolo_arena_alloc(&arena, most * sizeof *b.post_after);
    kolo_value *values = kolo_arena_alloc(&arena, most * sizeof *values);
    kolo_tensor *tensors = kolo_arena_alloc(&arena, most * sizeof *tensors);
    if (!b.members || !b.bucket_of || !b.arrived || !b.posts || !b.waits || !b.post_after ||
        !values || !tensors) {
        status = KOLO_NOMEM(most * sizeof *b.members);
        goto done;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        b.first_bucket += g->nodes[i]->op->comm == KOLO_OP_POST;
    }
    KOLO_TRY_GOTO(collect_members(&b), done);
    int32_t *last_reader = kolo_arena_alloc(&arena, (size_t)g->n_values * sizeof *last_reader);
    if (!last_reader) {
        status = KOLO_NOMEM((size_t)g->n_values * sizeof *last_reader);
        goto done;
    }
    hold_back(&b, last_reader);
    KOLO_TRY_GOTO(add_metrics(&b), done);
    if (b.n_members == 0) goto done; /* nothing to communicate */
    int *due = kolo_arena_alloc(&arena, (size_t)g->n_nodes * sizeof *due);
    if (!due) {
        status = KOLO_NOMEM((size_t)g->n_nodes * sizeof *due);
        goto done;
    }
    cut(&b, bucket_bytes);
    for (int k = 0; k < b.n_buckets; k++) {
        KOLO_TRY_GOTO(add_bucket(&b, k, values, tensors), done);
    }
    KOLO_TRY_GOTO(reorder(&b, due), done);
    redirect_outputs(&b);
done:
    kolo_arena_fini(&arena);
    return status;
}
