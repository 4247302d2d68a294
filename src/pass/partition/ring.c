/* Ring attention: Liu, Zaharia, Abbeel, "Ring attention with blockwise transformers for
 * near-infinite context", 2023. Until this pass, attention of which each rank has some of the
 * queries is one node. Here it becomes a block of keys and values for each rank of the axis: a rank
 * computes with its own, while those of the rank before it arrive; then with these, while the next
 * ones arrive.
 *
 *     kv1 = redistribute(kv, sp:sharded1 -> sp:sharded1+3)        of four ranks
 *     o, lse = attention(qkv)                                     the rank's own keys
 *     kv2 = redistribute(kv1, sp:sharded1+3 -> sp:sharded1+2)
 *     o, lse = attention_block(qkv, kv1, o, lse)                  and so on
 *
 * The gradient needs the last o and lse alone. Keys and values rotate again. Their gradients follow
 * one rank behind them, each rank adding its summand, and arrive at their owners. The order of all
 * sums is that of the ring. All ranks have the same nodes, so that they communicate in one order;
 * where a rank's queries precede the keys of a block, it computes nothing.
 *
 * With zigzag rank i of S has range i and range 2 S - 1 - i of 2 S ranges of the positions, as in
 * Grattafiori et al., "The Llama 3 herd of models", 2024. Of causal attention every block is then
 * half a block: of the keys of an earlier rank all queries see the first range, and those of a
 * later one the second range of the queries sees.
 *
 * Slices may differ in length: what a rank receives is as long as the slice of the rank that it
 * belongs to. */
#include "graph/ops/ops.h"
#include "pass/partition/replace.h"
#include "pass/pass.h"

#include <string.h>

typedef struct ringer {
    kolo_graph *g;
    kolo_replacer *replacer;
    int axis, size, at; /* of the positions, and this rank's coordinate */
} ringer;

/* Rotation of the keys of step `step`: those of the rank that many places before. */
static int turn_of(const ringer *r, int step) { return (r->size - step) % r->size; }

static bool zigzags(const kolo_node *n) {
    return n->attr[KOLO_ATTENTION_RING].i & KOLO_RING_ZIGZAG;
}

/* How keys are placed that are rotated so. */
static kolo_placement cut_of(const kolo_node *n, int turn) {
    return (kolo_placement){.kind = KOLO_PLACEMENT_SHARDED,
                            .dim = 1,
                            .depth = KOLO_DEPTH_POSITIONS,
                            .zigzag = zigzags(n),
                            .length = (int)n->attr[KOLO_ATTENTION_LENGTH].i,
                            .rotation = turn};
}

/* v under another placement of the positions. */
static kolo_value moved(ringer *r, kolo_value v, const kolo_placement *cut) {
    kolo_tensor tensor = kolo_info(r->g, v)->tensor;
    const kolo_placements from = kolo_info(r->g, v)->placements;
    kolo_placements to = from;
    to.axis[r->axis] = *cut;
    tensor.shape.dim[1] = kolo_placement_count(cut, cut->length, r->size, r->at);
    tensor = kolo_tensor_plain(tensor.dtype, tensor.shape);
    return kolo_redistribute_as(r->g, v, &from, &to, &tensor);
}

/* v, rotated anew. */
static kolo_value rotated(ringer *r, const kolo_node *n, kolo_value v, int turn) {
    const kolo_placement cut = cut_of(n, turn);
    return moved(r, v, &cut);
}

/* The keys of the next step; a copy of these travels while the rank computes with them. After the
 * last step: none. */
static kolo_value next_keys(ringer *r, const kolo_node *n, kolo_value kv, int step) {
    if (step + 1 == r->size) return KOLO_NONE;
    if (step > 0) {
        kv = kolo_graph_add1(r->g, &kolo_op_reorder, &kv, 1, NULL);
        if (kolo_replacer_take(r->replacer) != KOLO_OK) return KOLO_NONE;
    }
    return rotated(r, n, kv, turn_of(r, step + 1));
}

static kolo_value window(kolo_graph *g, kolo_value v, int64_t first, int64_t count) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_WINDOW_FIRST].i = first, [KOLO_WINDOW_COUNT].i = count, [KOLO_WINDOW_AXIS].i = 2};
    return kolo_graph_add1(g, &kolo_op_window, &v, 1, attr);
}

static kolo_value join(kolo_graph *g, const kolo_value *parts, int n) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CONCAT_AXIS].i = 2};
    return kolo_graph_add1(g, &kolo_op_concat, parts, n, attr);
}

/* The keys and values of qkv, [N,T,2C]. */
static kolo_value keys_of(kolo_graph *g, kolo_value qkv) {
    const int64_t channels = kolo_info(g, qkv)->tensor.shape.dim[2] / 3;
    const kolo_value parts[] = {window(g, qkv, channels, channels),
                                window(g, qkv, 2 * channels, channels)};
    return join(g, parts, 2);
}

/* The gradient of qkv. */
static kolo_value join_gradients(kolo_graph *g, kolo_value dq, kolo_value dkv) {
    const int64_t channels = kolo_info(g, dkv)->tensor.shape.dim[2] / 2;
    const kolo_value parts[] = {dq, window(g, dkv, 0, channels),
                                window(g, dkv, channels, channels)};
    return join(g, parts, 3);
}

/* The inputs of a block behind `n` of its own: those of attention from `more` on, with the mask of
 * these keys. */
static int add_rest(ringer *r, const kolo_node *n, int more, int turn, kolo_value *in, int count) {
    const int mask = more + kolo_attention_draws(n->attr);
    for (int k = more; k < n->n_in && k < mask; k++) in[count++] = n->in[k];
    if (mask >= n->n_in) return count;
    const kolo_placement cut = cut_of(n, turn);
    in[count++] = moved(r, n->in[mask], &cut);
    return count;
}

/* Which queries see the keys of the rank `from`. Of a zigzag its first range precedes the second
 * one of any rank, and both precede it where the first does not precede this rank's first. */
static kolo_seen seen_of(const ringer *r, const kolo_node *n, int from) {
    if (!n->attr[KOLO_ATTENTION_CAUSAL].i) return KOLO_SEEN_BY_ALL;
    if (zigzags(n)) return from < r->at ? KOLO_SEEN_FIRST_BY_ALL : KOLO_SEEN_BY_SECOND;
    return from < r->at ? KOLO_SEEN_BY_ALL : KOLO_SEEN_BY_NONE;
}

/* The attributes of a block in a step. */
static void block_attrs(const ringer *r, const kolo_node *n, int step, kolo_attr *attr) {
    const int turn = turn_of(r, step);
    const kolo_placement keys = cut_of(n, turn);
    memcpy(attr, n->attr, sizeof n->attr);
    attr[KOLO_ATTENTION_SEEN].i = seen_of(r, n, (r->at + turn) % r->size);
    attr[KOLO_ATTENTION_RING].i = zigzags(n) ? KOLO_RING_ZIGZAG : 0;
    attr[KOLO_ATTENTION_TURN].i = turn;
    attr[KOLO_ATTENTION_KEY].i = kolo_placement_first(&keys, keys.length, r->size, r->at);
}

/* Attention to the rank's own keys: as a node without a ring, with the mask of these. */
static void own(ringer *r, const kolo_node *n, int more, kolo_value *out) {
    kolo_value in[KOLO_MAX_IO];
    for (int k = 0; k < more; k++) in[k] = n->in[k];
    const int count = add_rest(r, n, more, 0, in, more);
    kolo_attr attr[KOLO_MAX_ATTRS];
    memcpy(attr, n->attr, sizeof n->attr);
    attr[KOLO_ATTENTION_KEY].i = attr[KOLO_ATTENTION_POSITION].i;
    attr[KOLO_ATTENTION_RING].i = KOLO_RING_OWN | (zigzags(n) ? KOLO_RING_ZIGZAG : 0);
    kolo_graph_add(r->g, n->op, in, count, attr, out);
}

static kolo_status forward(ringer *r, const kolo_node *n) {
    kolo_graph *g = r->g;
    kolo_value kv = keys_of(g, n->in[0]), out[KOLO_MAX_IO] = {{0}};
    KOLO_TRY(kolo_replacer_take(r->replacer));
    for (int step = 0; step < r->size; step++) {
        const kolo_value next = next_keys(r, n, kv, step);
        KOLO_TRY(kolo_replacer_take(r->replacer));
        if (step == 0) {
            own(r, n, KOLO_ATTENTION_INPUTS, out);
        } else {
            kolo_attr attr[KOLO_MAX_ATTRS];
            kolo_value in[KOLO_MAX_IO] = {n->in[0], kv, out[0], out[1]};
            const int count = add_rest(r, n, KOLO_ATTENTION_INPUTS, turn_of(r, step), in,
                                       KOLO_ATTENTION_BLOCK_INPUTS);
            block_attrs(r, n, step, attr);
            kolo_graph_add(g, &kolo_op_attention_block, in, count, attr, out);
        }
        KOLO_TRY(kolo_replacer_take(r->replacer));
        kv = next;
    }
    for (int k = 0; k < 2; k++) r->replacer->now[n->out[k].id] = out[k];
    return KOLO_OK;
}

static kolo_status backward(ringer *r, const kolo_node *n) {
    kolo_graph *g = r->g;
    kolo_value kv = keys_of(g, n->in[1]), own_part[KOLO_MAX_IO], dq = KOLO_NONE, dkv = KOLO_NONE;
    KOLO_TRY(kolo_replacer_take(r->replacer));
    kv = next_keys(r, n, kv, 0);
    own(r, n, KOLO_ATTENTION_BWD_INPUTS, own_part);
    KOLO_TRY(kolo_replacer_take(r->replacer));
    for (int step = 1; step < r->size; step++) {
        const kolo_value next = next_keys(r, n, kv, step);
        KOLO_TRY(kolo_replacer_take(r->replacer));
        kolo_value part[KOLO_MAX_IO];
        kolo_value in[KOLO_MAX_IO] = {n->in[0], n->in[1], kv, n->in[2], n->in[3]};
        kolo_attr attr[KOLO_MAX_ATTRS];
        const int count = add_rest(r, n, KOLO_ATTENTION_BWD_INPUTS, turn_of(r, step), in,
                                   KOLO_ATTENTION_BLOCK_BWD_INPUTS);
        block_attrs(r, n, step, attr);
        kolo_graph_add(g, &kolo_op_attention_block_bwd, in, count, attr, part);
        dq = step > 1 ? kolo_add(g, dq, part[0]) : part[0];
        dkv = step > 1 ? kolo_add(g, dkv, part[1]) : part[1];
        KOLO_TRY(kolo_replacer_take(r->replacer));
        dkv = rotated(r, n, dkv, turn_of(r, step + 1));
        KOLO_TRY(kolo_replacer_take(r->replacer));
        kv = next;
    }
    r->replacer->now[n->out[0].id] = kolo_add(g, own_part[0], join_gradients(g, dq, dkv));
    KOLO_TRY(kolo_replacer_take(r->replacer));
    return KOLO_OK;
}

static kolo_status visit(kolo_replacer *replacer, kolo_node *n, void *arg, bool *replaced) {
    ringer *r = arg;
    r->replacer = replacer;
    *replaced = kolo_attention_rings(n);
    if (!*replaced) return KOLO_OK;
    return n->op == &kolo_op_attention ? forward(r, n) : backward(r, n);
}

kolo_status kolo_pass_ring(kolo_graph *g) {
    ringer r = {.g = g, .axis = kolo_mesh_find(&g->mesh, "sp")};
    bool any = false;
    for (int32_t i = 0; i < g->n_nodes; i++) any |= kolo_attention_rings(g->nodes[i]);
    if (!any) return KOLO_OK;
    r.size = g->mesh.axes[r.axis].size;
    r.at = kolo_mesh_coordinate(&g->mesh, g->rank, r.axis);
    const kolo_status status = kolo_replace_nodes(g, visit, &r);
    return status == KOLO_OK ? KOLO_OK : kolo_fail_in(status, "ring attention");
}
