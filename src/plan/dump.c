/* The plan as text: memory, buckets, and steps with their kernels. */
#include "plan/internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- what is redistributed ---- */

/* The placements of a move on the axes whose groups communicate. */
static void add_move(const kolo_graph *g, const kolo_redistribution *move, kolo_axes axes,
                     kolo_text *text) {
    kolo_placements from = {0}, to = {0};
    char before[KOLO_PLACEMENT_TEXT], after[KOLO_PLACEMENT_TEXT];
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (!(axes >> a & 1)) continue;
        from.axis[a] = move->from.axis[a];
        to.axis[a] = move->to.axis[a];
    }
    kolo_text_add(text, "%s -> %s", kolo_placements_text(&g->mesh, &from, before),
                  kolo_placements_text(&g->mesh, &to, after));
}

static size_t bytes_of(const kolo_graph *g, const kolo_value *values, int n) {
    size_t bytes = 0;
    for (int k = 0; k < n; k++) bytes += kolo_tensor_bytes(&kolo_info(g, values[k])->tensor);
    return bytes;
}

/* From which placements to which a POST moves its values, and their bytes on this rank; where these
 * change, before and after. */
static void print_moves(const kolo_graph *g, const kolo_node *post, const kolo_node *wait,
                        kolo_text *text) {
    const kolo_axes axes = (kolo_axes)post->attr[KOLO_COMM_AXES].i;
    const size_t before = bytes_of(g, post->in, post->n_in),
                 after = bytes_of(g, wait->out, wait->n_out);
    kolo_text last = {0};
    if (axes == 0) { /* of this rank alone */
        if (kolo_mesh_size(&g->mesh) > 1) kolo_text_add(text, ": nothing moves");
        return;
    }
    kolo_text_add(text, ":");
    for (int k = 0; k < post->n_in; k++) {
        kolo_text move = {0};
        add_move(g, &post->move[k], axes, &move);
        const bool same = last.text && move.text && strcmp(last.text, move.text) == 0;
        if (!same && move.text) kolo_text_add(text, "%s %s", k > 0 ? "," : "", move.text);
        kolo_text_fini(&last);
        last = move;
    }
    kolo_text_fini(&last);
    kolo_text_add(text, ", %zu", before);
    if (after != before) kolo_text_add(text, " -> %zu", after);
    kolo_text_add(text, " bytes");
}

/* The WAIT of a bucket. */
static const kolo_node *wait_of(const kolo_plan *p, int64_t bucket) {
    for (int32_t i = 0; i < p->graph->n_nodes; i++) {
        const kolo_node *n = p->graph->nodes[i];
        if (n->op->comm == KOLO_OP_WAIT && n->attr[KOLO_COMM_BUCKET].i == bucket) return n;
    }
    return NULL;
}

static void print_crossing(const kolo_graph *g, const kolo_crossing *c, const char *what,
                           kolo_value v, kolo_text *text) {
    const kolo_tensor *t = &kolo_info(g, v)->tensor;
    char shape[KOLO_SHAPE_TEXT];
    if (c->number == 0) return;
    kolo_text_add(text, "%s stage %d, %s: %%%" PRId32 " %s %s, %zu bytes\n", what, c->peer,
                  c->gradient ? "gradient" : "activations", v.id, kolo_dtype_name(t->dtype),
                  kolo_shape_text(&t->shape, shape), kolo_tensor_bytes(t));
}

/* What the stage of a pipeline exchanges with others in each micro-batch. */
static void print_crossings(const kolo_graph *g, kolo_text *text) {
    for (int32_t v = 0; v < g->n_values; v++) {
        print_crossing(g, &g->values[v].crossing, "from", (kolo_value){.id = v}, text);
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        print_crossing(g, &g->outputs[i].crossing, "to", g->outputs[i].value, text);
    }
}

/* ---- the plan ---- */

static void print_step(const kolo_plan *p, int i, kolo_text *text) {
    static const char *const kinds[] = {
        [KOLO_STEP_KERNEL] = "kernel",
        [KOLO_STEP_POST] = "post",
        [KOLO_STEP_WAIT] = "wait",
    };
    const kolo_step *step = &p->steps[i];
    kolo_text_add(text, "%3d %-6s ", i, kinds[step->kind]);
    if (step->kind == KOLO_STEP_KERNEL) {
        kolo_text_add(text, "%-24s ", step->kernel->name);
        kolo_node_print(p->graph, p->graph->nodes[step->node], text);
    } else {
        kolo_text_add(text, "bucket %d", step->bucket);
        if (step->kind == KOLO_STEP_POST) {
            const kolo_node *post = p->graph->nodes[step->node];
            print_moves(p->graph, post, wait_of(p, post->attr[KOLO_COMM_BUCKET].i), text);
        }
    }
    const kolo_node *n = p->graph->nodes[step->node];
    if (n->region > 0) kolo_text_add(text, " region %d lane %d", n->region, n->lane);
    if (step->once_per_step && p->accumulates) kolo_text_add(text, " once_per_step");
    for (int k = 0; k < p->n_deferred && step->deferred; k++) {
        if (p->deferred[k].step != i) continue;
        kolo_text_add(text, " in the next step, before %d", p->deferred[k].before);
    }
    kolo_text_add(text, "\n");
}

/* When a bucket is awaited. */
static kolo_deferral awaited(const kolo_plan *p, int bucket) {
    const kolo_node *wait = wait_of(p, bucket);
    return wait ? (kolo_deferral)wait->attr[KOLO_COMM_DEFERRAL].i : KOLO_DEFERRAL_OFF;
}

/* The reorders of a step: count and bytes. */
static void print_reorders(const kolo_plan *p, kolo_text *text) {
    int n = 0;
    size_t bytes = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const kolo_step *step = &p->steps[i];
        if (step->kind != KOLO_STEP_KERNEL || step->all.spec.op != &kolo_op_reorder) continue;
        n++;
        bytes += kolo_tensor_bytes(&step->all.spec.in[0]);
    }
    kolo_text_add(text, "reorders: %d, %zu bytes\n", n, bytes);
}

/* Steps that run at the same time as others. */
static void print_regions(const kolo_plan *p, kolo_text *text) {
    int regions = 0, steps = 0;
    for (int i = 0; i < p->n_steps; i++) {
        if (p->steps[i].region_end == 0) continue;
        steps++;
        regions += p->steps[i].region_end == i + 1;
    }
    if (regions > 0) kolo_text_add(text, "lanes: %d regions, %d steps\n", regions, steps);
}

/* What crosses between a device and the host, where it is staged. */
static void print_staging(const kolo_plan *p, kolo_text *text) {
    const kolo_graph *g = p->graph;
    const kolo_store *store = p->store;
    size_t values = p->map.table_bytes, largest = 0;
    if (!kolo_regions_are_apart(store->regions)) return;
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != KOLO_VALUE_INPUT) continue;
        values += kolo_tensor_bytes(&g->values[v].tensor);
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        values += kolo_tensor_bytes(&kolo_info(g, g->outputs[i].value)->tensor);
    }
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        const size_t bytes = kolo_store_entry_bytes(entry) * (entry->single ? 1 : 2);
        if (bytes > largest) largest = bytes;
    }
    kolo_text_add(text,
                  "staging on the host: %zu exchanged, %zu of scalars, inputs and outputs, %zu for "
                  "a parameter at a time, bytes\n",
                  p->map.bucket_bytes + (size_t)p->slots * p->map.model_bytes +
                      (store->registered ? 2 * store->joined_bytes : 0),
                  values, largest);
}

void kolo_plan_print(const kolo_plan *p, kolo_text *text) {
    const kolo_store *store = p->store;
    kolo_text_add(text, "memory: arena %zu, scratch %zu, gradients %zu, store ", p->map.arena_bytes,
                  p->scratch_bytes, p->map.bucket_bytes);
    if (store->single_bytes) kolo_text_add(text, "1 x %zu", store->single_bytes);
    const size_t own = store->bytes + (store->shares ? 0 : store->joined_bytes);
    if (store->single_bytes && own) kolo_text_add(text, " + ");
    if (own) kolo_text_add(text, "2 x %zu", own);
    if (store->shares) {
        kolo_text_add(text, "%s2 x %zu shared", own ? " + " : "", store->joined_bytes);
    }
    kolo_text_add(text, " bytes\n");
    print_staging(p, text);
    static const char *const what[KOLO_COLLECTIVE_COUNT] = {
        [KOLO_COLLECTIVE_ALLREDUCE] = "",
        [KOLO_COLLECTIVE_ALLGATHER] = ", gathered",
        [KOLO_COLLECTIVE_REDUCE_SCATTER] = ", reduce-scattered",
        [KOLO_COLLECTIVE_BARRIER] = ", shared: barrier",
        [KOLO_COLLECTIVE_ALLTOALL] = ", exchanged",
    };
    static const char *const when[] = {
        [KOLO_DEFERRAL_OFF] = "",
        [KOLO_DEFERRAL_NEXT] = ", awaited in the next step",
        [KOLO_DEFERRAL_REPORTED] = ", awaited in the step: it reports some",
        [KOLO_DEFERRAL_KIND] = ", awaited in the step: no whole gradients",
        [KOLO_DEFERRAL_READ] = ", awaited in the step: updates read more than these",
        [KOLO_DEFERRAL_IN_PLACE] = ", awaited in the step: updates in place follow all sums",
    };
    for (int i = 0; i < p->map.n_buckets; i++) {
        const kolo_bucket *bucket = &p->map.buckets[i];
        bool in_store = kolo_value_ok(bucket->joins) && bucket->bytes > 0;
        kolo_text_add(text, "bucket %d: %d values, %zu bytes at %zu%s%s%s\n", i, bucket->n_values,
                      bucket->bytes, bucket->offset,
                      bucket->summands ? ", summed where it is read" : what[bucket->collective],
                      in_store ? " in the store" : "", when[awaited(p, i)]);
    }
    print_crossings(p->graph, text);
    print_reorders(p, text);
    print_regions(p, text);
    for (int i = 0; i < p->n_steps; i++) print_step(p, i, text);
}
