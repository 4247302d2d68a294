#pragma once
/* Placement propagation: the placements of all values follow from those of the leaves, by the index
 * notation of the ops (graph/index.h). Only redistribute nodes change how ranks hold a value; every
 * other op runs on what each rank holds. (Sharding propagation of GSPMD, Xu et al., 2021, without
 * its freedom: where an op cannot run, a redistribution is missing.)
 *
 * Along one axis of the mesh:
 *
 *     inputs                                       outputs
 *     all INVARIANT or REPLICATED                  INVARIANT
 *     SHARDED along an index, in all that have it  SHARDED where they have it, else PARTIAL sums
 *     PARTIAL sums, one linear factor an addend    PARTIAL
 *     AT one coordinate                            AT it
 *     LOCAL by-shard values beside SHARDED ones    as above; by-shard outputs are LOCAL
 *     LOCAL otherwise                              LOCAL; PARTIAL with a PARTIAL factor
 *
 * INVARIANT and REPLICATED hold the same data and are the same here. An axis of one rank
 * refuses nothing. */

#include "graph/graph.h"

/* Whether the placements hold the same data: equal but for INVARIANT against REPLICATED. */
bool kolo_placements_same_data(const kolo_mesh *mesh, const kolo_placements *a,
                               const kolo_placements *b);
/* The axis of a mesh along which a redistribution moves rows of a halo; -1: none. */
int kolo_axis_of_halo(const kolo_mesh *mesh, const kolo_redistribution *move);
/* Whether a redistribution needs no communication: ranks drop or pad what they have. */
bool kolo_redistribution_is_local(const kolo_mesh *mesh, const kolo_redistribution *move);
/* Sets the placements of the outputs of a node from those of its inputs. ARG: names the input and
 * the axis that do not fit, and what would do. FORMAT: a redistribute or post whose source is
 * placed otherwise. */
kolo_status kolo_node_propagate(kolo_graph *g, const kolo_node *n);
/* Sets the placements of all values but the leaves. The errors of kolo_node_propagate, with the
 * node; ARG also for a next version that is placed otherwise than what it replaces. */
kolo_status kolo_graph_propagate(kolo_graph *g);
