#pragma once
/* A request: what it moves, the schedules for it, and the state of its current start. */

#include "base/compiler.h"
#include "comm/engine/comm.h"

typedef enum request_state {
    REQUEST_IDLE,
    REQUEST_QUEUED,  /* started, waits for a slot of the transport */
    REQUEST_RUNNING, /* announced */
} request_state;

/* Progress of one entry of the current round. */
typedef struct entry_progress {
    size_t moved;         /* elements sent, received or copied */
    size_t partial_bytes; /* of the next element, which a network may split */
    bool issued, done;
} entry_progress;

struct kolo_request {
    kolo_comm *comm;
    kolo_request *next; /* list of all requests of the communicator */
    char *site;
    char title[KOLO_TITLE_BYTES];
    kolo_collective kind;
    kolo_dtype dtype;
    kolo_reduce_op op;    /* KOLO_REDUCE_OP_COUNT: user_op */
    kolo_user_op user_op; /* combine NULL: none; name is only valid at creation */
    void *combined;       /* user_op: a block of elements, before it is stored */
    size_t combined_count;
    kolo_algorithm algorithm; /* requested, or chosen by AUTO; it may run another (request.c) */
    int root, tag;            /* send and receive: root is the peer */
    bool any;                 /* receive: from any rank; root is set by the message */
    double prescale, postscale;
    int priority;
    size_t count;    /* elements of the whole vector */
    uint64_t agreed; /* the count that must agree on all ranks; UINT64_MAX: uneven all-to-all */
    uint64_t shape;
    uint32_t number; /* in order of creation, from 1; or KOLO_REQUEST_ONE_SHOT */
    size_t element_bytes;

    const char *input;     /* INPUT; NULL: none */
    kolo_part *nodes;      /* reproducible allreduce: the parts of INPUT, `count` elements each */
    size_t *slices;        /* [2][size + 1]: spec.firsts, spec.output_firsts */
    uint64_t *peer_counts; /* [2][size]: elements for each rank, and expected from each, in an
                              uneven all-to-all; else NULL */
    kolo_part *parts;      /* DATA */
    size_t *firsts;        /* [n_parts + 1]: start of each part in DATA */
    int n_parts;
    uint64_t *handles; /* [n_exposed]: in the segment, read by the peers; NULL: only one */
    uint64_t handle;   /* of the only part, or of INPUT, whichever the peers read */
    bool private_data; /* peers need this rank's DATA or INPUT, and cannot map it */
    bool eager;
    bool offloaded; /* this start has been passed to the backend */
    bool timed;     /* starts and completions are timed */

    kolo_schedule_spec spec;
    kolo_schedule schedules[2]; /* [1]: used if some rank's data is private */
    int n_schedules;
    size_t scratch_need; /* bytes of SCRATCH of a start, whichever of them runs */

    request_state state;
    uint64_t seq; /* of a send and its receive: the sender's count of sends to that peer */
    const kolo_schedule
        *schedule; /* of the latest start; it may change until all peers are matched */
    size_t round;
    uint32_t phase;
    int matched;                /* ranks [0, matched) have announced this start */
    entry_progress *entries;    /* of the current round */
    entry_progress *ahead;      /* of the next round: sends already posted */
    void *scratch;              /* SCRATCH of this start */
    size_t scratch_bytes;       /* of its block in the segment; 0: it is the slot's payload */
    size_t moved;               /* receive: bytes received */
    bool granted;               /* send: the receiver is ready for the data */
    kolo_request *const *after; /* [n_after]: a send begins when these have completed; borrowed */
    int n_after;
    void *call;                  /* the backend's handle; NULL: not offloaded */
    int n_exposed, exposed_most; /* addresses of this rank that peers need, DATA first, then
                                    nodes; the maximum over ranks */
    void **peer_data;            /* [size][exposed_most]; mapped at the first match */
    void **peer_scratch;         /* [size] */
    uint64_t *matched_seq; /* [size]: number of the start whose announcement was checked, plus 1 */
    const void **from;     /* [size]: pointers of a sweep */
    void **to;             /* [size] */
    uint64_t completed[2]; /* starts, by schedule, that `traffic` does not contain (traffic.c) */
    kolo_traffic traffic;
    uint64_t trace_id;            /* of the latest start */
    int64_t started_ns, ended_ns; /* timed: of the latest start and its completion */
};

static inline bool kolo_collective_is_message(kolo_collective kind) {
    return kind == KOLO_COLLECTIVE_SEND || kind == KOLO_COLLECTIVE_RECV;
}

/* Whether only the order of the ranks gives the right result. */
static inline bool kolo_request_is_ordered(const kolo_request *q) {
    return q->user_op.combine && !q->user_op.commutative;
}

/* Whether the backend carries it out. */
static inline bool kolo_request_offloads(const kolo_request *q) {
    return q->comm->backend && q->spec.shards == 0 && !q->user_op.combine;
}

static inline bool kolo_collective_has_parts(kolo_collective kind) {
    return kind == KOLO_COLLECTIVE_ALLREDUCE || kind == KOLO_COLLECTIVE_BROADCAST;
}

/* Elements moved since the request was created, the name of the schedule that ran last, and the
 * schedule that runs: the first choice, or the one for private memory. */
KOLO_SHARED kolo_traffic kolo_request_traffic(const kolo_request *request);
KOLO_SHARED const char *kolo_request_schedule_name(const kolo_request *request);
KOLO_SHARED kolo_schedule *kolo_request_schedule(kolo_request *request);
/* The specification that the schedules were built for, and the element type. */
KOLO_SHARED const kolo_schedule_spec *kolo_request_spec(const kolo_request *request);
KOLO_SHARED kolo_dtype kolo_request_dtype(const kolo_request *request);
/* The number of its latest start on this communicator, its site, and whether it is in flight. */
KOLO_SHARED uint64_t kolo_request_sequence(const kolo_request *request);
KOLO_SHARED const char *kolo_request_site(const kolo_request *request);
KOLO_SHARED bool kolo_request_in_flight(const kolo_request *request);
/* Measures when a collective starts and completes, from its next start on. */
KOLO_SHARED void kolo_request_measure(kolo_request *request);
/* When the latest collective that was measured started and completed, ns; call it when it is
 * complete. Of others and of messages: 0 and 0. */
KOLO_SHARED void kolo_request_interval(const kolo_request *request, int64_t *start_ns,
                                       int64_t *end_ns);

/* A reduce-scatter in place that leaves the addition to the caller: complete once all ranks have
 * started it. Until the next collective that completes on this rank after it has read, the vector
 * of each rank stays where kolo_request_summand states, of which it may overwrite its own slice,
 * which no other rank reads. As kolo_request_create; UNSUPPORTED: the vector is no registered
 * memory, or the ranks do not share that. */
KOLO_SHARED kolo_status kolo_summands_create(kolo_comm *comm, const kolo_request_opts *opts,
                                             kolo_request **request);
KOLO_SHARED const void *kolo_request_summand(const kolo_request *request, int rank);

/* Whether `rank` may access the memory of `owner`, in a schedule that uses windows. */
bool kolo_request_reads_from(const kolo_request *q, int rank, int owner);
/* Number of addresses of `rank` that its peers need: of its parts, or of DATA and its nodes. */
int kolo_request_exposed(const kolo_request *q, int rank);
