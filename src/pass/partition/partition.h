#pragma once
/* What the files of the pass partition share: its state, and the redistributions that it
 * inserts. */

#include "graph/index.h"
#include "pass/pass.h"

#include <string.h>

/* The depth of cuts of experts, and of slices that differ in length: they are exchanged as
 * positions are, and merged with nothing. */
enum { KOLO_DEPTH_EXPERTS = KOLO_DEPTH_POSITIONS + 1, KOLO_DEPTH_UNEVEN };

typedef struct partitioner {
    kolo_graph *g;
    kolo_value *now;                    /* by value: what later nodes read; or none */
    kolo_value (*read)[KOLO_MESH_AXES]; /* by value: as REPLICATED on an axis; or none */
    bool *used;                         /* by value: a node read it */
    int32_t *origin;    /* by sharded value: the parameter or input that it is so by */
    kolo_shape *whole;  /* by value: its shape on a rank of the axis dp */
    kolo_axes *varying; /* by value: axes on which each rank computes a summand of
                           the gradient, though all hold the same */
    const char *rules;
    int sums;               /* the dimension along which activations that are sums are sharded, or
                               KOLO_PLACE_WHOLE */
    int sums_depth;         /* of these cuts */
    bool in_blocks;         /* of layers in blocks: those by samples are whole */
    kolo_axes by_samples;   /* axes that divide the samples of some layers */
    kolo_axes exchanged;    /* axes along which the node has no slice of the positions, but
                               heads or samples, or all positions */
    bool rings;             /* keys and values go round the ranks that divide positions, */
    bool zigzags;           /* of which each has two ranges, where there are enough */
    bool divides_positions; /* a node computes with some of the positions, or rows of images */
    bool patches;           /* the model makes a sequence of patches of images, which are whole */
    kolo_axes by_patches;   /* axes that divide this sequence, from the first layer on */
    int32_t n_values, most; /* values before and after values are added */
    kolo_node **order;
    int32_t n;
} partitioner;

/* One node on one axis, where input `lead` is cut along index `code`. */
typedef struct cut_node {
    kolo_node *n;
    const kolo_index *index;
    int axis, lead, code;
    bool summed;    /* an output lacks the index */
    bool undivided; /* it has a window that needs all */
} cut_node;

static inline bool is_of_samples(const partitioner *p, int axis) {
    return strcmp(p->g->mesh.axes[axis].name, "dp") == 0;
}

/* Whether an axis divides the positions of sequences. */
static inline bool is_of_positions(const partitioner *p, int axis) {
    return strcmp(p->g->mesh.axes[axis].name, "sp") == 0;
}

/* Whether an axis divides experts, and the samples of all other layers. */
static inline bool is_of_experts(const partitioner *p, int axis) {
    return strcmp(p->g->mesh.axes[axis].name, "ep") == 0;
}

/* Whether an axis divides what is read, not layers by rules: losses are sums over its ranks. */
static inline bool is_of_inputs(const partitioner *p, int axis) {
    return is_of_positions(p, axis) || is_of_experts(p, axis);
}

/* Whether an axis divides layers: it has several ranks, and is no axis of samples or stages. */
static inline bool divides_layers(const kolo_mesh *mesh, int axis) {
    const char *name = mesh->axes[axis].name;
    return mesh->axes[axis].size > 1 && strcmp(name, "dp") != 0 && strcmp(name, "pp") != 0;
}

static inline bool is_cut(const kolo_placement *p) { return p->kind == KOLO_PLACEMENT_SHARDED; }

/* How many elements of a dimension of `length` a cut along an axis leaves to this rank. */
static inline int64_t local_length(const partitioner *p, int axis, const kolo_placement *cut,
                                   int64_t length) {
    return kolo_placement_count(cut, length, p->g->mesh.axes[axis].size,
                                kolo_mesh_coordinate(&p->g->mesh, p->g->rank, axis));
}

static inline kolo_placement *placed(const partitioner *p, kolo_value v, int axis) {
    return &kolo_info(p->g, v)->placements.axis[axis];
}

/* ---- the walk: partition.c ---- */

/* kolo_pass_partition; with `in_blocks` for one of the ranks that have a block each (blocks.c). */
kolo_status kolo_partition_graph(kolo_graph *g, const char *rules, bool sharded_outputs,
                                 bool in_blocks);

/* ---- redistributions: moves.c ---- */

/* v under another placement on one axis, of this local shape. */
kolo_value kolo_partition_move(partitioner *p, kolo_value v, int axis, const kolo_placement *to,
                               const kolo_shape *shape);
/* The same, of the same shape. */
kolo_value kolo_partition_move_to(partitioner *p, kolo_value v, int axis, kolo_placement_kind kind);
/* A whole activation, each rank of the axis computing a summand of its gradient. */
kolo_value kolo_partition_replicate(partitioner *p, kolo_value v, int axis);
/* The shape of v before it is cut along an axis: whole, or what axes around that leave of it. The
 * samples of ep are around positions, and these around sums that the rules shard. */
kolo_shape kolo_partition_shape_before(const partitioner *p, kolo_value v, int axis);
/* An activation of which the ranks of an axis have slices, as a whole. */
kolo_value kolo_partition_collect(partitioner *p, kolo_value v, int axis, kolo_placement_kind kind);
/* The same, each rank of the axis computing a summand of its gradient. */
kolo_value kolo_partition_collect_once(partitioner *p, kolo_value v, int axis);
/* The slice of v that this rank has under a placement on an axis. */
kolo_value kolo_partition_slice(partitioner *p, kolo_value v, int axis, const kolo_placement *cut);

/* ---- cuts of parameters and nodes: cut.c ---- */

/* Places a leaf on an axis; its tensor becomes local. ARG: it cannot be divided. */
kolo_status kolo_partition_cut_leaf(const partitioner *p, int axis, kolo_value leaf,
                                    const kolo_placement *cut);
/* Cuts a node along all axes that divide layers: positions after what layers compute, as they are
 * cut inside it. *summed: an output lacks an index that is cut. UNSUPPORTED, ARG: what the op
 * cannot compute of a slice. */
kolo_status kolo_partition_cut_node(partitioner *p, kolo_node *n, bool *summed);
/* Cuts a node that others will replace, along those of `axes` on which an input is cut. */
kolo_status kolo_partition_cut_replaced(partitioner *p, kolo_node *n, kolo_axes axes);

/* ---- positions of sequences: positions.c ---- */

/* Reads the rule of attention. UNSUPPORTED: what rules do not go with. */
kolo_status kolo_partition_check_positions(partitioner *p, int axis);
/* Slices the positions of the ids that an embedding reads. ARG: there are fewer than ranks. */
kolo_status kolo_partition_begin_positions(partitioner *p, kolo_node *n, int axis);
/* Gives an op that needs all positions, but computes heads or samples one by one, some of these
 * instead of some of the positions: an all-to-all. False: it is no such op, or there are fewer
 * samples than ranks. */
bool kolo_partition_exchange_positions(partitioner *p, const cut_node *c);
/* Makes attention that of a ring, where the rules state it: each rank has its queries, and the pass
 * ring moves keys and values. False: it is no such op, or has heads. */
bool kolo_partition_take_ring(const partitioner *p, const cut_node *c);
/* The other way: positions, dimension 1, in place of heads or samples, or of all positions. */
kolo_value kolo_partition_give_positions(partitioner *p, kolo_value v, int axis);
/* Evaluation reports sums over the positions of all ranks, training sums them with the gradients.
 * UNSUPPORTED: no node computes with some of the positions. */
kolo_status kolo_partition_finish_positions(partitioner *p, int axis);

/* ---- rows of images: rows.c ---- */

/* Slices the rows of the images that the model reads. ARG: there are fewer than ranks. */
kolo_status kolo_partition_begin_rows(partitioner *p, int axis);
/* Whether the ranks of an axis have rows of an image each. */
bool kolo_partition_has_rows(const partitioner *p, kolo_value v, int axis);
/* Whether the op has a window along the index of the cut. */
bool kolo_partition_is_window(const cut_node *c);
/* Divides a window: gives its inputs their halos, and makes attributes those of this rank. *taken:
 * false, where the op needs all rows. */
kolo_status kolo_partition_take_rows(partitioner *p, const cut_node *c, bool *taken);
/* Adds summands of a halo to the rows of the ranks that have these. */
kolo_value kolo_partition_give_rows(partitioner *p, kolo_value v, int axis);
/* Whether a node sums over all rows of an image of which the ranks have some each. */
bool kolo_partition_sums_rows(const partitioner *p, const kolo_node *n);
/* Replaces it: adds nodes, and sets by[i] to what replaces output i. What it reads is cut along the
 * other axes. */
void kolo_partition_add_row_sums(const partitioner *p, const kolo_node *n, kolo_value *by);

/* ---- experts: experts.c ---- */

/* Whether the model has mixtures. */
bool kolo_partition_has_experts(const partitioner *p);
/* Slices the samples of all inputs, if they divide. UNSUPPORTED: there are
 * no experts, or what they do not go with; ARG: fewer experts than ranks. */
kolo_status kolo_partition_begin_experts(partitioner *p, int axis);
/* What was dispatched, for the experts of this rank: an all-to-all where samples are divided. */
kolo_value kolo_partition_to_experts(partitioner *p, kolo_value v, int axis);
/* The other way, before the node that combines. */
kolo_status kolo_partition_from_experts(partitioner *p, kolo_node *n, int axis);
/* Evaluation reports sums over the samples of all ranks, training sums them with the gradients. */
kolo_status kolo_partition_finish_experts(partitioner *p, int axis);
