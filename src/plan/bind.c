/* Binding: gives each kernel the addresses of its inputs and outputs, for every slot and twice,
 * once for each bank of the store. */
#include "plan/internal.h"

static void unbind(const kolo_plan *p, const kolo_kernel *kernel, kolo_call *calls) {
    for (int i = 0; calls && i < 2 * p->slots; i++) {
        if (kernel && kernel->unbind && calls[i].bound) kernel->unbind(calls[i].bound);
        calls[i].bound = NULL;
    }
}

void kolo_plan_unbind(const kolo_plan *p, const kolo_step *step) {
    unbind(p, step->kernel, step->all.calls);
    if (step->alone) unbind(p, step->kernel, step->alone->calls);
}

bool kolo_plan_is_of_slot(const kolo_plan *p, const kolo_node *n, int slot) {
    return n->segment == KOLO_SEGMENT_UPDATE || n->chunk == kolo_plan_chunk(p, slot);
}

/* The address by which kernels access what is at `at`. */
static void *kernel_address(const kolo_plan *p, void *at) {
    const kolo_device *device = kolo_regions_device(p->store->regions);
    return device->kind->kernel_address(device, at);
}

/* Binds the calls of a step, whose scratch memory is at `scratch` behind the values. */
static kolo_status bind_calls(kolo_plan *p, const kolo_step *step, const kolo_prepared *prepared,
                              size_t scratch) {
    const kolo_node *n = p->graph->nodes[step->node];
    const int slot = p->slot;
    for (int i = 0; i < 2 * p->slots; i++) {
        if (!kolo_plan_is_of_slot(p, n, i / 2)) continue;
        const int bank = i % 2;
        kolo_call *call = &prepared->calls[i];
        p->slot = i / 2;
        *call = (kolo_call){.spec = &prepared->spec,
                            .state = prepared->state,
                            .scratch =
                                kernel_address(p, kolo_plan_arena(p) + p->values_bytes + scratch)};
        for (int k = 0; k < n->n_in; k++) {
            const kolo_location *in = &p->map.locations[n->in[k].id];
            const bool deferred = step->deferred && in->region == KOLO_REGION_TABLE;
            call->in[k] =
                kernel_address(p, deferred ? p->deferred_table + in->offset
                                           : (char *)kolo_plan_address(p, n->in[k].id, bank));
        }
        for (int k = 0; k < n->n_out; k++) {
            call->out[k] = kernel_address(p, kolo_plan_address(p, n->out[k].id, bank));
        }
        if (step->summands) {
            call->summands = step->summands;
            call->n_summands = kolo_comm_size(p->comm);
        }
        if (step->kernel->bind) KOLO_TRY(step->kernel->bind(call));
    }
    p->slot = slot;
    return KOLO_OK;
}

static kolo_status bind_step(kolo_plan *p, const kolo_step *step) {
    kolo_plan_unbind(p, step);
    KOLO_TRY(bind_calls(p, step, &step->all, 0));
    if (!step->alone) return KOLO_OK;
    return bind_calls(p, step, step->alone, (size_t)step->lane * p->lane_scratch_bytes);
}

kolo_status kolo_plan_bind(kolo_plan *p) {
    for (int i = 0; i < p->n_steps; i++) {
        if (p->steps[i].kind == KOLO_STEP_KERNEL) KOLO_TRY(bind_step(p, &p->steps[i]));
    }
    p->bound_at = p->store->moves;
    return KOLO_OK;
}
