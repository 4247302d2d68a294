/* Exchanges: lowers the redistributions inside the forward and backward passes, whose results nodes
 * other than updates read.
 *
 *     y = f(redistribute(x))  ->  y = f(wait(post(x)))
 *
 * POST stands where the redistribution was, WAIT before the first reader; what stands between them
 * overlaps. Each is a bucket of its own. Both run in every micro-batch, unlike those of gradients,
 * and a rank without samples takes part with zeros. The collective overwrites what it sums: a value
 * that has another reader, or no memory of its own, is copied first. The other redistributions
 * remain for the pass lower_comm. */
#include "graph/ops/ops.h"
#include "pass/pass.h"

typedef struct exchanger {
    kolo_graph *g;
    bool *inside;         /* by value: a node that is no update reads it */
    int32_t *reads;       /* by value: readers, outputs included */
    kolo_value *arrived;  /* by value: the output of the WAIT that replaces it, or KOLO_NONE */
    kolo_node **unwaited; /* by value: the WAIT, until the order has it; or NULL */
    kolo_node **order;
    int32_t n, n_values; /* n_values: before values are added */
    int n_buckets;
} exchanger;

static void count_readers(const exchanger *e) {
    const kolo_graph *g = e->g;
    for (int32_t v = 0; v < e->n_values; v++) e->arrived[v] = KOLO_NONE;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        const bool inside = !kolo_node_is_update(g, n);
        for (int k = 0; k < n->n_in; k++) {
            e->reads[n->in[k].id]++;
            e->inside[n->in[k].id] |= inside;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) e->reads[g->outputs[i].value.id]++;
}

static bool is_exchange(const exchanger *e, const kolo_node *n) {
    return n->op->comm == KOLO_OP_REDISTRIBUTE && e->inside[n->out[0].id];
}

/* UNSUPPORTED: not a sum that all ranks get. */
static kolo_status check_sum(const kolo_graph *g, const kolo_node *n) {
    const kolo_redistribution *move = n->move;
    bool sums = true;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &move->from.axis[a], *to = &move->to.axis[a];
        bool whole = to->kind == KOLO_PLACEMENT_INVARIANT || to->kind == KOLO_PLACEMENT_REPLICATED;
        bool summand = from->kind == KOLO_PLACEMENT_PARTIAL && from->op == KOLO_SUM;
        sums = sums && ((whole && summand) || g->mesh.axes[a].size == 1);
    }
    if (sums) return KOLO_OK;
    char from[KOLO_PLACEMENT_TEXT], to[KOLO_PLACEMENT_TEXT];
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "no collective inside a pass redistributes [%s] to [%s]; only sums that all "
                     "ranks get are supported",
                     kolo_placements_text(&g->mesh, &move->from, from),
                     kolo_placements_text(&g->mesh, &move->to, to));
}

/* v, or a copy of it if the sum would change what others read. */
static kolo_value own_memory(exchanger *e, kolo_value v) {
    int32_t producer = kolo_info(e->g, v)->producer;
    if (producer >= 0 && !e->g->nodes[producer]->op->view && e->reads[v.id] == 1) return v;
    kolo_value copy = kolo_graph_add1(e->g, &kolo_op_reorder, &v, 1, NULL);
    if (!kolo_value_ok(copy)) return v;
    e->order[e->n++] = e->g->nodes[kolo_info(e->g, copy)->producer];
    return copy;
}

/* In the place of redistribution n. */
static kolo_status add_exchange(exchanger *e, const kolo_node *n) {
    kolo_graph *g = e->g;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_COMM_BUCKET].i = e->n_buckets++,
        [KOLO_COMM_INSIDE].i = 1,
    };
    KOLO_TRY(check_sum(g, n));
    const kolo_tensor tensor = kolo_info(g, n->out[0])->tensor;
    kolo_value from = own_memory(e, n->in[0]);
    kolo_node *post = kolo_graph_add_raw(g, &kolo_op_post, &from, 1, 1, &tensor, attr);
    if (!post) return kolo_graph_check(g);
    post->move = n->move;
    kolo_node *wait = kolo_graph_add_raw(g, &kolo_op_wait, post->out, 1, 1, &tensor, attr);
    if (!wait) return kolo_graph_check(g);
    e->order[e->n++] = post;
    e->unwaited[n->out[0].id] = wait;
    e->arrived[n->out[0].id] = wait->out[0];
    return kolo_graph_check(g);
}

/* What replaces v from here on. */
static kolo_value current(exchanger *e, kolo_value v) {
    if (v.id >= e->n_values || !kolo_value_ok(e->arrived[v.id])) return v;
    if (e->unwaited[v.id]) e->order[e->n++] = e->unwaited[v.id];
    e->unwaited[v.id] = NULL;
    return e->arrived[v.id];
}

static kolo_status walk(exchanger *e) {
    kolo_graph *g = e->g;
    const int32_t n_nodes = g->n_nodes;
    for (int32_t i = 0; i < n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) n->in[k] = current(e, n->in[k]);
        if (is_exchange(e, n)) {
            KOLO_TRY(add_exchange(e, n));
        } else {
            e->order[e->n++] = n;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = current(e, g->outputs[i].value);
    }
    return e->n_buckets > 0 ? kolo_graph_set_nodes(g, e->order, e->n) : KOLO_OK;
}

kolo_status kolo_pass_exchange(kolo_graph *g) {
    const size_t values = (size_t)g->n_values + 1, nodes = 3 * (size_t)g->n_nodes + 1;
    exchanger e = {.g = g, .n_values = g->n_values};
    kolo_arena arena = {0};
    kolo_status status = KOLO_OK;
    e.inside = kolo_arena_alloc(&arena, values * sizeof *e.inside);
    e.reads = kolo_arena_alloc(&arena, values * sizeof *e.reads);
    e.arrived = kolo_arena_alloc(&arena, values * sizeof *e.arrived);
    e.unwaited = kolo_arena_alloc(&arena, values * sizeof *e.unwaited);
    e.order = kolo_arena_alloc(&arena, nodes * sizeof *e.order);
    if (!e.inside || !e.reads || !e.arrived || !e.unwaited || !e.order) {
        status = KOLO_NOMEM(nodes * sizeof *e.order);
    } else {
        count_readers(&e);
        status = walk(&e);
    }
    kolo_arena_fini(&arena);
    return status;
}
