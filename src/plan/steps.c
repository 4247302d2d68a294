/* The steps of a plan: selects and prepares the kernel of each node. Views need no step; without a
 * communicator, POST and WAIT need none either. */
#include "base/integer.h"
#include "kernel/select/cache.h"
#include "pass/lanes.h"
#include "plan/internal.h"

/* Prepares the kernel for its spec; *scratch: the most bytes so far. */
static kolo_status prepare(const kolo_kernel *kernel, kolo_prepared *prepared, size_t *scratch) {
    size_t bytes = 0;
    if (kernel->prepare) KOLO_TRY(kernel->prepare(&prepared->spec, &prepared->state, &bytes));
    bytes = kolo_round_up(bytes, 64);
    if (bytes > *scratch) *scratch = bytes;
    return KOLO_OK;
}

static kolo_status add_kernel(kolo_plan *p, int32_t node, const kolo_plan_opts *opts,
                              kolo_selections *selections) {
    kolo_step *step = &p->steps[p->n_steps++];
    *step = (kolo_step){.kind = KOLO_STEP_KERNEL, .node = node, .bucket = -1};
    kolo_kernel_spec_init(&step->all.spec, p->graph, p->graph->nodes[node], opts->threads);
    KOLO_TRY(kolo_kernel_select_cached(selections, opts->kernels, opts->tuner, &step->all.spec,
                                       &step->kernel, NULL));
    KOLO_TRY(prepare(step->kernel, &step->all, &p->scratch_bytes));
    if (p->graph->nodes[node]->region == 0) return KOLO_OK;
    step->alone = kolo_zalloc(sizeof *step->alone);
    if (!step->alone) return KOLO_NOMEM(sizeof *step->alone);
    step->alone->spec = step->all.spec;
    step->alone->spec.threads = 1; /* of the kernel that is selected for all threads */
    return prepare(step->kernel, step->alone, &p->lane_scratch_bytes);
}

static void release(const kolo_kernel *kernel, const kolo_prepared *prepared) {
    if (kernel && kernel->release && prepared->state) kernel->release(prepared->state);
}

void kolo_plan_free_steps(kolo_plan *p) {
    for (int i = 0; i < p->n_steps; i++) {
        kolo_step *step = &p->steps[i];
        kolo_plan_unbind(p, step);
        release(step->kernel, &step->all);
        if (!step->alone) continue;
        release(step->kernel, step->alone);
        kolo_free(step->alone->calls);
        kolo_free(step->alone);
    }
    kolo_free(p->steps);
    kolo_free(p->calls);
    kolo_free(p->trials);
}

/* The trials of the regions. */
static kolo_status add_trials(kolo_plan *p, const kolo_plan_opts *opts) {
    for (int i = 0; i < p->n_steps; i++) {
        const int region = p->graph->nodes[p->steps[i].node]->region;
        if (region > p->n_regions) p->n_regions = region;
    }
    const size_t bytes = ((size_t)p->n_regions + 1) * sizeof *p->trials;
    p->trials = kolo_zalloc(bytes);
    if (!p->trials) return KOLO_NOMEM(bytes);
    for (int i = 0; i < p->n_regions; i++) {
        p->trials[i] =
            opts->lanes == KOLO_LANES_ALL ? kolo_lane_trial_forced() : kolo_lane_trial_of(i + 1);
    }
    return KOLO_OK;
}

/* The lanes of the steps, and where their regions end. */
static kolo_status mark_lanes(kolo_plan *p, const kolo_plan_opts *opts) {
    for (int i = p->n_steps - 1, end = 0; i >= 0; i--) {
        const kolo_node *n = p->graph->nodes[p->steps[i].node];
        const bool last =
            i + 1 == p->n_steps || p->graph->nodes[p->steps[i + 1].node]->region != n->region;
        if (n->region == 0) continue;
        if (last) end = i + 1;
        p->steps[i].lane = n->lane;
        p->steps[i].region_end = end;
    }
    const size_t lanes = (size_t)kolo_min_i64(opts->threads, KOLO_LANES_MOST);
    const size_t scratch = lanes * p->lane_scratch_bytes;
    if (scratch > p->scratch_bytes) p->scratch_bytes = scratch;
    return add_trials(p, opts);
}

static void mark_once_per_step(kolo_plan *p, bool *once) {
    for (int32_t i = 0, s = 0; i < p->graph->n_nodes; i++) {
        once[i] = kolo_node_is_once_per_step(p->graph, i, once);
        if (s < p->n_steps && p->steps[s].node == i) p->steps[s++].once_per_step = once[i];
    }
}

/* Whether a POST or WAIT is a step. A plan that adds to another one takes part in the sums inside
 * the passes, by the requests of the other. */
static bool communicates(const kolo_plan *p, const kolo_node *n, const kolo_plan_opts *opts) {
    if (p->comm || opts->shards > 0 || (opts->posts && n->op->comm == KOLO_OP_POST)) return true;
    return n->attr[KOLO_COMM_INSIDE].i && p->adds_to && p->adds_to->comm;
}

static bool is_wait(const kolo_graph *g, kolo_value v) {
    int32_t producer = kolo_info(g, v)->producer;
    return producer >= 0 && g->nodes[producer]->op->comm == KOLO_OP_WAIT;
}

/* Whether v arrives from ranks that have the same samples, and is of these. */
static bool is_of_same_samples(const kolo_plan *p, kolo_value v) {
    const kolo_graph *g = p->graph;
    if (!is_wait(g, v)) return false;
    const kolo_node *wait = g->nodes[kolo_info(g, v)->producer];
    const kolo_node *post = g->nodes[kolo_info(g, wait->in[0])->producer];
    if (!p->map.buckets[post->attr[KOLO_COMM_BUCKET].i].of_model) return false;
    for (int k = 0; k < wait->n_out; k++) {
        if (wait->out[k].id != v.id) continue;
        const int32_t maker = kolo_info(g, post->in[k])->producer;
        return maker < 0 || !p->shared[maker];
    }
    return false;
}

/* Whether node i of the passes runs in micro-batches without samples too: their collectives, and
 * what depends on nothing but these, parameters and scalars. p->shared has the result for earlier
 * nodes. */
static bool is_shared(const kolo_plan *p, int32_t i) {
    const kolo_graph *g = p->graph;
    const kolo_node *n = g->nodes[i];
    if (n->op->comm == KOLO_OP_POST || n->op->comm == KOLO_OP_WAIT) {
        return n->attr[KOLO_COMM_INSIDE].i != 0;
    }
    if (n->op == &kolo_op_accumulate && !is_wait(g, n->in[0])) return false;
    for (int k = 0; k < n->n_in; k++) {
        const kolo_value_info *in = kolo_info(g, n->in[k]);
        if (in->kind == KOLO_VALUE_INPUT) return false;
        if (in->producer >= 0 && !p->shared[in->producer]) return false;
        if (is_of_same_samples(p, n->in[k])) return false;
    }
    return !kolo_node_is_update(g, n);
}

static kolo_status mark_shared(kolo_plan *p) {
    bool any = false;
    p->shared = kolo_zalloc((size_t)p->graph->n_nodes + 1);
    if (!p->shared) return KOLO_NOMEM(p->graph->n_nodes);
    for (int32_t i = 0; i < p->graph->n_nodes; i++) {
        p->shared[i] = is_shared(p, i);
        any |= p->shared[i] && p->graph->nodes[i]->op->comm == KOLO_OP_POST;
    }
    for (int i = 0; i < p->n_steps; i++) {
        p->steps[i].inside = any && p->shared[p->steps[i].node] && !p->steps[i].once_per_step;
    }
    return KOLO_OK;
}

/* Which kernels complete a part of the gradients of a logical shard: on a stage of a pipeline,
 * whose passes of one shard run at different times. POSTs complete whole buckets. */
static kolo_status mark_folds(kolo_plan *p, int32_t *step_of) {
    const kolo_graph *g = p->graph;
    for (int i = 0; i < p->n_steps; i++) step_of[p->steps[i].node] = i;
    for (int i = 0; i < p->n_steps; i++) {
        const kolo_node *post = g->nodes[p->steps[i].node];
        if (post->op->comm != KOLO_OP_POST || !post->attr[KOLO_COMM_OF_SAMPLES].i) continue;
        for (int k = 0; k < post->n_in; k++) {
            const int32_t made = kolo_info(g, post->in[k])->producer;
            if (made < 0 || g->nodes[made]->op != &kolo_op_accumulate) {
                return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                                 "stage %d of the pipeline sums what several of its passes "
                                 "compute, which cannot be summed over logical shards: omit "
                                 "--reproducible, or use other stages",
                                 g->stage);
            }
            p->steps[step_of[made]].folds = true;
        }
    }
    return KOLO_OK;
}

static kolo_status find_folds(kolo_plan *p) {
    const size_t bytes = ((size_t)p->graph->n_nodes + 1) * sizeof(int32_t);
    int32_t *step_of = kolo_zalloc(bytes);
    kolo_status status = step_of ? mark_folds(p, step_of) : KOLO_NOMEM(bytes);
    kolo_free(step_of);
    return status;
}

/* Whether a node computes nothing: this rank has an empty range of a parameter. */
static bool is_empty(const kolo_graph *g, const kolo_node *n) {
    return kolo_shape_count(&kolo_info(g, n->out[0])->tensor.shape) == 0;
}

/* The calls of all steps, once their number is known. */
static kolo_status make_calls(kolo_plan *p) {
    const size_t each = 2 * (size_t)p->slots, n = ((size_t)p->n_steps + 1) * each;
    p->calls = kolo_zalloc(n * sizeof *p->calls);
    if (!p->calls) return KOLO_NOMEM(n * sizeof *p->calls);
    for (int i = 0; i < p->n_steps; i++) {
        kolo_step *step = &p->steps[i];
        step->all.calls = p->calls + (size_t)i * each;
        step->segment = p->graph->nodes[step->node]->segment;
        step->chunk = p->graph->nodes[step->node]->chunk;
        if (!step->alone) continue;
        step->alone->calls = kolo_zalloc(each * sizeof *step->alone->calls);
        if (!step->alone->calls) return KOLO_NOMEM(each * sizeof *step->alone->calls);
    }
    return KOLO_OK;
}

kolo_status kolo_plan_add_steps(kolo_plan *p, const kolo_plan_opts *opts,
                                struct kolo_selections *selections) {
    const kolo_graph *g = p->graph;
    p->steps = kolo_zalloc(((size_t)g->n_nodes + 1) * sizeof *p->steps);
    if (!p->steps) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *p->steps);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool comm = n->op->comm == KOLO_OP_POST || n->op->comm == KOLO_OP_WAIT;
        if (comm && communicates(p, n, opts)) {
            p->steps[p->n_steps++] = (kolo_step){
                .kind = n->op->comm == KOLO_OP_POST ? KOLO_STEP_POST : KOLO_STEP_WAIT,
                .node = i,
                .bucket = (int)n->attr[KOLO_COMM_BUCKET].i,
            };
        } else if (!n->op->view && !is_empty(p->graph, n)) {
            kolo_status status = add_kernel(p, i, opts, selections);
            if (status != KOLO_OK) return status;
        }
    }
    KOLO_TRY(mark_lanes(p, opts));
    KOLO_TRY(make_calls(p));
    bool *once = kolo_alloc((size_t)g->n_nodes + 1);
    if (!once) return KOLO_NOMEM(g->n_nodes);
    mark_once_per_step(p, once);
    kolo_free(once);
    if (opts->shards > 0 && kolo_mesh_stages(&opts->mesh) > 1) KOLO_TRY(find_folds(p));
    return mark_shared(p);
}
