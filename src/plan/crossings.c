/* The messages of a stage: an activation goes to the part behind, its gradient comes back. Both
 * sides number the values alike, so the number is the tag. Between two chunks of one stage they are
 * copied. A parameter that several stages have is summed by the first of them, in the order of
 * stages, which sends the sum to the others. Over logical shards the first stage has the sum
 * already: the gradients of each shard have come to it as messages. */
#include "plan/crossings.h"

#include "base/clock.h"
#include "graph/ops/ops.h"
#include "plan/transfers.h"

#include <stdio.h>

struct kolo_plan_crossing {
    kolo_value value;
    kolo_crossing crossing;
    bool sends;
    kolo_request **requests; /* by slot; NULL: a copy of another chunk's, or to it */
    bool *in_flight;
};

enum { FIRST_TAG = 1 << 20 };

/* Kernels make progress in messages, so that a stage computes while they move. */
static void set_in_flight(const kolo_plan *p, struct kolo_plan_crossing *c, int slot, bool now) {
    if (c->in_flight[slot] == now) return;
    c->in_flight[slot] = now;
    if (now) {
        kolo_store_enter_background(p->store, p->comm);
    } else {
        kolo_store_leave_background(p->store);
    }
}

static int tag_of(const kolo_crossing *c) { return FIRST_TAG + 2 * c->number + c->gradient; }

/* The rank of another stage that has the same samples. */
static int rank_at(const kolo_plan *p, int stage) {
    const kolo_mesh *mesh = &p->graph->mesh;
    return kolo_mesh_neighbour(mesh, p->graph->rank, kolo_mesh_find(mesh, "pp"), stage);
}

static kolo_status add(kolo_plan *p, kolo_value value, const kolo_crossing *crossing, bool sends) {
    const size_t slots = (size_t)p->slots;
    struct kolo_plan_crossing *c = &p->crossings[p->n_crossings++];
    *c = (struct kolo_plan_crossing){.value = value, .crossing = *crossing, .sends = sends};
    if (crossing->peer == p->graph->stage) return KOLO_OK;
    c->requests = kolo_zalloc(slots * sizeof(kolo_request *));
    c->in_flight = kolo_zalloc(slots);
    if (!c->requests || !c->in_flight) return KOLO_NOMEM(slots * sizeof(kolo_request *));
    const kolo_tensor *t = &kolo_info(p->graph, value)->tensor;
    char site[KOLO_CROSSING_NAME];
    const int first = p->first_slot[crossing->chunk], end = p->first_slot[crossing->chunk + 1];
    for (int slot = first; slot < end; slot++) {
        p->slot = slot;
        void *data = kolo_plan_data(p, value);
        const kolo_request_opts opts = {
            .kind = sends ? KOLO_COLLECTIVE_SEND : KOLO_COLLECTIVE_RECV,
            .dtype = t->dtype,
            .input = sends ? data : NULL,
            .output = sends ? NULL : data,
            .count = kolo_tensor_bytes(t) / kolo_dtype_bytes(t->dtype),
            .root = rank_at(p, crossing->peer),
            .tag = tag_of(crossing),
            .site = kolo_crossing_name(crossing->gradient ? "gradient" : "activations",
                                       crossing->number, site),
        };
        KOLO_TRY(kolo_request_create(p->comm, &opts, &c->requests[slot]));
    }
    p->slot = 0;
    return KOLO_OK;
}

kolo_status kolo_crossings_create(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    size_t n = 1;
    for (int32_t v = 0; v < g->n_values; v++) n += g->values[v].crossing.number > 0;
    for (int32_t i = 0; i < g->n_outputs; i++) n += g->outputs[i].crossing.number > 0;
    p->crossings = kolo_zalloc(n * sizeof *p->crossings);
    if (!p->crossings) return KOLO_NOMEM(n * sizeof *p->crossings);
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_crossing *c = &g->values[v].crossing;
        if (c->number == 0) continue;
        KOLO_TRY(add(p, (kolo_value){.id = v}, c, false));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_crossing *c = &g->outputs[i].crossing;
        if (c->number == 0) continue;
        KOLO_TRY(add(p, g->outputs[i].value, c, true));
    }
    return KOLO_OK;
}

void kolo_crossings_destroy(kolo_plan *p) {
    for (int i = 0; i < p->n_crossings; i++) {
        struct kolo_plan_crossing *c = &p->crossings[i];
        for (int slot = 0; c->requests && slot < p->slots; slot++) {
            if (c->in_flight) set_in_flight(p, c, slot, false);
            kolo_request_destroy(c->requests[slot]);
        }
        kolo_free((void *)c->requests);
        kolo_free(c->in_flight);
    }
    kolo_free(p->crossings);
}

/* Whether it is a message of the chunk of a slot. */
static bool is_of(const kolo_plan *p, const struct kolo_plan_crossing *c, int slot, bool sends,
                  bool gradient) {
    return c->requests && c->sends == sends && c->crossing.gradient == gradient &&
           c->crossing.chunk == kolo_plan_chunk(p, slot);
}

static kolo_status complete(kolo_plan *p, struct kolo_plan_crossing *c, int slot) {
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(kolo_request_wait(c->requests[slot], 0));
    if (p->times) p->times->phase_ns[KOLO_PHASE_SYNCHRONIZE] += kolo_now_ns() - begin;
    set_in_flight(p, c, slot, false);
    if (c->sends) return KOLO_OK;
    const int current = p->slot;
    p->slot = slot;
    kolo_plan_push(p, c->value);
    p->slot = current;
    return KOLO_OK;
}

/* What is sent has to be on the host. */
static void fetch(kolo_plan *p, const struct kolo_plan_crossing *c, int slot) {
    const int current = p->slot;
    p->slot = slot;
    (void)kolo_plan_pull(p, c->value);
    p->slot = current;
}

/* Where a value is in the current slot. */
static const char *data_of(const kolo_plan *p, kolo_value v, const char **end) {
    const char *data = kolo_plan_data(p, v);
    *end = data + kolo_tensor_bytes(&kolo_info(p->graph, v)->tensor);
    return data;
}

/* What a stage passes on is sent from where it arrived: it has to have left before the value of
 * another micro-batch arrives there. */
static kolo_status make_room(kolo_plan *p, kolo_value v, int slot) {
    const int current = p->slot;
    const char *end, *sent_end;
    kolo_status status = KOLO_OK;
    p->slot = slot;
    const char *data = data_of(p, v, &end);
    for (int i = 0; i < p->n_crossings && status == KOLO_OK; i++) {
        struct kolo_plan_crossing *c = &p->crossings[i];
        if (!c->sends || !c->requests || !c->in_flight[slot]) continue;
        const char *sent = data_of(p, c->value, &sent_end);
        if (sent < end && data < sent_end) status = complete(p, c, slot);
    }
    p->slot = current;
    return status;
}

kolo_status kolo_crossings_start(kolo_plan *p, int slot, bool sends, bool gradient) {
    for (int i = 0; i < p->n_crossings; i++) {
        struct kolo_plan_crossing *c = &p->crossings[i];
        if (!is_of(p, c, slot, sends, gradient)) continue;
        if (!sends) KOLO_TRY(make_room(p, c->value, slot));
        if (sends) fetch(p, c, slot);
        KOLO_TRY(kolo_request_start(c->requests[slot]));
        set_in_flight(p, c, slot, true);
    }
    return KOLO_OK;
}

kolo_status kolo_crossings_wait(kolo_plan *p, int slot, bool sends, bool gradient) {
    for (int i = 0; i < p->n_crossings; i++) {
        struct kolo_plan_crossing *c = &p->crossings[i];
        if (!is_of(p, c, slot, sends, gradient) || !c->in_flight[slot]) continue;
        KOLO_TRY(complete(p, c, slot));
    }
    return KOLO_OK;
}

/* ---- between two chunks of the stage ---- */

/* The other side of a copy. */
static const struct kolo_plan_crossing *find_other(const kolo_plan *p,
                                                   const struct kolo_plan_crossing *c) {
    for (int i = 0; i < p->n_crossings; i++) {
        const struct kolo_plan_crossing *other = &p->crossings[i];
        const bool same = other->crossing.number == c->crossing.number &&
                          other->crossing.gradient == c->crossing.gradient;
        if (same && other->sends != c->sends) return other;
    }
    return NULL;
}

static void *data_in(kolo_plan *p, const struct kolo_plan_crossing *c, int micro_batch,
                     const int *slots) {
    const int chunk = c->crossing.chunk;
    p->slot = p->first_slot[chunk] + micro_batch % slots[chunk];
    return kolo_plan_address(p, c->value.id, 0);
}

kolo_status kolo_crossings_copy(kolo_plan *p, int chunk, int micro_batch, const int *slots,
                                bool gradient) {
    const int slot = p->slot;
    kolo_status status = KOLO_OK;
    for (int i = 0; i < p->n_crossings; i++) {
        const struct kolo_plan_crossing *c = &p->crossings[i];
        /* An activation is taken, a gradient given. */
        const bool copies = !c->requests && c->crossing.chunk == chunk && c->sends == gradient &&
                            c->crossing.gradient == gradient;
        if (!copies) continue;
        const struct kolo_plan_crossing *other = find_other(p, c);
        KOLO_ASSERT(other);
        const size_t bytes = kolo_tensor_bytes(&kolo_info(p->graph, c->value)->tensor);
        void *own = data_in(p, c, micro_batch, slots), *its = data_in(p, other, micro_batch, slots);
        if (gradient) status = make_room(p, other->value, p->slot); /* that of `its` */
        if (status != KOLO_OK) break;
        kolo_regions_copy(p->store->regions, gradient ? its : own, gradient ? own : its, bytes);
    }
    p->slot = slot;
    return status;
}

/* ---- parameters of several stages ---- */

/* Gradients of a parameter that several stages have are sent in pieces: room for a whole one, such
 * as that of an embedding, would be a large part of the memory of a stage. */
enum { PIECE = 1 << 14 };

static kolo_status send_gradient(kolo_plan *p, const void *sum, size_t count, int rank) {
    const kolo_dtype dtype = p->graph->dtype;
    const size_t bytes = kolo_dtype_bytes(dtype);
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        KOLO_TRY(kolo_send(p->comm, (const char *)sum + at * bytes, n, dtype, rank, FIRST_TAG));
    }
    return KOLO_OK;
}

static kolo_status add_gradient(kolo_plan *p, void *sum, size_t count, int rank, void *room) {
    const kolo_dtype dtype = p->graph->dtype;
    const size_t bytes = kolo_dtype_bytes(dtype);
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        KOLO_TRY(kolo_recv(p->comm, room, n, dtype, rank, FIRST_TAG));
        KOLO_TRY(kolo_combine((char *)sum + at * bytes, room, n, dtype, KOLO_SUM));
    }
    return KOLO_OK;
}

/* The first stage of a parameter: adds the gradients of the others and sends the sum to them. */
static kolo_status gather(kolo_plan *p, uint64_t others, void *sum, size_t count, void *room) {
    const kolo_dtype dtype = p->graph->dtype;
    for (int stage = 0; stage < p->graph->stages; stage++) {
        if (!(others >> stage & 1)) continue;
        KOLO_TRY(add_gradient(p, sum, count, rank_at(p, stage), room));
    }
    for (int stage = 0; stage < p->graph->stages; stage++) {
        if (!(others >> stage & 1)) continue;
        KOLO_TRY(kolo_send(p->comm, sum, count, dtype, rank_at(p, stage), FIRST_TAG));
    }
    return KOLO_OK;
}

/* The gradient that each chunk of this stage has accumulated: sums them into that of the first,
 * which becomes *sum, and leaves the others zero. The update adds them. */
static kolo_status gather_chunks(const kolo_plan *p, kolo_value v, kolo_value *sum) {
    const kolo_graph *g = p->graph;
    const int32_t producer = kolo_info(g, v)->producer;
    const kolo_node *n = producer >= 0 ? g->nodes[producer] : NULL;
    if (p->chunks > 1 && n && n->op == &kolo_op_add && n->segment == KOLO_SEGMENT_UPDATE) {
        for (int k = 0; k < n->n_in; k++) KOLO_TRY(gather_chunks(p, n->in[k], sum));
        return KOLO_OK;
    }
    if (!kolo_value_ok(*sum)) {
        *sum = v;
        return KOLO_OK;
    }
    const size_t bytes = kolo_tensor_bytes(&kolo_info(g, v)->tensor);
    KOLO_TRY(kolo_combine(kolo_plan_pull(p, *sum), kolo_plan_pull(p, v),
                          bytes / kolo_dtype_bytes(g->dtype), g->dtype, KOLO_SUM));
    kolo_plan_push(p, *sum);
    kolo_regions_fill(p->store->regions, kolo_plan_address(p, v.id, 0), 0, bytes);
    return KOLO_OK;
}

static kolo_status tie(kolo_plan *p, const kolo_value_info *param) {
    const kolo_graph *g = p->graph;
    const kolo_dtype dtype = g->dtype;
    const uint64_t others = param->holders & ~(UINT64_C(1) << g->stage);
    const size_t bytes = kolo_tensor_bytes(&kolo_info(g, param->grad)->tensor);
    const size_t count = bytes / kolo_dtype_bytes(dtype);
    kolo_value of_chunks = KOLO_NONE;
    KOLO_TRY(gather_chunks(p, param->grad, &of_chunks));
    void *sum = kolo_plan_pull(p, of_chunks);
    if (kolo_is_held_first(g, param)) {
        const size_t piece = PIECE * kolo_dtype_bytes(dtype),
                     needed = bytes < piece ? bytes : piece;
        void *room = kolo_alloc(needed);
        if (!room) return KOLO_NOMEM(needed);
        kolo_status status = gather(p, others, sum, count, room);
        kolo_free(room);
        kolo_plan_push(p, of_chunks);
        return status;
    }
    int first = 0;
    while (!(others >> first & 1)) first++;
    KOLO_TRY(send_gradient(p, sum, count, rank_at(p, first)));
    KOLO_TRY(kolo_recv(p->comm, sum, count, dtype, rank_at(p, first), FIRST_TAG));
    kolo_plan_push(p, of_chunks);
    return KOLO_OK;
}

/* What the first stage of a parameter has summed over the logical shards of this place, on which
 * all gradients of a shard arrive, goes to the other stages that have it. */
static kolo_status share_nodes(kolo_plan *p, const kolo_value_info *param) {
    const kolo_graph *g = p->graph;
    const kolo_dtype dtype = g->dtype;
    const uint64_t others = param->holders & ~(UINT64_C(1) << g->stage);
    const size_t bytes = kolo_tensor_bytes(&kolo_info(g, param->grad)->tensor);
    const size_t count = bytes / kolo_dtype_bytes(dtype);
    char *region = kolo_regions_host(p->store->regions, p->gradients);
    const size_t offset = (size_t)((char *)kolo_plan_data(p, param->grad) - region);
    int first = 0;
    while (!(param->holders >> first & 1)) first++;
    for (int i = 0; i < p->sum->n_nodes; i++) {
        char *value = kolo_shard_sum_node(p->sum, i, region) + offset;
        if (g->stage != first) {
            KOLO_TRY(kolo_recv(p->comm, value, count, dtype, rank_at(p, first), FIRST_TAG));
        }
        for (int stage = 0; stage < g->stages && g->stage == first; stage++) {
            if (!(others >> stage & 1)) continue;
            KOLO_TRY(kolo_send(p->comm, value, count, dtype, rank_at(p, stage), FIRST_TAG));
        }
    }
    return KOLO_OK;
}

kolo_status kolo_crossings_tie(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *param = &g->values[v];
        if (param->kind != KOLO_VALUE_PARAM || !kolo_value_ok(param->grad)) continue;
        bool shared = kolo_is_held(g, param) && (param->holders & (param->holders - 1)) != 0;
        if (shared) KOLO_TRY(p->sum ? share_nodes(p, param) : tie(p, param));
    }
    return KOLO_OK;
}
