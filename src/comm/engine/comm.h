#pragma once
/* A communicator: its transport, the requests in flight, its place in a family of sub-groups. */

#include "base/compiler.h"
#include "base/process.h"
#include "comm/reduce/reduce.h"
#include "comm/schedule/costs.h"
#include "comm/transport/transport.h"

/* Sizes that decide how data is cut. All ranks must use the same (it is checked). Zero: default. */
typedef struct kolo_comm_tuning {
    size_t chunk_bytes; /* of ring messages and staged pieces; default 256 KiB, and
                           2 MiB where there is a network */
    size_t eager_bytes; /* up to here data travels with the announcement; default and most 1024;
                           1: never (no element fits) */
} kolo_comm_tuning;

typedef struct kolo_backend kolo_backend;

/* Decides whether a request may make progress now. For tests: a closed gate holds a request in
 * flight without any clock, so that a test can assert what runs before it completes. */
typedef bool (*kolo_comm_gate)(void *arg, const kolo_request *request);

enum {
    KOLO_FLIGHT_QUEUE = KOLO_FLIGHT_MAX * 4, /* collectives in flight */
    KOLO_GROUP_BYTES = 40,
    KOLO_SPINS = 400, /* polls before the first yield, about 20 us */
};

struct kolo_comm {
    kolo_transport *transport;
    struct kolo_progress_thread *progress; /* of the whole group; NULL: none, or a sub-group */
    struct kolo_comm_lock *lock;           /* the family's; NULL: no thread makes progress */
    kolo_backend *backend; /* takes whole collectives (backend.h); NULL: schedules */
    int n_offloaded;       /* requests in its hands */
    int rank, size, local_rank, local_size;
    int *host_of, n_hosts;                  /* [size]; NULL: one host */
    kolo_comm *parent, *children, *sibling; /* sub-groups: a list of children, linked by sibling */
    int *whole_rank;                        /* [size]: in the whole group; NULL: this is it */
    char group[KOLO_GROUP_BYTES];           /* "sub-group 2/0", by colours; "" for the whole */
    kolo_algorithm algorithm;
    kolo_comm_tuning tuning;
    kolo_comm_costs costs; /* the same on all ranks */
    int64_t timeout_ns;
    const kolo_reduce_table *reduce;
    int processors;      /* that the ranks of this host may run on together */
    bool oversubscribed; /* more ranks than processors: yield at once */

    kolo_request *requests;
    kolo_request *flight[KOLO_FLIGHT_MAX * 4]; /* collectives, in order of start */
    kolo_request
        *by_priority[KOLO_FLIGHT_MAX * 4]; /* the same by priority, then in order of start */
    int n_flight;
    struct kolo_p2p *p2p; /* sends and receives; NULL until the first one is created */
    size_t n_messages;    /* sends and receives in flight */
    uint64_t next_seq;
    uint32_t next_number;

    kolo_comm_gate gate;
    void *gate_arg;
    unsigned spins, waits; /* turns of spinning before a wait yields; waits so far */
    int64_t watched_ns;    /* when the peers were looked after */
    int64_t busy_until_ns; /* until then others are taken to use the processors: waits sleep */
    int64_t lost_ns;       /* in long yields, less what naps would have cost (backoff.c) */

    char last_title[KOLO_TITLE_BYTES]; /* of the collective completed last; "" before the first */
    kolo_signals report_signal;        /* asks for a report; fd -1: nobody does */
    int report_fd;

    kolo_status broken; /* KOLO_OK: sound */
    char broken_text[KOLO_REPORT_BYTES];
};

/* Called each time before a request would make progress. A request that the gate holds is announced
 * at most, never complete. NULL removes the gate. */
KOLO_SHARED void kolo_comm_set_gate(kolo_comm *comm, kolo_comm_gate gate, void *arg);
/* For requests created from now on. */
KOLO_SHARED void kolo_comm_set_tuning(kolo_comm *comm, kolo_comm_tuning tuning);
/* Replaces the map of hosts found when joining: hosts[r] is any number that identifies the host of
 * rank r, the same on all ranks. For requests created from now on. NOMEM. */
KOLO_SHARED kolo_status kolo_comm_set_hosts(kolo_comm *comm, const int *hosts);
