/* Overlap across steps: which sums are awaited in the next step, right before it reads what they
 * update.
 *
 *     forward, backward, POST a, POST b, WAIT b, update b | WAIT a, update a, forward ..
 *
 * The sums, the updates and their order are those of a step that ends with all of them, so no bit
 * changes. While the next step computes, its values and scalars are in use: what runs then reads
 * and writes the buckets, which keep their memory to themselves, the store, scalars, of which the
 * plan keeps a copy (plan/run.c), and scratch, which follows the values of the plan in the arena.
 * Another plan has values there: it runs, and its inputs are filled, after all that is left. Peng
 * et al., "A generic communication scheduler for distributed DNN training acceleration", SOSP 2019.
 */
#include "graph/ops/ops.h"
#include "pass/pass.h"

typedef struct finder {
    const kolo_graph *g;
    kolo_later *when; /* by bucket */
    int *bucket_of;   /* by value: the sum that it depends on, in the next step; -1: none */
    bool *later;      /* by node */
    bool changed;
} finder;

static int bucket_of(const kolo_node *n) { return (int)n->attr[KOLO_COMM_BUCKET].i; }

static void keep_in_step(finder *f, int bucket, kolo_later why) {
    if (bucket < 0 || f->when[bucket] != KOLO_LATER_NEXT) return;
    f->when[bucket] = why;
    f->changed = true;
}

/* A WAIT by itself. */
static kolo_later kind_of(const kolo_node *wait) {
    const bool sum = wait->attr[KOLO_COMM_COLLECTIVE].i == KOLO_COLLECTIVE_ALLREDUCE &&
                     wait->attr[KOLO_COMM_OF_SAMPLES].i && !wait->attr[KOLO_COMM_INSIDE].i;
    return sum ? KOLO_LATER_NEXT : KOLO_LATER_KIND;
}

/* Whether what a node reads besides sums is there in the next step. */
static bool is_kept(const kolo_graph *g, kolo_value v) {
    const kolo_value_info *info = kolo_info(g, v);
    const int32_t producer = info->producer;
    if (producer < 0) return info->kind != KOLO_VALUE_INPUT;
    return g->nodes[producer]->op->view && g->nodes[producer]->op->comm == KOLO_OP_LOCAL &&
           is_kept(g, g->nodes[producer]->in[0]);
}

/* Whether an update of `bucket` can run in the next step. */
static bool may_wait(const finder *f, const kolo_node *n, int bucket) {
    const kolo_graph *g = f->g;
    if (n->op->comm != KOLO_OP_LOCAL || n->op->in_place) return false;
    for (int k = 0; k < n->n_in; k++) {
        const int of = f->bucket_of[n->in[k].id];
        if (of != bucket && (of >= 0 || !is_kept(g, n->in[k]))) return false;
    }
    for (int k = 0; k < n->n_out; k++) {
        const kolo_value old = kolo_info(g, n->out[k])->next_of;
        if (!kolo_value_ok(old) || kolo_info(g, old)->in_place) return false;
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
        bucket = f->when[own] == KOLO_LATER_NEXT ? own : -1;
    } else if (bucket >= 0 && !n->op->view && !may_wait(f, n, bucket)) {
        for (int k = 0; k < n->n_in; k++) {
            keep_in_step(f, f->bucket_of[n->in[k].id], KOLO_LATER_READ);
        }
    } else if (bucket >= 0 && n->op->comm != KOLO_OP_LOCAL) {
        keep_in_step(f, bucket, KOLO_LATER_READ);
    }
    f->later[i] = bucket >= 0;
    for (int k = 0; k < n->n_out; k++) f->bucket_of[n->out[k].id] = bucket;
}

/* One walk; f->changed: a bucket is awaited in the step after all, so that another one is due. */
static void walk(finder *f) {
    const kolo_graph *g = f->g;
    f->changed = false;
    for (int32_t v = 0; v < g->n_values; v++) f->bucket_of[v] = -1;
    for (int32_t i = 0; i < g->n_nodes; i++) follow(f, i);
    for (int32_t i = 0; i < g->n_outputs; i++) {
        keep_in_step(f, f->bucket_of[g->outputs[i].value.id], KOLO_LATER_REPORTED);
    }
}

static kolo_status create(finder *f, kolo_arena *arena, bool *later) {
    const size_t nodes = (size_t)f->g->n_nodes + 1, values = (size_t)f->g->n_values + 1;
    f->when = kolo_arena_alloc(arena, nodes * sizeof *f->when); /* more than there are buckets */
    f->bucket_of = kolo_arena_alloc(arena, values * sizeof *f->bucket_of);
    f->later = later ? later : kolo_arena_alloc(arena, nodes * sizeof *f->later);
    return f->when && f->bucket_of && f->later ? KOLO_OK : KOLO_NOMEM(values * sizeof(int));
}

kolo_status kolo_pass_cross_step(kolo_graph *g) {
    kolo_arena arena = {0};
    finder f = {.g = g};
    const kolo_status status = create(&f, &arena, NULL);
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm == KOLO_OP_WAIT) f.when[bucket_of(n)] = kind_of(n);
    }
    do {
        if (status == KOLO_OK) walk(&f);
    } while (f.changed);
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_POST && n->op->comm != KOLO_OP_WAIT) continue;
        n->attr[KOLO_COMM_LATER].i = f.when[bucket_of(n)];
    }
    kolo_arena_fini(&arena);
    return status;
}

kolo_status kolo_find_later(const kolo_graph *g, bool *later) {
    kolo_arena arena = {0};
    finder f = {.g = g};
    const kolo_status status = create(&f, &arena, later);
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_WAIT) continue;
        f.when[bucket_of(n)] = (kolo_later)n->attr[KOLO_COMM_LATER].i;
    }
    if (status == KOLO_OK) walk(&f);
    kolo_arena_fini(&arena);
    return status;
}
