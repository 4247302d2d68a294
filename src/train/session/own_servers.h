#pragma once
/* Sessions of a program with owners of the parameters: which rank is what, and their connection. */

#include "train/session/setup.h"

/* The workers of `ranks`, of which the last `servers` are servers. ARG: none is left. */
kolo_status kolo_count_workers(int ranks, int servers, int *workers);
/* The communicator of this rank with the other workers, or with the other servers; *own NULL: there
 * are no servers. Collective; the errors of kolo_comm_split. */
kolo_status kolo_split_servers(kolo_comm *world, int servers, kolo_comm **own);

/* What sessions have no owners for. `comm`: of all ranks. UNSUPPORTED; ARG. */
kolo_status kolo_own_servers_check(const kolo_session_opts *opts, const kolo_session_config *config,
                                   const kolo_comm *comm);
/* The session of a server, connected to the workers. Collective over `world`, with
 * kolo_own_servers_connect; the errors of kolo_served_create. */
kolo_status kolo_own_servers_create(const kolo_setup *setup, const kolo_lr *schedule,
                                    kolo_comm *world, kolo_session **session);
/* Connects the session of a worker; NULL: it could not be created, with `status`, which all get.
 * Nothing without owners. */
kolo_status kolo_own_servers_connect(kolo_session *session, const kolo_setup *setup,
                                     kolo_comm *world, kolo_status status);
