#pragma once
/* A family: a communicator and all sub-groups below it.
 *
 * A wait in one communicator makes progress on the requests of the whole family, since a peer may
 * wait for this rank in another one first. A lost rank breaks those of which it is a member; any
 * other failure breaks all. */

#include "comm/engine/comm.h"

/* The communicator that has no parent. */
static inline kolo_comm *kolo_comm_whole(kolo_comm *comm) {
    while (comm->parent) comm = comm->parent;
    return comm;
}
/* Removes a sub-group from its parent's list. */
void kolo_comm_unlink(kolo_comm *comm);
/* Whether anything is in flight, sends and receives included: here, or anywhere in the family. */
bool kolo_comm_in_flight(const kolo_comm *comm);
bool kolo_family_in_flight(const kolo_comm *comm);

/* A rank's number in the whole group. */
int kolo_comm_whole_rank(const kolo_comm *comm, int rank);
/* The number here of a rank of the whole group; -1: it is no member. */
int kolo_comm_member(const kolo_comm *comm, int whole_rank);
/* Names a rank in messages, by its number in the whole group, what the namer of the group, or of
 * the nearest one above that has one, makes of it, and in a sub-group by its own number too. The
 * text is valid until the end of the enclosing block. */
#define KOLO_RANK(comm, rank) \
    kolo_comm_rank_text((comm), (rank), (char[KOLO_RANK_BYTES]){0}, KOLO_RANK_BYTES)
const char *kolo_comm_rank_text(const kolo_comm *comm, int rank, char *text, size_t bytes);
/* Whether a rank and this one share memory, so that each reads and writes registered memory of the
 * other in place. The same on both sides. */
KOLO_SHARED bool kolo_comm_maps(const kolo_comm *comm, int peer);
