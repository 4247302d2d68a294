#pragma once
/* Combines shared memory inside a host with a network between hosts: `shm+tcp`, `shm+ucx`. */

#include "comm/transport/transport.h"

/* Combines shared memory with `network`, the transport attached to the peers of other hosts, which
 * it takes over, also on failure. Peers of this host are attached by kolo_shm_attach. NOMEM. */
kolo_status kolo_hosts_create(int rank, int size, size_t segment_bytes, kolo_transport *network,
                              kolo_transport **transport);
