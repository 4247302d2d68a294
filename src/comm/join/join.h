#pragma once
/* State of a rank that joins its group, shared by the rendezvous of all ranks at rank 0
 * (rendezvous.c) and the pairwise connections (connect.c). */

#include "base/compiler.h"
#include "comm/join/handshake.h"
#include "comm/join/rank_env.h"
#include "comm/transport/network.h"

typedef struct kolo_joining {
    kolo_rank_env env;
    kolo_comm_opts opts; /* resolved */
    kolo_key key;
    int64_t started_ns, deadline_ns;
    kolo_hello own;
    int local_listener, tcp_listener; /* for connections of higher ranks; -1: not open */
    kolo_member *members;             /* [world]; rank 0: connections of the ranks that joined */
    bool *reported;                   /* [world]; rank 0: has connected, while this one has not */
    kolo_member leader;               /* other ranks: connection to rank 0; fd -1: none */
    kolo_hello *table;                /* [world] */
    int *host_of, n_hosts;            /* [world]; see kolo_comm_host */
    kolo_transport *transport;
    const kolo_transport_info *choice; /* row of opts.transport */
    kolo_transport *network;           /* for peers without shared memory; NULL: none */
    bool owns_network;                 /* `network` is not a part of `transport` yet */
} kolo_joining;

/* kolo_comm_create for a rank whose environment and key are known; frees what `j` owns. */
kolo_status kolo_comm_join(kolo_joining *j, kolo_comm **comm);
/* What is done to the data between hosts. */
static inline kolo_protection kolo_joining_protection(const kolo_joining *j) {
    if (j->opts.encrypt) return KOLO_PROTECT_SECRET;
    return j->opts.authenticate ? KOLO_PROTECT_AUTHENTIC : KOLO_PROTECT_NOTHING;
}
/* Logs how joining has ended; returns `status`. */
kolo_status kolo_joining_log(const kolo_joining *j, kolo_status status, kolo_comm *const *comm);
/* Raises this process's limit of open files where it is too low for connections to all ranks. IO:
 * the hard limit is too low. */
KOLO_SHARED kolo_status kolo_joining_allow_files(int world);
/* Collects all ranks at rank 0 and distributes the table of their addresses (rendezvous.c). The
 * errors of kolo_comm_create. */
kolo_status kolo_rendezvous(kolo_joining *j);
/* Closes the TCP listener. */
void kolo_joining_close_tcp(kolo_joining *j);
/* Maps ranks to hosts by the table, creates the transport and connects it to the peers (connect.c).
 * The errors of kolo_comm_create. */
kolo_status kolo_mesh_connect(kolo_joining *j);
/* Once all ranks have connected: lets the transport connect to others on demand. NOMEM; IO. */
kolo_status kolo_mesh_complete(kolo_joining *j);

/* ---- control messages (control.c) ---- */

enum { KOLO_FAREWELL_NS = 1000000000 }; /* extra time for the last messages, beyond the deadline */

/* The deadline for connecting to a rank whose listener is open: hosts answer that without their
 * ranks. */
int64_t kolo_joining_reach_ns(const kolo_joining *j);
/* Seconds since joining began. */
double kolo_joining_s(const kolo_joining *j);
/* Rank 0: sends the last error of this thread to every rank that has joined, and returns it. */
kolo_status kolo_joining_cancel(kolo_joining *j, kolo_status status);
/* Waits for rank 0's next message. At the deadline sends to rank 0 that this rank gives up, and
 * waits KOLO_FAREWELL_NS longer. TIMEOUT. */
kolo_status kolo_joining_await(const kolo_joining *j, const kolo_member *leader);
/* A control connection has become readable while this rank connects: that of rank 0's member
 * `lost`, or the one to rank 0 (-1). OK: that member has connected; else the error, never OK for
 * rank 0. */
kolo_status kolo_joining_lost(kolo_joining *j, int lost);
/* Agree on success, given the result of this rank's connections: rank 0 (`conclude`) waits for all
 * ranks and sends them the common result; the others (`report`) send theirs and wait for it. */
kolo_status kolo_joining_conclude(kolo_joining *j, kolo_status status);
kolo_status kolo_joining_report(kolo_joining *j, kolo_status status);

/* ---- ranks in errors (names.c) ---- */

/* "rank 3 at 10.0.0.5", or "rank 3" if its address is not known or it is on this host. */
const char *kolo_joining_rank_text(const kolo_joining *j, int rank, char *text, size_t bytes);
/* The ranks r for which wanted[r]: "rank 1 at 10.0.0.5, ranks 4 to 7 and 3 more ranks". */
enum { KOLO_JOINING_NAMES_BYTES = 240 };
const char *kolo_joining_names(const kolo_joining *j, const bool *wanted,
                               char text[KOLO_JOINING_NAMES_BYTES]);
