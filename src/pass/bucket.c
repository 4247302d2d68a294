/* Buckets: which gradients travel together, where they are handed over and where they are awaited.
 *
 * Gradients are taken in the order in which the backward pass makes them, and a bucket is closed as
 * soon as it holds bucket_bytes. POST stands behind the last maker of the bucket's gradients *and*
 * the last reader of its parameters: 'all ranks posted' is then the permission to overwrite
 * parameters that ranks share. The updates move to the end, bucket by bucket, each behind its WAIT,
 * so that the first buckets travel under the rest of the backward pass and the last ones under the
 * first updates.
 *
 * The result is a new order of the nodes: everything but the updates as it was, POSTs in between,
 * then WAIT and updates of bucket 0, of bucket 1, ... Li et al., "PyTorch Distributed", VLDB 2020.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/op.h"
#include "pass/pass.h"

typedef struct member {
    kolo_value grad; /* what travels */
    int32_t made;    /* node that makes it */
    int32_t ready;   /* node after which it may go */
} member;

typedef struct bucketer {
    kolo_graph *g;
    member *members; /* parameters' gradients in the order they are made, then the metrics */
    int n_members;
    int *bucket_of;      /* by member */
    kolo_value *arrived; /* by member: the reduced gradient */
    kolo_node **posts, **waits;
    int32_t *post_after; /* by bucket: node index */
    int n_buckets;
    int32_t n_old; /* nodes before this pass (copies included) */
} bucketer;

/* The value whose memory v is, through views. */
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
    if (x->made != y->made) return x->made < y->made ? -1 : 1;
    return x->grad.id < y->grad.id ? -1 : x->grad.id > y->grad.id;
}

static int member_of(const bucketer *b, kolo_value grad) {
    for (int i = 0; i < b->n_members; i++) {
        if (b->members[i].grad.id == grad.id) return i;
    }
    return -1;
}

/* A gradient that is memory of its own: a copy of it where it is a view of, or the same as,
 * something that is no kernel's result or travels already. */
static kolo_value own_memory(const bucketer *b, kolo_value grad) {
    kolo_value root = root_of(b->g, grad);
    bool own = kolo_info(b->g, root)->producer >= 0;
    for (int i = 0; own && i < b->n_members; i++) {
        own = root_of(b->g, b->members[i].grad).id != root.id;
    }
    return own ? grad : kolo_graph_add1(b->g, &kolo_op_reorder, &grad, 1, NULL);
}

/* Collects the gradients of all parameters, each value once, and when each may travel. */
static kolo_status collect(bucketer *b) {
    kolo_graph *g = b->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        kolo_value grad = g->values[v].grad;
        if (g->values[v].kind != KOLO_VALUE_PARAM || !kolo_value_ok(grad)) continue;
        if (member_of(b, grad) >= 0)
            continue; /* two parameters with one gradient: it travels once */
        kolo_value own = own_memory(b, grad);
        KOLO_TRY(kolo_graph_check(g));
        for (int32_t p = v; own.id != grad.id && p < g->n_values; p++) {
            if (g->values[p].grad.id == grad.id) g->values[p].grad = own;
        }
        int32_t made = kolo_info(g, own)->producer;
        b->members[b->n_members++] = (member){own, made, made};
    }
    qsort(b->members, (size_t)b->n_members, sizeof *b->members, by_made);
    b->n_old = g->n_nodes;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; n->op != &kolo_op_sgd && k < n->n_in; k++) {
            int m = member_of(b, kolo_info(g, n->in[k])->grad);
            if (m >= 0 && i > b->members[m].ready) b->members[m].ready = i;
        }
    }
    static const char *const metrics[] = {"loss", "correct"};
    for (size_t i = 0; i < KOLO_COUNT(metrics); i++) {
        kolo_value v = kolo_graph_output(g, metrics[i]);
        if (!kolo_value_ok(v) || kolo_info(g, v)->producer < 0) continue;
        int32_t made = kolo_info(g, v)->producer;
        b->members[b->n_members++] = (member){v, made, made};
    }
    return KOLO_OK;
}

/* Cuts the members into buckets; the metrics, which are scalars, ride in the last. */
static void cut(bucketer *b, size_t bucket_bytes) {
    size_t filled = 0;
    for (int i = 0; i < b->n_members; i++) {
        const kolo_tensor *tensor = &kolo_info(b->g, b->members[i].grad)->tensor;
        if (i == 0 || (filled >= bucket_bytes && tensor->shape.rank > 0)) {
            b->n_buckets++;
            filled = 0;
        }
        b->bucket_of[i] = b->n_buckets - 1;
        filled += kolo_tensor_bytes(tensor);
        int32_t *after = &b->post_after[b->n_buckets - 1];
        if (b->members[i].ready > *after) *after = b->members[i].ready;
    }
}

/* Makes POST and WAIT of one bucket. */
static kolo_status add_bucket(bucketer *b, int bucket, kolo_value *values, kolo_tensor *tensors) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {0};
    attr[KOLO_COMM_BUCKET].i = bucket;
    int n = 0;
    for (int i = 0; i < b->n_members; i++) {
        if (b->bucket_of[i] != bucket) continue;
        values[n] = b->members[i].grad;
        tensors[n++] = kolo_info(b->g, b->members[i].grad)->tensor;
    }
    kolo_node *post = kolo_graph_add_raw(b->g, &kolo_op_post, values, n, n, tensors, attr);
    if (!post) return kolo_graph_check(b->g);
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

/* The new order of the nodes. */
static kolo_status reorder(bucketer *b) {
    kolo_graph *g = b->g;
    kolo_node **order = kolo_alloc((size_t)g->n_nodes * sizeof *order);
    if (!order) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *order);
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_old; i++) {
        if (g->nodes[i]->op != &kolo_op_sgd) order[n++] = g->nodes[i];
        for (int k = 0; k < b->n_buckets; k++) {
            if (b->post_after[k] == i) order[n++] = b->posts[k];
        }
    }
    for (int k = 0; k < b->n_buckets; k++) {
        order[n++] = b->waits[k];
        for (int32_t i = 0; i < b->n_old; i++) {
            kolo_node *node = g->nodes[i];
            if (node->op != &kolo_op_sgd) continue;
            int m = member_of(b, kolo_info(g, node->in[0])->grad);
            KOLO_ASSERT(m >= 0);
            if (b->bucket_of[m] != k) continue;
            node->in[1] = b->arrived[m];
            order[n++] = node;
        }
    }
    KOLO_ASSERT(n == g->n_nodes);
    kolo_status status = kolo_graph_set_nodes(g, order, n);
    kolo_free(order);
    return status;
}

/* Outputs that travelled are read where they arrive. */
static void redirect_outputs(const bucketer *b) {
    for (int32_t i = 0; i < b->g->n_outputs; i++) {
        int m = member_of(b, b->g->outputs[i].value);
        if (m >= 0) b->g->outputs[i].value = b->arrived[m];
    }
}

kolo_status kolo_pass_bucket(kolo_graph *g, size_t bucket_bytes) {
    size_t most = (size_t)g->n_values + 2; /* members, and so buckets */
    bucketer b = {.g = g};
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
    KOLO_TRY_GOTO(collect(&b), done);
    cut(&b, bucket_bytes);
    for (int k = 0; k < b.n_buckets; k++) {
        KOLO_TRY_GOTO(add_bucket(&b, k, values, tensors), done);
    }
    KOLO_TRY_GOTO(reorder(&b), done);
    redirect_outputs(&b);
done:
    kolo_arena_fini(&arena);
    return status;
}
