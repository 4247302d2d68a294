#pragma once
/* An ONNX file in memory: unpacked messages and host tensors.
 *
 * Sizes, depths and references come from the file and are checked before use. */

#include "base/file.h"
#include "base/memory.h"
#include "base/name_index.h"
#include "kolo/onnx.h"

#include <onnx.pb-c.h>

/* A tensor on the host. Floating-point elements are float; integers and booleans int64_t.
 * Dimensions may be 0. */
typedef struct host_tensor {
    kolo_shape shape;
    int64_t count;
    bool integer, boolean; /* boolean: integers 0 and 1 */
    const float *f;        /* one of both; NULL: the tensor has been described, not read */
    const int64_t *i;
} host_tensor;

/* Attention masks hold minus infinity, or a number that exp turns into 0: -1e30, -3.4e38. No
 * weight is as large. */
#define ONNX_LEAST_OF_MASKS 1e9F

enum { HOST_MOST = 1 << 25 }; /* elements of all constants that the importer computes */

/* Where an initializer comes from. Those from ONNX_COMPUTED to ONNX_PARAMETER are trained. */
typedef enum onnx_origin {
    ONNX_CONSTANT,
    ONNX_COMPUTED, /* by the exporter, maybe from parameters */
    ONNX_DERIVED,  /* by the exporter from a parameter */
    ONNX_PARAMETER,
    ONNX_BUFFER, /* the file states it */
} onnx_origin;

typedef struct onnx_initializer {
    const char *name;
    host_tensor tensor;
    onnx_origin origin;
    const char *transposed; /* the parameter that this is the transpose of; NULL: none */
} onnx_initializer;

struct kolo_onnx {
    char *path;
    char *notice; /* on initializers that may be constants; NULL: none */
    kolo_onnx_opts opts;
    Onnx__ModelProto *model;
    kolo_arena arena;      /* converted elements */
    kolo_file_view *views; /* external data */
    char **view_names;
    size_t n_views, cap_views, cap_names;
    onnx_initializer *initializers;
    size_t n_initializers;
    kolo_name_index index;  /* of the initializers */
    bool states_parameters; /* the file names them */
    int64_t opset;
    kolo_shape sample; /* of the first input */
    bool integers;
    int64_t classes;
};

/* Unpacks a model and reads its initializers. `path` is for errors and external data. */
kolo_status onnx_parse(const uint8_t *bytes, size_t length, const char *path,
                       const kolo_onnx_opts *opts, kolo_onnx **result);
/* Finds out where the initializers come from: signature.c. NOMEM. */
kolo_status onnx_find_parameters(kolo_onnx *onnx);
/* The tensor of a message; converted elements are in `arena`. The text of an error begins with
 * `what`. */
kolo_status onnx_read_tensor(kolo_onnx *onnx, const Onnx__TensorProto *t, const char *what,
                             kolo_arena *arena, host_tensor *out);
/* Elements of the shape; -1: more than `most`, or a negative dimension. */
int64_t host_count(const kolo_shape *shape, int64_t most);
/* kolo_onnx_open from memory. */
kolo_status onnx_open_bytes(const uint8_t *bytes, size_t length, const char *path,
                            const kolo_onnx_opts *opts, kolo_onnx **result);
