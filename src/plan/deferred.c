/* The steps of a plan that are left to its next run: the WAITs and updates that the pass cross_step
 * has found. Each runs before the first step that reads what it writes, at the latest before the
 * backward pass, which computes new gradients into the buckets. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct finder {
    const kolo_plan *p;
    bool *deferred; /* by node */
    int *reader;    /* by value: the first step that reads it and is not left */
    int *before;    /* by node */
    int latest;     /* every step that is left runs before this one */
} finder;

/* Whether a step ends the forward pass. */
static bool ends_forward(const kolo_step *step) {
    if (step->kind != KOLO_STEP_KERNEL) return !step->inside;
    return step->phase == KOLO_PHASE_BACKWARD || step->phase == KOLO_PHASE_UPDATE;
}

/* Whether a node reads input k: the running statistics of batch_norm are for passes alone. */
static bool is_read(const kolo_node *n, int k) {
    return n->op != &kolo_op_batch_norm || (k != 3 && k != 4);
}

static void find_readers(finder *f) {
    const kolo_plan *p = f->p;
    const kolo_graph *g = p->graph;
    for (int32_t v = 0; v < g->n_values; v++) f->reader[v] = p->n_steps;
    f->latest = p->n_steps;
    for (int i = p->n_steps - 1; i >= 0; i--) {
        const kolo_node *n = g->nodes[p->steps[i].node];
        if (ends_forward(&p->steps[i])) f->latest = i;
        if (f->deferred[p->steps[i].node]) continue;
        for (int k = 0; k < n->n_in; k++) {
            if (is_read(n, k)) f->reader[kolo_viewed(g, n->in[k]).id] = i;
        }
    }
}

/* Gives two nodes the earlier of their places; whether that changes one. */
static bool join(int *a, int *b) {
    if (*a == *b) return false;
    *a = *b = (int)kolo_min_i64(*a, *b);
    return true;
}

/* All nodes of an update run before the same step: their values are in memory that the next update
 * uses too. Only WAITs, whose results several updates may read, run before. */
static void join_updates(finder *f) {
    const kolo_graph *g = f->p->graph;
    bool changed = true;
    while (changed) {
        changed = false;
        for (int32_t i = 0; i < g->n_nodes; i++) {
            const kolo_node *n = g->nodes[i];
            if (!f->deferred[i] || n->op->comm == KOLO_OP_WAIT) continue;
            for (int k = 0; k < n->n_in; k++) {
                const int32_t of = kolo_info(g, n->in[k])->producer;
                if (of < 0 || !f->deferred[of] || g->nodes[of]->op->comm == KOLO_OP_WAIT) continue;
                changed |= join(&f->before[i], &f->before[of]);
            }
        }
    }
}

/* Nothing runs after what reads it. */
static void precede_readers(finder *f) {
    const kolo_graph *g = f->p->graph;
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in && f->deferred[i]; k++) {
            const int32_t producer = kolo_info(g, n->in[k])->producer;
            if (producer < 0 || !f->deferred[producer]) continue;
            f->before[producer] = (int)kolo_min_i64(f->before[producer], f->before[i]);
        }
    }
}

/* Before which step each node runs: the updates, then the WAITs that these read. */
static void find_places(finder *f) {
    const kolo_graph *g = f->p->graph;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        f->before[i] = f->latest;
        for (int k = 0; k < n->n_out && f->deferred[i]; k++) {
            const kolo_value old = kolo_info(g, n->out[k])->next_of;
            if (!kolo_value_ok(old)) continue;
            f->before[i] = (int)kolo_min_i64(f->before[i], f->reader[old.id]);
        }
    }
    join_updates(f);
    precede_readers(f);
}

static int by_place(const void *a, const void *b) {
    const kolo_deferred_step *x = a, *y = b;
    if (x->before != y->before) return x->before < y->before ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

static kolo_status list(kolo_plan *p, const finder *f) {
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) n += f->deferred[p->steps[i].node];
    if (n == 0) return KOLO_OK;
    p->deferred = kolo_zalloc((size_t)n * sizeof *p->deferred);
    if (!p->deferred) return KOLO_NOMEM((size_t)n * sizeof *p->deferred);
    KOLO_TRY(kolo_regions_map(p->store->regions, NULL, p->map.table_bytes + 1, &p->deferred_table));
    for (int i = 0; i < p->n_steps; i++) {
        if (!f->deferred[p->steps[i].node]) continue;
        p->steps[i].deferred = true;
        p->deferred[p->n_deferred++] = (kolo_deferred_step){i, f->before[p->steps[i].node]};
    }
    qsort(p->deferred, (size_t)p->n_deferred, sizeof *p->deferred, by_place);
    p->next_deferred = p->n_deferred;
    return KOLO_OK;
}

kolo_status kolo_plan_find_deferred_steps(kolo_plan *p) {
    const size_t nodes = (size_t)p->graph->n_nodes + 1, values = (size_t)p->graph->n_values + 1;
    kolo_arena arena = {0};
    finder f = {.p = p};
    if (!p->comm || p->adds_to || p->store->alone) return KOLO_OK; /* nothing is awaited */
    f.deferred = kolo_arena_alloc(&arena, nodes * sizeof *f.deferred);
    f.before = kolo_arena_alloc(&arena, nodes * sizeof *f.before);
    f.reader = kolo_arena_alloc(&arena, values * sizeof *f.reader);
    kolo_status status =
        f.deferred && f.before && f.reader ? KOLO_OK : KOLO_NOMEM(values * sizeof *f.reader);
    if (status == KOLO_OK) status = kolo_find_deferred(p->graph, f.deferred);
    if (status == KOLO_OK) {
        find_readers(&f);
        find_places(&f);
        status = list(p, &f);
    }
    kolo_arena_fini(&arena);
    return status;
}

int64_t kolo_store_rollbacks(const kolo_store *s) { return s->rollbacks; }
bool kolo_store_has_deferred(const kolo_store *s) { return s->deferring != NULL; }
