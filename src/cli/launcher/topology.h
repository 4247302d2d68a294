#pragma once
/* The processors of the machine, from hwloc: binding of ranks and a description. */

#include "base/text.h"

/* Binds this thread, and threads started later, to the share of local rank `rank` of `ranks`: the
 * cores available to this process are divided into disjoint shares of about equal size, each
 * compact in the topology. Does nothing if there are fewer cores than ranks or if the system
 * refuses. */
void topology_bind(int rank, int ranks);

/* Appends rows about cores, caches and NUMA nodes, with names padded to `width`. */
void topology_describe(kolo_text *text, int width);
