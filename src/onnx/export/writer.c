/* onnx_writer. */
#include "onnx/export/writer.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

static void *get(onnx_writer *w, size_t bytes) {
    void *block = kolo_arena_alloc(&w->arena, bytes ? bytes : 1);
    if (!block) w->failed = true;
    return block;
}

static char *copy_text(onnx_writer *w, const char *text) {
    char *copy = kolo_arena_strdup(&w->arena, text);
    if (!copy) w->failed = true;
    return copy;
}

/* Appends a pointer to an array in the arena. */
static void append(onnx_writer *w, void ***items, size_t *n, void *item) {
    void **more = get(w, (*n + 1) * sizeof *more);
    if (!more) return;
    if (*n) memcpy((void *)more, (void *)*items, *n * sizeof *more);
    more[(*n)++] = item;
    *items = more;
}

static char *fresh(onnx_writer *w) {
    char text[32];
    snprintf(text, sizeof text, "kolo.%d", w->n_names++);
    return copy_text(w, text);
}

const char *onnx_name(onnx_writer *w, kolo_value v) {
    const kolo_value_info *info = kolo_info(w->g, v);
    if (info->name) return info->name;
    char text[32];
    snprintf(text, sizeof text, "kolo.value.%d", (int)v.id);
    return copy_text(w, text);
}

static Onnx__NodeProto *latest(onnx_writer *w) { return w->graph.node[w->graph.n_node - 1]; }

void onnx_add_input(onnx_writer *w, const char *name) {
    if (w->failed) return;
    append(w, (void ***)(void *)&latest(w)->input, &latest(w)->n_input, copy_text(w, name));
}

const char *onnx_add_output(onnx_writer *w, const char *name) {
    char *copy = name ? copy_text(w, name) : fresh(w);
    if (!w->failed) append(w, (void ***)(void *)&latest(w)->output, &latest(w)->n_output, copy);
    return copy ? copy : "";
}

const char *onnx_emit(onnx_writer *w, const char *op, const char *out, const char *a, const char *b,
                      const char *c) {
    Onnx__NodeProto *node = get(w, sizeof *node);
    if (w->failed) return "";
    onnx__node_proto__init(node);
    if (!KOLO_GROW(w->graph.node, w->graph.n_node, w->cap_nodes)) {
        w->failed = true;
        return "";
    }
    w->graph.node[w->graph.n_node++] = node;
    node->op_type = copy_text(w, op);
    node->name = fresh(w);
    const char *const in[] = {a, b, c};
    for (int i = 0; i < 3 && in[i]; i++) onnx_add_input(w, in[i]);
    return onnx_add_output(w, out);
}

static Onnx__AttributeProto *attribute(onnx_writer *w, const char *name,
                                       Onnx__AttributeProto__AttributeType type) {
    Onnx__AttributeProto *a = get(w, sizeof *a);
    if (w->failed) return NULL;
    onnx__attribute_proto__init(a);
    a->name = copy_text(w, name);
    a->has_type = 1;
    a->type = type;
    append(w, (void ***)(void *)&latest(w)->attribute, &latest(w)->n_attribute, a);
    return a;
}

void onnx_add_int(onnx_writer *w, const char *name, int64_t i) {
    Onnx__AttributeProto *a = attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    if (!a) return;
    a->has_i = 1;
    a->i = i;
}

void onnx_add_float(onnx_writer *w, const char *name, double f) {
    Onnx__AttributeProto *a = attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    if (!a) return;
    a->has_f = 1;
    a->f = (float)f;
}

void onnx_add_text(onnx_writer *w, const char *name, const char *text) {
    Onnx__AttributeProto *a = attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    if (!a) return;
    a->has_s = 1;
    a->s.len = strlen(text);
    a->s.data = (uint8_t *)copy_text(w, text);
}

void onnx_add_ints(onnx_writer *w, const char *name, const int64_t *i, int n) {
    Onnx__AttributeProto *a = attribute(w, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    int64_t *copy = get(w, (size_t)n * sizeof *copy);
    if (!a || !copy) return;
    memcpy(copy, i, (size_t)n * sizeof *copy);
    a->ints = copy;
    a->n_ints = (size_t)n;
}

static const char *tensor(onnx_writer *w, const char *name, int type, const kolo_shape *shape,
                          size_t bytes, void **data) {
    Onnx__TensorProto *t = get(w, sizeof *t);
    int64_t *dims = get(w, sizeof shape->dim);
    *data = get(w, bytes);
    if (!w->failed &&
        !KOLO_GROW(w->graph.initializer, w->graph.n_initializer, w->cap_initializers)) {
        w->failed = true;
    }
    if (w->failed) return "";
    onnx__tensor_proto__init(t);
    memcpy(dims, shape->dim, sizeof shape->dim);
    t->name = name ? copy_text(w, name) : fresh(w);
    t->dims = dims;
    t->n_dims = (size_t)shape->rank;
    t->has_data_type = 1;
    t->data_type = type;
    t->has_raw_data = 1;
    t->raw_data = (ProtobufCBinaryData){.len = bytes, .data = *data};
    w->graph.initializer[w->graph.n_initializer++] = t;
    return t->name;
}

const char *onnx_int_list(onnx_writer *w, const int64_t *i, int n) {
    void *data;
    const kolo_shape shape = kolo_shape_1(n);
    const char *name =
        tensor(w, NULL, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, &shape, (size_t)n * sizeof *i, &data);
    if (!w->failed) memcpy(data, i, (size_t)n * sizeof *i);
    return name;
}

const char *onnx_tensor(onnx_writer *w, const char *name, const kolo_shape *shape, float **data) {
    void *block;
    const size_t bytes = (size_t)kolo_shape_count(shape) * sizeof **data;
    const char *result =
        tensor(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, shape, bytes, &block);
    *data = block;
    return result;
}

const char *onnx_number_constant(onnx_writer *w, double number) {
    const kolo_shape scalar = kolo_shape_0();
    float *data;
    const char *name = onnx_tensor(w, NULL, &scalar, &data);
    if (!w->failed) data[0] = (float)number;
    return name;
}

Onnx__ValueInfoProto *onnx_value_info(onnx_writer *w, const char *name, kolo_dtype dtype,
                                      const kolo_shape *shape) {
    struct {
        Onnx__ValueInfoProto info;
        Onnx__TypeProto type;
        Onnx__TypeProto__Tensor tensor;
        Onnx__TensorShapeProto shape;
        Onnx__TensorShapeProto__Dimension dim[KOLO_MAX_RANK], *dims[KOLO_MAX_RANK];
    } *all = get(w, sizeof *all);
    if (w->failed) return NULL;
    onnx__value_info_proto__init(&all->info);
    onnx__type_proto__init(&all->type);
    onnx__type_proto__tensor__init(&all->tensor);
    onnx__tensor_shape_proto__init(&all->shape);
    all->info.name = copy_text(w, name);
    all->info.type = &all->type;
    all->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    all->type.tensor_type = &all->tensor;
    all->tensor.has_elem_type = 1;
    all->tensor.elem_type = dtype == KOLO_DTYPE_I32 ? ONNX__TENSOR_PROTO__DATA_TYPE__INT32
                                                    : ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    all->tensor.shape = &all->shape;
    all->shape.n_dim = (size_t)shape->rank;
    all->shape.dim = all->dims;
    for (int d = 0; d < shape->rank; d++) {
        all->dims[d] = &all->dim[d];
        onnx__tensor_shape_proto__dimension__init(&all->dim[d]);
        all->dim[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        all->dim[d].dim_value = shape->dim[d];
    }
    if (shape->rank > 0) {
        all->dim[0].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        all->dim[0].dim_param = copy_text(w, "N");
    }
    return &all->info;
}
