#pragma once
/* The importer: walks the nodes of an ONNX graph in order and adds ops to a kolo_graph.
 *
 * Each name stands for an item: a constant on the host, or a value of the graph. Nodes whose inputs
 * are all constants are computed on the host (fold.c), which removes the arithmetic on shapes that
 * exporters emit. An initializer that can be trained counts as a value; it becomes a parameter when
 * a node first reads it. A boolean value of the graph is a float of 0 or 1.
 *
 * The batch: the file states one size b of the first dimension of its inputs, or names it (then b
 * is 1). A graph for n samples replaces it in the inputs, and in constant shapes where the elements
 * of a batch are rearranged (onnx_reshape). The batch dimension is recognized by its size, and n
 * may equal other sizes: 3 samples and 3 colours. So the nodes are first mapped for a number of
 * samples that no other size equals, and these decisions are then applied to n. */

#include "graph/graph.h"
#include "onnx/import/file.h"

typedef struct onnx_item {
    const char *name;
    bool constant; /* `tensor` holds it */
    bool trained;  /* an initializer that becomes a parameter */
    bool batched;  /* depends on an input */
    bool boolean;  /* a value of 0 and 1 */
    bool whole;    /* a value of integers in f32, such as places */
    host_tensor tensor;
    kolo_value value;               /* of the graph; none: not needed so far */
    const struct onnx_item *turned; /* the matrix whose transpose this is, or NULL */
    kolo_value rows;                /* [A,B,C], where this is [A B,C]; else none */
    struct onnx_item *tied;         /* the parameter whose transpose this is, or NULL */
    const struct onnx_item *tested; /* this is IsNaN of that value, or NULL */
} onnx_item;

/* Decisions in the order of the walk, each with the number of its node. */
typedef struct onnx_decision {
    size_t node;
    int value;
} onnx_decision;
typedef struct onnx_decisions {
    onnx_decision *items;
    size_t n, cap;
} onnx_decisions;

/* A loss of labels: `value` is the sum over all labels, or their mean. */
typedef struct onnx_loss {
    kolo_value value, sum, labels;
    kolo_value counted; /* the number of labels that are not ignored, if some may be; else none */
    kolo_loss_opts opts;
    bool mean, is_xent; /* `sum` is a cross-entropy */
} onnx_loss;

typedef struct onnx_import {
    kolo_onnx *onnx;
    kolo_graph *g;
    int64_t samples, stated; /* n and b; equal: the file's own sizes */
    bool open;               /* the file leaves its batch open: b is 1 */
    kolo_arena arena;        /* items, and constants that the graph does not read */
    kolo_name_index index;   /* of the items */
    onnx_item **items;
    size_t n_items, cap_items;
    onnx_loss *losses; /* of the nodes so far */
    size_t n_losses, cap_losses;
    int64_t computed; /* elements of constants that the importer has made, and copies of values */
    onnx_decisions *decisions;
    bool decide; /* records them; else follows those from `decided` on */
    bool failed; /* no memory for them */
    size_t decided;
    size_t node;         /* the number of the one that is mapped */
    kolo_value batch_of; /* a value with the batch as first dimension; none: not yet */
} onnx_import;

enum { ONNX_MAX_IN = 64 };

/* A decision about the batch: what was decided for this node before, in the same order; `own`, by
 * the sizes of this walk, where nothing was. */
int onnx_decide(onnx_import *m, int own);

/* A node while it is mapped. */
typedef struct onnx_call {
    onnx_import *m;
    kolo_graph *g; /* of m */
    const Onnx__NodeProto *node;
    int64_t opset;
    int n_in, n_out;
    onnx_item **in; /* NULL: left out */
} onnx_call;

/* An operator: a row of the table in ops.c. */
typedef struct onnx_op {
    const char *name;
    kolo_status (*map)(onnx_call *c);
    /* Computes it on constants. NULL: not possible. */
    kolo_status (*fold)(onnx_call *c);
    int min_in, max_in;
    const char *attributes; /* those that it reads, each followed by a space */
} onnx_op;
extern const onnx_op onnx_ops[]; /* ends with a name of NULL */

/* What a session trains on for the output "loss", v: a sum over the samples where v is a mean. */
kolo_value onnx_loss_to_train(onnx_import *m, kolo_value v);

/* The item of a name, or NULL; a new one, FORMAT: the name has one. */
onnx_item *onnx_find_item(const onnx_import *m, const char *name);
kolo_status onnx_add_item(onnx_import *m, const char *name, onnx_item **out);

/* A text of the file, which may lack it. */
static inline const char *onnx_text(const char *text) { return text ? text : ""; }

/* Fails for this node: "net.onnx: node "conv" (Conv): ...". */
#define ONNX_FAIL(c, ...) onnx_fail((c), __FILE__, __LINE__, __VA_ARGS__)
kolo_status onnx_fail(const onnx_call *c, const char *file, int line, const char *fmt, ...)
    KOLO_PRINTF(4, 5);

/* ---- attributes; the default where the node lacks it ---- */

const Onnx__AttributeProto *onnx_attribute(const onnx_call *c, const char *name);
int64_t onnx_int(const onnx_call *c, const char *name, int64_t preset);
double onnx_float(const onnx_call *c, const char *name, double preset);
/* Whether the attribute is this text; `preset` if there is none. */
bool onnx_text_is(const onnx_call *c, const char *name, const char *text, bool preset);
/* Integers, at most `most`; *n is -1 if there are none. */
kolo_status onnx_ints(const onnx_call *c, const char *name, int64_t *out, int most, int *n);

/* ---- inputs ---- */

static inline bool onnx_has(const onnx_call *c, int i) { return i < c->n_in && c->in[i]; }
/* Whether an input holds integers, or booleans. */
bool onnx_is_integer(const onnx_call *c, int i);
bool onnx_is_boolean(const onnx_call *c, int i);
/* The shape of an input. */
kolo_shape onnx_shape(const onnx_call *c, int i);
/* The value of an input in the graph; constants become frozen parameters. An operand may have a
 * first dimension of 1 where the constant repeats. */
kolo_status onnx_operand(onnx_call *c, int i, kolo_value *v);
kolo_status onnx_value(onnx_call *c, int i, kolo_value *v);
/* An input that must be a constant, with elements. */
kolo_status onnx_constant(onnx_call *c, int i, const host_tensor **t);
/* An input of integers, as a list; *n is -1 if it is left out. */
kolo_status onnx_list(onnx_call *c, int i, int64_t *out, int most, int *n);
/* Integers of the attribute before opset `since`, of input i from then on. */
kolo_status onnx_list_since(onnx_call *c, int64_t since, int i, const char *name, int64_t *out,
                            int most, int *n);
/* A number that is one constant element; `preset` if it is left out. */
kolo_status onnx_number(onnx_call *c, int i, double preset, double *number);
/* Whether an input is a constant with one element that is not trained. */
bool onnx_is_number(const onnx_call *c, int i, double *number);
/* Element k of a host tensor. */
static inline double host_number(const host_tensor *t, int64_t k) {
    return t->integer ? (double)t->i[k] : (double)t->f[k];
}
/* Makes a dimension of `rank` from one that may be negative. */
kolo_status onnx_axis(const onnx_call *c, int64_t axis, int rank, int *out);

/* ---- outputs ---- */

/* Sets output i, a value of the graph. */
kolo_status onnx_set(onnx_call *c, int i, kolo_value v);
kolo_status onnx_set_boolean(onnx_call *c, int i, kolo_value v);
kolo_status onnx_set_whole(onnx_call *c, int i, kolo_value v);
/* Sets output 0 to [A B,C], which is `rows` [A,B,C]: operators that treat rows alike go on with
 * that, because the samples may be the second dimension, which a merged one hides. */
kolo_status onnx_set_rows(onnx_call *c, kolo_value rows);
/* Sets output i, a constant. Elements are in the arena. */
kolo_status onnx_set_constant(onnx_call *c, int i, const host_tensor *t);
/* A constant for it, without elements yet: writable ones in *f or *i. */
kolo_status onnx_new_constant(onnx_call *c, const kolo_shape *shape, bool integer, host_tensor *t,
                              float **f, int64_t **i);

/* ---- helpers of operators ---- */

/* Room for `count` floats or indices in the arena. A file may ask for HOST_MOST of both in all. */
kolo_status onnx_floats(onnx_call *c, int64_t count, float **f);
kolo_status onnx_indices(onnx_call *c, int64_t count, int64_t **i);
kolo_status onnx_copies(onnx_call *c, int64_t count, kolo_value **v);
/* A frozen parameter. The elements are copied. */
kolo_status onnx_table(onnx_call *c, const char *wanted, const kolo_shape *shape, const float *f,
                       kolo_value *v);
/* x repeated to a shape that it can be broadcast to. */
kolo_status onnx_expand(onnx_call *c, kolo_value x, const kolo_shape *shape, kolo_value *y);
/* Elements index[0..n) of x along an axis. */
kolo_status onnx_pick(onnx_call *c, kolo_value x, int axis, const int64_t *index, int64_t n,
                      kolo_value *y);
/* x without its fraction, towards zero, as a conversion to integers. */
kolo_value onnx_truncated(kolo_graph *g, kolo_value x);
/* x as `shape`. */
static inline kolo_value onnx_as(onnx_call *c, kolo_value x, kolo_shape shape) {
    return kolo_reshape(c->g, x, shape);
}
/* The name of a leaf that the graph does not have, after one of the file; arena. */
char *onnx_leaf_name(onnx_import *m, const char *name);
/* The broadcast of two shapes. False: they do not fit. */
bool onnx_broadcast(const kolo_shape *a, const kolo_shape *b, kolo_shape *out);
