/* onnx_case.h. */
#ifdef KOLO_HAS_ONNX

#include "support/onnx_case.h"

#include "base/text.h"
#include "kernel/select/families.h"
#include "onnx/import/import.h"
#include "pass/pass.h"
#include "support/graph_eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 32 };

typedef struct test_case {
    Onnx__ModelProto *model;
    Onnx__TensorProto *in[MOST_TENSORS], *out[MOST_TENSORS];
    int n_in, n_out;
    char *path;
} test_case;

static bool read_file(const char *path, char **data, size_t *bytes) {
    return kolo_file_read(path, (size_t)1 << 31, data, bytes) == KOLO_OK;
}

static Onnx__TensorProto *read_tensor(const char *folder, const char *what, int k) {
    char *path = kolo_format("%s/test_data_set_0/%s_%d.pb", folder, what, k), *data;
    size_t bytes;
    Onnx__TensorProto *t = NULL;
    if (kolo_file_exists(path) && read_file(path, &data, &bytes)) {
        t = onnx__tensor_proto__unpack(NULL, bytes, (uint8_t *)data);
        kolo_free(data);
    }
    kolo_free(path);
    return t;
}

static bool read_case(const char *folder, test_case *c) {
    char *data;
    size_t bytes;
    c->path = kolo_format("%s/model.onnx", folder);
    if (!read_file(c->path, &data, &bytes)) return false;
    c->model = onnx__model_proto__unpack(NULL, bytes, (uint8_t *)data);
    kolo_free(data);
    if (!c->model || !c->model->graph) return false;
    while (c->n_in < MOST_TENSORS && (c->in[c->n_in] = read_tensor(folder, "input", c->n_in)))
        c->n_in++;
    while (c->n_out < MOST_TENSORS &&
           (c->out[c->n_out] = read_tensor(folder, "output", c->n_out))) {
        c->n_out++;
    }
    return true;
}

static void free_case(test_case *c) {
    if (c->model) onnx__model_proto__free_unpacked(c->model, NULL);
    for (int k = 0; k < c->n_in; k++) onnx__tensor_proto__free_unpacked(c->in[k], NULL);
    for (int k = 0; k < c->n_out; k++) onnx__tensor_proto__free_unpacked(c->out[k], NULL);
    kolo_free(c->path);
}

/* Which inputs become constants: none; those of integers and single numbers; all but the first. */
typedef enum attempt { AS_IS, NUMBERS, ALL_BUT_FIRST, ATTEMPTS } attempt;

static bool is_fixed(attempt a, const Onnx__TensorProto *t, int k) {
    bool number = t->n_dims == 0 || t->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    return a == AS_IS ? false : a == NUMBERS ? number : k > 0;
}

/* The model with some inputs as initializers, imported. */
static kolo_status import(test_case *c, attempt a, kolo_onnx **onnx) {
    Onnx__GraphProto *graph = c->model->graph;
    const size_t before = graph->n_initializer;
    Onnx__TensorProto **old = graph->initializer;
    Onnx__TensorProto **all = malloc((before + MOST_TENSORS) * sizeof(Onnx__TensorProto *));
    if (before) memcpy(all, old, before * sizeof *all);
    graph->initializer = all;
    for (int k = 0; k < c->n_in; k++) {
        if (is_fixed(a, c->in[k], k)) all[graph->n_initializer++] = c->in[k];
    }
    const size_t bytes = onnx__model_proto__get_packed_size(c->model);
    uint8_t *packed = malloc(bytes + 1);
    onnx__model_proto__pack(c->model, packed);
    kolo_status status =
        onnx_open_bytes(packed, bytes, c->path, &(kolo_onnx_opts){.no_loss = true}, onnx);
    free(packed);
    free((void *)all);
    graph->initializer = old;
    graph->n_initializer = before;
    return status;
}

static double at(const kolo_graph *g, const graph_eval *e, kolo_value v, int64_t k) {
    return kolo_value_dtype(g, v) == KOLO_DTYPE_I32 ? (double)graph_eval_i32(e, v)[k]
                                                    : (double)graph_eval_f32(e, v)[k];
}

static kolo_status fill(test_case *c, kolo_onnx *onnx, kolo_graph *g, graph_eval *e, attempt a) {
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        const kolo_value value = {.id = v};
        const int64_t count = kolo_shape_count(&info->tensor.shape);
        for (int64_t k = 0; info->initial && k < count; k++)
            graph_eval_f32(e, value)[k] = info->initial[k];
    }
    for (int k = 0; k < c->n_in; k++) {
        host_tensor t;
        kolo_value v = kolo_graph_find(g, c->in[k]->name);
        if (is_fixed(a, c->in[k], k) || v.id < 0) continue;
        KOLO_TRY(onnx_read_tensor(onnx, c->in[k], "input", &onnx->arena, &t));
        if (t.count != graph_eval_count(e, v))
            return KOLO_FAIL(KOLO_ERR_ARG, "input %d: another size", k);
        for (int64_t i = 0; i < t.count; i++) {
            if (kolo_value_dtype(g, v) == KOLO_DTYPE_I32) {
                graph_eval_i32(e, v)[i] = (int32_t)host_number(&t, i);
            } else {
                graph_eval_f32(e, v)[i] = (float)host_number(&t, i);
            }
        }
    }
    return KOLO_OK;
}

static kolo_status compare(test_case *c, kolo_onnx *onnx, const kolo_graph *g, const graph_eval *e,
                           double tolerance) {
    for (int k = 0; k < c->n_out; k++) {
        host_tensor t;
        kolo_value v = kolo_graph_output(g, c->out[k]->name);
        if (v.id < 0) return KOLO_FAIL(KOLO_ERR_ARG, "no output %s", c->out[k]->name);
        KOLO_TRY(onnx_read_tensor(onnx, c->out[k], "output", &onnx->arena, &t));
        const kolo_shape shape = kolo_value_shape(g, v);
        char have[KOLO_SHAPE_TEXT], want[KOLO_SHAPE_TEXT];
        if (!kolo_shape_equal(&shape, &t.shape)) {
            return KOLO_FAIL(KOLO_ERR_ARG, "output %d is %s, not %s", k,
                             kolo_shape_text(&shape, have), kolo_shape_text(&t.shape, want));
        }
        for (int64_t i = 0; i < t.count; i++) {
            const double x = at(g, e, v, i), y = host_number(&t, i);
            const double limit = tolerance * (1 + fabs(y));
            bool same = (isnan(x) && isnan(y)) || x == y || fabs(x - y) <= limit;
            if (!same)
                return KOLO_FAIL(KOLO_ERR_ARG, "output %d at %" PRId64 ": %.7g, not %.7g", k, i, x,
                                 y);
        }
    }
    return KOLO_OK;
}

static kolo_status run_imported(test_case *c, kolo_onnx *onnx, attempt a, double tolerance) {
    kolo_graph *g;
    graph_eval e = {0};
    kolo_status status = kolo_graph_create(NULL, &g);
    if (status != KOLO_OK) return status;
    status = kolo_onnx_build(g, 0, onnx);
    if (status == KOLO_OK) status = kolo_pass_inference(g);
    if (status == KOLO_OK) status = graph_eval_init(&e, g, kolo_kernel_set_of(false, false));
    if (status == KOLO_OK) status = fill(c, onnx, g, &e, a);
    if (status == KOLO_OK) {
        graph_eval_run(&e, g->n_nodes);
        status = compare(c, onnx, g, &e, tolerance);
    }
    graph_eval_fini(&e);
    kolo_graph_destroy(g);
    return status;
}

static kolo_status run_case(const char *folder, test_case *c, double tolerance) {
    char first[512] = "";
    kolo_status status = KOLO_OK;
    if (!read_case(folder, c) || c->n_out == 0)
        return KOLO_FAIL(KOLO_ERR_IO, "no test case in %s", folder);
    for (attempt a = AS_IS; a < ATTEMPTS; a++) {
        kolo_onnx *onnx;
        status = import(c, a, &onnx);
        if (status == KOLO_OK) {
            status = run_imported(c, onnx, a, tolerance);
            kolo_onnx_close(onnx);
        }
        if (status == KOLO_OK) return KOLO_OK;
        if (a == AS_IS || a == NUMBERS) snprintf(first, sizeof first, "%s", kolo_last_error());
    }
    return KOLO_FAIL(status, "%s", first);
}

kolo_status onnx_case_run(const char *folder, double tolerance, char op[ONNX_CASE_OP]) {
    test_case c = {0};
    const kolo_status status = run_case(folder, &c, tolerance);
    const Onnx__GraphProto *graph = c.model ? c.model->graph : NULL;
    const bool single = graph && graph->n_node == 1 && graph->node[0]->op_type;
    snprintf(op, ONNX_CASE_OP, "%s", single ? graph->node[0]->op_type : "several nodes");
    free_case(&c);
    return status;
}

#endif
