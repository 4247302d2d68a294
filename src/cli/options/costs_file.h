#pragma once
/* Where the constants of `kolo bench allreduce --calibrate` are kept: in the user's cache folder, a
 * file for each machine. */

#include "kolo/comm.h"

/* The path of allreduce-HOST.costs in the user's cache folder (cache.h), which the caller frees.
 * With `make` the folders are made. ARG when the user has none. */
kolo_status costs_file_path(bool make, char **path);
/* Lets AUTO choose by that file if rank 0 has one. All ranks call it. */
kolo_status costs_file_load(kolo_comm *comm);
