/* Inputs, scalars and outputs of a plan. */
#include "plan/internal.h"
#include "plan/store_pieces.h"

#include <string.h>

static kolo_value find_leaf(const kolo_plan *p, const char *name, kolo_value_kind kind) {
    kolo_value v = kolo_graph_find(p->graph, name);
    return kolo_value_ok(v) && kolo_info(p->graph, v)->kind == kind ? v : KOLO_NONE;
}

kolo_value kolo_plan_find_input(const kolo_plan *p, const char *name) {
    return find_leaf(p, name, KOLO_VALUE_INPUT);
}

void *kolo_plan_input(const kolo_plan *p, const char *name, kolo_tensor *tensor) {
    kolo_value v = kolo_plan_find_input(p, name);
    KOLO_ASSERT(kolo_value_ok(v));
    if (tensor) *tensor = kolo_info(p->graph, v)->tensor;
    return kolo_plan_data(p, v);
}

kolo_value kolo_plan_find_scalar(const kolo_plan *p, const char *name) {
    return find_leaf(p, name, KOLO_VALUE_SCALAR);
}

kolo_value kolo_plan_find_output(const kolo_plan *p, const char *name) {
    return kolo_graph_output(p->graph, name);
}

void kolo_plan_set(kolo_plan *p, kolo_value scalar, double number) {
    if (!kolo_value_ok(scalar)) return;
    void *data = kolo_plan_host(p, scalar.id, 0);
    kolo_dtype dtype = kolo_info(p->graph, scalar)->tensor.dtype;
    KOLO_ASSERT(dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64);
    if (dtype == KOLO_DTYPE_F64) {
        *(double *)data = number;
    } else {
        *(float *)data = (float)number;
    }
}

void kolo_plan_set_integer(kolo_plan *p, kolo_value scalar, int64_t number) {
    if (!kolo_value_ok(scalar)) return;
    KOLO_ASSERT(kolo_info(p->graph, scalar)->tensor.dtype == KOLO_DTYPE_I64);
    *(int64_t *)kolo_plan_host(p, scalar.id, 0) = number;
}

void kolo_plan_set_scalar(kolo_plan *p, const char *name, double number) {
    kolo_value v = kolo_plan_find_scalar(p, name);
    KOLO_ASSERT(kolo_value_ok(v));
    kolo_plan_set(p, v, number);
}

/* What the latest run has computed. */
static const void *computed(const kolo_plan *p, kolo_value output) {
    return kolo_plan_host(p, output.id, p->ran_bank);
}

const void *kolo_plan_output(const kolo_plan *p, const char *name, kolo_tensor *tensor) {
    kolo_value v = kolo_graph_output(p->graph, name);
    if (!kolo_value_ok(v)) return NULL;
    *tensor = kolo_info(p->graph, v)->tensor;
    return computed(p, v);
}

static const kolo_named_value *find_output(const kolo_plan *p, const char *name) {
    const kolo_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) return &g->outputs[i];
    }
    return NULL;
}

static kolo_tensor whole_of(const kolo_plan *p, const kolo_named_value *output) {
    const kolo_tensor *tensor = &kolo_info(p->graph, output->value)->tensor;
    return kolo_tensor_plain(tensor->dtype, output->whole.rank > 0 ? output->whole : tensor->shape);
}

bool kolo_plan_whole_output(const kolo_plan *p, const char *name, kolo_tensor *plain) {
    const kolo_named_value *output = find_output(p, name);
    if (output) *plain = whole_of(p, output);
    return output != NULL;
}

/* Whether a rank that differs on axes other than dp and pp, of which one stage has the output, has
 * the same as this one and an earlier place. */
static bool has_earlier(const kolo_graph *g, const kolo_placements *placements) {
    bool earlier = false;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const char *axis = g->mesh.axes[a].name;
        const bool sharded = placements->axis[a].kind == KOLO_PLACEMENT_SHARDED;
        if (sharded || strcmp(axis, "dp") == 0 || strcmp(axis, "pp") == 0) continue;
        earlier |= kolo_mesh_coordinate(&g->mesh, g->rank, a) > 0;
    }
    return earlier;
}

kolo_status kolo_plan_place_output(const kolo_plan *p, const char *name, void *whole) {
    const kolo_named_value *output = find_output(p, name);
    KOLO_ASSERT(output);
    const kolo_value_info *info = kolo_info(p->graph, output->value);
    const kolo_store_entry placed = {
        .tensor = whole_of(p, output),
        .mesh = output->whole.rank > 0 ? &p->graph->mesh : NULL,
        .placements = &info->placements,
        .rank = p->graph->rank,
    };
    if (has_earlier(p->graph, &info->placements)) return KOLO_OK;
    return kolo_store_place(&placed, &info->tensor, computed(p, output->value), whole);
}

const void *kolo_plan_gradient(const kolo_plan *p, const char *parameter, kolo_tensor *tensor) {
    kolo_value v = find_leaf(p, parameter, KOLO_VALUE_PARAM);
    char name[KOLO_GRADIENT_NAME];
    if (!kolo_value_ok(v)) return NULL;
    return kolo_plan_output(p, kolo_gradient_name(v.id, name), tensor);
}

double kolo_plan_get(const kolo_plan *p, kolo_value output) {
    const kolo_tensor *tensor = &kolo_info(p->graph, output)->tensor;
    KOLO_ASSERT(kolo_shape_count(&tensor->shape) == 1);
    const void *data = computed(p, output);
    return tensor->dtype == KOLO_DTYPE_F64 ? *(const double *)data : (double)*(const float *)data;
}

double kolo_plan_scalar(const kolo_plan *p, const char *name) {
    kolo_value v = kolo_plan_find_output(p, name);
    KOLO_ASSERT(kolo_value_ok(v));
    return kolo_plan_get(p, v);
}
