#pragma once
/* Sub-groups of ranks that share memory. */

#include "comm/transport/transport.h"

/* Rows `sub` and `attach` of kolo_transport_ops. */
kolo_status kolo_subgroup_create(kolo_transport *parent, const int *members, int size, int rank,
                                 kolo_transport **transport, kolo_subgroup_address *address);
kolo_status kolo_subgroup_attach(kolo_transport *transport, int peer,
                                 const kolo_subgroup_address *address);
/* Frees what is known of boards that are out of use. */
struct kolo_block_transport;
void kolo_subgroup_free_retired(struct kolo_block_transport *whole);
/* The transport that this one lies over, and which rank of that a peer is. */
kolo_transport *kolo_subgroup_parent(kolo_transport *transport, int peer, int *member);
