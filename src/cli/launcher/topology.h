#pragma once
/* The processors of the machine, from hwloc: binding of ranks and a description. */

#include "base/text.h"

/* Bind this thread, or all threads of this process, and those that they start later, to the share
 * of local rank `rank` of `ranks`: the processors available to this process are divided into
 * disjoint shares of about equal size, each compact in the topology: whole cores, unless there are
 * fewer of them than ranks. Do nothing if there are fewer processors than ranks or if the system
 * refuses. */
void topology_bind_thread(int rank, int ranks);
void topology_bind_process(int rank, int ranks);

/* Appends rows about cores, caches and NUMA nodes, with names padded to `width`. */
void topology_describe(kolo_text *text, int width);
