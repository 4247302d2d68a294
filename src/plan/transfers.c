#include "plan/transfers.h"

#include "base/clock.h"
#include "comm/engine/request.h"
#include "plan/chunk_inputs.h"

enum { SLEEP_NS = 5000 }; /* between two looks at the device */

/* A POST that has not started: its values are being copied to the host. */
struct kolo_plan_transfer {
    const kolo_step *step;
    int slot, bank;
    kolo_event copied;
};

static size_t bytes_of(const kolo_plan *p, kolo_value v) {
    return kolo_tensor_bytes(&kolo_info(p->graph, v)->tensor);
}

kolo_status kolo_plan_reserve_transfers(kolo_plan *p) {
    const size_t n = (size_t)p->n_steps + 1;
    if (!kolo_regions_are_apart(p->store->regions)) return KOLO_OK;
    p->transfers = kolo_zalloc(n * sizeof *p->transfers);
    return p->transfers ? KOLO_OK : KOLO_NOMEM(n * sizeof *p->transfers);
}

/* An input that another stage or chunk sends arrives by itself. */
static bool is_fed(const kolo_plan *p, int32_t v) {
    const kolo_value_info *info = &p->graph->values[v];
    if (info->kind != KOLO_VALUE_INPUT || info->crossing.number > 0) return false;
    return kolo_chunk_reads(p, (kolo_value){.id = v});
}

void kolo_plan_send(kolo_plan *p, bool inputs) {
    if (!p->transfers) return;
    p->n_transfers = p->next_transfer = 0;
    kolo_regions_push(p->store->regions, p->table, p->map.table_bytes);
    for (int32_t v = 0; v < p->graph->n_values && inputs; v++) {
        if (is_fed(p, v)) kolo_plan_push(p, (kolo_value){.id = v});
    }
}

static kolo_status start(kolo_plan *p, const kolo_step *step, int bank) {
    kolo_mesh_link *link = kolo_plan_link_of(p, step->bucket);
    if (p->posted) return p->posted(p->posted_arg, p, step->node);
    const kolo_bucket *bucket = &p->map.buckets[step->bucket];
    if (!link) return kolo_request_start(kolo_plan_request_of(p, step->bucket, bank));
    if (kolo_value_ok(bucket->to)) {
        kolo_mesh_link_bind(link, kolo_plan_host(p, bucket->from.id, 0),
                            kolo_plan_host(p, bucket->to.id, 0));
    }
    return kolo_mesh_link_post(link);
}

/* Starts the next one, whose copies have ended. */
static kolo_status start_next(kolo_plan *p) {
    const struct kolo_plan_transfer t = p->transfers[p->next_transfer++];
    const int slot = p->slot;
    KOLO_TRY(kolo_regions_await(p->store->regions, t.copied));
    p->slot = t.slot;
    const kolo_status status = start(p, t.step, t.bank);
    p->slot = slot;
    return status;
}

kolo_status kolo_plan_post(kolo_plan *p, const kolo_step *step, int bank, bool there) {
    const kolo_node *post = p->graph->nodes[step->node];
    if (!p->transfers) return start(p, step, bank);
    for (int k = 0; k < post->n_in && !there; k++) {
        kolo_regions_fetch(p->store->regions, kolo_plan_address(p, post->in[k].id, bank),
                           bytes_of(p, post->in[k]));
    }
    p->transfers[p->n_transfers++] =
        (struct kolo_plan_transfer){step, p->slot, bank, kolo_regions_record(p->store->regions)};
    return kolo_plan_start_ready(p);
}

static void run_call(const void *kernel_step, const void *call) {
    const kolo_step *step = kernel_step;
    const uint64_t errors = kolo_error_count();
    step->kernel->run(call);
    if (kolo_error_count() == errors) return;
    (void)kolo_fail_in(KOLO_ERR_ARG, "op %s", step->all.spec.op->name);
}

void kolo_plan_launch(const kolo_plan *p, const kolo_step *step, const kolo_call *call) {
    kolo_device_stream *stream = kolo_regions_stream(p->store->regions);
    if (p->transfers) {
        stream->device->kind->stream.launch(stream, run_call, step, call);
    } else {
        run_call(step, call);
    }
}

kolo_status kolo_plan_start_ready(kolo_plan *p) {
    while (p->next_transfer < p->n_transfers) {
        const kolo_event copied = p->transfers[p->next_transfer].copied;
        if (!kolo_regions_reached(p->store->regions, copied)) return KOLO_OK;
        KOLO_TRY(start_next(p));
    }
    return KOLO_OK;
}

/* Waits for an event. Meanwhile POSTs start, and what is in flight goes on. */
static kolo_status reach(kolo_plan *p, kolo_event event) {
    kolo_comm *comm = kolo_plan_owner(p)->comm;
    if (!comm) comm = p->store->background;
    while (!kolo_regions_reached(p->store->regions, event)) {
        KOLO_TRY(kolo_plan_start_ready(p));
        if (comm) KOLO_TRY(kolo_comm_progress(comm));
        kolo_sleep_ns(SLEEP_NS);
    }
    KOLO_TRY(kolo_regions_await(p->store->regions, event));
    return kolo_plan_start_ready(p);
}

/* Whether what the POST of a WAIT began is complete. */
static kolo_status test(kolo_plan *p, const kolo_step *wait, int bank, bool *complete) {
    kolo_mesh_link *link = kolo_plan_link_of(p, wait->bucket);
    return link ? kolo_mesh_link_test(link, complete)
                : kolo_request_test(kolo_plan_request_of(p, wait->bucket, bank), complete);
}

kolo_status kolo_plan_await(kolo_plan *p, const kolo_step *wait, int bank) {
    bool complete = false;
    for (int i = p->n_transfers - 1; i >= p->next_transfer; i--) {
        const struct kolo_plan_transfer *t = &p->transfers[i];
        if (t->step->bucket != wait->bucket || t->slot != p->slot) continue;
        KOLO_TRY(reach(p, t->copied));
        break;
    }
    while (p->next_transfer < p->n_transfers) {
        KOLO_TRY(kolo_plan_start_ready(p));
        KOLO_TRY(test(p, wait, bank, &complete));
        if (complete) break;
        kolo_sleep_ns(SLEEP_NS);
    }
    return KOLO_OK;
}

void kolo_plan_fetch(kolo_plan *p) {
    for (int32_t i = 0; i < p->graph->n_outputs; i++) {
        const kolo_named_value *output = &p->graph->outputs[i];
        if (output->crossing.number > 0) continue;
        kolo_regions_fetch(p->store->regions, kolo_plan_address(p, output->value.id, p->ran_bank),
                           bytes_of(p, output->value));
    }
}

kolo_status kolo_plan_finish(kolo_plan *p) {
    return reach(p, kolo_regions_record(p->store->regions));
}

void kolo_plan_receive(kolo_plan *p, const kolo_step *step, int bank) {
    const kolo_node *wait = p->graph->nodes[step->node];
    for (int k = 0; k < wait->n_out && p->transfers; k++) {
        kolo_regions_push(p->store->regions, kolo_plan_address(p, wait->out[k].id, bank),
                          bytes_of(p, wait->out[k]));
    }
}

void *kolo_plan_pull(const kolo_plan *p, kolo_value v) {
    return kolo_regions_pull(p->store->regions, kolo_plan_address(p, v.id, 0), bytes_of(p, v));
}

void kolo_plan_push(const kolo_plan *p, kolo_value v) {
    kolo_regions_push(p->store->regions, kolo_plan_address(p, v.id, 0), bytes_of(p, v));
}
