/* The graph interpreter of the tests. */
#include "support/graph_eval.h"

#include "base/rng.h"
#include "kernel/select/select.h"

struct graph_eval_step {
    const kolo_kernel *kernel; /* NULL: a view */
    kolo_kernel_spec spec;
    kolo_call call;
};

/* Outputs of a view share the buffers of its inputs; others get their own. */
static kolo_status make_buffers(graph_eval *e) {
    const kolo_graph *g = e->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        int32_t producer = g->values[v].producer;
        if (producer >= 0 && g->nodes[producer]->op->view) continue;
        size_t bytes = kolo_tensor_bytes(&g->values[v].tensor);
        e->data[v] = kolo_zalloc(bytes);
        if (!e->data[v]) return KOLO_NOMEM(bytes);
        e->owned[v] = true;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; n->op->view && k < n->n_out; k++) {
            e->data[n->out[k].id] = e->data[n->in[k].id];
        }
    }
    return KOLO_OK;
}

static kolo_status make_step(graph_eval *e, int32_t i, kolo_kernel_set set, size_t *scratch_bytes) {
    const kolo_node *n = e->g->nodes[i];
    struct graph_eval_step *step = &e->steps[i];
    if (n->op->view) return KOLO_OK;
    kolo_kernel_spec_init(&step->spec, e->g, n, 1);
    const kolo_kernel *kernel;
    KOLO_TRY(kolo_kernel_select(set, &step->spec, &kernel, NULL));
    size_t bytes = 0;
    step->call.spec = &step->spec;
    if (kernel->prepare) KOLO_TRY(kernel->prepare(&step->spec, &step->call.state, &bytes));
    if (bytes > *scratch_bytes) *scratch_bytes = bytes;
    for (int k = 0; k < n->n_in; k++) step->call.in[k] = e->data[n->in[k].id];
    for (int k = 0; k < n->n_out; k++) step->call.out[k] = e->data[n->out[k].id];
    step->kernel = kernel;
    return KOLO_OK;
}

kolo_status graph_eval_init(graph_eval *e, const kolo_graph *g, kolo_kernel_set set) {
    *e = (graph_eval){.g = g};
    kolo_status status = KOLO_OK;
    e->data = kolo_zalloc(((size_t)g->n_values + 1) * sizeof *e->data);
    e->owned = kolo_zalloc(((size_t)g->n_values + 1) * sizeof *e->owned);
    e->steps = kolo_zalloc(((size_t)g->n_nodes + 1) * sizeof *e->steps);
    if (!e->data || !e->owned || !e->steps) {
        status = KOLO_NOMEM((size_t)g->n_nodes * sizeof *e->steps);
        goto fail;
    }
    KOLO_TRY_GOTO(make_buffers(e), fail);
    size_t scratch_bytes = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        KOLO_TRY_GOTO(make_step(e, i, set, &scratch_bytes), fail);
    }
    e->scratch = kolo_zalloc(scratch_bytes);
    if (!e->scratch) {
        status = KOLO_NOMEM(scratch_bytes);
        goto fail;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        struct graph_eval_step *step = &e->steps[i];
        step->call.scratch = e->scratch;
        if (step->kernel && step->kernel->bind) {
            KOLO_TRY_GOTO(step->kernel->bind(&step->call), fail);
        }
    }
    return KOLO_OK;
fail:
    graph_eval_fini(e);
    return status;
}

void graph_eval_run(graph_eval *e, int32_t n_nodes) {
    for (int32_t i = 0; i < n_nodes; i++) {
        const struct graph_eval_step *step = &e->steps[i];
        if (step->kernel) step->kernel->run(&step->call);
    }
}

void graph_eval_fini(graph_eval *e) {
    for (int32_t i = 0; e->steps && i < e->g->n_nodes; i++) {
        struct graph_eval_step *step = &e->steps[i];
        if (!step->kernel) continue;
        if (step->call.bound) step->kernel->unbind(step->call.bound);
        if (step->call.state) step->kernel->release(step->call.state);
    }
    for (int32_t v = 0; e->owned && v < e->g->n_values; v++) {
        if (e->owned[v]) kolo_free(e->data[v]);
    }
    kolo_free(e->data);
    kolo_free(e->owned);
    kolo_free(e->steps);
    kolo_free(e->scratch);
    *e = (graph_eval){0};
}

static void *data_of(const graph_eval *e, kolo_value v, kolo_dtype dtype) {
    KOLO_ASSERT(kolo_info(e->g, v)->tensor.dtype == dtype);
    return e->data[v.id];
}

double *graph_eval_f64(const graph_eval *e, kolo_value v) { return data_of(e, v, KOLO_DTYPE_F64); }

float *graph_eval_f32(const graph_eval *e, kolo_value v) { return data_of(e, v, KOLO_DTYPE_F32); }

int32_t *graph_eval_i32(const graph_eval *e, kolo_value v) { return data_of(e, v, KOLO_DTYPE_I32); }

int64_t graph_eval_count(const graph_eval *e, kolo_value v) {
    return kolo_shape_count(&kolo_info(e->g, v)->tensor.shape);
}

static void set_float(const graph_eval *e, kolo_value v, int64_t i, double x) {
    if (kolo_info(e->g, v)->tensor.dtype == KOLO_DTYPE_F64) {
        graph_eval_f64(e, v)[i] = x;
    } else {
        graph_eval_f32(e, v)[i] = (float)x;
    }
}

static double get_float(const graph_eval *e, kolo_value v, int64_t i) {
    return kolo_info(e->g, v)->tensor.dtype == KOLO_DTYPE_F64 ? graph_eval_f64(e, v)[i]
                                                              : graph_eval_f32(e, v)[i];
}

void graph_eval_fill(graph_eval *e, kolo_value v, uint64_t seed, double scale) {
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_TEST, 0);
    int64_t count = graph_eval_count(e, v);
    for (int64_t i = 0; i < count; i++) {
        double jitter = 0.1 + 0.3 * kolo_rng_uniform(&rng, (uint64_t)(count + i));
        set_float(e, v, i, scale * (2 * ((double)i + jitter) / (double)count - 1));
    }
    for (int64_t i = count - 1; i > 0; i--) { /* Fisher-Yates */
        int64_t j = (int64_t)kolo_rng_below(&rng, (uint64_t)i, (uint64_t)i + 1);
        double x = get_float(e, v, i);
        set_float(e, v, i, get_float(e, v, j));
        set_float(e, v, j, x);
    }
}

void graph_eval_fill_labels(graph_eval *e, kolo_value v, uint64_t seed, int64_t classes) {
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_TEST, 1);
    for (int64_t i = 0; i < graph_eval_count(e, v); i++) {
        graph_eval_i32(e, v)[i] = (int32_t)kolo_rng_below(&rng, (uint64_t)i, (uint64_t)classes);
    }
}
