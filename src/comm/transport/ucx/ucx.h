#pragma once
/* Transport `ucx`: ranks that reach each other by UCX: over RDMA where there is, else over TCP. */

#include "comm/transport/transport.h"
#include "comm/transport/ucx/library.h"

enum { KOLO_UCX_TOKEN_BYTES = 16 };

/* What a rank gives a peer, over a proven connection. */
typedef struct kolo_ucx_card {
    unsigned char token[KOLO_UCX_TOKEN_BYTES]; /* which that peer's messages must bear */
    uint64_t bytes;
    unsigned char address[KOLO_UCX_ADDRESS_MOST];
} kolo_ucx_card;

/* This rank's end of UCX, without peers; not yet a transport. `interface` NULL: UCX's choice.
 * UNSUPPORTED: no UCX here, or no device; NOMEM; IO. */
kolo_status kolo_ucx_create(int rank, int size, const char *interface, kolo_transport **transport);
/* Makes it one: takes over `control`, also on failure, the transport `tcp` to the same peers.
 * NOMEM.
 */
kolo_status kolo_ucx_control(kolo_transport *base, kolo_transport *control, size_t segment_bytes);
/* The card for a peer; one for each, made once. The errors of kolo_ucx_ops.address. */
kolo_status kolo_ucx_invite(kolo_transport *base, int peer, kolo_ucx_card *card);
/* Connects to the peer whose card this is. Peers that are reached otherwise stay without. FORMAT;
 * NOMEM; the errors of kolo_ucx_ops.connect. */
kolo_status kolo_ucx_attach(kolo_transport *base, int peer, const kolo_ucx_card *card);
