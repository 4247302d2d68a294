#pragma once
/* Makes connections between two ranks when one of them asks for it, after the group has formed.
 *
 * The implementation (join/dial.c) has threads of its own, which reach and authenticate the other
 * rank: no call blocks but `stop` and `destroy`. The transport takes what has come of it. */

#include "comm/transport/seal.h"

#include <stdint.h>

enum { KOLO_DIALED_WHY_BYTES = 64 };

/* A connection, by whichever side it was opened; or the failure of one that was wanted. */
typedef struct kolo_dialed {
    int peer;
    bool connected;
    int fd;                          /* connected: the receiver owns it */
    kolo_seal_keys keys;             /* connected */
    char why[KOLO_DIALED_WHY_BYTES]; /* not connected */
} kolo_dialed;

typedef struct kolo_dialer kolo_dialer;

typedef struct kolo_dialer_ops {
    /* Asks for a connection to a rank that has none. */
    void (*want)(kolo_dialer *d, int peer);
    /* Takes the next result; false: there is none. */
    bool (*take)(kolo_dialer *d, kolo_dialed *next);
    /* Ends the threads; results may be left to be taken. */
    void (*stop)(kolo_dialer *d);
    /* In a forked child: closes its copies of the descriptors. */
    void (*abandon)(kolo_dialer *d);
    /* Stops, and closes what has not been taken. */
    void (*destroy)(kolo_dialer *d);
} kolo_dialer_ops;

struct kolo_dialer {
    const kolo_dialer_ops *ops;
    int events; /* readable while there are results */
};
