#pragma once
/* Transport `tcp`: ranks that reach each other over a network. */

#include "comm/transport/transport.h"

/* This rank's transport, without peers. A peer that is silent for `heartbeat_ms` is lost.
 * NOMEM; IO. */
kolo_status kolo_tcp_create(int rank, int size, size_t segment_bytes, int64_t heartbeat_ms,
                            kolo_transport **transport);
/* Takes over the connection to a peer, also on failure. Peers that are reached otherwise stay
 * without; the calls about them are no business of this transport. NOMEM; IO. */
kolo_status kolo_tcp_attach(kolo_transport *base, int peer, int fd);
