/* Overlap across steps: which sums are awaited in the next step, right before it reads what they
 * update.
 *
 *     forward, backward, POST a, POST b, WAIT b, update b | WAIT a, update a, forward ..
 *
 * The sums, the updates and their order are those of a step that ends with all of them, so no bit
 * changes. While the next step computes, its values and scalars are in use: what runs then reads
 * and writes the buckets and values of its own, which keep their memory to themselves
 * (memory_plan.c), the store, scalars, of which the plan keeps a copy (plan/run.c), and scratch,
 * which follows the values of the plan in the arena. Another plan has values there: its inputs are
 * filled, and it runs, after all pending updates. Peng et al., "A generic communication scheduler
 * for distributed DNN training acceleration", SOSP 2019.
 */
#include "graph/ops/ops.h"
#include "pass/pass.h"

typedef struct finder {
    const kolo_graph *g;
    kolo_deferral *when; /* by bucket */
    int *bucket_of;      /* by value: the sum that it depends on, in the next step; -1: none */
    int *readers;        /* by value: kernels that read it; MIXED: other nodes or outputs do too */
    bool *deferred;      /* by node */
    bool changed;
} finder;

enum { MIXED = -1 };

static int bucket_of(const kolo_node *n) { return (int)n->attr[KOLO_COMM_BUCKET].i; }

static void keep_in_step(finder *f, int bucket, kolo_deferral why) {
    if (bucket < 0 || f->when[bucket] != KOLO_DEFERRAL_NEXT) return;
    f->when[bucket] = why;
    f->changed = true;
}

/* Whether codes or factors of gradients are posted (compress.c). */
static bool is_compressed(const kolo_graph *g, const kolo_node *wait) {
    const kolo_node *post = g->nodes[kolo_info(g, wait->in[0])->producer];
    for (int k = 0; k < post->n_in; k++) {
        const int32_t producer = kolo_info(g, post->in[k])->producer;
        if (producer < 0 || g->nodes[producer]->op->comm != KOLO_OP_ENCODE) return false;
    }
    return true;
}

/* Rows of tables and buffers are updated in place, once nothing can fail: after all sums. */
static bool updates_in_place(const kolo_graph *g) {
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value old = g->values[v].next_of;
        if (kolo_value_ok(old) && kolo_info(g, old)->in_place) return true;
    }
    return false;
}

/* A WAIT by itself. */
static kolo_deferral kind_of(const kolo_graph *g, const kolo_node *wait) {
    if (wait->attr[KOLO_COMM_INSIDE].i) return KOLO_DEFERRAL_KIND;
    switch ((kolo_collective)wait->attr[KOLO_COMM_COLLECTIVE].i) {
    case KOLO_COLLECTIVE_ALLREDUCE:
        if (wait->attr[KOLO_COMM_OF_SAMPLES].i) return KOLO_DEFERRAL_NEXT;
        return is_compressed(g, wait) ? KOLO_DEFERRAL_NEXT : KOLO_DEFERRAL_KIND;
    case KOLO_COLLECTIVE_ALLGATHER:
        return is_compressed(g, wait) ? KOLO_DEFERRAL_NEXT : KOLO_DEFERRAL_KIND;
    default:
        return KOLO_DEFERRAL_KIND;
    }
}

/* Whether a leaf, or a part of one, is there in the next step. */
static bool is_kept(const kolo_graph *g, kolo_value v) {
    const kolo_value_info *info = kolo_info(g, v);
    const int32_t producer = info->producer;
    if (producer < 0) return info->kind != KOLO_VALUE_INPUT;
    return g->nodes[producer]->op->view && g->nodes[producer]->op->comm == KOLO_OP_LOCAL &&
           is_kept(g, g->nodes[producer]->in[0]);
}

/* Whether the node that computes v can run right before the only one that reads it, in the next
 * step: the norm of a parameter. */
static bool may_move(const finder *f, kolo_value v) {
    const kolo_value_info *info = kolo_info(f->g, v);
    if (info->producer < 0 || f->readers[v.id] != 1) return false;
    const kolo_node *n = f->g->nodes[info->producer];
    if (n->op->comm != KOLO_OP_LOCAL || n->op->view || n->op->in_place || n->n_out != 1 ||
        kolo_value_ok(info->next_of)) {
        return false;
    }
    for (int k = 0; k < n->n_in; k++) {
        if (!is_kept(f->g, n->in[k])) return false;
    }
    return true;
}

/* Whether memory of its own keeps v for n: a factor, which is smaller than the sum that n makes of
 * it. No pass writes it again before. */
static bool may_stay(const finder *f, const kolo_node *n, kolo_value v) {
    const kolo_value_info *info = kolo_info(f->g, v), *sum = kolo_info(f->g, n->out[0]);
    if (info->producer < 0 || f->readers[v.id] == MIXED || kolo_value_ok(info->next_of)) {
        return false;
    }
    const kolo_node *maker = f->g->nodes[info->producer];
    return maker->op->comm == KOLO_OP_LOCAL && !maker->op->view && !maker->op->in_place &&
           kolo_node_is_update(f->g, maker) &&
           kolo_tensor_bytes(&info->tensor) < kolo_tensor_bytes(&sum->tensor);
}

/* Whether a node that reads the sums of `bucket` can run in the next step. */
static bool may_wait(const finder *f, const kolo_node *n, int bucket) {
    const kolo_graph *g = f->g;
    if (n->op->comm != KOLO_OP_LOCAL || n->op->in_place) return false;
    for (int k = 0; k < n->n_in; k++) {
        const int of = f->bucket_of[n->in[k].id];
        if (of >= 0 && of != bucket) return false;
        if (of >= 0 || is_kept(g, n->in[k])) continue;
        if (!may_move(f, n->in[k]) && !may_stay(f, n, n->in[k])) return false;
    }
    return true;
}

/* Follows the sums to what depends on them. */
static void follow(finder *f, int32_t i) {
    const kolo_node *n = f->g->nodes[i];
    int bucket = -1;
    for (int k = 0; k < n->n_in && bucket < 0; k++) bucket = f->bucket_of[n->in[k].id];
    if (n->op->comm == KOLO_OP_WAIT) {
        const int own = bucket_of(n);
        bucket = f->when[own] == KOLO_DEFERRAL_NEXT ? own : -1;
    } else if (bucket >= 0 && !n->op->view && !may_wait(f, n, bucket)) {
        for (int k = 0; k < n->n_in; k++) {
            keep_in_step(f, f->bucket_of[n->in[k].id], KOLO_DEFERRAL_READ);
        }
    } else if (bucket >= 0 && n->op->comm != KOLO_OP_LOCAL) {
        keep_in_step(f, bucket, KOLO_DEFERRAL_READ);
    }
    f->deferred[i] = bucket >= 0;
    for (int k = 0; k < n->n_out; k++) f->bucket_of[n->out[k].id] = bucket;
}

static void count_reader(finder *f, kolo_value v, bool kernel) {
    int *n = &f->readers[v.id];
    *n = kernel && *n != MIXED ? *n + 1 : MIXED;
}

static void count_readers(finder *f) {
    const kolo_graph *g = f->g;
    for (int32_t v = 0; v < g->n_values; v++) f->readers[v] = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        const bool kernel = !n->op->view && n->op->comm != KOLO_OP_POST;
        for (int k = 0; k < n->n_in; k++) count_reader(f, n->in[k], kernel);
    }
    for (int32_t i = 0; i < g->n_outputs; i++) count_reader(f, g->outputs[i].value, false);
}

/* One walk, up to where a bucket turns out to be awaited in the step (f->changed): what depends on
 * it has been taken for later, so that another walk is due. */
static void walk(finder *f) {
    const kolo_graph *g = f->g;
    f->changed = false;
    for (int32_t v = 0; v < g->n_values; v++) f->bucket_of[v] = -1;
    for (int32_t i = 0; i < g->n_nodes && !f->changed; i++) follow(f, i);
    for (int32_t i = 0; i < g->n_outputs && !f->changed; i++) {
        keep_in_step(f, f->bucket_of[g->outputs[i].value.id], KOLO_DEFERRAL_REPORTED);
    }
}

static kolo_status create(finder *f, kolo_arena *arena, bool *deferred) {
    const size_t nodes = (size_t)f->g->n_nodes + 1, values = (size_t)f->g->n_values + 1;
    f->when = kolo_arena_alloc(arena, nodes * sizeof *f->when); /* more than there are buckets */
    f->bucket_of = kolo_arena_alloc(arena, values * sizeof *f->bucket_of);
    f->readers = kolo_arena_alloc(arena, values * sizeof *f->readers);
    f->deferred = deferred ? deferred : kolo_arena_alloc(arena, nodes * sizeof *f->deferred);
    if (!f->when || !f->bucket_of || !f->readers || !f->deferred) {
        return KOLO_NOMEM(values * sizeof(int));
    }
    count_readers(f);
    return KOLO_OK;
}

kolo_status kolo_pass_cross_step(kolo_graph *g) {
    kolo_arena arena = {0};
    finder f = {.g = g};
    const kolo_status status = create(&f, &arena, NULL);
    const bool in_place = updates_in_place(g);
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_WAIT) continue;
        f.when[bucket_of(n)] = in_place ? KOLO_DEFERRAL_IN_PLACE : kind_of(g, n);
    }
    do {
        if (status == KOLO_OK) walk(&f);
    } while (f.changed);
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_POST && n->op->comm != KOLO_OP_WAIT) continue;
        n->attr[KOLO_COMM_DEFERRAL].i = f.when[bucket_of(n)];
    }
    kolo_arena_fini(&arena);
    return status;
}

/* Marks what runs right before its only reader. */
static void move(finder *f) {
    for (int32_t i = 0; i < f->g->n_nodes; i++) {
        const kolo_node *n = f->g->nodes[i];
        for (int k = 0; k < n->n_in && f->deferred[i] && n->op->comm == KOLO_OP_LOCAL; k++) {
            const kolo_value v = n->in[k];
            const bool moves = f->bucket_of[v.id] < 0 && !is_kept(f->g, v) && may_move(f, v);
            if (moves) f->deferred[kolo_info(f->g, v)->producer] = true;
        }
    }
}

kolo_status kolo_find_deferred(const kolo_graph *g, bool *deferred) {
    kolo_arena arena = {0};
    finder f = {.g = g};
    const kolo_status status = create(&f, &arena, deferred);
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_WAIT) continue;
        f.when[bucket_of(n)] = (kolo_deferral)n->attr[KOLO_COMM_DEFERRAL].i;
    }
    if (status == KOLO_OK) walk(&f);
    KOLO_ASSERT(!f.changed); /* the pass has found all buckets that are awaited in the step */
    if (status == KOLO_OK) move(&f);
    kolo_arena_fini(&arena);
    return status;
}
