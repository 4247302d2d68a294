#pragma once
/* The graph: values, nodes, and the descriptor of an op.
 *
 * Values are numbered. Each is a leaf (input, scalar, parameter, state) or an output of one node.
 * Nodes are in topological order, which all passes preserve. Everything is allocated in the graph's
 * arena; node pointers stay valid while nodes are added.
 *
 * An op is a const descriptor: its shape rule, gradient rule and cost, and the facts that passes
 * read. Kernels (kernel/kernel.h) execute ops. The ops are in src/op/: one file per family, with
 * the reference kernels, and its rows of the table (kernel/ref/table.h); graph/ops/ops.h documents
 * their inputs, outputs and attributes. */

#include "base/memory.h"
#include "base/name_index.h"
#include "base/text.h"
#include "kolo/custom_op.h"
#include "kolo/graph.h"
#include "mesh/placement.h"
#include "tensor/tensor.h"

enum {
    KOLO_MAX_ATTRS = 13,
    KOLO_NOTATION = 96, /* bytes of index notation */
    KOLO_MAX_IO = 8, /* inputs or outputs of a node that a kernel runs; post and wait have more */
};

typedef enum kolo_value_kind {
    KOLO_VALUE_TEMP,   /* output of a node */
    KOLO_VALUE_INPUT,  /* filled before the step */
    KOLO_VALUE_SCALAR, /* set before the step, in the binding table */
    KOLO_VALUE_PARAM,  /* trainable; two versions, see plan/plan.h */
    KOLO_VALUE_STATE,  /* optimizer state and running statistics; two versions too */
} kolo_value_kind;

/* A value that passes between two stages of a pipeline: activations to the next stage, or their
 * gradient to the one before (pass/stages.c). Number 0: no such value. */
typedef struct kolo_crossing {
    int number; /* the same on both sides */
    bool gradient;
    bool wants; /* activations: their gradient comes back */
    bool half;  /* it passes in bf16 */
    int chunk;  /* of this stage, which sends or receives it */
    int peer;   /* the stage on the other side, which may be this one */
} kolo_crossing;

/* The part of a step that a node runs in, on a stage of a pipeline. */
typedef enum kolo_step_segment {
    KOLO_SEGMENT_FORWARD,
    KOLO_SEGMENT_BACKWARD,
    KOLO_SEGMENT_WEIGHTS, /* gradients that no other stage waits for */
    KOLO_SEGMENT_UPDATE,  /* once per step */
} kolo_step_segment;

typedef struct kolo_value_info {
    const char *name; /* NULL for a TEMP without one */
    kolo_value_kind kind;
    kolo_tensor tensor;
    int32_t producer;     /* index of the node in graph->nodes, -1 for leaves */
    kolo_init init;       /* PARAM, STATE */
    const float *initial; /* PARAM, STATE: its initial elements, borrowed; NULL: drawn by `init` */
    kolo_shape canon;   /* PARAM, STATE: as in files, unsplit; TEMP: the largest slice, or rank 0 */
    kolo_value grad;    /* PARAM: its gradient, once the gradient pass has run; else none */
    kolo_value next_of; /* TEMP: the PARAM or STATE whose next version this is, else none */
    bool frozen;        /* PARAM: has no gradient and no update */
    bool in_place;      /* PARAM, STATE: one version, which its update overwrites */
    bool half;          /* TEMP of a pipeline before it is cut: bf16 in mixed precision */
    int64_t rows;       /* PARAM: capacity of its row-sparse gradient (ops.h); INPUT: pulled */
    int64_t all_rows;   /* capacity of that of all ranks and micro-batches; 0: one of each */
    /* How the ranks of the mesh hold it; of TEMPs as of the last propagation (graph/propagate.h).
     */
    kolo_placements placements;
    /* PARAM, STATE that is a slice or a flat shard: the logical tensor (`tensor` is local). Of a
     * flat shard also the slice that it is a range of, which is `whole` where no axis slices that,
     * and where the parameter stands among those that are cut together (pass/zero.c). */
    kolo_tensor whole, slice;
    int unit, place;
    int of_unit;      /* PARAM, STATE: the unit that reads it first, by the pass units; 0: none */
    uint64_t holders; /* PARAM, STATE: the stages that have it, a bit each; 0: all ranks */
    kolo_crossing crossing; /* INPUT: received */
    /* PARAM, or a view of one, that an earlier part of the model reads too: the message that its
     * gradient answers in each micro-batch. Number 0: none; stages add up sums once per step. */
    kolo_crossing tied;
    /* STATE of which each rank has a version of its own: their number, and which is this rank's.
     * `whole` has all of them, one behind the other. 0: not such a state. */
    int versions, version;
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
    bool with_updates; /* as that of an op */
    bool recomputed;   /* a copy of a forward node, for the backward pass */
    bool late;         /* moved behind the gradients of the first layer, by the pass late_weights */
    kolo_step_segment segment;
    int chunk;        /* of the stage, by the pass segments */
    int unit;         /* of the model, from 1, by the pass units; negative: of its backward pass */
    int region, lane; /* by the pass lanes: which nodes it runs beside, 0: none; and where */
    const struct kolo_redistribution *move; /* of a redistribute or own_range; of a post or encode
                                               one for each input; else NULL */
    const kolo_halo *halo; /* of a window: which rows each rank's results need; NULL: not divided */
} kolo_node;

/* A change of placements. */
typedef struct kolo_redistribution {
    kolo_placements from, to;
} kolo_redistribution;

typedef struct kolo_named_value {
    const char *name;
    kolo_value value;
    kolo_crossing crossing; /* sent, not reported */
    kolo_value gradient;    /* of what is sent and `wants`: the leaf that receives it */
    kolo_value parameter;   /* whose gradient it is, as which it is placed; else none */
    kolo_shape whole;       /* of which the ranks have slices; rank 0: of nothing */
} kolo_named_value;

struct kolo_graph {
    kolo_arena arena;
    kolo_dtype dtype;
    kolo_mesh mesh; /* of the ranks that run it; no axes: one rank, placements are not used */
    int rank;       /* of this one in the mesh */
    const struct kolo_device_kind *device; /* that runs it; NULL: the CPU */
    int blocks;         /* of tensor parallelism, whose sums follow one tree; 0: none */
    int stages;         /* of the pipeline that this graph is one stage of; 0: it is whole */
    int stage;          /* which one */
    int32_t n_whole;    /* of a stage: the first values, which are those of the whole model */
    int chunks;         /* parts of the model that it has */
    const char **units; /* by the pass units: the parameter that each begins with; NULL: none */
    int n_units;
    kolo_value_info *values;
    int32_t n_values;
    kolo_name_index names; /* of the leaves */
    kolo_node **nodes;
    int32_t n_nodes;
    kolo_named_value *outputs;
    int32_t n_outputs;
    size_t cap_values, cap_nodes, cap_outputs;
    kolo_status status; /* first failure of a builder call, with its text */
    char *failure;
    /* The frozen parameter with weights of the classes of the labels: a session divides the loss by
     * the sum of these over the labels; NULL: by the number of labels. */
    const char *label_weights;
    bool is_loss_of_whole; /* the loss is that of a whole batch, not a sum over parts of it */
};

#define KOLO_NONE ((kolo_value){.id = -1})

/* Whether this stage has a parameter or state, and whether it is the first one that has it. */
static inline bool kolo_is_held(const kolo_graph *g, const kolo_value_info *leaf) {
    return leaf->holders == 0 || (leaf->holders >> g->stage & 1);
}
static inline bool kolo_is_held_first(const kolo_graph *g, const kolo_value_info *leaf) {
    return kolo_is_held(g, leaf) && (leaf->holders & ((UINT64_C(1) << g->stage) - 1)) == 0;
}

/* The message to which the gradient of a leaf answers; number 0: none. */
static inline const kolo_crossing *kolo_answered(const kolo_value_info *leaf) {
    return leaf->tied.number > 0 ? &leaf->tied : &leaf->crossing;
}

static inline bool kolo_value_ok(kolo_value v) { return v.id >= 0; }
/* Whether v is a value of g. */
bool kolo_value_is_of(const kolo_graph *g, kolo_value v);
static inline kolo_value_info *kolo_info(const kolo_graph *g, kolo_value v) {
    KOLO_ASSERT(v.id >= 0 && v.id < g->n_values);
    return &g->values[v.id];
}

/* ---- ops ---- */

/* The arguments of a shape rule: tensors of the inputs and the attributes. The rule sets n_out and
 * out[], in plain layouts. Its error text describes the shapes; the caller adds the op's name. */
typedef struct kolo_shape_query {
    const kolo_attr *attr;
    int n_in;
    const kolo_tensor *in;
    int n_out;
    kolo_tensor *out; /* [KOLO_MAX_IO] */
    const struct kolo_op *op;
} kolo_shape_query;

/* Some of the places of a window along a dimension, of a node with these attributes and inputs. */
typedef struct kolo_window_query {
    const kolo_attr *attr;
    const kolo_shape *in;
    int64_t length, all; /* rows of the dimension, and places */
    kolo_interval places;
} kolo_window_query;

/* Work of one run of a node. */
typedef struct kolo_cost {
    double flops, bytes; /* a multiply-add is 2 flops; each tensor is read or written once */
} kolo_cost;

/* Names an attribute in a descriptor, where 0 means none. */
#define KOLO_ATTR(attribute) ((attribute) + 1)

/* Communication nodes, which a plan turns into steps of their own. */
typedef enum kolo_op_comm {
    KOLO_OP_LOCAL,
    KOLO_OP_REDISTRIBUTE, /* what a post and a wait are made from */
    KOLO_OP_ENCODE,       /* makes LOCAL values of a summand: a kernel, for a collective */
    KOLO_OP_SLICE,        /* takes this rank's part of a whole: no step */
    KOLO_OP_POST,
    KOLO_OP_WAIT
} kolo_op_comm;

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
    /* Replaces a node of min_in inputs that needs dimension 1 of input 0 whole, of `size` elements,
     * where that is sharded: adds nodes that take the shard, and sets by[i] to what replaces output
     * i, or to none. NULL: it stays as it is. */
    void (*divide)(kolo_graph *g, const kolo_node *n, int64_t size, kolo_value *by);

    /* What the op does along each dimension, in index notation (graph/index.h): placements follow
     * from it. index_of: it depends on attributes and shapes; returns a constant or `text`, in
     * which it has written up to KOLO_NOTATION bytes. */
    const char *index;
    const char *(*index_of)(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text);
    /* Of an op with a window (~ in the notation): the rows that places need. False: the op needs
     * them all. */
    bool (*window)(const kolo_window_query *q, kolo_interval *rows);
    /* Makes attributes those of a node that has these rows and gives these places. */
    void (*divide_window)(const kolo_window_query *q, kolo_interval rows, kolo_attr *attr);
    unsigned linear;        /* bit i: linear in input i; those of all addends at once */
    kolo_reduce_op combine; /* what outputs without an index are over it; default: sums */
    /* Attributes of a shard along an index: KOLO_ATTR of the number of its elements, of where they
     * begin, of the number of the whole, and, of index '*' for any dimension of input 0, of that
     * dimension. lengths: bits of attributes that are lengths or distances along the index. dims:
     * of the first of those that are the dimensions of output 0. sample: of where the samples
     * begin, along index 'n'; position: of where the positions of sequences begin, along index 't';
     * length: of the length of the sequence, where a rank has two ranges of it (zigzag).
     * other: of the first three attributes, first, all and dim, of a second dimension.
     * samples, rows: of the dimension of input 0 that the samples are along, and of its steps for
     * each sample. 0: none. */
    struct {
        char index;
        int size, first, all, dim, dims, sample, samples, rows, position, length, other;
        unsigned lengths;
    } part;

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
                           last use, if both have the same dtype and number of elements */
    int overwriter;
    bool in_place; /* changes only part of what it updates, so its output may overwrite input 0 */

    unsigned bf16;   /* bit i: mixed precision passes input i in bf16 */
    bool bf16_joins; /* only if another input is bf16 already: sums of losses stay f32 */

    bool kept;  /* outputs are small and never recomputed */
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
    bool with_updates; /* reads synchronized gradients, as updates do */
    bool lookup;       /* reads only the rows of input 0 that the ids, input 1, name */
    bool sequences;    /* along dimension 1 of input 0 and output 0, which are as long, it needs all
                          of a sample, and of dimension 0 any samples */
    struct {
        int keep; /* updates a running average: KOLO_ATTR of the weight of the old value */
    } average;
    /* Inputs that hold the positions of another rank, as bits, and outputs that belong to it:
     * KOLO_ATTR of by how many ranks they are rotated (kolo_placement.rotation). 0: none. */
    struct {
        unsigned in, out;
        int turn;
    } ring;

    bool tuned; /* kernels differ enough by shape and layout that autotuning measures them */

    /* Batching, as bits: inputs and outputs whose dimension 0 runs over independent samples, and
     * outputs that are sums over them. Such a node can be run on a part of the samples at a time.
     * No input: not such an op. */
    struct {
        unsigned in, out, sums;
    } samples;

    const kolo_custom_op *custom; /* an op of the program: its descriptor; else NULL */
} kolo_op;

/* Adds a node of `op` and stores its outputs in out[0..n_out), of size KOLO_MAX_IO. On an invalid
 * input or a failed graph, adds nothing and returns invalid outputs. Attributes may be NULL. */
void kolo_graph_add(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                    const kolo_attr *attr, kolo_value *out);
/* As kolo_graph_add, but returns the first output only. */
kolo_value kolo_graph_add1(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                           const kolo_attr *attr);
/* Adds a node without its shape rule, with any number of inputs and given output tensors. */
kolo_node *kolo_graph_add_raw(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                              int n_out, const kolo_tensor *out, const kolo_attr *attr);
/* Adds a state: a leaf, initially zero, that persists between steps; with the tensor and in_place
 * of `like`. */
kolo_value kolo_graph_state(kolo_graph *g, const char *name, kolo_value like);
/* Adds a state of the graph's dtype that is in_place and belongs to no parameter: its name begins
 * with "__", and it is in no file. */
kolo_value kolo_graph_buffer(kolo_graph *g, const char *name, kolo_shape shape);
/* The scalar of that name, added if there is none. I64: whole numbers and random-number keys. */
kolo_value kolo_graph_scalar(kolo_graph *g, const char *name, kolo_dtype dtype);
/* Stores the first failure, with the text of kolo_last_error. */
void kolo_graph_set_failed(kolo_graph *g, kolo_status status);

/* Finds a leaf by name; KOLO_NONE if there is none. */
kolo_value kolo_graph_find(const kolo_graph *g, const char *name);
/* What v is a view of, or v: no result of a view. */
kolo_value kolo_viewed(const kolo_graph *g, kolo_value v);
/* Finds an output by name; KOLO_NONE if there is none. */
kolo_value kolo_graph_output(const kolo_graph *g, const char *name);

/* A copy of the values, nodes and outputs, whose ids and order are the same. It borrows texts and
 * what nodes point to from g, which must outlive it, and its leaves are found by no name. Destroy
 * it with kolo_graph_destroy. NOMEM. */
kolo_status kolo_graph_copy(const kolo_graph *g, kolo_graph **copy);
/* Replaces the node list by nodes[0..n), in topological order, and renumbers producers. */
kolo_status kolo_graph_set_nodes(kolo_graph *g, kolo_node *const *nodes, int32_t n);
/* Removes nodes without a reader, a graph output or a next version among their outputs. */
kolo_status kolo_graph_prune(kolo_graph *g);

/* The shape query of an existing node; `in` and `out`, of size KOLO_MAX_IO, receive its tensors. */
kolo_shape_query kolo_node_query(const kolo_graph *g, const kolo_node *n, kolo_tensor *in,
                                 kolo_tensor *out);
kolo_cost kolo_node_cost(const kolo_graph *g, const kolo_node *n);
/* Whether the node is an update: it writes the next version of a parameter or state, it or its op
 * is `with_updates`, or it reads an output of such a node. */
bool kolo_node_is_update(const kolo_graph *g, const kolo_node *n);
/* Attribute `attribute` (KOLO_ATTR) of a node. */
static inline kolo_attr *kolo_node_attr(kolo_node *n, int attribute) {
    KOLO_ASSERT(attribute > 0);
    return &n->attr[attribute - 1];
}
/* Whether a node or an output of the graph reads v. */
bool kolo_value_is_read(const kolo_graph *g, kolo_value v);

/* Checks every invariant of this header. FORMAT, with the node: a violation. */
kolo_status kolo_graph_verify(const kolo_graph *g);

/* Appends the graph as text, one line per node: `%7 y f32 [64,6,28,28] acdb = conv2d(%0 x, %1 w)
 * pad_h=2`. */
void kolo_graph_print(const kolo_graph *g, kolo_text *text);
/* Appends the line of one node, without a line break. */
void kolo_node_print(const kolo_graph *g, const kolo_node *n, kolo_text *text);
