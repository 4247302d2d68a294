#pragma once
/* Transport `shm`: ranks are processes of one host that map each other's segments. */

#include "comm/transport/transport.h"

/* This rank's transport, with its segment but without peers. NOMEM. */
kolo_status kolo_shm_create(int rank, int size, size_t segment_bytes, kolo_transport **transport);
/* Maps a peer's segment (`segment` stays the caller's) and takes over the connection to it, also on
 * failure; its end means that the peer's process has ended. Every peer of the host must be attached
 * before the first use. */
kolo_status kolo_shm_attach(kolo_transport *transport, int peer, int segment, int control);
