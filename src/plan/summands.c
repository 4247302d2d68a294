/* Gradients of ranks that share memory: each rank adds the summands of its range where it reads the
 * sum, which then is in the cache. Kernels of updates do so block by block; for other readers the
 * sum takes the place of this rank's summand, which no other rank reads. */
#include "comm/engine/request.h"
#include "comm/reduce/reduce.h"
#include "plan/internal.h"

/* The only reader of v, a kernel that takes summands in its place; NULL: there is none. */
static kolo_step *find_reader(const kolo_plan *p, kolo_value v) {
    const kolo_graph *g = p->graph;
    kolo_step *found = NULL;
    int readers = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) readers += g->nodes[i]->in[k].id == v.id;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) readers += g->outputs[i].value.id == v.id;
    for (int i = 0; i < p->n_steps && readers == 1; i++) {
        kolo_step *step = &p->steps[i];
        const int k = step->kernel ? step->kernel->summands : 0;
        if (k > 0 && g->nodes[step->node]->in[k].id == v.id) found = step;
    }
    return found;
}

static int64_t elements(const kolo_plan *p, kolo_value v) {
    return kolo_tensor_elements(&kolo_info(p->graph, v)->tensor);
}

/* Lists them; only counts them while p->summands is NULL. */
static int list(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    const size_t ranks = (size_t)kolo_comm_size(p->comm);
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const kolo_node *wait = g->nodes[p->steps[i].node];
        if (p->steps[i].kind != KOLO_STEP_WAIT || !wait->attr[KOLO_COMM_SUMMANDS].i) continue;
        for (int k = 0; k < wait->n_out; k++) {
            if (elements(p, wait->out[k]) == 0) continue;
            if (p->summands) {
                const void **from = p->summand_addresses + (size_t)n * ranks;
                kolo_step *reader = find_reader(p, wait->out[k]);
                if (reader) reader->summands = from;
                p->summands[n] =
                    (kolo_plan_summand){p->steps[i].bucket, wait->out[k].id, from, reader != NULL};
            }
            n++;
        }
    }
    return n;
}

kolo_status kolo_plan_find_summands(kolo_plan *p) {
    if (!p->comm) return KOLO_OK;
    const size_t n = (size_t)list(p), bytes = n * (size_t)kolo_comm_size(p->comm) * sizeof(void *);
    if (n == 0) return KOLO_OK;
    p->summand_addresses = kolo_zalloc(bytes);
    p->summands = kolo_zalloc(n * sizeof *p->summands);
    if (!p->summand_addresses || !p->summands) return KOLO_NOMEM(bytes);
    p->n_summands = list(p);
    return KOLO_OK;
}

void kolo_plan_add_summands(const kolo_plan *p, int bucket, const kolo_request *request) {
    const int ranks = kolo_comm_size(p->comm), own = kolo_comm_rank(p->comm);
    for (int i = 0; i < p->n_summands; i++) {
        const kolo_plan_summand *s = &p->summands[i];
        const kolo_tensor *t = &p->graph->values[s->value].tensor;
        if (s->bucket != bucket) continue;
        void *sum = kolo_plan_address(p, s->value, 0);
        const ptrdiff_t at = (char *)sum - (const char *)kolo_request_summand(request, own);
        for (int r = 0; r < ranks; r++) {
            s->from[r] = (const char *)kolo_request_summand(request, r) + at;
        }
        if (s->read) continue;
        kolo_reduce_best()->fn[t->dtype][kolo_reduce_kernel(KOLO_SUM)](
            &sum, 1, s->from, ranks, (size_t)kolo_tensor_elements(t));
    }
}
