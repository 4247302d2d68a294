#pragma once
/* Connections on demand (transport/dialer.h), and which pairs of ranks connect before that. */

#include "comm/join/join.h"
#include "comm/transport/dialer.h"

/* Which pairs of ranks of different hosts connect while the group forms. */
typedef enum kolo_connections {
    KOLO_CONNECTIONS_ALL,
    KOLO_CONNECTIONS_NEAR, /* at distances of powers of two, and with the next host */
    KOLO_CONNECTIONS_RING, /* neighbours, and with the next host */
} kolo_connections;

/* This rank's choice, by KOLO_CONNECTIONS; that of rank 0 counts. ARG. */
kolo_status kolo_connections_choose(int world, int32_t *choice);
/* Whether two ranks of different hosts connect now. The same on both. Needs host_of. */
bool kolo_connects_first(const kolo_joining *j, int a, int b);
/* Creates the dialer of a rank that has joined, which takes over its TCP listener. NOMEM; IO. */
kolo_status kolo_dialer_create(kolo_joining *j, kolo_dialer **made);
