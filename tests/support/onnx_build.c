/* onnx_build.h. */
#ifdef KOLO_HAS_ONNX

#include "support/onnx_build.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void onnx_file_init(onnx_file *f, int64_t opset) {
    memset(f, 0, sizeof *f);
    onnx__model_proto__init(&f->model);
    onnx__graph_proto__init(&f->graph);
    onnx__operator_set_id_proto__init(&f->opset);
    f->opset.has_version = 1;
    f->opset.version = opset;
    f->opsets[0] = &f->opset;
    f->model.n_opset_import = 1;
    f->model.opset_import = f->opsets;
    f->model.graph = &f->graph;
    f->graph.node = f->nodes;
    f->graph.initializer = f->tensors;
    f->graph.input = f->inputs;
    f->graph.output = f->outputs;
}

static Onnx__ValueInfoProto *add_info(onnx_file *f, const char *name, int type, int rank,
                                      const int64_t *dims) {
    KOLO_ASSERT(f->n_infos < ONNX_FILE_TENSORS && rank <= ONNX_FILE_DIMS);
    onnx_file_info *i = &f->info[f->n_infos++];
    onnx__value_info_proto__init(&i->info);
    onnx__type_proto__init(&i->type);
    onnx__type_proto__tensor__init(&i->tensor);
    onnx__tensor_shape_proto__init(&i->shape);
    i->info.name = (char *)(uintptr_t)name;
    i->info.type = &i->type;
    i->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    i->type.tensor_type = &i->tensor;
    i->tensor.has_elem_type = 1;
    i->tensor.elem_type = type;
    i->tensor.shape = &i->shape;
    i->shape.n_dim = (size_t)rank;
    i->shape.dim = i->dims;
    for (int d = 0; d < rank; d++) {
        onnx__tensor_shape_proto__dimension__init(&i->dim[d]);
        i->dims[d] = &i->dim[d];
        if (dims[d] > 0) {
            i->dim[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            i->dim[d].dim_value = dims[d];
        } else {
            i->dim[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            i->dim[d].dim_param = (char *)"n";
        }
    }
    return &i->info;
}

void onnx_file_input(onnx_file *f, const char *name, int type, int rank, const int64_t *dims) {
    f->inputs[f->graph.n_input++] = add_info(f, name, type, rank, dims);
}

void onnx_file_output(onnx_file *f, const char *name) {
    f->outputs[f->graph.n_output++] =
        add_info(f, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 0, NULL);
}

static Onnx__TensorProto *add_tensor(onnx_file *f, const char *name, int rank, const int64_t *dims,
                                     size_t *count) {
    const size_t k = f->graph.n_initializer++;
    KOLO_ASSERT(k < ONNX_FILE_TENSORS && rank <= ONNX_FILE_DIMS);
    Onnx__TensorProto *t = f->tensors[k] = &f->tensor[k];
    onnx__tensor_proto__init(t);
    t->name = (char *)(uintptr_t)name;
    t->has_data_type = 1;
    t->n_dims = (size_t)rank;
    t->dims = f->dims[k];
    *count = 1;
    for (int d = 0; d < rank; d++) {
        f->dims[k][d] = dims[d];
        *count *= (size_t)dims[d];
    }
    return t;
}

void onnx_file_floats(onnx_file *f, const char *name, int rank, const int64_t *dims,
                      const float *data) {
    size_t count;
    Onnx__TensorProto *t = add_tensor(f, name, rank, dims, &count);
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    t->n_float_data = count;
    t->float_data = (float *)(uintptr_t)data;
}

void onnx_file_integers(onnx_file *f, const char *name, int rank, const int64_t *dims,
                        const int64_t *data) {
    size_t count;
    Onnx__TensorProto *t = add_tensor(f, name, rank, dims, &count);
    t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    t->n_int64_data = count;
    t->int64_data = (int64_t *)(uintptr_t)data;
}

/* Copies the names to `text` behind what is there. */
static size_t split(char *text, size_t room, const char *names, char **list) {
    size_t n = 0, at = strlen(text);
    at += at > 0;
    KOLO_ASSERT(at + strlen(names) + 1 < room);
    strcpy(text + at, names);
    for (char *rest, *name = strtok_r(text + at, " ", &rest); name;
         name = strtok_r(NULL, " ", &rest)) {
        KOLO_ASSERT(n < ONNX_FILE_NAMES);
        list[n++] = strcmp(name, "-") == 0 ? (char *)"" : name;
    }
    return n;
}

void onnx_file_node(onnx_file *f, const char *op, const char *in, const char *out) {
    KOLO_ASSERT(f->graph.n_node < ONNX_FILE_NODES);
    onnx_file_node_parts *n = &f->node[f->graph.n_node];
    f->nodes[f->graph.n_node++] = &n->node;
    onnx__node_proto__init(&n->node);
    n->node.op_type = (char *)(uintptr_t)op;
    n->node.n_input = split(n->text, sizeof n->text / 2, in, n->in);
    n->node.input = n->in;
    char *second = n->text + sizeof n->text / 2;
    n->node.n_output = split(second, sizeof n->text / 2, out, n->out);
    n->node.output = n->out;
    n->node.attribute = n->attributes;
}

static Onnx__AttributeProto *add_attribute(onnx_file *f, const char *name) {
    KOLO_ASSERT(f->graph.n_node > 0);
    onnx_file_node_parts *n = &f->node[f->graph.n_node - 1];
    KOLO_ASSERT(n->node.n_attribute < ONNX_FILE_NAMES);
    Onnx__AttributeProto *a = &n->attribute[n->node.n_attribute];
    n->attributes[n->node.n_attribute++] = a;
    onnx__attribute_proto__init(a);
    a->name = (char *)(uintptr_t)name;
    a->has_type = 1;
    return a;
}

void onnx_file_int(onnx_file *f, const char *name, int64_t value) {
    Onnx__AttributeProto *a = add_attribute(f, name);
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    a->has_i = 1;
    a->i = value;
}

void onnx_file_float(onnx_file *f, const char *name, float value) {
    Onnx__AttributeProto *a = add_attribute(f, name);
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    a->has_f = 1;
    a->f = value;
}

void onnx_file_text(onnx_file *f, const char *name, const char *value) {
    Onnx__AttributeProto *a = add_attribute(f, name);
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    a->has_s = 1;
    a->s.data = (uint8_t *)(uintptr_t)value;
    a->s.len = strlen(value);
}

static uint8_t *pack(const onnx_file *f, size_t *bytes) {
    *bytes = onnx__model_proto__get_packed_size(&f->model);
    uint8_t *packed = malloc(*bytes);
    KOLO_ASSERT(packed);
    onnx__model_proto__pack(&f->model, packed);
    return packed;
}

kolo_status onnx_file_write(onnx_file *f, const char *path) {
    size_t bytes;
    uint8_t *packed = pack(f, &bytes);
    FILE *file = fopen(path, "wb");
    const bool written = file && fwrite(packed, 1, bytes, file) == bytes;
    const bool closed = file && fclose(file) == 0;
    free(packed);
    return written && closed ? KOLO_OK : KOLO_FAIL(KOLO_ERR_IO, "cannot write %s", path);
}

kolo_status onnx_file_open(onnx_file *f, const kolo_onnx_opts *opts, kolo_onnx **onnx) {
    size_t bytes;
    uint8_t *packed = pack(f, &bytes);
    kolo_status status = onnx_open_bytes(packed, bytes, "net.onnx", opts, onnx);
    free(packed);
    return status;
}

#endif
