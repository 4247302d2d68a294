#pragma once
/* Sub-groups of ranks that share memory. */

#include "comm/transport/transport.h"

/* Operations `subgroup` and `attach` of kolo_transport_ops. */
kolo_status kolo_subgroup_create(kolo_transport *parent, const int *members, int size, int rank,
                                 kolo_transport **transport, kolo_subgroup_address *address);
kolo_status kolo_subgroup_attach(kolo_transport *transport, int peer,
                                 const kolo_subgroup_address *address);
/* Frees the records of retired control blocks. */
struct kolo_block_transport;
void kolo_subgroup_free_retired(struct kolo_block_transport *root);
/* The parent transport, and the rank of a peer in it. */
kolo_transport *kolo_subgroup_parent(kolo_transport *transport, int peer, int *member);
