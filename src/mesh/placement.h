#pragma once
/* Placements: how the ranks of a mesh hold one logical tensor.
 *
 * A placement describes one axis of the mesh:
 *
 *     placement     each rank along the axis holds                gradient's placement
 *     INVARIANT     the whole, and all use it alike               INVARIANT
 *     REPLICATED    the whole, each for data of its own           PARTIAL
 *     SHARDED       its slice of a dimension                      SHARDED, the same slice
 *     PARTIAL       a summand: the tensor is their sum            REPLICATED
 *     AT            the whole on one coordinate, nothing else     AT, the same coordinate
 *     LOCAL         a version of its own                          LOCAL
 *
 * SHARDED with a halo is for ops with a window, such as convolutions: a rank also holds copies of
 * rows of other slices, those that its results need. The gradient of such a copy is a summand of
 * the gradient of the row, which is on the rank that has the row.
 *
 * INVARIANT and REPLICATED differ in their gradients only: the ranks of an INVARIANT tensor compute
 * the same gradient, those of a REPLICATED one compute summands of it. PARTIAL may also mean the
 * maximum, which has no gradient. (Placements of PyTorch's DTensor; INVARIANT against REPLICATED
 * are the replication types of JAX's shard_map.)
 *
 * The region of a rank is the part of the tensor that it holds: for each dimension a list of
 * intervals, whose elements lie one behind the other in its local tensor, in row-major order. */

#include "base/memory.h"
#include "kolo/comm.h"
#include "mesh/mesh.h"
#include "tensor/tensor.h"

enum {
    KOLO_DIM_FLAT = KOLO_MAX_RANK, /* in place of a dimension: all elements in row-major order */
    /* The depth of cuts of the positions of sequences: inside any other, as those of samples where
     * samples and positions are merged in one dimension. */
    KOLO_DEPTH_POSITIONS = KOLO_MESH_AXES + 1,
    KOLO_PLACEMENT_TEXT = 256,
};

typedef enum kolo_placement_kind {
    KOLO_PLACEMENT_INVARIANT,
    KOLO_PLACEMENT_REPLICATED,
    KOLO_PLACEMENT_SHARDED,
    KOLO_PLACEMENT_PARTIAL,
    KOLO_PLACEMENT_AT,
    KOLO_PLACEMENT_LOCAL,
    KOLO_PLACEMENT_COUNT
} kolo_placement_kind;

/* Elements [first, end) of a dimension. */
typedef struct kolo_interval {
    int64_t first, end;
} kolo_interval;

/* The rows of a dimension that the results of a window op need, by coordinate. Rows and results are
 * cut as evenly as can be; the ranges may overlap, and leave out what no result needs. */
typedef struct kolo_halo {
    int64_t length, places;    /* rows of the whole dimension, and results */
    int64_t before, after;     /* the most rows that a coordinate needs beyond its slice */
    bool own;                  /* all need their slices exactly */
    const kolo_interval *rows; /* [axis size] */
} kolo_halo;

/* Along one axis of `size` ranks. A zero field means its default. */
typedef struct kolo_placement {
    kolo_placement_kind kind;
    /* SHARDED. `dim` is cut into `blocks` equal parts (q|k|v: 3; default 1), and coordinate c holds
     * slice (c + rotation) mod size of each part. Slices begin at cuts[0 .. size], in elements of a
     * part, cuts[0] = 0 and cuts[size] = the part's length; they may be empty. NULL: as even as can
     * be, longer ones first. With `zigzag`, which has no cuts, a slice is two ranges as far from
     * the ends of the part as each other: those of the first half are as even as can be, and what
     * is between both of the last slice is part of it. Where several axes cut one dimension, the
     * one with the lower depth cuts first, and the next cuts what is left of it; equal depths cut
     * in the order of the mesh. KOLO_DIM_FLAT is for tensors that are only computed with element by
     * element: the axis cuts what the other axes leave, in row-major order; it has neither cuts,
     * blocks nor rotation. */
    int dim, depth, blocks, rotation;
    bool zigzag;
    const int64_t *cuts; /* borrowed */
    /* The rows of each coordinate in place of its slice of a dimension that no other axis cuts,
     * in one block, without cuts and rotation; borrowed. NULL: the slice. */
    const kolo_halo *halo;
    bool summands;     /* of a halo: where ranges overlap, elements are summands */
    int at;            /* AT: the coordinate */
    kolo_reduce_op op; /* PARTIAL: KOLO_SUM (the default), KOLO_MIN or KOLO_MAX */
    int length;        /* SHARDED: of the dimension, where slices that are rotated may differ */
} kolo_placement;

/* One for each axis of a mesh. All zero: INVARIANT on all of them. */
typedef struct kolo_placements {
    kolo_placement axis[KOLO_MESH_AXES];
} kolo_placements;

bool kolo_placement_equal(const kolo_placement *a, const kolo_placement *b, int axis_size);
/* Whether placements fit the mesh and a tensor of this logical shape. ARG: names the axis. */
kolo_status kolo_placements_check(const kolo_mesh *mesh, const kolo_placements *placements,
                                  const kolo_shape *shape);
/* The placements of the gradient of a tensor. ARG: a PARTIAL that is no sum has none. */
kolo_status kolo_placements_gradient(const kolo_mesh *mesh, const kolo_placements *placements,
                                     kolo_placements *gradient);
/* "dp:partial tp:sharded0"; axes on which the tensor is invariant are left out. Gives `text` back.
 */
const char *kolo_placements_text(const kolo_mesh *mesh, const kolo_placements *placements,
                                 char text[KOLO_PLACEMENT_TEXT]);

/* Rows [first, end) of `length` that coordinate c of `size` has without a halo. */
kolo_interval kolo_even_slice(int64_t length, int size, int c);
/* Of a dimension of `length` that a SHARDED placement cuts: the number of elements that coordinate
 * c of `size` has, and the first one of its slice of the first part. */
int64_t kolo_placement_count(const kolo_placement *p, int64_t length, int size, int c);
int64_t kolo_placement_first(const kolo_placement *p, int64_t length, int size, int c);

/* ---- regions ---- */

typedef struct kolo_mesh_region {
    int rank;             /* number of dimensions; 1 in the flat view, see kolo_mesh_region_of */
    kolo_shape shape;     /* of the local tensor; a dimension of 0 where it is empty */
    int n[KOLO_MAX_RANK]; /* intervals of each dimension; disjoint */
    kolo_interval *intervals[KOLO_MAX_RANK];
} kolo_mesh_region;

/* The region of `rank`. `flat`: in the flat view of redistributions between flat and other
 * placements, where the tensor is one dimension of the elements that the axes without KOLO_DIM_FLAT
 * leave to the rank. Without it, placements that are flat are as REPLICATED. Intervals are
 * allocated from `arena`. Placements must have passed kolo_placements_check. NOMEM. */
kolo_status kolo_mesh_region_of(const kolo_mesh *mesh, const kolo_placements *placements,
                                const kolo_shape *shape, int rank, bool flat, kolo_arena *arena,
                                kolo_mesh_region *region);
/* Elements of the region. */
int64_t kolo_mesh_region_count(const kolo_mesh_region *region);
/* Whether `outer` contains all of `inner`. */
bool kolo_mesh_region_contains(const kolo_mesh_region *outer, const kolo_mesh_region *inner);
