#pragma once
/* Creation and destruction of communicators over a transport. */

#include "comm/engine/request.h"

/* Takes over the transport; destroys it on failure. `kolo_comm_of_transport` also starts the
 * progress thread where there is a network; `kolo_comm_over` does not: sub-groups use their
 * parent's. NOMEM; IO. */
kolo_status kolo_comm_over(kolo_transport *transport, const kolo_comm_opts *opts, int local_rank,
                           int local_size, int processors, kolo_comm **comm);
kolo_status kolo_comm_of_transport(kolo_transport *transport, const kolo_comm_opts *opts,
                                   int local_rank, int local_size, int processors,
                                   kolo_comm **comm);
