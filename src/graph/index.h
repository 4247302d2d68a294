#pragma once
/* Index notation of ops: which dimensions of the inputs an op keeps, sums over, or needs whole.
 *
 *     linear   n*i,oi+o->n*o      y[n,..,o] = sum over i of x[n,..,i] w[o,i], plus b[o]
 *     softmax  nC*,n*->,nC*       a sum over n and *; the classes C are needed whole
 *
 * A term for each input, then after the arrow one for each output; a letter for each dimension.
 * Trailing terms are those of optional inputs and outputs.
 *
 *     a..z  an index. The op does the same for each value of it: a slice of the inputs gives the
 *           slice of the outputs that have it; outputs without it are sums over it.
 *     A..Z  a dimension that must be whole; one letter may stand for different sizes
 *     2..9  before an index: the dimension consists of that many parts, each of which has it.
 *           Dimensions with one index may differ in size, such as heads and their channels
 *     (nt)  a dimension in which two are merged, n the outer one. A term must have n by itself
 *     ~     before an index that both inputs and outputs have: a window. Of an input: the slice of
 *           the outputs needs more than that slice of it, its halo. Of an output: a slice of the
 *           inputs gives more than that slice of it, summands where these overlap
 *     @     before an index: the dimension lists some values of it, whose numbers are elements of a
 *           tensor: the rows of a row-sparse gradient. Slices of the others give those of the slice
 *     *     any number of indices; those of all terms are the same
 *     #     any number of whole dimensions. A term has one * or # at most
 *     s     first in a term: no dimension. The value belongs to a shard of the samples, as the mean
 *           of a batch does, or the number of the first sample. Nothing else is called s. With an
 *           index after / that no output has, each slice along that gives a version of its own too
 *     ,     between factors     +   between addends, each of which has the factors up to the next
 *     /     in an output, before indices that it neither has nor sums over
 *     |     between alternatives; the first that fits the ranks of the tensors holds
 *
 * (Einstein notation, as in einops and in the sharding rules of XLA's Shardy.) */

#include "graph/graph.h"

enum {
    KOLO_INDEX_STAR = 0x100,  /* code of the first index of *; the others follow */
    KOLO_INDEX_WHOLE = 0x200, /* a dimension that must be whole */
};

typedef struct kolo_index_term {
    int n;                        /* dimensions */
    int code[KOLO_MAX_RANK];      /* a letter, KOLO_INDEX_STAR + i, or KOLO_INDEX_WHOLE */
    int parts[KOLO_MAX_RANK];     /* by dimension; 1 without a digit */
    bool window[KOLO_MAX_RANK];   /* ~ */
    bool listed[KOLO_MAX_RANK];   /* @ */
    int inner[KOLO_MAX_RANK];     /* of merged dimensions: the code of the inner one; else 0 */
    int64_t outer[KOLO_MAX_RANK]; /* then the length of the outer one */
    int n_without;                /* outputs: indices after '/' */
    int without[KOLO_MAX_RANK];
    bool by_shard; /* s */
    bool is_star;  /* the term is * alone */
    int addend;    /* inputs: number of the addend */
} kolo_index_term;

typedef struct kolo_index {
    int n_addends;
    kolo_index_term in[KOLO_MAX_IO], out[KOLO_MAX_IO];
} kolo_index;

/* Whether an op has a notation; ops of a program need not. */
static inline bool kolo_op_has_index(const kolo_op *op) { return op->index || op->index_of; }
/* The notation of an op with these attributes for inputs of these shapes, a constant or in `text`;
 * NULL: it has none. */
const char *kolo_op_notation(const kolo_op *op, const kolo_attr *attr, int n_in,
                             const kolo_shape *in, char text[KOLO_NOTATION]);
/* Reads the notation of an op for these shapes. FORMAT: no alternative fits, or the notation is
 * malformed; UNSUPPORTED: the op has none. */
kolo_status kolo_index_read(const kolo_op *op, const kolo_attr *attr, int n_in,
                            const kolo_shape *in, int n_out, const kolo_shape *out,
                            kolo_index *index);
/* The same for a node. */
kolo_status kolo_index_of(const kolo_graph *g, const kolo_node *n, kolo_index *index);
/* The dimension of a term that has the index; -1: none. */
int kolo_index_find(const kolo_index_term *term, int code);
/* Whether a term has a window along the index. */
bool kolo_index_is_window(const kolo_index_term *term, int code);
/* The parts of dimension d that each have the index. */
static inline int64_t kolo_index_parts(const kolo_index_term *term, int d, int code) {
    return code != 0 && term->inner[d] == code ? term->outer[d] : term->parts[d];
}
/* The index along which a sharded tensor with this term is cut. A cut of positions is one of the
 * inner dimension where two are merged (KOLO_DEPTH_POSITIONS). */
int kolo_index_of_cut(const kolo_index_term *term, const kolo_placement *cut);
