#pragma once
/* Fragments of a model: groups of its layers that ranks exchange at different times.
 *
 * The layer of a tensor is its name up to the first component that is a number, "h.3" of
 * "h.3.attn.c_proj.weight", else without the last component, "fc1" of "fc1.bias". */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Gives the layers of n tensors, in the order of the model, to `fragments` fragments: neighbours
 * together, so that fragments are about as large as possible alike, or `strided`: layer l to
 * fragment l % fragments. Fills fragment[0 .. n); each fragment has a layer. ARG: fewer layers than
 * fragments; NOMEM. */
kolo_status kolo_fragments_assign(const char *const *names, const size_t *bytes, int n,
                                  int fragments, bool strided, int *fragment);
