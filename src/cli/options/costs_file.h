#pragma once
/* The file of cost constants that `kolo bench allreduce --calibrate` writes: one per machine, in
 * the user's cache folder. */

#include "kolo/comm.h"

/* The path of allreduce-HOST.costs in the user's cache folder (cache_folder.h), for kolo_free. With
 * `make` creates the folders. ARG: the user has no cache folder. */
kolo_status costs_file_path(bool make, char **path);
/* Makes AUTO use the constants of that file if rank 0 has it. Collective. */
kolo_status costs_file_load(kolo_comm *comm);
