/* LSTM layers by hidden units. Each rank has some of the units: their rows of all four gates, and
 * their cells. The gates of a time step read the hidden state of all units, so a layer that is
 * divided is one node until this pass, and then some for each time step:
 *
 *     p[t]          = linear(H[t-1], w)                 [N,1,4h]: of this rank's h of H units
 *     h[t], .. c[t] = lstm_cell(gx, b, p[t], c[t-1])
 *     H[t]          = redistribute(h[t], tp:sharded2 -> invariant)
 *
 * The states of all time steps together are what the layer gives the next one, so that nothing is
 * gathered again for that. The gradient goes back through the steps:
 *
 *     dp[t], dc[t-1] = lstm_cell_bwd(dh, gates[t], c[t], dH[t], dc[t], c[t-1])
 *     dH[t-1]        = redistribute(linear_bwd_data(dp[t], w), tp:partial -> sharded2)
 *
 * The gradients of w and b are products over all time steps at once, as without division: they read
 * the states that the forward pass has gathered. In a step a layer thus gathers T and scatters T-1
 * states of N H elements. */
#include "pass/partition/recurrence.h"

#include "graph/ops/lstm.h"
#include "graph/ops/ops.h"
#include "pass/partition/replace.h"

#include <string.h>

/* A layer of which the time steps are nodes. */
typedef struct layer {
    struct layer *next;
    int32_t gates; /* the value that its gradient reads */
    const kolo_node *node;
    kolo_value *gates_of, *cell_of; /* by time step */
    kolo_value whole;               /* the states of all units and time steps, [N,T,H] */
} layer;

typedef struct unroller {
    kolo_graph *g;
    kolo_replacer *replacer;
    int axis; /* that divides layers */
    layer *layers;
    kolo_arena arena;
} unroller;

static kolo_shape shape_of(const unroller *u, kolo_value v) {
    return kolo_info(u->g, v)->tensor.shape;
}

/* v [N,1,..] under another placement on the axis, with `channels` in the last dimension. */
static kolo_value moved(unroller *u, kolo_value v, kolo_placement to, int64_t channels) {
    const kolo_placements from = kolo_info(u->g, v)->placements;
    kolo_placements target = from;
    kolo_shape shape = shape_of(u, v);
    target.axis[u->axis] = to;
    shape.dim[shape.rank - 1] = channels;
    const kolo_tensor tensor = kolo_tensor_plain(kolo_info(u->g, v)->tensor.dtype, shape);
    return kolo_redistribute_as(u->g, v, &from, &target, &tensor);
}

/* Puts tensors [N,1,C] one behind the other, [N,n,C]; overwrites `parts`. */
static kolo_status stack(unroller *u, kolo_value *parts, int64_t n, kolo_value *whole) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CONCAT_AXIS].i = 1};
    while (n > 1) {
        int64_t made = 0;
        for (int64_t i = 0; i < n; i += KOLO_MAX_IO) {
            const int64_t count = n - i < KOLO_MAX_IO ? n - i : KOLO_MAX_IO;
            parts[made++] =
                count == 1 ? parts[i]
                           : kolo_graph_add1(u->g, &kolo_op_concat, parts + i, (int)count, attr);
            KOLO_TRY(kolo_replacer_take(u->replacer));
        }
        n = made;
    }
    *whole = parts[0];
    return KOLO_OK;
}

/* A state [N,C] before the first time step, as [N,1,C] or back. */
static kolo_value reshaped(const unroller *u, kolo_value v, bool back) {
    const kolo_shape from = shape_of(u, v);
    const kolo_shape two = kolo_shape_2(from.dim[0], from.dim[from.rank - 1]);
    const kolo_shape three = kolo_shape_3(two.dim[0], 1, two.dim[1]);
    const kolo_shape pairs_two = kolo_shape_2(2, 2), pairs_three = kolo_shape_3(2, 1, 2);
    return back ? kolo_reshape_as(u->g, v, &two, &pairs_three, &pairs_two)
                : kolo_reshape_as(u->g, v, &three, &pairs_two, &pairs_three);
}

static layer *add_layer(unroller *u, const kolo_node *n, int64_t steps) {
    layer *l = kolo_arena_alloc(&u->arena, sizeof *l);
    if (!l) return NULL;
    *l = (layer){.next = u->layers, .gates = n->out[1].id, .node = n};
    l->gates_of = kolo_arena_alloc(&u->arena, (size_t)steps * sizeof *l->gates_of);
    l->cell_of = kolo_arena_alloc(&u->arena, (size_t)steps * sizeof *l->cell_of);
    if (!l->gates_of || !l->cell_of) return NULL;
    u->layers = l;
    return l;
}

static const layer *find_layer(const unroller *u, int32_t gates) {
    const layer *l = u->layers;
    while (l && l->gates != gates) l = l->next;
    return l;
}

static kolo_status forward(unroller *u, const kolo_node *n) {
    enum { GX, W, B, H0, C0, INPUTS };
    kolo_graph *g = u->g;
    const int64_t steps = shape_of(u, n->in[GX]).dim[1], units = n->attr[KOLO_LSTM_UNITS].i;
    layer *l = add_layer(u, n, steps);
    kolo_value *states = kolo_arena_alloc(&u->arena, (size_t)steps * sizeof *states);
    if (!l || !states) return KOLO_NOMEM((size_t)steps * sizeof *states);
    const bool given = n->n_in == INPUTS;
    kolo_value before = given ? reshaped(u, n->in[H0], false) : KOLO_NONE;
    kolo_value cell = given ? reshaped(u, n->in[C0], false) : KOLO_NONE;
    KOLO_TRY(kolo_replacer_take(u->replacer));
    for (int64_t t = 0; t < steps; t++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LSTM_CELL_STEP].i = t};
        kolo_value in[4] = {n->in[GX], n->in[B]}, out[KOLO_MAX_IO];
        if (kolo_value_ok(before)) {
            in[2] = kolo_linear(g, before, n->in[W]);
            in[3] = cell;
        }
        kolo_graph_add(g, &kolo_op_lstm_cell, in, kolo_value_ok(before) ? 4 : 2, attr, out);
        KOLO_TRY(kolo_replacer_take(u->replacer));
        l->gates_of[t] = out[1];
        l->cell_of[t] = cell = out[2];
        states[t] = before =
            moved(u, out[0], (kolo_placement){.kind = KOLO_PLACEMENT_INVARIANT}, units);
        KOLO_TRY(kolo_replacer_take(u->replacer));
    }
    return stack(u, states, steps, &l->whole);
}

static kolo_status backward(unroller *u, const kolo_node *n) {
    enum { DH, GATES, C, W, C0, INPUTS };
    kolo_graph *g = u->g;
    kolo_value *now = u->replacer->now;
    const kolo_shape dh = shape_of(u, n->in[DH]);
    const int64_t steps = dh.dim[1];
    const bool given = n->n_in == INPUTS;
    const layer *l = find_layer(u, n->in[GATES].id);
    kolo_value *parts = kolo_arena_alloc(&u->arena, (size_t)steps * sizeof *parts);
    kolo_value to_h = KOLO_NONE, dc = KOLO_NONE;
    if (!parts) return KOLO_NOMEM((size_t)steps * sizeof *parts);
    if (!l) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "lstm_bwd: no layer gives the gates it reads");
    const kolo_placement slice = kolo_info(g, n->in[DH])->placements.axis[u->axis];
    const kolo_value first = given ? reshaped(u, n->in[C0], false) : KOLO_NONE;
    KOLO_TRY(kolo_replacer_take(u->replacer));
    for (int64_t t = steps - 1; t >= 0; t--) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LSTM_CELL_STEP].i = t};
        kolo_value in[KOLO_MAX_IO] = {n->in[DH], l->gates_of[t], l->cell_of[t]}, out[KOLO_MAX_IO];
        int n_in = 3;
        if (kolo_value_ok(to_h)) {
            in[n_in++] = to_h;
            in[n_in++] = dc;
        }
        if (t > 0 || given) in[n_in++] = t > 0 ? l->cell_of[t - 1] : first;
        kolo_graph_add(g, &kolo_op_lstm_cell_bwd, in, n_in, attr, out);
        KOLO_TRY(kolo_replacer_take(u->replacer));
        parts[t] = out[0];
        dc = out[1];
        if (t == 0 && !given) break;
        to_h =
            kolo_graph_add1(g, &kolo_op_linear_bwd_data, (kolo_value[]){out[0], n->in[W]}, 2, NULL);
        KOLO_TRY(kolo_replacer_take(u->replacer));
        if (t > 0) to_h = moved(u, to_h, slice, dh.dim[2]);
        KOLO_TRY(kolo_replacer_take(u->replacer));
    }
    if (given) {
        now[n->out[1].id] = reshaped(u, to_h, true);
        now[n->out[2].id] = reshaped(u, dc, true);
        KOLO_TRY(kolo_replacer_take(u->replacer));
    }
    return stack(u, parts, steps, &now[n->out[0].id]);
}

/* The layer whose states a redistribution gathers; NULL: it does not. */
static const layer *gathered(const unroller *u, const kolo_node *n) {
    if (n->op != &kolo_op_redistribute) return NULL;
    const int32_t producer = kolo_info(u->g, n->in[0])->producer;
    const kolo_node *maker = producer >= 0 ? u->g->nodes[producer] : NULL;
    const layer *l = maker ? u->layers : NULL;
    while (l && (l->node != maker || n->in[0].id != maker->out[0].id)) l = l->next;
    return l;
}

static kolo_status visit(kolo_replacer *replacer, kolo_node *n, void *arg, bool *replaced) {
    unroller *u = arg;
    u->replacer = replacer;
    const layer *l = gathered(u, n);
    *replaced = l || kolo_lstm_is_divided(n);
    if (l) {
        replacer->now[n->out[0].id] = l->whole;
        return KOLO_OK;
    }
    if (!*replaced) return KOLO_OK;
    return n->op == &kolo_op_lstm ? forward(u, n) : backward(u, n);
}

kolo_status kolo_pass_recurrence(kolo_graph *g) {
    unroller u = {.g = g, .axis = kolo_mesh_find(&g->mesh, "tp")};
    bool any = false;
    for (int32_t i = 0; i < g->n_nodes; i++) any |= kolo_lstm_is_divided(g->nodes[i]);
    if (!any) return KOLO_OK;
    const kolo_status status = kolo_replace_nodes(g, visit, &u);
    kolo_arena_fini(&u.arena);
    return status == KOLO_OK ? KOLO_OK : kolo_fail_in(status, "a divided LSTM layer");
}
