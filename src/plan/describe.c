/* Describes the steps of a plan, for profiles and traces.
 *
 * The phase of a node follows from the graph: nodes that depend on the gradient's seed are
 * backward, also by way of what ranks exchange inside the passes; updates are update. All others
 * are forward if a forward node or an output reads them, else they belong to the phase of their
 * first reader. */
#include "graph/ops/ops.h"
#include "kernel/select/families.h"
#include "pass/gradient_sums.h"
#include "plan/transfers.h"

#include <string.h>

const char *kolo_phase_name(kolo_phase phase) {
    static const char *const names[KOLO_PHASES] = {
        [KOLO_PHASE_INPUT] = "input",       [KOLO_PHASE_FORWARD] = "forward",
        [KOLO_PHASE_BACKWARD] = "backward", [KOLO_PHASE_SYNCHRONIZE] = "synchronize",
        [KOLO_PHASE_UPDATE] = "update",
    };
    return names[phase];
}

#define NAME(code, name, help) [code] = name,
#define HELP(code, name, help) [code] = help,
const char *kolo_time_name(kolo_time time) {
    static const char *const names[KOLO_TIMES] = {KOLO_TIME_LIST(NAME)};
    return (size_t)time < KOLO_TIMES ? names[time] : "unknown";
}

const char *kolo_time_help(kolo_time time) {
    static const char *const texts[KOLO_TIMES] = {KOLO_TIME_LIST(HELP)};
    return (size_t)time < KOLO_TIMES ? texts[time] : "unknown";
}

static const kolo_phase no_reader = (kolo_phase)KOLO_PHASES; /* after all phases */

/* The seed of the gradient; KOLO_NONE in evaluation plans. */
static kolo_value seed_of(const kolo_graph *g) { return kolo_graph_find(g, "grad_scale"); }

/* Whether a node hands on activations or their gradients, one for each of its inputs: the passes go
 * on behind it. */
static bool is_inside(const kolo_node *n) {
    if (n->op->comm == KOLO_OP_SLICE) return true;
    return (n->op->comm == KOLO_OP_POST || n->op->comm == KOLO_OP_WAIT) &&
           n->attr[KOLO_COMM_INSIDE].i != 0;
}

/* The phase of each node. of_value: by value, allocated by the caller. */
static void find_phases(const kolo_graph *g, kolo_phase *phases, kolo_phase *of_value) {
    kolo_value seed = seed_of(g);
    for (int32_t v = 0; v < g->n_values; v++) {
        of_value[v] = g->values[v].crossing.gradient ? KOLO_PHASE_BACKWARD : KOLO_PHASE_FORWARD;
    }
    if (kolo_value_ok(seed)) of_value[seed.id] = KOLO_PHASE_BACKWARD;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        kolo_phase phase = KOLO_PHASE_FORWARD;
        for (int k = 0; k < n->n_in; k++) {
            kolo_phase in = of_value[n->in[k].id];
            if (in != KOLO_PHASE_FORWARD) phase = in;
        }
        if (kolo_node_is_update(g, n)) phase = KOLO_PHASE_UPDATE;
        bool is_comm = n->op->comm != KOLO_OP_LOCAL;
        phases[i] = is_comm ? KOLO_PHASE_SYNCHRONIZE : phase;
        for (int k = 0; k < n->n_out; k++) {
            if (!is_comm) of_value[n->out[k].id] = phase;
            if (is_inside(n)) of_value[n->out[k].id] = of_value[n->in[k].id];
        }
    }
    /* Backwards: the earliest phase that reads each value. */
    for (int32_t v = 0; v < g->n_values; v++) of_value[v] = no_reader;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        of_value[g->outputs[i].value.id] = KOLO_PHASE_FORWARD;
    }
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        const kolo_node *n = g->nodes[i];
        kolo_phase readers = no_reader;
        for (int k = 0; k < n->n_out; k++) {
            if (of_value[n->out[k].id] < readers) readers = of_value[n->out[k].id];
        }
        bool moves = phases[i] == KOLO_PHASE_FORWARD && readers < no_reader;
        if (moves && readers > KOLO_PHASE_FORWARD) phases[i] = readers;
        bool is_comm = phases[i] == KOLO_PHASE_SYNCHRONIZE; /* output k is input k */
        for (int k = 0; k < n->n_in; k++) {
            kolo_phase *in = &of_value[n->in[k].id];
            kolo_phase reader = is_comm && k < n->n_out ? of_value[n->out[k].id] : phases[i];
            if (reader < *in) *in = reader;
        }
    }
}

/* The first parameter that a node reads or whose gradient it computes. */
static const char *parameter_of(const kolo_graph *g, const kolo_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        const kolo_value_info *in = kolo_info(g, n->in[k]);
        if (in->kind == KOLO_VALUE_PARAM) return in->name;
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        for (int k = 0; k < n->n_out && g->values[v].kind == KOLO_VALUE_PARAM; k++) {
            if (g->values[v].grad.id == n->out[k].id) return g->values[v].name;
        }
    }
    return NULL;
}

static kolo_step_info describe(const kolo_plan *p, const kolo_step *step) {
    const kolo_node *n = p->graph->nodes[step->node];
    const kolo_lane_trial *trial = kolo_plan_trial(p, step);
    const bool lanes = trial && (trial->lanes || !trial->chosen);
    kolo_step_info info = {.kind = step->kind,
                           .phase = step->phase,
                           .once = step->once_per_step,
                           .bucket = step->bucket,
                           .region = lanes ? n->region : 0,
                           .lane = lanes ? step->lane : 0,
                           .op = n->op->name};
    int64_t first, count;
    if (step->kind != KOLO_STEP_KERNEL) return info;
    const kolo_kernel *kernel = step->kernel;
    info.range = kolo_flat_range(p->graph, n->out[0], &first, &count);
    info.kernel = kernel->name;
    info.implementation = kernel->implementation ? kernel->implementation(step->all.state) : "";
    info.slow = kolo_kernel_is_ref(kernel) || strncmp(info.implementation, "ref", 3) == 0;
    info.parameter = parameter_of(p->graph, n);
    info.out = kolo_info(p->graph, n->out[0])->tensor;
    info.cost = kolo_node_cost(p->graph, n);
    return info;
}

int kolo_plan_n_steps(const kolo_plan *p) { return p->n_steps; }
int kolo_plan_n_requests(const kolo_plan *p) { return p->requests ? p->map.n_buckets : 0; }

/* The first slot of the chunk that posts a bucket. */
static int slot_of(const kolo_plan *p, int bucket) {
    for (int i = 0; i < p->n_steps; i++) {
        const kolo_step *s = &p->steps[i];
        if (s->kind == KOLO_STEP_POST && s->bucket == bucket) return p->first_slot[s->chunk];
    }
    return 0;
}

kolo_request *kolo_plan_request(const kolo_plan *p, int bucket) {
    const int slot = slot_of(p, bucket);
    kolo_request *request = *kolo_plan_request_at(p, slot, bucket, p->ran_bank);
    const kolo_mesh_link *link = p->links[slot * p->map.n_buckets + bucket];
    return request || !link ? request : kolo_mesh_link_request(link, 0);
}

/* Bytes of tensors that a POST starts to sum over the samples; 0: none. */
static size_t summed_bytes(const kolo_plan *p, const kolo_step *step) {
    const kolo_node *n = p->graph->nodes[step->node];
    size_t bytes = 0;
    if (step->kind != KOLO_STEP_POST || !n->attr[KOLO_COMM_OF_SAMPLES].i ||
        n->attr[KOLO_COMM_COLLECTIVE].i != KOLO_COLLECTIVE_ALLREDUCE) {
        return 0;
    }
    for (int k = 0; k < n->n_in; k++) {
        const kolo_tensor *t = &kolo_info(p->graph, n->in[k])->tensor;
        if (t->shape.rank > 0) bytes += kolo_tensor_bytes(t);
    }
    return bytes;
}

const char *kolo_plan_gradient_name(const kolo_plan *p, int bucket) {
    for (int i = 0; i < p->n_steps; i++) {
        const kolo_step *step = &p->steps[i];
        if (summed_bytes(p, step) == 0 || step->bucket != bucket) continue;
        const kolo_node *n = p->graph->nodes[step->node];
        for (int k = 0; k < n->n_in; k++) {
            const int32_t param = kolo_parameter_of_gradient(p->graph, n->in[k]);
            if (param >= 0) return p->graph->values[param].name;
        }
    }
    return NULL;
}

int kolo_plan_list_gradients(const kolo_plan *p, kolo_ready_gradient *gradients) {
    int n = 0;
    for (int i = 0; i < p->n_steps && p->ready_ns; i++) {
        const size_t bytes = summed_bytes(p, &p->steps[i]);
        const int bucket = p->steps[i].bucket;
        if (bytes == 0) continue;
        gradients[bucket] = (kolo_ready_gradient){.ready_ms = (double)p->ready_ns[bucket] / 1e6,
                                                  .bytes = bytes,
                                                  .needed_ms = (double)p->needed_ns[bucket] / 1e6};
        n = n > bucket + 1 ? n : bucket + 1;
    }
    return n;
}

kolo_status kolo_plan_set_phases(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    kolo_phase *phases = kolo_alloc(((size_t)g->n_nodes + 1) * sizeof *phases);
    kolo_phase *of_value = kolo_alloc(((size_t)g->n_values + 1) * sizeof *of_value);
    kolo_status status = KOLO_OK;
    if (!phases || !of_value) {
        status = KOLO_NOMEM((size_t)(g->n_nodes + g->n_values) * sizeof *phases);
    } else {
        find_phases(g, phases, of_value);
        for (int i = 0; i < p->n_steps; i++) p->steps[i].phase = phases[p->steps[i].node];
    }
    kolo_free(phases);
    kolo_free(of_value);
    return status;
}

void kolo_plan_describe(const kolo_plan *p, kolo_step_info *infos) {
    for (int i = 0; i < p->n_steps; i++) infos[i] = describe(p, &p->steps[i]);
}

kolo_plan_lanes kolo_plan_lanes_of(const kolo_plan *p) {
    kolo_plan_lanes l = {0};
    for (int i = 0; i < p->n_steps; i++) {
        if (p->steps[i].region_end != i + 1) continue;
        const kolo_lane_trial *trial = kolo_plan_trial(p, &p->steps[i]);
        l.regions++;
        l.chosen += trial->lanes;
        l.undecided += !trial->chosen;
        l.ms += trial->ns[0] / 1e6;
        if (trial->lanes) l.saved_ms += (trial->ns[0] - trial->ns[1]) / 1e6;
    }
    return l;
}

void kolo_plan_repeat(const kolo_plan *p, int step) {
    const kolo_step *s = &p->steps[step];
    const bool any = p->chunks == 1 || s->segment == KOLO_SEGMENT_UPDATE;
    const int slot = any ? p->slot : p->first_slot[s->chunk];
    if (s->kind == KOLO_STEP_KERNEL) kolo_plan_launch(p, s, &s->all.calls[2 * slot + p->ran_bank]);
    (void)kolo_regions_wait(p->store->regions);
}

size_t kolo_plan_apart_bytes(const kolo_plan *p) {
    if (p->own_bytes == 0) return 0;
    return p->own_bytes + (p->comm ? p->map.bucket_bytes : 0);
}

kolo_plan_memory kolo_plan_memory_of(const kolo_plan *p) {
    return (kolo_plan_memory){
        .arena = p->values_bytes + kolo_plan_slot_offset(p, p->slots),
        .scratch = p->scratch_bytes,
        .gradients = p->map.bucket_bytes + (size_t)p->slots * p->map.model_bytes + p->link_bytes +
                     (p->sum ? (size_t)p->sum->most * p->sum->bytes : 0),
        .store = p->store->single_bytes + 2 * (p->store->bytes + p->store->joined_bytes),
        .shared = p->store->shares ? 2 * p->store->joined_bytes : 0,
    };
}
