#pragma once
/* Transport `tcp`: TCP connections between ranks. */

#include "comm/transport/seal.h"
#include "comm/transport/transport.h"

/* Creates this rank's transport, without peers. A peer that sends nothing for `heartbeat_ms` is
 * lost. NOMEM; IO. */
kolo_status kolo_tcp_create(int rank, int size, size_t segment_bytes, int64_t heartbeat_ms,
                            kolo_transport **transport);
/* Attaches a peer and takes over the connection to it, also on failure; encrypts it unless `keys`
 * is NULL. Peers connected by another transport are not attached, and must not be used in calls.
 * NOMEM; IO. */
kolo_status kolo_tcp_attach(kolo_transport *base, int peer, int fd, const kolo_seal_keys *keys);
