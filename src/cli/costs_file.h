#pragma once
/* Where the constants of `kolo bench allreduce --calibrate` are kept: in the user's cache folder, a
 * file for each machine. */

#include "kolo/comm.h"

enum { COSTS_PATH_BYTES = 512 };

/* "$XDG_CACHE_HOME/kolo/allreduce-HOST.costs" (default ~/.cache); the folders are made if `make` is
 * set. ARG when the user has no home. */
kolo_status costs_file_path(bool make, char path[COSTS_PATH_BYTES]);
/* Lets AUTO choose by that file if rank 0 has one. All ranks call it. */
kolo_status costs_file_load(kolo_comm *comm);
