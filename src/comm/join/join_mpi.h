#pragma once
/* Joining with transport `mpi`. */

#include "comm/join/join.h"

/* kolo_comm_create with KOLO_TRANSPORT_MPI. Its errors, and UNSUPPORTED if the backend is not
 * installed. */
kolo_status kolo_join_mpi(kolo_joining *j, kolo_comm **comm);
