#pragma once
/* Transports `shm+tcp` and `shm+ucx`: shared memory between ranks of a host, TCP or UCX to the
 * others. */

#include "comm/transport/transport.h"

/* Takes over `far`, also on failure, which is attached to the peers of other hosts; those of this
 * host are attached by kolo_shm_attach. NOMEM. */
kolo_status kolo_hosts_create(int rank, int size, size_t segment_bytes, kolo_transport *far,
                              bool is_ucx, kolo_transport **transport);
