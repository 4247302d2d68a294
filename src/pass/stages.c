/* Stages of a pipeline: cuts a graph along its topological order, and keeps one part.
 *
 * A stage begins at a node that is the first to read some parameter; its name identifies the cut in
 * all plans of a model, whatever the batch and whether they train. Cuts are chosen by dynamic
 * programming: the slowest stage, with what it sends and receives, is as fast as can be. Times are
 * estimates from the nodes' costs, the same on all ranks.
 *
 * What crosses a cut:
 *
 *     values of nodes              sent to the next stage, which passes on what later ones read
 *     inputs, scalars              every stage has them
 *     parameters of several stages held by all of these; their gradients are summed once per step
 *
 * The gradient pass adds what comes back: a leaf for the gradient of each value that is sent, and
 * an output for that of each value that is received (gradient.c). */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* For the comparison of nodes: operations and bytes per nanosecond, in memory and between stages.
 */
static const double flops_per_ns = 20, bytes_per_ns = 8, sent_per_ns = 2;

int kolo_mesh_stages(const kolo_mesh *mesh) {
    int axis = kolo_mesh_find(mesh, "pp");
    return axis < 0 ? 1 : mesh->axes[axis].size;
}

const char *kolo_crossing_name(const char *what, int number, char text[KOLO_CROSSING_NAME]) {
    snprintf(text, KOLO_CROSSING_NAME, "%s %d", what, number);
    return text;
}

/* ---- where to cut ---- */

typedef struct cutter {
    const kolo_graph *g;
    int stages;
    const char **begins; /* by node: the parameter that it is the first to read, or NULL */
    double *time;        /* by node: of all nodes before it */
    double *sent;        /* by node: of what would cross a cut before it */
    int *stage_of;       /* by node */
    kolo_arena arena;
} cutter;

static bool is_temp(const kolo_graph *g, kolo_value v) {
    return kolo_info(g, v)->kind == KOLO_VALUE_TEMP;
}

static kolo_status find_begins(cutter *c) {
    const kolo_graph *g = c->g;
    bool *seen = kolo_arena_alloc(&c->arena, (size_t)g->n_values + 1);
    if (!seen) return KOLO_NOMEM(g->n_values);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const kolo_value v = g->nodes[i]->in[k];
            if (kolo_info(g, v)->kind != KOLO_VALUE_PARAM || seen[v.id]) continue;
            if (!c->begins[i]) c->begins[i] = kolo_info(g, v)->name;
            seen[v.id] = true;
        }
    }
    return KOLO_OK;
}

static void estimate(cutter *c) {
    const kolo_graph *g = c->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        const kolo_cost cost = kolo_node_cost(g, n);
        const double flops = cost.flops / flops_per_ns, bytes = cost.bytes / bytes_per_ns;
        c->time[i + 1] = c->time[i] + (n->op->view ? 0 : flops > bytes ? flops : bytes);
    }
}

/* The bytes of the values that are made before a node and read from it on. */
static kolo_status find_sent(cutter *c) {
    const kolo_graph *g = c->g;
    int32_t *last = kolo_arena_alloc(&c->arena, ((size_t)g->n_values + 1) * sizeof *last);
    if (!last) return KOLO_NOMEM((size_t)g->n_values * sizeof *last);
    for (int32_t v = 0; v < g->n_values; v++) last[v] = -1;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) last[g->nodes[i]->in[k].id] = i;
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        if (!is_temp(g, (kolo_value){.id = v})) continue;
        const double bytes = (double)kolo_tensor_bytes(&g->values[v].tensor);
        for (int32_t i = g->values[v].producer + 1; i <= last[v]; i++) {
            c->sent[i] += bytes / sent_per_ns;
        }
    }
    return KOLO_OK;
}

static double stage_time(const cutter *c, int32_t first, int32_t end) {
    return c->time[end] - c->time[first] + c->sent[first] + c->sent[end];
}

/* The cuts: starts[k] is the first node of stage k. best[k][i]: the slowest of the stages 0 to k if
 * these are the nodes before i. */
static kolo_status choose(cutter *c, int32_t *starts) {
    const size_t n = (size_t)c->g->n_nodes + 1, stages = (size_t)c->stages;
    double *best = kolo_arena_alloc(&c->arena, stages * n * sizeof *best);
    int32_t *from = kolo_arena_alloc(&c->arena, stages * n * sizeof *from);
    if (!best || !from) return KOLO_NOMEM(stages * n * sizeof *best);
    for (size_t k = 0; k < stages; k++) {
        for (size_t i = 0; i < n; i++) {
            best[k * n + i] = k == 0 ? stage_time(c, 0, (int32_t)i) : -1;
            for (size_t j = 1; k > 0 && j < i; j++) {
                const double before = best[(k - 1) * n + j];
                if (!c->begins[j] || before < 0) continue;
                const double own = stage_time(c, (int32_t)j, (int32_t)i);
                const double slowest = own > before ? own : before;
                if (best[k * n + i] >= 0 && slowest >= best[k * n + i]) continue;
                best[k * n + i] = slowest;
                from[k * n + i] = (int32_t)j;
            }
        }
    }
    if (best[stages * n - 1] < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the model has too few layers with parameters for %d stages: choose a "
                         "smaller pp",
                         c->stages);
    }
    starts[0] = 0;
    for (int32_t k = c->stages - 1, end = c->g->n_nodes; k > 0; k--) {
        end = starts[k] = from[(size_t)k * n + (size_t)end];
    }
    return KOLO_OK;
}

static kolo_status prepare(cutter *c) {
    const size_t n = (size_t)c->g->n_nodes + 2;
    c->begins = kolo_arena_alloc(&c->arena, n * sizeof *c->begins);
    c->time = kolo_arena_alloc(&c->arena, n * sizeof *c->time);
    c->sent = kolo_arena_alloc(&c->arena, n * sizeof *c->sent);
    c->stage_of = kolo_arena_alloc(&c->arena, n * sizeof *c->stage_of);
    if (!c->begins || !c->time || !c->sent || !c->stage_of) {
        return KOLO_NOMEM(n * sizeof *c->begins);
    }
    KOLO_TRY(find_begins(c));
    estimate(c);
    return find_sent(c);
}

static kolo_status decide(cutter *c, kolo_stage_cuts *cuts, kolo_arena *names) {
    int32_t starts[KOLO_STAGES_MOST] = {0};
    const size_t bytes = (size_t)c->stages * sizeof *cuts->names;
    KOLO_TRY(choose(c, starts));
    const char **list = kolo_arena_alloc(names, bytes);
    if (!list) return KOLO_NOMEM(bytes);
    for (int k = 1; k < c->stages; k++) {
        list[k - 1] = kolo_arena_strdup(names, c->begins[starts[k]]);
        if (!list[k - 1]) return KOLO_NOMEM(64);
    }
    *cuts = (kolo_stage_cuts){c->stages - 1, list};
    return KOLO_OK;
}

/* A redistribution that moves nothing runs in the first stage that reads its result, so that its
 * input crosses the cut. first: by value, the first stage that reads it. */
static void follow_readers(cutter *c, int *first) {
    const kolo_graph *g = c->g;
    for (int32_t v = 0; v < g->n_values; v++) first[v] = c->stages;
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        const kolo_node *n = g->nodes[i];
        const bool local =
            n->op->comm == KOLO_OP_REDISTRIBUTE && kolo_redistribution_is_local(&g->mesh, n->move);
        if (local && first[n->out[0].id] < c->stages) c->stage_of[i] = first[n->out[0].id];
        for (int k = 0; k < n->n_in; k++) {
            int *of = &first[n->in[k].id];
            if (c->stage_of[i] < *of) *of = c->stage_of[i];
        }
    }
}

static kolo_status assign(cutter *c, const kolo_stage_cuts *cuts) {
    const size_t bytes = ((size_t)c->g->n_values + 1) * sizeof(int);
    int *first = kolo_arena_alloc(&c->arena, bytes);
    if (!first) return KOLO_NOMEM(bytes);
    int stage = 0;
    for (int32_t i = 0; i < c->g->n_nodes; i++) {
        bool begins =
            stage < cuts->n && c->begins[i] && strcmp(c->begins[i], cuts->names[stage]) == 0;
        stage += begins;
        c->stage_of[i] = stage;
    }
    if (stage < cuts->n) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "the graph of this batch has another order of parameters: stage %d of the "
                         "pipeline does not begin with %s",
                         stage + 1, cuts->names[stage]);
    }
    follow_readers(c, first);
    return KOLO_OK;
}

/* ---- one stage ---- */

typedef struct stager {
    kolo_graph *g;
    cutter *c;
    bool *trained;   /* by value: a parameter that is trained reaches it */
    bool *useful;    /* by value: it reaches the loss */
    int *last;       /* by value: the last stage that reads it, -1: none */
    kolo_value *now; /* by value: what this stage reads in its place */
    int32_t n_values;
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
            s->last[n->in[k].id] = s->c->stage_of[i];
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

/* Which stages have each parameter and state. One without a gradient is as a frozen one. */
static void find_holders(stager *s) {
    kolo_graph *g = s->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            kolo_value_info *leaf = kolo_info(g, g->nodes[i]->in[k]);
            bool kept = leaf->kind == KOLO_VALUE_PARAM || leaf->kind == KOLO_VALUE_STATE;
            if (kept) leaf->holders |= UINT64_C(1) << s->c->stage_of[i];
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

static int stage_of_value(const stager *s, int32_t v) {
    return s->c->stage_of[s->g->values[v].producer];
}

/* Whether a gradient comes back for a value that crosses a cut. */
static bool has_gradient(const stager *s, int32_t v) {
    const kolo_dtype dtype = s->g->values[v].tensor.dtype;
    return s->trained[v] && s->useful[v] && dtype != KOLO_DTYPE_I32 && dtype != KOLO_DTYPE_I64;
}

/* Values of earlier stages that this one or later ones read: inputs. */
static kolo_status add_received(stager *s) {
    kolo_graph *g = s->g;
    for (int32_t v = 0; v < s->n_values; v++) {
        const kolo_value_info info = g->values[v];
        if (info.kind != KOLO_VALUE_TEMP || info.producer < 0) continue;
        if (stage_of_value(s, v) >= g->stage || s->last[v] < g->stage) continue;
        char name[KOLO_CROSSING_NAME];
        kolo_value leaf = kolo_input(g, kolo_crossing_name("activations", v + 1, name),
                                     info.tensor.dtype, info.tensor.shape);
        KOLO_TRY(kolo_graph_check(g));
        kolo_info(g, leaf)->tensor.dtype = info.tensor.dtype;
        kolo_info(g, leaf)->placements = info.placements;
        kolo_info(g, leaf)->crossing = (kolo_crossing){v + 1, false, has_gradient(s, v)};
        s->now[v] = leaf;
    }
    return KOLO_OK;
}

/* Values that later stages read: outputs. */
static kolo_status add_sent(stager *s) {
    kolo_graph *g = s->g;
    for (int32_t v = 0; v < s->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_TEMP || info->producer < 0) continue;
        if (stage_of_value(s, v) > g->stage || s->last[v] <= g->stage) continue;
        char name[KOLO_CROSSING_NAME];
        kolo_output(g, kolo_crossing_name("to the next stage", v + 1, name), s->now[v]);
        KOLO_TRY(kolo_graph_check(g));
        g->outputs[g->n_outputs - 1].crossing = (kolo_crossing){v + 1, false, has_gradient(s, v)};
    }
    return KOLO_OK;
}

static kolo_status keep_own(stager *s) {
    kolo_graph *g = s->g;
    kolo_node **order = kolo_alloc(((size_t)g->n_nodes + 1) * sizeof *order);
    int32_t n = 0, kept = 0;
    if (!order) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *order);
    for (int32_t i = 0; i < g->n_outputs; i++) {
        int32_t producer = kolo_info(g, g->outputs[i].value)->producer;
        bool own = producer < 0 ? g->stage == 0 : s->c->stage_of[producer] == g->stage;
        if (own) g->outputs[kept++] = g->outputs[i];
    }
    g->n_outputs = kept;
    kolo_status status = add_received(s);
    if (status == KOLO_OK) status = add_sent(s);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *node = g->nodes[i];
        if (s->c->stage_of[i] != g->stage) continue;
        for (int k = 0; k < node->n_in; k++) node->in[k] = s->now[node->in[k].id];
        order[n++] = node;
    }
    if (status == KOLO_OK) status = kolo_graph_set_nodes(g, order, n);
    kolo_free((void *)order);
    return status;
}

static kolo_status keep_stage(kolo_graph *g, cutter *c) {
    const size_t n = (size_t)g->n_values + 1;
    stager s = {.g = g, .c = c, .n_values = g->n_values};
    s.trained = kolo_arena_alloc(&c->arena, n);
    s.useful = kolo_arena_alloc(&c->arena, n);
    s.last = kolo_arena_alloc(&c->arena, n * sizeof *s.last);
    s.now = kolo_arena_alloc(&c->arena, n * sizeof *s.now);
    if (!s.trained || !s.useful || !s.last || !s.now) return KOLO_NOMEM(n * sizeof *s.now);
    find_paths(&s);
    find_holders(&s);
    return keep_own(&s);
}

static kolo_status check_stages(int stages) {
    if (stages <= KOLO_STAGES_MOST) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "a pipeline has at most %d stages", KOLO_STAGES_MOST);
}

kolo_status kolo_pass_cuts(const kolo_graph *g, int stages, kolo_stage_cuts *cuts,
                           kolo_arena *names) {
    cutter c = {.g = g, .stages = stages};
    if (cuts->n > 0) return KOLO_OK;
    KOLO_TRY(check_stages(stages));
    kolo_status status = prepare(&c);
    if (status == KOLO_OK) status = decide(&c, cuts, names);
    kolo_arena_fini(&c.arena);
    return status;
}

kolo_status kolo_pass_stages(kolo_graph *g, const kolo_mesh *mesh, int rank,
                             const kolo_stage_cuts *cuts) {
    cutter c = {.g = g, .stages = kolo_mesh_stages(mesh)};
    g->mesh = *mesh;
    g->rank = rank;
    g->stages = c.stages;
    g->stage = kolo_mesh_coordinate(mesh, rank, kolo_mesh_find(mesh, "pp"));
    kolo_status status = prepare(&c);
    if (status == KOLO_OK) status = assign(&c, cuts);
    if (status == KOLO_OK) status = keep_stage(g, &c);
    kolo_arena_fini(&c.arena);
    return status;
}

kolo_status kolo_stages_print(const kolo_graph *g, int stages, kolo_text *text) {
    cutter c = {.g = g, .stages = stages};
    int32_t starts[KOLO_STAGES_MOST + 1] = {0};
    KOLO_TRY(check_stages(stages));
    kolo_status status = prepare(&c);
    if (status == KOLO_OK) status = choose(&c, starts);
    for (int k = 0; status == KOLO_OK && k < stages; k++) {
        const int32_t first = starts[k], end = k + 1 < stages ? starts[k + 1] : g->n_nodes;
        const char *name = first > 0 ? c.begins[first] : "the inputs";
        kolo_text_add(text, "part %d: from %s, %d nodes, %.1f %% of the time", k, name,
                      (int)(end - first), 100 * (c.time[end] - c.time[first]) / c.time[g->n_nodes]);
        if (k + 1 < stages) {
            kolo_text_add(text, ", sends %.0f bytes for each micro-batch",
                          c.sent[end] * sent_per_ns);
        }
        kolo_text_add(text, "\n");
    }
    kolo_arena_fini(&c.arena);
    return status;
}

/* ---- what is sent ---- */

/* Whether the memory of v is that of a collective, through views. */
static bool is_exchanged(const kolo_graph *g, kolo_value v) {
    for (;;) {
        const int32_t producer = kolo_info(g, v)->producer;
        if (producer < 0 || !g->nodes[producer]->op->view) return false;
        if (g->nodes[producer]->op->comm == KOLO_OP_WAIT) return true;
        v = g->nodes[producer]->in[0];
    }
}

/* What is sent is in memory of its own until it has gone: of a result of a collective, a copy. */
static kolo_status copy_exchanged(kolo_graph *g) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        kolo_value *v = &g->outputs[i].value;
        if (g->outputs[i].crossing.number == 0 || !is_exchanged(g, *v)) continue;
        const kolo_value_info info = *kolo_info(g, *v);
        const kolo_value copy = kolo_graph_add1(g, &kolo_op_reorder, v, 1, NULL);
        KOLO_TRY(kolo_graph_check(g));
        kolo_info(g, copy)->tensor = info.tensor;
        kolo_info(g, copy)->placements = info.placements;
        *v = copy;
    }
    return KOLO_OK;
}

/* ---- segments ---- */

bool kolo_node_is_once_per_step(const kolo_graph *g, int32_t i, const bool *once) {
    const kolo_node *n = g->nodes[i];
    bool posts = n->op->comm == KOLO_OP_POST && !n->attr[KOLO_COMM_INSIDE].i;
    bool is = posts || kolo_node_is_update(g, n);
    for (int k = 0; !is && k < n->n_in; k++) {
        const kolo_value_info *in = kolo_info(g, n->in[k]);
        is = in->versions > 0 || (in->producer >= 0 && once[in->producer]);
    }
    return is;
}

/* Forward, backward or update. */
static void mark_passes(const kolo_graph *g, bool *once) {
    const kolo_value seed = kolo_graph_find(g, "grad_scale");
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        once[i] = kolo_node_is_once_per_step(g, i, once);
        bool backward = n->recomputed;
        for (int k = 0; k < n->n_in; k++) {
            const kolo_value_info *in = kolo_info(g, n->in[k]);
            backward |= in->crossing.gradient || n->in[k].id == seed.id;
            backward |=
                in->producer >= 0 && g->nodes[in->producer]->segment == KOLO_SEGMENT_BACKWARD;
        }
        n->segment = once[i]    ? KOLO_SEGMENT_UPDATE
                     : backward ? KOLO_SEGMENT_BACKWARD
                                : KOLO_SEGMENT_FORWARD;
    }
}

/* What the gradients that are sent do not need, but for sums of what they do. awaited: by value. */
static void mark_weights(const kolo_graph *g, bool *awaited) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].crossing.gradient) awaited[g->outputs[i].value.id] = true;
    }
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        kolo_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->n_out; k++) any |= awaited[n->out[k].id];
        for (int k = 0; any && k < n->n_in; k++) awaited[n->in[k].id] = true;
        if (!any && n->segment == KOLO_SEGMENT_BACKWARD) n->segment = KOLO_SEGMENT_WEIGHTS;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        int32_t producer = n->op == &kolo_op_accumulate ? kolo_info(g, n->in[0])->producer : -1;
        if (producer >= 0) n->segment = g->nodes[producer]->segment;
    }
}

kolo_status kolo_pass_segments(kolo_graph *g, bool splits) {
    KOLO_TRY(copy_exchanged(g));
    const size_t n_nodes = (size_t)g->n_nodes + 1;
    kolo_arena arena = {0};
    bool *once = kolo_arena_alloc(&arena, n_nodes);
    bool *awaited = kolo_arena_alloc(&arena, (size_t)g->n_values + 1);
    kolo_node **order = kolo_arena_alloc(&arena, n_nodes * sizeof *order);
    kolo_status status = KOLO_OK;
    if (!once || !awaited || !order) {
        status = KOLO_NOMEM(n_nodes * sizeof *order);
    } else {
        int32_t n = 0;
        mark_passes(g, once);
        if (splits) mark_weights(g, awaited);
        for (kolo_step_segment s = KOLO_SEGMENT_FORWARD; s <= KOLO_SEGMENT_UPDATE; s++) {
            for (int32_t i = 0; i < g->n_nodes; i++) {
                if (g->nodes[i]->segment == s) order[n++] = g->nodes[i];
            }
        }
        status = kolo_graph_set_nodes(g, order, n);
    }
    kolo_arena_fini(&arena);
    return status;
}
