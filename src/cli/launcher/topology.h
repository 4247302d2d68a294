#pragma once
/* The processors of the machine, from hwloc: which of them a local rank is to use, and a few lines
 * about all of them. */

#include "base/text.h"

/* Restricts this thread, and those that it starts later, to local rank `rank`'s share of the cores
 * that this process may use: `ranks` disjoint shares as equal and as near in the machine as can be.
 * Does nothing where there are fewer cores than ranks, or where the system refuses. */
void topology_bind(int rank, int ranks);

/* Appends rows about cores, caches and NUMA nodes: a name of `width` characters, then the text. */
void topology_describe(kolo_text *text, int width);
