#pragma once
/* The state of joining, shared by the meeting of all ranks at one place (join.c) and the
 * connections between each two of them (connect.c). */

#include "comm/join/handshake.h"
#include "comm/join/rank_env.h"
#include "comm/transport/transport.h"

typedef struct kolo_joining {
    kolo_rank_env env;
    kolo_comm_opts opts; /* resolved */
    kolo_key key;
    int64_t started_ns, deadline_ns;
    kolo_hello own;
    int local_listener, tcp_listener; /* where higher ranks come to; -1: not open */
    kolo_member *members;             /* [world]; rank 0: connections of those that have come */
    kolo_member leader;               /* the other ranks: the same connection; its fd -1: none */
    kolo_hello *table;                /* [world] */
    int *host_of, n_hosts;            /* [world]; see kolo_comm_host */
    kolo_transport *transport;
    kolo_transport *tcp, *ucx; /* the parts of it that go by a network; NULL: none. Before there is
                                  a transport, `ucx` is the end of UCX that will be part of it */
} kolo_joining;

/* kolo_comm_create once the rank's location and key are known; frees what `j` holds. */
kolo_status kolo_comm_join(kolo_joining *j, kolo_comm **comm);
/* When everybody has the table: the map of hosts, a transport, and connections to all. The errors
 * of kolo_comm_create. */
kolo_status kolo_mesh_connect(kolo_joining *j);

/* Control messages (control.c). */

enum { KOLO_FAREWELL_NS = 1000000000 }; /* to deliver or wait for a last message */

/* Seconds since joining began. */
double kolo_joining_s(const kolo_joining *j);
/* Rank 0: sends the failure in this thread's error slot to every rank that has joined, and returns
 * it. */
kolo_status kolo_joining_cancel(kolo_joining *j, kolo_status status);
/* PEER: the process of `rank` ended. */
kolo_status kolo_joining_gone(int rank);
/* Reads the reason after a control connection became readable too early: that of rank 0's member
 * `lost`, or the one to rank 0 (-1). Always fails. */
kolo_status kolo_joining_lost(kolo_joining *j, int lost);
/* Exchange the final status, given that of the own connections: rank 0 (`conclude`) waits for all
 * ranks and sends them the result; the others (`report`) send theirs and wait for it. */
kolo_status kolo_joining_conclude(kolo_joining *j, kolo_status status);
kolo_status kolo_joining_report(kolo_joining *j, kolo_status status);
