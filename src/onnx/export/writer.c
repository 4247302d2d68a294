/* onnx_writer. */
#include "onnx/export/writer.h"

#include "base/text.h"

#include <inttypes.h>
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

static Onnx__NodeProto *latest(onnx_writer *w) { return w->nodes[w->n_nodes - 1]; }

void onnx_add_input(onnx_writer *w, const char *name) {
    if (w->failed) return;
    append(w, (void ***)(void *)&latest(w)->input, &latest(w)->n_input, copy_text(w, name));
}

const char *onnx_add_output(onnx_writer *w, const char *name) {
    char *copy = name ? copy_text(w, name) : fresh(w);
    if (!w->failed) append(w, (void ***)(void *)&latest(w)->output, &latest(w)->n_output, copy);
    return copy ? copy : "";
}

static Onnx__NodeProto *new_node(onnx_writer *w, const char *op) {
    Onnx__NodeProto *node = get(w, sizeof *node);
    if (!node) return NULL;
    onnx__node_proto__init(node);
    node->op_type = copy_text(w, op);
    node->name = fresh(w);
    return node;
}

const char *onnx_emit(onnx_writer *w, const char *op, const char *out, const char *a, const char *b,
                      const char *c) {
    Onnx__NodeProto *node = new_node(w, op);
    if (!w->failed && !KOLO_GROW(w->nodes, w->n_nodes, w->cap_nodes)) w->failed = true;
    if (w->failed) return "";
    w->nodes[w->n_nodes++] = node;
    const char *const in[] = {a, b, c};
    for (int i = 0; i < 3 && in[i]; i++) onnx_add_input(w, in[i]);
    return onnx_add_output(w, out);
}

static Onnx__AttributeProto *attribute_of(onnx_writer *w, Onnx__NodeProto *node, const char *name,
                                          Onnx__AttributeProto__AttributeType type) {
    Onnx__AttributeProto *a = get(w, sizeof *a);
    if (w->failed) return NULL;
    onnx__attribute_proto__init(a);
    a->name = copy_text(w, name);
    a->has_type = 1;
    a->type = type;
    append(w, (void ***)(void *)&node->attribute, &node->n_attribute, a);
    return a;
}

static Onnx__AttributeProto *attribute(onnx_writer *w, const char *name,
                                       Onnx__AttributeProto__AttributeType type) {
    return w->failed ? NULL : attribute_of(w, latest(w), name, type);
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

static Onnx__TensorProto *tensor(onnx_writer *w, int type, const kolo_shape *shape, size_t bytes,
                                 void **data) {
    Onnx__TensorProto *t = get(w, sizeof *t);
    int64_t *dims = get(w, sizeof shape->dim);
    *data = get(w, bytes);
    if (w->failed) return NULL;
    onnx__tensor_proto__init(t);
    memcpy(dims, shape->dim, sizeof shape->dim);
    t->dims = dims;
    t->n_dims = (size_t)shape->rank;
    t->has_data_type = 1;
    t->data_type = type;
    t->has_raw_data = 1;
    t->raw_data = (ProtobufCBinaryData){.len = bytes, .data = *data};
    return t;
}

static const char *add_initializer(onnx_writer *w, const char *name, Onnx__TensorProto *t) {
    if (!w->failed &&
        !KOLO_GROW(w->graph.initializer, w->graph.n_initializer, w->cap_initializers)) {
        w->failed = true;
    }
    if (w->failed) return "";
    t->name = copy_text(w, name);
    w->graph.initializer[w->graph.n_initializer++] = t;
    return name;
}

/* Results of Constant nodes are not trained by those who read the file. */
static const char *add_constant(onnx_writer *w, const char *name, Onnx__TensorProto *t) {
    Onnx__NodeProto *node = new_node(w, "Constant");
    char *out = name ? copy_text(w, name) : fresh(w);
    if (!w->failed && !KOLO_GROW(w->constants, w->n_constants, w->cap_constants)) w->failed = true;
    if (w->failed) return "";
    Onnx__AttributeProto *value =
        attribute_of(w, node, "value", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    append(w, (void ***)(void *)&node->output, &node->n_output, out);
    if (w->failed) return "";
    value->t = t;
    w->constants[w->n_constants++] = node;
    return out;
}

void onnx_finish_nodes(onnx_writer *w) {
    const size_t n = w->n_constants + w->n_nodes;
    Onnx__NodeProto **all = get(w, n * sizeof *all);
    if (w->failed) return;
    for (size_t i = 0; i < n; i++) {
        all[i] = i < w->n_constants ? w->constants[i] : w->nodes[i - w->n_constants];
    }
    w->graph.node = all;
    w->graph.n_node = n;
}

const char *onnx_int_list(onnx_writer *w, const int64_t *i, int n) {
    void *data;
    const kolo_shape shape = kolo_shape_1(n);
    Onnx__TensorProto *t =
        tensor(w, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, &shape, (size_t)n * sizeof *i, &data);
    if (!w->failed) memcpy(data, i, (size_t)n * sizeof *i);
    return add_constant(w, NULL, t);
}

static Onnx__TensorProto *floats(onnx_writer *w, const kolo_shape *shape, float **data) {
    void *block;
    const size_t bytes = (size_t)kolo_shape_count(shape) * sizeof **data;
    Onnx__TensorProto *t = tensor(w, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, shape, bytes, &block);
    *data = block;
    return t;
}

const char *onnx_add_parameter(onnx_writer *w, const char *name, const kolo_shape *shape,
                               float **data) {
    return add_initializer(w, name, floats(w, shape, data));
}

const char *onnx_add_constant(onnx_writer *w, const char *name, const kolo_shape *shape,
                              float **data) {
    return add_constant(w, name, floats(w, shape, data));
}

const char *onnx_number_constant(onnx_writer *w, double number) {
    const kolo_shape scalar = kolo_shape_0();
    float *data;
    const char *name = onnx_add_constant(w, NULL, &scalar, &data);
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
        char rows[32] = "N"; /* samples; or rows of a flat matrix, some for each sample */
        int64_t each = shape->dim[0] / ONNX_SAMPLES;
        if (each > 1) snprintf(rows, sizeof rows, "%" PRId64 "*N", each);
        all->dim[0].dim_param = copy_text(w, rows);
    }
    return &all->info;
}
