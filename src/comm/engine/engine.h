#pragma once
/* Communicators and requests from the inside, for the files of this folder, the plan and the tests.
 *
 * A request is created once with its schedules, started, and moved on by kolo_engine_progress until
 * its last round is complete. The requests in flight are kept in the order of their start; each
 * moves as far as it can whenever the caller gives time. Nothing here starts threads or blocks
 * except kolo_request_wait. */

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

/* Says whether a request may make progress now. For tests: a closed gate holds a request in flight
 * without any clock, so that a test can assert what runs before it completes. `arg` is the
 * setter's. */
typedef bool (*kolo_comm_gate)(void *arg, const kolo_request *request);

/* The gate is asked each time before a request would move, and a request that it holds stays where
 * it is: announced or not, never complete. NULL removes it. */
KOLO_SHARED void kolo_comm_set_gate(kolo_comm *comm, kolo_comm_gate gate, void *arg);
/* For requests created from now on. */
KOLO_SHARED void kolo_comm_set_tuning(kolo_comm *comm, kolo_comm_tuning tuning);

/* Who is on which host, instead of what was found out when joining; host numbers are any, [size],
 * the same on all ranks. For requests created from now on. NOMEM. */
KOLO_SHARED kolo_status kolo_comm_set_hosts(kolo_comm *comm, const int *hosts);

/* The number of its latest start on this communicator, its site, and whether it is in flight. */
KOLO_SHARED uint64_t kolo_request_sequence(const kolo_request *request);
KOLO_SHARED const char *kolo_request_site(const kolo_request *request);
KOLO_SHARED bool kolo_request_in_flight(const kolo_request *request);
/* Elements moved by the engine since the request was created, and the name of the row whose
 * schedule it ran last. */
KOLO_SHARED kolo_traffic kolo_request_traffic(const kolo_request *request);
KOLO_SHARED const char *kolo_request_schedule_name(const kolo_request *request);
/* The schedule that the request runs: the first choice, or the one for private memory. */
KOLO_SHARED kolo_schedule *kolo_request_schedule(kolo_request *request);

typedef enum request_state {
    REQUEST_IDLE,
    REQUEST_QUEUED,  /* started, waits for its place */
    REQUEST_RUNNING, /* announced; a send or receive: in the hands of p2p.c */
} request_state;

/* Progress of one entry of the current round. */
typedef struct entry_progress {
    size_t moved;         /* elements handed over, taken or copied */
    size_t partial_bytes; /* bytes of the next one that have moved: networks know no elements */
    bool issued, done;
} entry_progress;

struct kolo_request {
    kolo_comm *comm;
    kolo_request *next; /* list of all requests of the communicator */
    char *site;
    char title[KOLO_TITLE_BYTES];
    kolo_collective kind;
    kolo_dtype dtype;
    kolo_reduce_op op;
    kolo_algorithm algorithm; /* what AUTO has become; COUNT: reproducible */
    int root, tag;            /* send and receive: root is the peer */
    double prescale, postscale;
    int priority;
    size_t count;    /* elements of the whole vector */
    uint64_t agreed; /* what of it must be the same on all ranks */
    uint64_t shape;
    uint32_t number;
    size_t element_bytes;

    const char *input;     /* INPUT; NULL where there is none */
    kolo_part *nodes;      /* a reproducible allreduce: INPUT is these, `count` elements each */
    size_t *slices;        /* [2][size + 1]: spec.firsts, spec.output_firsts */
    uint64_t *peer_counts; /* [size]: elements for each rank, in an uneven all-to-all; else NULL */
    kolo_part *parts;      /* DATA */
    size_t *firsts;        /* [n_parts + 1]: where each part starts in DATA */
    int n_parts;
    uint64_t
        *handles; /* the parts' names in this rank's segment, for the peers; several parts only */
    uint64_t handle;   /* the name of the only part, or of INPUT, whichever the peers read */
    bool private_data; /* peers need this rank's DATA or INPUT and cannot reach it */
    bool eager;
    bool offloaded; /* this start has been given to the backend */

    kolo_schedule_spec spec;
    kolo_schedule
        schedules[2]; /* [1]: for private memory, when [0] needs all DATA to be reachable */
    int n_schedules;

    request_state state;
    uint64_t seq; /* of a send and its receive: the sender's count of sends to that peer */
    const kolo_schedule
        *schedule; /* of this start; NULL while it hangs on what the peers announce */
    size_t round;
    uint32_t phase;
    int matched;                 /* ranks below this one have announced this start */
    entry_progress *entries;     /* of the current round */
    entry_progress *ahead;       /* of the next one: sends that went already */
    void *scratch;               /* this start's */
    size_t scratch_bytes;        /* of the block to give back; 0: the place's payload */
    size_t moved;                /* send and receive: bytes that have come */
    bool granted;                /* send: the peer waits for the data */
    void *call;                  /* the backend's; NULL: it runs schedules of ours */
    int n_exposed, exposed_most; /* addresses that peers need of this rank; most of any: DATA's, and
                                the nodes' behind it */
    void **peer_data;            /* [size][exposed_most]; filled when first met */
    void **peer_scratch;         /* [size] */
    uint64_t *matched_seq; /* [size]: start of which the peer's call has been checked, plus 1 */
    const void **from;     /* [size]: pointers of a sweep */
    void **to;             /* [size] */
    kolo_traffic traffic;
};

enum { KOLO_GROUP_BYTES = 40 };

typedef struct kolo_backend kolo_backend;

struct kolo_comm {
    kolo_transport *transport;
    struct kolo_progress_thread *progress; /* the family's; NULL: only the caller makes progress */
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

/* A rank as messages name it: by its number in the whole group, and in a sub-group by its own too;
 * the text is valid until the end of the enclosing block. */
#define KOLO_RANK(comm, rank) \
    kolo_comm_rank_text((comm), (rank), (char[KOLO_GROUP_BYTES + 32]){0}, KOLO_GROUP_BYTES + 32)
const char *kolo_comm_rank_text(const kolo_comm *comm, int rank, char *text, size_t bytes);
int kolo_comm_whole_rank(const kolo_comm *comm, int rank);
/* The whole group that a sub-group is of; itself when it is that. */
kolo_comm *kolo_comm_whole(kolo_comm *comm);

enum {
    KOLO_FLIGHT_QUEUE = KOLO_FLIGHT_MAX * 4,
    KOLO_SPINS = 400, /* turns of spinning at first, about 20 us */
};

/* The options with defaults filled in. ARG. */
kolo_status kolo_comm_resolve(const kolo_comm_opts *opts, kolo_comm_opts *resolved);
/* Takes over the transport, and starts what makes progress over a network; on failure destroys it.
 * Without that: `kolo_comm_over`, for sub-groups, which use their parent's. */
kolo_status kolo_comm_over(kolo_transport *transport, const kolo_comm_opts *opts, int local_rank,
                           int local_size, int processors, kolo_comm **comm);
kolo_status kolo_comm_of_transport(kolo_transport *transport, const kolo_comm_opts *opts,
                                   int local_rank, int local_size, int processors,
                                   kolo_comm **comm);

/* Sends and receives (p2p.c). `open` makes what a communicator needs for them. NOMEM. */
kolo_status kolo_p2p_open(kolo_comm *comm);
void kolo_p2p_close(kolo_comm *comm);
kolo_status kolo_p2p_start(kolo_request *q);
/* Moves what is in flight. */
kolo_status kolo_p2p_progress(kolo_comm *comm, bool *moved);
/* The oldest that is in flight with `peer` (any: -1), NULL when none is. */
const kolo_request *kolo_p2p_open_with(const kolo_comm *comm, int peer);
/* Drops all that is in flight. */
void kolo_p2p_drop(kolo_comm *comm);

/* Starts and stops the thread that makes progress over a network (progress.c); none for transports
 * in memory. NOMEM, IO. */
kolo_status kolo_progress_start(kolo_comm *comm, int64_t heartbeat_ms);
/* The longest that this thread sleeps: of a heartbeat, a small part. */
int64_t kolo_progress_tick_ns(int64_t heartbeat_ms);
void kolo_progress_stop(kolo_comm *comm);
/* Between them the communicator and its requests belong to the calling thread alone; may be nested.
 * Without a progress thread they do nothing. */
kolo_comm *kolo_comm_enter(kolo_comm *comm);
bool kolo_comm_enter_if_free(kolo_comm *comm);
void kolo_comm_leave(kolo_comm *const *comm);
/* Until the end of the enclosing block. */
#define KOLO_COMM_LOCK_SCOPE(comm)                                                   \
    kolo_comm *const lock_scope_ __attribute__((cleanup(kolo_comm_leave), unused)) = \
        kolo_comm_enter(comm)
/* While a caller waits, it drives and the thread rests. */
void kolo_progress_drive(kolo_comm *comm, bool drive);
/* Sleeps until a peer says something, at most so long; the communicator is left meanwhile. */
void kolo_progress_sleep(kolo_comm *comm, int64_t ns);

/* What a wait hangs on: the oldest collective in flight, else a send or receive. NULL: nothing. */
const kolo_request *kolo_comm_oldest(const kolo_comm *comm);
/* Whether anything is in flight, sends and receives included; in its family (split.c). */
bool kolo_comm_in_flight(const kolo_comm *comm);
bool kolo_family_in_flight(const kolo_comm *comm);
/* Looks after the peers of this communicator, and of all in its family that wait for some. */
kolo_status kolo_family_watch(kolo_comm *comm);
/* Moves every request in flight as far as it goes; `moved` when any did. `one`: those of this
 * communicator alone; else those of its family (split.c). */
kolo_status kolo_engine_progress_one(kolo_comm *comm, bool *moved);
kolo_status kolo_engine_progress(kolo_comm *comm, bool *moved);
/* Takes a sub-group out of its family. */
void kolo_comm_unlink(kolo_comm *comm);
/* Breaks the communicator: tells the peers, drops what is in flight; gives `status` back with the
 * text in this thread's error slot. */
kolo_status kolo_comm_break(kolo_comm *comm, kolo_status status, const char *fmt, ...)
    KOLO_PRINTF(3, 4);
/* OK, or the failure that broke the communicator. */
kolo_status kolo_comm_check(kolo_comm *comm);
/* Looks after the peers; breaks the communicator when one is needed and lost. */
kolo_status kolo_comm_watch(kolo_comm *comm);
/* How long a wait has lasted. The clock is not read while it spins; 0: not read yet. */
typedef struct kolo_idle {
    int64_t started_ns;
    int64_t since_ns, now_ns; /* without progress since */
    unsigned turns;           /* since then */
} kolo_idle;
/* One turn of a wait in which something moved or not: spins, yields or sleeps for a moment, and
 * looks after the peers. */
kolo_status kolo_idle_turn(kolo_comm *comm, kolo_idle *w, bool moved);
/* Adds who is waited for in the oldest request in flight, and what was finished last. */
void kolo_comm_describe(const kolo_comm *comm, kolo_text *text);
/* Opens the signal that asks for reports, if the options name one. IO. */
kolo_status kolo_report_open(const kolo_comm_opts *opts, kolo_signals *signals);
/* Writes a report if one has been asked for. */
void kolo_report_if_asked(kolo_comm *comm);
/* Whether `rank` may need the memory of `owner`, in a schedule that uses windows. */
bool kolo_request_reads_from(const kolo_request *q, int rank, int owner);
/* How many addresses peers need of a rank: of its parts, or of DATA and its nodes. */
int kolo_request_exposed(const kolo_request *q, int rank);
/* Gives back what a start holds. */
void kolo_request_release(kolo_request *q);
