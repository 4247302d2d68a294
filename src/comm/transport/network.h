#pragma once
/* The table of transports that kolo_comm_opts.transport selects.
 *
 * To add one, write its folder, which defines a kolo_network kolo_network_NAME, and add a row to
 * KOLO_TRANSPORT_LIST in kolo/comm.h. Names, help, error messages, and its combination with shared
 * memory inside a host follow from the row. */

#include "comm/transport/dialer.h"
#include "comm/transport/seal.h"
#include "comm/transport/transport.h"
#include "kolo/comm.h"

enum { KOLO_NETWORK_ADDRESS_MAX = 8256 };

typedef struct kolo_network_opts {
    int rank, size;
    const char *interface; /* name of the network interface; NULL: chosen by the network */
    int64_t heartbeat_ms;
    size_t segment_bytes;
} kolo_network_opts;

/* A way to connect ranks of different hosts. The transport it creates must work for a part of the
 * peers, those that are attached. */
typedef struct kolo_network {
    /* Opens the device before the ranks meet, so that a missing one is reported at once; `*t` is
     * not usable yet, except for `address` and `destroy`. NULL: nothing to open. UNSUPPORTED;
     * NOMEM; IO.
     */
    kolo_status (*open)(const kolo_network_opts *opts, kolo_transport **t);
    /* Creates the transport, without peers; with `open`: completes `*t`, which stays valid on
     * failure. NULL: there is no network. NOMEM; IO. */
    kolo_status (*create)(const kolo_network_opts *opts, kolo_transport **t);
    /* Each pair of ranks exchanges addresses of `address_bytes` over its authenticated connection.
     * 0: none. */
    size_t address_bytes;
    /* Makes the address for a peer. */
    kolo_status (*address)(kolo_transport *t, int peer, void *address);
    /* Attaches a peer with its connection `fd`, which it takes over, also on failure, and its
     * address. `keys`: with which to protect what is sent; NULL: it is not. FORMAT; NOMEM; IO;
     * UNSUPPORTED.
     */
    kolo_status (*attach)(kolo_transport *t, int peer, int fd, const void *address,
                          const kolo_seal_keys *keys);
    /* Lets the transport connect on demand, by a dialer, which it takes over, to the peers that
     * `expect` names after that. NULL: all pairs of ranks are attached. */
    kolo_status (*dial)(kolo_transport *t, kolo_dialer *dialer);
    void (*expect)(kolo_transport *t, int peer);
    bool encrypts; /* can encrypt, or authenticate, all that it sends */
} kolo_network;

typedef struct kolo_transport_info {
    const char *name, *description;
    bool memory; /* shared memory inside a host */
    const kolo_network *network;
} kolo_transport_info;

/* The row of a valid choice. */
const kolo_transport_info *kolo_transport_info_of(kolo_transport_choice choice);
