#pragma once
/* Small ONNX files in memory. With KOLO_HAS_ONNX only.
 *
 *     static onnx_file f;
 *     onnx_file_init(&f, 18);
 *     onnx_file_input(&f, "x", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 2, (int64_t[]){0, 3});
 *     onnx_file_floats(&f, "w", 2, (int64_t[]){3, 4}, w);
 *     onnx_file_node(&f, "MatMul", "x w", "y");
 *     onnx_file_output(&f, "y");
 *     ASSERT_OK(onnx_file_open(&f, NULL, &onnx));
 *
 * Names and elements are borrowed until the file is opened, dimensions are copied. */

#include "onnx/import/file.h"

enum { ONNX_FILE_NODES = 16, ONNX_FILE_TENSORS = 16, ONNX_FILE_NAMES = 8, ONNX_FILE_DIMS = 6 };

typedef struct onnx_file_info {
    Onnx__ValueInfoProto info;
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dim[ONNX_FILE_DIMS], *dims[ONNX_FILE_DIMS];
} onnx_file_info;

typedef struct onnx_file_node_parts {
    Onnx__NodeProto node;
    Onnx__AttributeProto attribute[ONNX_FILE_NAMES], *attributes[ONNX_FILE_NAMES];
    char text[200]; /* the names */
    char *in[ONNX_FILE_NAMES], *out[ONNX_FILE_NAMES];
} onnx_file_node_parts;

typedef struct onnx_file {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    onnx_file_node_parts node[ONNX_FILE_NODES];
    Onnx__NodeProto *nodes[ONNX_FILE_NODES];
    Onnx__TensorProto tensor[ONNX_FILE_TENSORS], *tensors[ONNX_FILE_TENSORS];
    int64_t dims[ONNX_FILE_TENSORS][ONNX_FILE_DIMS];
    onnx_file_info info[ONNX_FILE_TENSORS];
    Onnx__ValueInfoProto *inputs[ONNX_FILE_TENSORS], *outputs[ONNX_FILE_TENSORS];
    size_t n_infos;
} onnx_file;

void onnx_file_init(onnx_file *f, int64_t opset);
/* Dimensions of 0 are open. */
void onnx_file_input(onnx_file *f, const char *name, int type, int rank, const int64_t *dims);
void onnx_file_output(onnx_file *f, const char *name);
/* Initializers. */
void onnx_file_floats(onnx_file *f, const char *name, int rank, const int64_t *dims,
                      const float *data);
void onnx_file_integers(onnx_file *f, const char *name, int rank, const int64_t *dims,
                        const int64_t *data);
/* A node; names are separated by blanks, and "-" leaves one out. */
void onnx_file_node(onnx_file *f, const char *op, const char *in, const char *out);
/* Attributes of the latest node. */
void onnx_file_int(onnx_file *f, const char *name, int64_t value);
void onnx_file_float(onnx_file *f, const char *name, float value);
void onnx_file_text(onnx_file *f, const char *name, const char *value);
/* Writes it to a path. */
kolo_status onnx_file_write(onnx_file *f, const char *path);
/* Reads it. `opts` may be NULL. */
kolo_status onnx_file_open(onnx_file *f, const kolo_onnx_opts *opts, kolo_onnx **onnx);
