/* Stages of a pipeline: cuts a graph into parts along its topological order, and keeps those of one
 * stage: one, or several chunks.
 *
 * A part begins at a node that is the first to read some parameter; its name identifies the cut in
 * all plans of a model, whatever the batch and whether they train. cuts.c chooses them.
 *
 * What crosses a cut:
 *
 *     values of nodes              sent to the next part, which passes on what later ones read
 *     inputs, scalars              every stage has them
 *     parameters of several stages held by all of these; their gradients are summed once per step
 *
 * The gradient pass adds what comes back: a leaf for the gradient of each value that is sent, and
 * an output for that of each value that is received (gradient.c). */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/cuts.h"

#include <stdio.h>
#include <string.h>

int kolo_mesh_stages(const kolo_mesh *mesh) {
    int axis = kolo_mesh_find(mesh, "pp");
    return axis < 0 ? 1 : mesh->axes[axis].size;
}

const char *kolo_crossing_name(const char *what, int number, char text[KOLO_CROSSING_NAME]) {
    snprintf(text, KOLO_CROSSING_NAME, "%s %d", what, number);
    return text;
}

/* ---- which node is in which part ---- */

typedef struct cutter {
    const kolo_graph *g;
    int n_parts;
    const char **begins; /* by node: the unit that begins there, or NULL */
    int *part_of;        /* by node */
    kolo_arena arena;
} cutter;

/* Whether a node moves nothing: a redistribution, or a view of what all blocks of tensor
 * parallelism read. */
static bool moves_nothing(const kolo_graph *g, const kolo_node *n) {
    if (n->op == &kolo_op_reshape) {
        return kolo_shape_equal(&kolo_info(g, n->in[0])->tensor.shape,
                                &kolo_info(g, n->out[0])->tensor.shape);
    }
    return n->op->comm == KOLO_OP_REDISTRIBUTE && kolo_redistribution_is_local(&g->mesh, n->move);
}

/* Such a node runs in the first part that reads its result, so that its input crosses the cut.
 * first: by value, the first part that reads it. */
static void follow_readers(cutter *c, int *first) {
    const kolo_graph *g = c->g;
    for (int32_t v = 0; v < g->n_values; v++) first[v] = c->n_parts;
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        const kolo_node *n = g->nodes[i];
        if (moves_nothing(g, n) && first[n->out[0].id] < c->n_parts)
            c->part_of[i] = first[n->out[0].id];
        for (int k = 0; k < n->n_in; k++) {
            int *of = &first[n->in[k].id];
            if (c->part_of[i] < *of) *of = c->part_of[i];
        }
    }
}

static kolo_status assign(cutter *c, const kolo_stage_cuts *cuts) {
    const size_t bytes = ((size_t)c->g->n_values + 1) * sizeof(int);
    int *first = kolo_arena_alloc(&c->arena, bytes);
    if (!first) return KOLO_NOMEM(bytes);
    int part = 0;
    for (int32_t i = 0; i < c->g->n_nodes; i++) {
        bool begins =
            part < cuts->n && c->begins[i] && strcmp(c->begins[i], cuts->names[part]) == 0;
        part += begins;
        c->part_of[i] = part;
    }
    if (part < cuts->n) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "the graph of this batch has another order of parameters: part %d of the "
                         "pipeline does not begin with %s",
                         part + 1, cuts->names[part]);
    }
    follow_readers(c, first);
    return KOLO_OK;
}

/* ---- one stage ---- */

typedef struct stager {
    kolo_graph *g;
    cutter *c;
    const kolo_parts *parts;
    int part;                  /* of this stage, the one that is being made, */
    int chunk;                 /* and which of its chunks that is */
    bool *trained;             /* by value: a parameter that is trained reaches it */
    bool *useful;              /* by value: it reaches the loss */
    int *last;                 /* by value: the last part that reads it, -1: none */
    kolo_value *now;           /* by value: what the part reads in its place */
    int32_t n_values, n_nodes; /* of the model */
    bool ties; /* gradients of parameters of several stages add up in each micro-batch */
} stager;

static void find_paths(stager *s) {
    const kolo_graph *g = s->g;
    kolo_value loss = kolo_graph_output(g, "loss");
    for (int32_t v = 0; v < s->n_values; v++) {
        s->trained[v] = g->values[v].kind == KOLO_VALUE_PARAM && !g->values[v].frozen;
        s->last[v] = -1;
        s->now[v] = (kolo_value){.id = v};
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->n_in; k++) {
            any |= s->trained[n->in[k].id];
            s->last[n->in[k].id] = s->c->part_of[i];
        }
        for (int k = 0; k < n->n_out; k++) s->trained[n->out[k].id] = any && n->op->grad;
    }
    if (kolo_value_ok(loss)) s->useful[loss.id] = true;
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        const kolo_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->n_out; k++) any |= s->useful[n->out[k].id];
        for (int k = 0; k < n->n_in && any && n->op->grad; k++) s->useful[n->in[k].id] = true;
    }
}

static int stage_of(const stager *s, int part) {
    int unused;
    return kolo_parts_stage(s->parts, part, &unused);
}

/* Which stages have each parameter and state. One without a gradient is as a frozen one. */
static void find_holders(stager *s) {
    kolo_graph *g = s->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            kolo_value_info *leaf = kolo_info(g, g->nodes[i]->in[k]);
            bool kept = leaf->kind == KOLO_VALUE_PARAM || leaf->kind == KOLO_VALUE_STATE;
            if (kept) leaf->holders |= UINT64_C(1) << stage_of(s, s->c->part_of[i]);
        }
    }
    for (int32_t v = 0; v < s->n_values; v++) {
        kolo_value_info *leaf = &g->values[v];
        bool kept = leaf->kind == KOLO_VALUE_PARAM || leaf->kind == KOLO_VALUE_STATE;
        if (!kept) continue;
        if (leaf->holders == 0) leaf->holders = 1; /* nothing reads it */
        if (!s->useful[v] && !kolo_is_held(g, leaf)) leaf->frozen = true;
    }
}

/* Whether v is a parameter that gets a gradient. */
static bool is_trained(const stager *s, int32_t v) {
    const kolo_value_info *info = &s->g->values[v];
    return info->kind == KOLO_VALUE_PARAM && !info->frozen && s->useful[v];
}

static int part_of_value(const stager *s, int32_t v) {
    return s->c->part_of[s->g->values[v].producer];
}

/* Whether a gradient comes back for a value that crosses a cut. */
static bool has_gradient(const stager *s, int32_t v) {
    const kolo_dtype dtype = s->g->values[v].tensor.dtype;
    return s->trained[v] && s->useful[v] && dtype != KOLO_DTYPE_I32 && dtype != KOLO_DTYPE_I64;
}

/* A value that passes from part `from` to the next one, as this stage has it. With one chunk its
 * number is the same at all cuts: each has stages of its own on its sides. */
static kolo_crossing crossing_of(const stager *s, int32_t v, int from) {
    const int cut = s->parts->chunks > 1 ? from : 0, other = from == s->part ? from + 1 : from;
    return (kolo_crossing){
        .number = cut * s->n_values + v + 1,
        .wants = has_gradient(s, v),
        .half = s->g->values[v].half,
        .chunk = s->chunk,
        .peer = stage_of(s, other),
    };
}

/* Values of earlier parts that this one or later ones read: inputs. */
static kolo_status add_received(stager *s) {
    kolo_graph *g = s->g;
    for (int32_t v = 0; v < s->n_values; v++) {
        const kolo_value_info info = g->values[v];
        s->now[v] = (kolo_value){.id = v};
        if (info.kind != KOLO_VALUE_TEMP || info.producer < 0) continue;
        if (part_of_value(s, v) >= s->part || s->last[v] < s->part) continue;
        const kolo_crossing crossing = crossing_of(s, v, s->part - 1);
        char name[KOLO_CROSSING_NAME];
        kolo_value leaf = kolo_input(g, kolo_crossing_name("activations", crossing.number, name),
                                     info.tensor.dtype, info.tensor.shape);
        KOLO_TRY(kolo_graph_check(g));
        kolo_info(g, leaf)->tensor.dtype = info.tensor.dtype;
        kolo_info(g, leaf)->placements = info.placements;
        kolo_info(g, leaf)->crossing = crossing;
        s->now[v] = leaf;
    }
    return KOLO_OK;
}

/* Values that later parts read: outputs. */
static kolo_status add_sent(stager *s) {
    kolo_graph *g = s->g;
    for (int32_t v = 0; v < s->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_TEMP || info->producer < 0) continue;
        if (part_of_value(s, v) > s->part || s->last[v] <= s->part) continue;
        const kolo_crossing crossing = crossing_of(s, v, s->part);
        char name[KOLO_CROSSING_NAME];
        kolo_output(g, kolo_crossing_name("to the next stage", crossing.number, name), s->now[v]);
        KOLO_TRY(kolo_graph_check(g));
        g->outputs[g->n_outputs - 1].crossing = crossing;
    }
    return KOLO_OK;
}

/* Appends the nodes of the part. */
static kolo_status keep_part(stager *s, kolo_node **order, int32_t *n) {
    kolo_graph *g = s->g;
    KOLO_TRY(add_received(s));
    KOLO_TRY(add_sent(s));
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *node = g->nodes[i];
        if (s->c->part_of[i] != s->part) continue;
        for (int k = 0; k < node->n_in; k++) node->in[k] = s->now[node->in[k].id];
        order[(*n)++] = node;
    }
    return KOLO_OK;
}

/* ---- parameters that several parts read ---- */

/* The parts that read v, a bit each. */
static uint64_t parts_reading(const stager *s, int32_t v) {
    uint64_t parts = 0;
    for (int32_t i = 0; i < s->n_nodes; i++) {
        const kolo_node *n = s->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].id == v) parts |= UINT64_C(1) << s->c->part_of[i];
        }
    }
    return parts;
}

/* The first part of a set from `from` on; -1: none. */
static int next_of(const stager *s, uint64_t parts, int from) {
    for (int part = from; part < s->c->n_parts; part++) {
        if (parts >> part & 1) return part;
    }
    return -1;
}

/* Whether messages pass between a part and the next one: a gradient leaves with these. */
static bool is_cut_behind(const stager *s, int part) {
    return part >= 0 && part + 1 < s->c->n_parts && stage_of(s, part) != stage_of(s, part + 1);
}

/* UNSUPPORTED, on all stages alike: the first stage that has the parameter does not have the first
 * part that reads it, or a gradient would have to pass where no other message does. */
static kolo_status check_tied(const stager *s, int32_t v, uint64_t readers) {
    const int first = next_of(s, readers, 0);
    for (int a = first, b = next_of(s, readers, a + 1); b >= 0; b = next_of(s, readers, b + 1)) {
        const bool passes =
            stage_of(s, a) == stage_of(s, b) || (is_cut_behind(s, a) && is_cut_behind(s, b - 1));
        if (!passes || stage_of(s, b) < stage_of(s, first)) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                             "parts %d and %d of the pipeline read %s, and --reproducible adds up "
                             "its gradients in each logical shard: use a schedule with one chunk "
                             "for each stage, such as 1f1b",
                             a + 1, b + 1, s->g->values[v].name);
        }
        a = b;
    }
    return KOLO_OK;
}

/* What a part reads in place of parameter v where an earlier part of this stage reads it: a view,
 * which has a gradient of its own. */
static kolo_value view_for(const stager *s, kolo_value v, int part, kolo_node **order, int32_t *n) {
    kolo_graph *g = s->g;
    const kolo_value view = kolo_reshape(g, v, kolo_value_shape(g, v));
    kolo_redistribution *same = kolo_arena_alloc(&g->arena, sizeof *same);
    if (!same) kolo_graph_set_failed(g, KOLO_NOMEM(sizeof *same));
    if (!same || !kolo_value_ok(view)) return KOLO_NONE;
    kolo_node *node = g->nodes[kolo_info(g, view)->producer];
    same->from = same->to = kolo_info(g, v)->placements;
    kolo_info(g, view)->placements = same->to;
    node->move = same;
    memmove((void *)(order + 1), (void *)order, (size_t)(*n)++ * sizeof *order);
    order[0] = node;
    for (int32_t i = 0; i < s->n_nodes; i++) {
        for (int k = 0; s->c->part_of[i] == part && k < g->nodes[i]->n_in; k++) {
            if (g->nodes[i]->in[k].id == v.id) g->nodes[i]->in[k] = view;
        }
    }
    return view;
}

/* The message with the gradient of v from a part, the `number`th that reads it, to the one before
 * that does, as this stage has it. */
static kolo_crossing tied_crossing(const stager *s, int32_t v, int number, int own, int other) {
    kolo_crossing crossing = {
        .number = number * s->n_values + v + 1, .wants = true, .peer = stage_of(s, other)};
    (void)kolo_parts_stage(s->parts, own, &crossing.chunk);
    return crossing;
}

static kolo_status tie_parameter(const stager *s, int32_t v, kolo_node **order, int32_t *n) {
    kolo_graph *g = s->g;
    const uint64_t readers = parts_reading(s, v);
    bool has_view = false;
    int number = 0;
    KOLO_TRY(check_tied(s, v, readers));
    for (int before = -1, part = next_of(s, readers, 0); part >= 0; number++) {
        const int next = next_of(s, readers, part + 1);
        if (stage_of(s, part) == g->stage && (before >= 0 || next >= 0)) {
            kolo_value leaf = {.id = v};
            if (has_view) leaf = view_for(s, leaf, part, order, n);
            has_view = true;
            KOLO_TRY(kolo_graph_check(g));
            if (before >= 0) kolo_info(g, leaf)->tied = tied_crossing(s, v, number, part, before);
            if (next >= 0) {
                const kolo_crossing crossing = tied_crossing(s, v, number + 1, part, next);
                char name[KOLO_CROSSING_NAME];
                kolo_output(g, kolo_crossing_name("to a later part", crossing.number, name), leaf);
                KOLO_TRY(kolo_graph_check(g));
                g->outputs[g->n_outputs - 1].crossing = crossing;
            }
        }
        before = part;
        part = next;
    }
    return KOLO_OK;
}

/* The gradient of a parameter of several parts goes back from each to the one before that reads it,
 * in each micro-batch: they add up as on one rank. */
static kolo_status tie(const stager *s, kolo_node **order, int32_t *n) {
    for (int32_t v = 0; v < s->n_values; v++) {
        if (is_trained(s, v)) KOLO_TRY(tie_parameter(s, v, order, n));
    }
    return KOLO_OK;
}

static kolo_status keep_own(stager *s) {
    kolo_graph *g = s->g;
    const size_t most = (size_t)g->n_nodes + (size_t)g->n_values + 1;
    kolo_node **order = kolo_alloc(most * sizeof *order);
    int32_t n = 0, kept = 0;
    if (!order) return KOLO_NOMEM(most * sizeof *order);
    for (int32_t i = 0; i < g->n_outputs; i++) {
        int32_t producer = kolo_info(g, g->outputs[i].value)->producer;
        const int stage = producer < 0 ? 0 : stage_of(s, s->c->part_of[producer]);
        if (stage == g->stage) g->outputs[kept++] = g->outputs[i];
    }
    g->n_outputs = kept;
    kolo_status status = KOLO_OK;
    for (s->chunk = 0; status == KOLO_OK && s->chunk < s->parts->chunks; s->chunk++) {
        s->part = kolo_parts_at(s->parts, g->stage, s->chunk);
        status = keep_part(s, order, &n);
    }
    if (status == KOLO_OK && s->ties) status = tie(s, order, &n);
    if (status == KOLO_OK) status = kolo_graph_set_nodes(g, order, n);
    kolo_free((void *)order);
    return status;
}

static kolo_status keep_stage(kolo_graph *g, cutter *c, const kolo_parts *parts, bool ties) {
    const size_t n = (size_t)g->n_values + 1;
    stager s = {.g = g,
                .c = c,
                .parts = parts,
                .n_values = g->n_values,
                .n_nodes = g->n_nodes,
                .ties = ties};
    s.trained = kolo_arena_alloc(&c->arena, n);
    s.useful = kolo_arena_alloc(&c->arena, n);
    s.last = kolo_arena_alloc(&c->arena, n * sizeof *s.last);
    s.now = kolo_arena_alloc(&c->arena, n * sizeof *s.now);
    if (!s.trained || !s.useful || !s.last || !s.now) return KOLO_NOMEM(n * sizeof *s.now);
    find_paths(&s);
    find_holders(&s);
    return keep_own(&s);
}

kolo_status kolo_pass_stages(kolo_graph *g, const kolo_mesh *mesh, int rank,
                             const kolo_parts *parts, const kolo_stage_cuts *cuts, bool ties) {
    cutter c = {.g = g, .n_parts = parts->stages * parts->chunks};
    g->mesh = *mesh;
    g->rank = rank;
    g->stages = parts->stages;
    g->chunks = parts->chunks;
    g->n_whole = g->n_values;
    g->stage = kolo_mesh_coordinate(mesh, rank, kolo_mesh_find(mesh, "pp"));
    const size_t n = (size_t)g->n_nodes + 1;
    c.begins = kolo_arena_alloc(&c.arena, n * sizeof *c.begins);
    c.part_of = kolo_arena_alloc(&c.arena, n * sizeof *c.part_of);
    kolo_status status =
        c.begins && c.part_of ? kolo_find_units(g, c.begins) : KOLO_NOMEM(n * sizeof *c.begins);
    if (status == KOLO_OK) status = assign(&c, cuts);
    if (status == KOLO_OK) status = keep_stage(g, &c, parts, ties);
    kolo_arena_fini(&c.arena);
    return status;
}
