/* The groups of tensors that all ranks have posted: an allreduce each, of a copy of several small
 * tensors or of one tensor in place. See named_groups.h. */
#include "comm/sync/named_groups.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/engine.h"
#include "comm/engine/request.h"

#include <stdio.h>
#include <string.h>

enum { FLIGHT_MAX = KOLO_FLIGHT_MAX / 2 /* requests in flight; further groups are queued */ };

struct kolo_named_group {
    kolo_named_group *next;
    kolo_request *request; /* NULL: not started */
    void *buffer;          /* of several tensors, in the segment; NULL: one tensor */
    size_t bytes;
    kolo_dtype dtype;
    kolo_reduce_op op;
    int n, handles[];
};

static size_t tensor_bytes(const kolo_named_tensor *t) {
    return t->signature.count * kolo_dtype_bytes(t->signature.dtype);
}

static void free_group(kolo_named *m, kolo_named_group *g) {
    kolo_request_destroy(g->request);
    if (g->buffer) kolo_segment_give(&m->comm->transport->segment, g->buffer, g->bytes);
    kolo_free(g);
}

/* Creates a group: the tensor with this id, and later ones of the same type and operation that fit.
 */
static kolo_status make_group(kolo_named *m, size_t first, size_t *left) {
    const kolo_signature *kind = &kolo_named_tensor_of(m, first)->signature;
    kolo_named_group *g = kolo_zalloc(sizeof *g + *left * sizeof g->handles[0]);
    if (!g) return KOLO_NOMEM(*left * sizeof g->handles[0]);
    g->dtype = kind->dtype;
    g->op = kind->op;
    for (size_t id = first; id < m->names.n_ids; id++) {
        kolo_named_tensor *t = kolo_named_tensor_of(m, id);
        size_t bytes = tensor_bytes(t);
        bool like = t->signature.dtype == g->dtype && t->signature.op == g->op;
        if (m->bytes[KOLO_NAMED_HEAD + id] != 1 || t->state != KOLO_TENSOR_POSTED || !like)
            continue;
        bool fits = bytes <= m->opts.fusion_bytes && g->bytes <= m->opts.fusion_bytes - bytes;
        if (g->n > 0 && !fits) continue;
        t->state = KOLO_TENSOR_REDUCED;
        g->handles[g->n++] = m->names.by_id[id];
        g->bytes += bytes;
    }
    m->posted -= g->n;
    *left -= (size_t)g->n;
    *m->last = g;
    m->last = &g->next;
    return KOLO_OK;
}

kolo_status kolo_named_make_groups(kolo_named *m) {
    size_t left = 0;
    for (size_t id = 0; id < m->names.n_ids; id++) {
        if (m->bytes[KOLO_NAMED_HEAD + id] != 1) continue;
        if (kolo_named_tensor_of(m, id)->state != KOLO_TENSOR_POSTED) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "the ranks agreed on tensor '%.100s', which this rank "
                             "has not posted",
                             kolo_named_tensor_of(m, id)->name);
        }
        left++;
    }
    m->counted.tensors += left;
    for (size_t id = 0; left > 0; id++) {
        bool ready = m->bytes[KOLO_NAMED_HEAD + id] == 1;
        if (!ready || kolo_named_tensor_of(m, id)->state != KOLO_TENSOR_POSTED) continue;
        KOLO_TRY(make_group(m, id, &left));
    }
    return KOLO_OK;
}

static kolo_status start_group(kolo_named *m, kolo_named_group *g) {
    kolo_named_tensor *first = &m->names.tensors[g->handles[0]];
    void *data = first->data;
    if (g->n > 1) {
        KOLO_TRY(kolo_segment_take(&m->comm->transport->segment, g->bytes, &g->buffer));
        data = g->buffer;
        char *to = data;
        for (int i = 0; i < g->n; i++) {
            const kolo_named_tensor *t = &m->names.tensors[g->handles[i]];
            if (tensor_bytes(t) > 0) memcpy(to, t->data, tensor_bytes(t));
            to += tensor_bytes(t);
        }
    }
    char site[KOLO_NAME_BYTES + 24];
    snprintf(site, sizeof site, g->n > 1 ? "%.32s and %d more" : "%.44s", first->name, g->n - 1);
    KOLO_TRY(
        kolo_request_create(m->comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                 .dtype = g->dtype,
                                                 .op = g->op,
                                                 .output = data,
                                                 .count = g->bytes / kolo_dtype_bytes(g->dtype),
                                                 .site = site},
                            &g->request));
    m->counted.reductions++;
    return kolo_request_start(g->request);
}

kolo_status kolo_named_start_groups(kolo_named *m, bool *all) {
    *all = true;
    for (kolo_named_group *g = m->first; g; g = g->next) {
        if (g->request) continue;
        *all = m->comm->n_flight < FLIGHT_MAX;
        if (!*all) return KOLO_OK;
        KOLO_TRY(start_group(m, g));
    }
    return KOLO_OK;
}

static void complete_group(kolo_named *m, kolo_named_group *g) {
    const char *from = g->buffer;
    for (int i = 0; i < g->n; i++) {
        kolo_named_tensor *t = &m->names.tensors[g->handles[i]];
        if (from && tensor_bytes(t) > 0) memcpy(t->data, from, tensor_bytes(t));
        if (from) from += tensor_bytes(t);
        t->state = KOLO_TENSOR_IDLE;
    }
    m->open -= g->n;
}

void kolo_named_complete_groups(kolo_named *m, bool *moved) {
    for (kolo_named_group **at = &m->first, *g; (g = *at);) {
        if (!g->request || kolo_request_in_flight(g->request)) {
            at = &g->next;
            continue;
        }
        complete_group(m, g);
        *at = g->next;
        if (m->last == &g->next) m->last = at;
        free_group(m, g);
        *moved = true;
    }
}

void kolo_named_free_groups(kolo_named *m) {
    for (kolo_named_group *g = m->first, *next; g; g = next) {
        next = g->next;
        free_group(m, g);
    }
}
