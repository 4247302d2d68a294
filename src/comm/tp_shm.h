#pragma once
/* Transport `shm`: ranks are processes of one host that map each other's segments. */

#include "comm/transport.h"

/* This rank's transport, with its segment but without peers. NOMEM. */
kolo_status kolo_shm_create(int rank, int size, size_t segment_bytes, kolo_transport **transport);
/* Maps a peer's segment (`segment` stays the caller's) and takes over the connection to it, also on
 * failure; its end means that the peer's process has ended. Every peer of the host must be attached
 * before the first use. */
kolo_status kolo_shm_attach(kolo_transport *transport, int peer, int segment, int control);

/* Rows of kolo_transport_ops, for the transport that extends this one (tp_hosts.c). */
uint64_t kolo_shm_handle(kolo_transport *t, const void *data, size_t bytes);
void *kolo_shm_window(kolo_transport *t, int peer, uint64_t handle, size_t bytes);
void kolo_shm_watch(kolo_transport *t, int peer, kolo_peer_state *state);
void kolo_shm_destroy(kolo_transport *t);
/* Gives it other rows, and `remote`, which they find again by kolo_shm_remote. */
void kolo_shm_extend(kolo_transport *t, const kolo_transport_ops *ops, kolo_transport *remote);
kolo_transport *kolo_shm_remote(kolo_transport *t);
