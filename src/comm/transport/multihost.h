#pragma once
/* Transports `shm+tcp` and `shm+ucx`: shared memory inside a host, TCP or UCX between hosts. */

#include "comm/transport/transport.h"

/* Combines shared memory with `remote`, the transport attached to the peers of other hosts, which
 * it takes over, also on failure. Peers of this host are attached by kolo_shm_attach. NOMEM. */
kolo_status kolo_hosts_create(int rank, int size, size_t segment_bytes, kolo_transport *remote,
                              bool is_ucx, kolo_transport **transport);
