#pragma once
/* Sub-groups of ranks that share memory. */

#include "comm/transport/transport.h"

/* Rows `sub` and `attach` of kolo_transport_ops. */
kolo_status kolo_sub_create(kolo_transport *parent, const int *members, int size, int rank,
                            kolo_transport **transport, kolo_sub_name *name);
kolo_status kolo_sub_attach(kolo_transport *transport, int peer, const kolo_sub_name *name);
/* Frees what is known of boards that are out of use. */
struct kolo_board_transport;
void kolo_sub_forget(struct kolo_board_transport *whole);
/* The transport that this one lies over, and which rank of that a peer is. */
kolo_transport *kolo_sub_parent(kolo_transport *transport, int peer, int *member);
