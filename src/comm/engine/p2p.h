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
/* Whether a receive from any rank has no message yet. */
bool kolo_p2p_open_any(const kolo_comm *comm);
/* Finds the oldest message with a tag from a rank, or from any, that no receive has taken. After
 * kolo_p2p_open. On failure the caller breaks the communicator. */
kolo_status kolo_p2p_probe(kolo_comm *comm, int from, int tag, bool *found, kolo_message *message);
/* Drops all messages in flight. */
void kolo_p2p_drop(kolo_comm *comm);
