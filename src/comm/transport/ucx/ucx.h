#pragma once
/* Transport `ucx`: data over UCX, which uses RDMA if available, else TCP. */

#include "comm/transport/transport.h"
#include "comm/transport/ucx/library.h"

enum { KOLO_UCX_TOKEN_BYTES = 16 };

/* Sent by a rank to a peer, over an authenticated connection. */
typedef struct kolo_ucx_address {
    unsigned char token[KOLO_UCX_TOKEN_BYTES]; /* to be put on all messages of that peer */
    uint64_t bytes;
    unsigned char worker[KOLO_UCX_ADDRESS_MAX];
} kolo_ucx_address;

/* Opens UCX on this rank, without peers; not yet usable as a transport. `interface` NULL: chosen by
 * UCX. UNSUPPORTED: UCX is not installed, or has no device; NOMEM; IO. */
kolo_status kolo_ucx_create(int rank, int size, const char *interface, kolo_transport **transport);
/* Completes the transport with `control`, the transport `tcp` to the same peers, which it takes
 * over, also on failure. NOMEM. */
kolo_status kolo_ucx_set_control(kolo_transport *base, kolo_transport *control,
                                 size_t segment_bytes);
/* Makes the address for a peer, once per peer. The errors of kolo_ucx_ops.address. */
kolo_status kolo_ucx_get_address(kolo_transport *base, int peer, kolo_ucx_address *address);
/* Connects to a peer by its address. Peers connected by another transport are not attached. FORMAT;
 * NOMEM; the errors of kolo_ucx_ops.connect. */
kolo_status kolo_ucx_attach(kolo_transport *base, int peer, const kolo_ucx_address *address);
