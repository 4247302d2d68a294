#pragma once
/* Roles of the processes of other launchers: ROLE=server or ROLE=worker in their environment. */

#include "kolo/comm.h"

/* If the ranks have roles, places the workers before the servers: *placed is a group of all ranks
 * in that order, for kolo_comm_destroy, and *servers their number. Without roles *placed is NULL.
 * Another value of ROLE is none. Collective. ARG, on all ranks: some have a role and others none,
 * or none is a worker; the errors of kolo_comm_split. */
kolo_status roles_place(kolo_comm *comm, int *servers, kolo_comm **placed);
/* The first rank with the role of a server; -1: none has it. Collective: the errors of
 * kolo_allgather. */
kolo_status roles_find_server(kolo_comm *comm, int *rank);
