#pragma once
/* Ops of a program: a shape rule, a kernel and a gradient, used in graphs like the built-in ones.
 *
 *     static const kolo_custom_op snake = {
 *         .version = KOLO_CUSTOM_OP_VERSION, .name = "snake", .n_in = 2, .n_out = 1,
 *         .index = "nc*,c->nc*", .shape = snake_shape, .run = snake_run, .grad = snake_grad};
 *
 *     KOLO_TRY(kolo_custom_op_register(&snake));
 *     kolo_custom(g, "snake", (kolo_value[]){x, alpha}, 2, NULL, &y);
 *
 * A model in a shared object (kolo/models.h) registers its ops in its builder. */

#include "kolo/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the structures in this header; it changes when they do. */
#define KOLO_CUSTOM_OP_VERSION 1

enum {
    KOLO_CUSTOM_IO = 8,     /* inputs or outputs of an op */
    KOLO_CUSTOM_ATTRS = 12, /* attributes of an op */
};

typedef struct kolo_custom_tensor {
    kolo_dtype dtype;
    kolo_shape shape;
} kolo_custom_tensor;

/* The arguments of a shape rule. With several ranks the shapes are those of a rank's part. */
typedef struct kolo_custom_shapes {
    const double *attr;
    const kolo_custom_tensor *in; /* [n_in] of the op */
    kolo_custom_tensor *out;      /* [n_out] */
} kolo_custom_shapes;

/* One run of a kernel. Tensors are contiguous, in row-major order; outputs overlap no input. */
typedef struct kolo_custom_call {
    const double *attr;
    const kolo_custom_tensor *in, *out;
    const void *const *in_data; /* [n_in] */
    void *const *out_data;      /* [n_out]; not cleared */
    void *scratch;              /* scratch_bytes bytes, aligned to 64 */
    int threads;                /* that the kernel may use */
} kolo_custom_call;

/* A node, for a gradient rule. */
typedef struct kolo_custom_node {
    const double *attr;
    const kolo_value *in, *out; /* [n_in], [n_out] */
} kolo_custom_node;

/* An op. Zero fields below `run` are optional. Any thread calls the functions, several at once for
 * other sessions. `run` and `grad` fail by kolo_error_set in that thread, a step on all ranks. */
typedef struct kolo_custom_op {
    int version;      /* KOLO_CUSTOM_OP_VERSION */
    const char *name; /* lower-case letters, digits and _; at most 60, the first one a letter */
    int n_in, n_out;  /* 1 to KOLO_CUSTOM_IO */
    /* Sets dtype and shape of each output. May return an error, with a text by kolo_error_set that
     * describes the shapes. Integers are i32, i64 and u8; other numbers have the dtype of the
     * graph, f32 or f64, also in a session with bf16. */
    kolo_status (*shape)(const kolo_custom_shapes *s);
    /* Computes the outputs. It must depend on nothing but inputs and attributes. */
    void (*run)(const kolo_custom_call *call);
    const char *const *attrs; /* names of attributes in order, NULL-terminated */
    /* What the op does along each dimension, a letter each, so that ranks can compute a part each.
     * "nc*,c->nc*": every n and c on its own, and * any further dimensions; a capital letter is a
     * dimension that the op needs whole; outputs without an index are sums over it (matrix product:
     * "ni,oi->no"). NULL: the op runs on whole inputs alone, which activations of several workers
     * are not. A wrong notation gives wrong results on several workers. */
    const char *index;
    unsigned linear; /* bit i: linear in input i */
    /* Adds the nodes that compute the gradients of the inputs, built-in ops or own ones, and sets
     * d_in[i] where wants[i]; it is none before, which means zero. d_out[i] is none if output i has
     * no gradient. NULL: the op is not differentiable. */
    void (*grad)(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                 const bool *wants, kolo_value *d_in);
    /* Floating-point operations of a run, for estimates. NULL: few, time is that of the bytes. */
    double (*flops)(const kolo_custom_shapes *s);
    /* Memory of a run. NULL: none. */
    size_t (*scratch_bytes)(const kolo_custom_shapes *s);
} kolo_custom_op;

/* Adds an op of the program. `op` is borrowed until the process ends; registering it again has no
 * effect. Any thread. ARG, naming the field: it is missing or invalid, or another op has the name;
 * UNSUPPORTED: compiled with another KOLO_CUSTOM_OP_VERSION; NOMEM: 256 are registered. */
KOLO_API kolo_status kolo_custom_op_register(const kolo_custom_op *op);

/* Adds a node of a registered op and sets out[0..n_out); as the builder functions of kolo/graph.h,
 * invalid values after a failure (out[0] alone if there is no such op). attr [number of `attrs`];
 * NULL: zeros. ARG: no such op, another number of inputs, no array of inputs or outputs, or an
 * output or notation that does not fit. */
KOLO_API void kolo_custom(kolo_graph *g, const char *name, const kolo_value *in, int n_in,
                          const double *attr, kolo_value *out);

#ifdef __cplusplus
}
#endif
