/* Inputs, scalars and outputs of a plan. */
#include "plan/internal.h"

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
