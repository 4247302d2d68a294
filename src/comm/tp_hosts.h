#pragma once
/* Transport `shm+tcp`: shared memory between ranks of a host, TCP to the others. */

#include "comm/transport.h"

/* Takes over `tcp`, also on failure, which is attached to the peers of other hosts; those of this
 * host are attached by kolo_shm_attach. NOMEM. */
kolo_status kolo_hosts_create(int rank, int size, size_t segment_bytes, kolo_transport *tcp,
                              kolo_transport **transport);
/* The part of a transport that reaches other hosts; itself when it is `tcp`. */
kolo_transport *kolo_hosts_tcp(kolo_transport *transport);
