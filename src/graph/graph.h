#pragma once
/* The graph as passes see it: values, nodes, ops.
 *
 * Values are numbered; each is a leaf (input, scalar, parameter, state) or the output of one node.
 * Nodes stand in an order in which each follows the producers of its inputs; passes keep it so.
 * Everything lives in the graph's arena; node pointers stay valid while nodes are added.
 *
 * An op is a const descriptor: its shape rule, its gradient as further nodes, its cost. What runs
 * it is a kernel (kernel/kernel.h). The ops, one file a family (ops/), are listed in op.c; their
 * inputs, outputs and attributes are documented in op.h. */

#include "base/memory.h"
#include "base/text.h"
#include "kolo/graph.h"
#include "tensor/tensor.h"

enum {
    KOLO_MAX_ATTRS = 12,
    KOLO_MAX_IO = 8, /* inputs or outputs of a node that a kernel runs; POST and WAIT have more */
};

typedef enum kolo_value_kind {
    KOLO_VALUE_TEMP,   /* output of a node */
    KOLO_VALUE_INPUT,  /* filled before the step */
    KOLO_VALUE_SCALAR, /* set before the step, in the binding table */
    KOLO_VALUE_PARAM,  /* trained; two versions, see plan/plan.h */
    KOLO_VALUE_STATE,  /* of the optimiser, and running statistics; two versions too */
} kolo_value_kind;

typedef struct kolo_value_info {
    const char *name; /* NULL for a TEMP without one */
    kolo_value_kind kind;
    kolo_tensor tensor;
    int32_t producer; /* index of the node in graph->nodes, -1 for leaves */
    kolo_init init;   /* PARAM, STATE */
    kolo_shape
        canon; /* PARAM, STATE: the shape that files show; tensor.shape may split it further */
    kolo_value grad;    /* PARAM: its gradient, once the gradient pass has run; else none */
    kolo_value next_of; /* TEMP: the PARAM or STATE whose next version this is, else none */
    bool in_place;      /* PARAM, STATE: kept in one version, into which its update writes */
    int64_t rows;       /* PARAM: room of its row-sparse gradient (op.h); 0: it is dense */
    int64_t all_rows;   /* and of that of all ranks; 0: there is one */
} kolo_value_info;

typedef union kolo_attr {
    int64_t i;
    double f;
} kolo_attr;

typedef struct kolo_node {
    const struct kolo_op *op;
    int n_in, n_out;
    kolo_value *in, *out;
    kolo_attr attr[KOLO_MAX_ATTRS];
    bool recomputed; /* makes for the backward pass what the forward pass made and did not keep */
} kolo_node;

typedef struct kolo_named_value {
    const char *name;
    kolo_value value;
} kolo_named_value;

struct kolo_graph {
    kolo_arena arena;
    kolo_dtype dtype;
    kolo_value_info *values;
    int32_t n_values;
    kolo_node **nodes;
    int32_t n_nodes;
    kolo_named_value *outputs;
    int32_t n_outputs;
    size_t cap_values, cap_nodes, cap_outputs;
    kolo_status status; /* first failure of a builder call, with its text */
    char *failure;
};

#define KOLO_NONE ((kolo_value){-1})

static inline bool kolo_value_ok(kolo_value v) { return v.id >= 0; }
static inline kolo_value_info *kolo_info(const kolo_graph *g, kolo_value v) {
    KOLO_ASSERT(v.id >= 0 && v.id < g->n_values);
    return &g->values[v.id];
}

/* ---- ops ---- */

/* What a shape rule sees: descriptors of the inputs, attributes; it fills n_out and out[]. A
 * failure is a text about the shapes; the caller puts the op's name before it. Layouts come out
 * plain. */
typedef struct kolo_shape_query {
    const kolo_attr *attr;
    int n_in;
    const kolo_tensor *in;
    int n_out;
    kolo_tensor *out; /* room for KOLO_MAX_IO */
} kolo_shape_query;

/* Work of one run of a node. */
typedef struct kolo_cost {
    double flops, bytes; /* multiply-add is two; bytes read and written once each */
} kolo_cost;

/* Names an attribute in a descriptor, where 0 means none. */
#define KOLO_ATTR(attribute) ((attribute) + 1)

/* Communication nodes, which a plan turns into steps of their own. */
typedef enum kolo_op_comm { KOLO_OP_LOCAL, KOLO_OP_POST, KOLO_OP_WAIT } kolo_op_comm;

/* An op: its rules, then the facts that passes and kernels read. Bits and letters count inputs and
 * outputs from 0. */
typedef struct kolo_op {
    const char *name;
    int min_in, max_in;
    const char *const *attrs; /* attribute names in order, NULL-terminated; "%name" is a double */
    kolo_status (*shape)(kolo_shape_query *q);
    /* Adds the nodes that compute the gradients of the inputs. d_out[i] is none if output i has no
     * gradient; sets d_in[i] where wants[i] (none is allowed: zero gradient). NULL: the op is not
     * differentiable. */
    void (*grad)(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                 kolo_value *d_in);
    /* NULL: no flops, the bytes of all inputs and outputs. */
    kolo_cost (*cost)(const kolo_shape_query *q);
    /* Rewrites a node for evaluation. Sets *by to a value that replaces output 0, if the node is
     * not needed. NULL: training and evaluation compute the same. */
    kolo_status (*evaluate)(const kolo_graph *g, kolo_node *n, kolo_value *by);

    /* Memory layout of each input and output, a letter each. Required unless `view`.
     *   a  activation: images (4-D) of one size share a layout, which the layout pass chooses
     *   w  weights, or their gradient: the first kernel that reads them chooses the layout
     *   e  elementwise: all tensors of the node with this letter share a layout
     *   p  plain (row-major), and scalars
     *   x  any layout */
    struct {
        const char *in, *out;
    } layout;
    bool view;          /* output 0 is input 0 under another shape: no kernel, no memory */
    unsigned overwrite; /* bit i: output `overwriter` may reuse the memory of input i after its
                           last use */
    int overwriter;
    bool in_place; /* changes only part of what it updates, so its output may overwrite input 0 */

    unsigned bf16;   /* bit i: mixed precision passes input i in bf16 */
    bool bf16_joins; /* only if another input is bf16 already: sums of losses stay f32 */

    bool cheap; /* bound by memory traffic: a candidate for recomputation */
    /* Recomputes output 0 with this op. The other outputs are kept from the forward pass and
     * replace the inputs from `kept` on. NULL: the op itself. */
    struct {
        const struct kolo_op *op;
        int kept;
    } recompute;

    /* What the fold pass may merge into a node of this op. */
    struct {
        int bias;     /* input that takes a bias per output channel; 0: none */
        int residual; /* input that takes a tensor to add to output 0; 0: none */
        int relu;     /* KOLO_ATTR of the flag that applies a ReLU to output 0; 0: none */
    } fuse;

    kolo_op_comm comm;
    bool with_updates; /* reads synchronised gradients, as updates do */
    bool gathered;     /* outputs are row-sparse: ranks gather them instead of summing */
    bool lookup;       /* reads only the rows of input 0 that the ids, input 1, name */
    struct {
        int keep; /* updates a running average: KOLO_ATTR of the weight of the old value */
    } average;

    bool tuned; /* kernels differ enough by shape and layout that autotuning measures them */

    /* Batching, as bits: inputs and outputs whose dimension 0 runs over independent samples, and
     * outputs that are sums over them. Such a node can be run on a part of the samples at a time.
     * No input: not such an op. */
    struct {
        unsigned in, out, sums;
    } samples;
} kolo_op;

/* Adds a node of `op`; its outputs go to out[0..n_out), which has room for KOLO_MAX_IO. Any invalid
 * input, or a failed graph, makes the outputs invalid and adds nothing. Attributes may be NULL. */
void kolo_graph_add(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                    const kolo_attr *attr, kolo_value *out);
/* As kolo_graph_add, for nodes whose first output alone matters. */
kolo_value kolo_graph_add1(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                           const kolo_attr *attr);
/* A node with any number of inputs and outputs whose tensors are given: POST, WAIT. */
kolo_node *kolo_graph_add_raw(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                              int n_out, const kolo_tensor *out, const kolo_attr *attr);
/* A leaf that is zero at first and kept between steps, shaped like `like`, and in place as it is.
 */
kolo_value kolo_graph_state(kolo_graph *g, const char *name, kolo_value like);
/* The scalar of that name, added if there is none. I64: whole numbers and random-number keys. */
kolo_value kolo_graph_scalar(kolo_graph *g, const char *name, kolo_dtype dtype);
/* Remembers the first failure. */
void kolo_graph_set_failed(kolo_graph *g, kolo_status status);

/* Finds a leaf by name; none when there is no such. */
kolo_value kolo_graph_find(const kolo_graph *g, const char *name);
/* Finds a named output; none when there is no such. */
kolo_value kolo_graph_output(const kolo_graph *g, const char *name);

/* Takes nodes[0..n) as the graph's new node list (a permutation, subset or extension of the old
 * one, in a valid order) and renumbers producers. */
kolo_status kolo_graph_set_nodes(kolo_graph *g, kolo_node *const *nodes, int32_t n);
/* Removes nodes none of whose outputs is used by a node, an output or a next version. */
kolo_status kolo_graph_prune(kolo_graph *g);

/* Fills a query from a node: descriptors of its inputs and outputs; in and out have room for
 * KOLO_MAX_IO. */
kolo_shape_query kolo_node_query(const kolo_graph *g, const kolo_node *n, kolo_tensor *in,
                                 kolo_tensor *out);
kolo_cost kolo_node_cost(const kolo_graph *g, const kolo_node *n);
/* Whether the node is an update: it makes the next version of a parameter or state; or stands with
 * them: its op does, or it reads what such an op makes. */
bool kolo_node_is_update(const kolo_graph *g, const kolo_node *n);
/* Of what an update reads: whether it is a result of the step that ranks sum, not a leaf, nor made
 * by a node that stands with the updates itself. */
bool kolo_value_needs_sync(const kolo_graph *g, kolo_value v);

/* Attribute `attribute` (KOLO_ATTR) of a node. */
static inline kolo_attr *kolo_node_attr(kolo_node *n, int attribute) {
    KOLO_ASSERT(attribute > 0);
    return &n->attr[attribute - 1];
}
/* Whether a node or an output of the graph reads v. */
bool kolo_value_is_read(const kolo_graph *g, kolo_value v);

/* Checks every invariant that this header states; FORMAT with the node named. Passes run it. */
kolo_status kolo_graph_verify(const kolo_graph *g);

/* Appends the graph as text, a line a node: `%7 y f32 [64,6,28,28] acdb = conv2d(%0 x, %1 w)
 * pad_h=2`. */
void kolo_graph_print(const kolo_graph *g, kolo_text *text);
/* One node's line without its end. */
void kolo_node_print(const kolo_graph *g, const kolo_node *n, kolo_text *text);
