#pragma once
/* Transport `shm`: ranks are processes of one host that map each other's segments. */

#include "comm/transport/transport.h"

/* Creates this rank's transport with its segment, without peers. NOMEM. */
kolo_status kolo_shm_create(int rank, int size, size_t segment_bytes, kolo_transport **transport);
/* Maps a peer's segment (the caller keeps the descriptor `segment`) and takes over the connection
 * to it, also on failure; when it closes, the peer's process has ended. All peers of the host must
 * be attached before use. */
kolo_status kolo_shm_attach(kolo_transport *transport, int peer, int segment, int control);
