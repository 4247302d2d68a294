/* The plan as text: memory, buckets, and steps with their kernels. */
#include "plan/internal.h"

#include <inttypes.h>

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
    for (int32_t i = 0; i < p->graph->n_nodes; i++) {
        const kolo_node *n = p->graph->nodes[i];
        if (n->op->comm != KOLO_OP_WAIT || n->attr[KOLO_COMM_BUCKET].i != bucket) continue;
        return (kolo_deferral)n->attr[KOLO_COMM_DEFERRAL].i;
    }
    return KOLO_DEFERRAL_OFF;
}

/* The reorders of a step: count and bytes. */
static void print_reorders(const kolo_plan *p, kolo_text *text) {
    int n = 0;
    size_t bytes = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const kolo_step *step = &p->steps[i];
        if (step->kind != KOLO_STEP_KERNEL || step->spec.op != &kolo_op_reorder) continue;
        n++;
        bytes += kolo_tensor_bytes(&step->spec.in[0]);
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
    print_reorders(p, text);
    print_regions(p, text);
    for (int i = 0; i < p->n_steps; i++) print_step(p, i, text);
}
