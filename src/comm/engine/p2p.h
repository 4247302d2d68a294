#pragma once
/* Sends and receives between two ranks. */

#include "comm/engine/request.h"

/* Creates what a communicator needs for sends and receives, once. NOMEM. */
kolo_status kolo_p2p_open(kolo_comm *comm);
void kolo_p2p_close(kolo_comm *comm);
kolo_status kolo_p2p_start(kolo_request *q);
/* Moves the messages in flight. On failure the caller breaks the communicator. */
kolo_status kolo_p2p_progress(kolo_comm *comm, bool *moved);
/* The oldest request in flight with `peer` (-1: any); NULL: none. */
const kolo_request *kolo_p2p_open_with(const kolo_comm *comm, int peer);
/* Drops all messages in flight. */
void kolo_p2p_drop(kolo_comm *comm);
