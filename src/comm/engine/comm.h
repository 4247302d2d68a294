#pragma once
/* A communicator: its transport, the requests in flight, its place in a family of sub-groups. */

#include "base/compiler.h"
#include "base/process.h"
#include "comm/engine/activity.h"
#include "comm/reduce/reduce.h"
#include "comm/schedule/costs.h"
#include "comm/transport/seal.h"
#include "comm/transport/socket.h"
#include "comm/transport/transport.h"

#include <stdatomic.h>

/* Sizes by which data is divided. All ranks must use the same, which is checked. Zero: default. */
typedef struct kolo_comm_tuning {
    size_t chunk_bytes; /* of messages and staged pieces; default 256 KiB, 2 MiB over a network */
    size_t eager_bytes; /* largest vector sent with the announcement; default and maximum 1024; 1:
                           none */
} kolo_comm_tuning;

typedef struct kolo_backend kolo_backend;

/* Decides whether a request may make progress now. For tests: a closed gate holds a request in
 * flight without any clock, so that a test can assert what runs before it completes. */
typedef bool (*kolo_comm_gate)(void *arg, const kolo_request *request);

enum {
    KOLO_GROUP_BYTES = 40,
    KOLO_RANK_BYTES = 128, /* "rank 3 (dp=1,tp=1; 1 in sub-group 2/0)" */
    KOLO_SERVICE_KEY_BYTES = 32,
};

/* A service in the list of its group (forked.c). */
typedef struct kolo_service_link {
    struct kolo_service_link *next;
    void (*abandon)(struct kolo_service_link *link); /* in a forked child: closes descriptors */
} kolo_service_link;

/* Writes the name of a rank of a group in messages, such as its place in a mesh. */
typedef void (*kolo_rank_namer)(const void *arg, int rank, char *text, size_t bytes);

/* Lets waits of a group go on after their timeout. */
typedef struct kolo_comm_wait_hooks {
    void (*begin)(void *arg), (*end)(void *arg); /* called around each wait */
    /* Whether a wait goes on, asked after its timeout and then after each half of it. May block. */
    bool (*goes_on)(void *arg);
    void *arg;
} kolo_comm_wait_hooks;

struct kolo_comm {
    kolo_transport *transport;
    struct kolo_progress_thread *progress; /* of the whole group; NULL: none, or a sub-group */
    struct kolo_comm_lock *lock;           /* the family's; NULL: no thread makes progress */
    kolo_backend *backend;                 /* runs offloaded collectives; NULL: none */
    int n_offloaded;                       /* requests that the backend runs now */
    int rank, size, local_rank, local_size;
    int *host_of, n_hosts;                  /* [size]; NULL: one host */
    kolo_comm *parent, *children, *sibling; /* sub-groups: a list of children, linked by sibling */
    int *whole_rank; /* [size]: number in the whole group; NULL: this is the whole group */
    char group[KOLO_GROUP_BYTES]; /* "sub-group 2/0", by colours; "" for the whole group */
    kolo_rank_namer namer;        /* NULL: ranks are called by their numbers alone */
    const void *namer_arg;
    kolo_algorithm algorithm;
    kolo_comm_tuning tuning;
    kolo_comm_costs costs; /* the same on all ranks */
    int64_t timeout_ns;
    const kolo_reduce_table *reduce;
    int processors;      /* available to the ranks of this host together */
    bool oversubscribed; /* more ranks than processors on this host */

    kolo_request *requests;
    kolo_request **flight;      /* [max_in_flight]: collectives, in order of start */
    kolo_request **by_priority; /* the same by priority, then in order of start */
    int n_flight, max_in_flight;
    struct kolo_agreement *agreement; /* of a group that may shrink (agreement.h); else NULL */
    void (*serve)(struct kolo_agreement *agreement); /* called with progress; NULL: not needed */
    struct kolo_p2p *p2p; /* sends and receives; NULL until the first one is created */
    size_t n_messages;    /* sends and receives in flight */
    uint64_t next_seq;
    uint32_t n_created; /* collectives, so far; the same on all ranks */

    kolo_peer_traffic *traffic;    /* [size]: without that of requests that exist (traffic.c) */
    struct kolo_comm_trace *trace; /* of the family, owned by the whole group; NULL: none */

    _Atomic uintptr_t user;        /* whole group: the thread that is in a call; acquire, release */
    int claims;                    /* calls that it is in */
    _Atomic bool misused;          /* whole group: a second thread was refused; relaxed */
    _Atomic uintptr_t progressing; /* whole group: the thread that makes progress, or is in a hook,
                                      now; relaxed */
    uint32_t aborts; /* whole group: how often the program has ended the calls of all threads */
    _Atomic uint64_t *joined; /* cleared when the communicator is destroyed; NULL: none */

    kolo_protection protection; /* whole group: of its connections between hosts */
    unsigned char service_key[KOLO_SERVICE_KEY_BYTES]; /* derived from the job's secret; 0: none */
    char (*addresses)[KOLO_ADDRESS_BYTES];  /* whole group: [size], by which to reach the ranks;
                                               NULL: not joined over a network */
    struct kolo_service_link *services;     /* whole group: its services, for forked children */
    kolo_activity activity;                 /* whole group: of its services */
    const kolo_comm_wait_hooks *wait_hooks; /* borrowed; NULL: waits end after their timeout */

    kolo_comm *registered_next; /* of the whole groups of this process (forked.c) */
    bool inherited;             /* this process is a forked child of the rank */

    bool (*interrupted)(void *arg); /* of the whole group; see kolo_comm_opts */
    void *interrupted_arg;
    int64_t interrupted_checked_ns;

    kolo_comm_gate gate;
    void *gate_arg;
    unsigned spins, waits; /* polls before a wait yields; waits so far */
    int64_t looked_ns;     /* time of the latest look for signals */
    int64_t watched_ns;    /* and of the latest check of the peers */
    bool loss_noticed;     /* by a check: the next one breaks the communicator */
    int64_t busy_until_ns; /* until then processors are assumed busy: waits sleep */
    int64_t lost_ns;       /* time lost in long yields, minus the cost of sleeps (backoff.c) */

    const kolo_request *last; /* the collective completed last; NULL: none, or it is destroyed */
    char last_title[KOLO_TITLE_BYTES]; /* of one that is destroyed; "": none */
    kolo_signals report_signal;        /* requests a report; fd -1: none */
    int report_fd;

    kolo_status broken; /* KOLO_OK: not broken */
    char broken_text[KOLO_REPORT_BYTES];
    bool successor; /* of a group that had failed before: the failures above are not its own */
    char leaves_for[KOLO_REPORT_BYTES]; /* whole group: the first error of the family since it was
                                           created or has shrunk, for peers that need this rank
                                           when it has left; "": none */
};

/* Called each time before a request would make progress. A request that the gate holds is announced
 * at most, never complete. NULL removes the gate. */
KOLO_SHARED void kolo_comm_set_gate(kolo_comm *comm, kolo_comm_gate gate, void *arg);
/* Names the ranks of a group and its sub-groups in messages from now on; NULL: by their numbers
 * alone. `arg` is borrowed. */
KOLO_SHARED void kolo_comm_name_ranks(kolo_comm *comm, kolo_rank_namer namer, const void *arg);
/* For requests created from now on. */
KOLO_SHARED void kolo_comm_set_tuning(kolo_comm *comm, kolo_comm_tuning tuning);
/* Replaces the map of hosts found when joining: hosts[r] is any number that identifies the host of
 * rank r, the same on all ranks. For requests created from now on. NOMEM. */
KOLO_SHARED kolo_status kolo_comm_set_hosts(kolo_comm *comm, const int *hosts);
