#pragma once
/* Slices of dimensions other than the outermost. */

#include "graph/graph.h"

/* Makes redistributions that gather, scatter or take equal slices of a dimension other than 0 ones
 * whose messages are contiguous: gathered slices are stacked along a new dimension 0, and permuted
 * to where they belong; sums are permuted so before they are scattered; a slice of dimension 1 is
 * copied. Runs first in the pass lower_comm. UNSUPPORTED: slices of another dimension. NOMEM. */
kolo_status kolo_pass_slices(kolo_graph *g);

/* Whether slices are exchanged by a link, whatever their lengths: those of positions and experts.
 */
static inline bool is_exchanged(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->depth >= KOLO_DEPTH_POSITIONS;
}
