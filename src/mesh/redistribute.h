#pragma once
/* Redistribution: from one placement of a tensor to another, as a short list of moves.
 *
 * A move is local or one collective, within the groups of a set of axes. Which one follows from the
 * placements before and after:
 *
 *     from -> to                                              move
 *     INVARIANT <-> REPLICATED                                none
 *     INVARIANT or REPLICATED -> SHARDED, AT                  slice: drop what others hold
 *     SHARDED, INVARIANT, REPLICATED or AT -> PARTIAL         pad with zeros
 *     PARTIAL -> INVARIANT or REPLICATED                      allreduce
 *     PARTIAL -> SHARDED                                      reduce-scatter
 *     PARTIAL -> AT                                           reduce
 *     SHARDED -> INVARIANT or REPLICATED                      allgather
 *     SHARDED -> AT                                           gather
 *     SHARDED -> another dimension, cuts, blocks or rotation  all-to-all or neighbours
 *     SHARDED -> the same dimension with a halo               neighbours: copies of rows
 *     SHARDED with a halo, summands -> without                neighbours: rows that are added
 *     AT -> INVARIANT or REPLICATED                           broadcast
 *     AT -> SHARDED                                           scatter
 *     AT -> AT                                                send and receive
 *
 * The gradient of `from -> to` is the redistribution `gradient(to) -> gradient(from)`
 * (kolo_placements_gradient); the table is closed under it. LOCAL is neither source nor target.
 * Changes on several axes of a mesh at once become one move where they can, else several. */

#include "mesh/overlap.h"
#include "mesh/placement.h"

typedef enum kolo_move_kind {
    KOLO_MOVE_SLICE,
    KOLO_MOVE_PAD,
    KOLO_MOVE_ALLREDUCE,
    KOLO_MOVE_REDUCE_SCATTER,
    KOLO_MOVE_REDUCE,
    KOLO_MOVE_ALLGATHER,
    KOLO_MOVE_GATHER,
    KOLO_MOVE_BROADCAST,
    KOLO_MOVE_SCATTER,
    KOLO_MOVE_EXCHANGE,  /* all-to-all */
    KOLO_MOVE_NEIGHBOUR, /* at most one message to and one from each rank; of halos, from each of
                            the neighbours */
    KOLO_MOVE_COUNT
} kolo_move_kind;

typedef struct kolo_move {
    kolo_move_kind kind;
    kolo_axes axes;           /* of the groups that communicate; 0: local */
    bool flat;                /* regions are of the flat view */
    bool adds;                /* what arrives is added: summands of a halo */
    int root;                 /* reduce, gather, broadcast, scatter: place in the group */
    kolo_reduce_op op;        /* of reductions */
    kolo_placements from, to; /* of this move */
} kolo_move;

enum { KOLO_MOVES_MOST = 2 * KOLO_MESH_AXES + 2 };

/* The moves from `from` to `to`, in order: moves[0 .. *n), room for KOLO_MOVES_MOST; none where the
 * placements hold the same data. ARG: placements that do not fit, LOCAL on one side alone, a
 * PARTIAL maximum or minimum as a target. NOMEM. */
kolo_status kolo_redistribution_plan(const kolo_mesh *mesh, const kolo_shape *shape,
                                     const kolo_placements *from, const kolo_placements *to,
                                     kolo_move *moves, int *n);
/* "allgather" */
const char *kolo_move_name(kolo_move_kind kind);

/* Bytes that `rank` sends in a move, by the algorithm that moves least (reduce-scatter and
 * allgather for an allreduce). NOMEM. */
kolo_status kolo_move_bytes(const kolo_mesh *mesh, const kolo_shape *shape, const kolo_move *move,
                            kolo_dtype dtype, int rank, int64_t *bytes);

/* What `source` sends to `target`, two ranks of one group, in the moves that bring each element
 * from one rank: the overlap of what source holds before and target after. NOMEM. */
kolo_status kolo_move_overlap(const kolo_mesh *mesh, const kolo_shape *shape, const kolo_move *move,
                              int source, int target, kolo_arena *arena, kolo_overlap *overlap);
