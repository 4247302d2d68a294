#pragma once
/* Collective communication between the ranks of a job.
 *
 * A kolo_comm is one rank's handle to a group. Collectives are *persistent requests*: creating one
 * builds its schedule; it can then be started, tested and waited for any number of times. All ranks
 * of a group must create their requests in the same order and start them in the same order. Several
 * requests may be in flight: of the collectives, 32 make progress, later ones are queued, and at
 * most `max_in_flight` are accepted without waiting for earlier ones.
 *
 * Threads. A communicator, its sub-groups and their requests may be used by one thread at a time.
 * A call while another thread is in one fails with ARG and breaks the communicator on all ranks.
 * Functions block only where documented.
 *
 * Fork. A forked child is not a rank: its copies of communicators are inert. All calls fail with
 * ARG there and destroying them has no effect, in the child or elsewhere; registered memory remains
 * shared with the parent. Descriptors are closed in the child, and on exec.
 *
 * Failure. Every wait has a deadline. If a peer dies, a deadline passes, or ranks disagree about
 * the collective they start, the communicator breaks on all ranks: all its calls then fail with the
 * same error, which names the rank. A dead peer breaks the communicators of which it is a member:
 * requests of sub-groups without it continue. Any other failure breaks the whole group and all its
 * sub-groups. A rank that starts a collective after a peer's deadline for it fails too; one that
 * has contributed before may have completed it. Any call that communicates can return these errors:
 * PEER, TIMEOUT, or ARG for a disagreement. Destroy a broken communicator; until then, peers may
 * still write into the data of requests that were in flight.
 *
 * Environment. For programs that cannot be edited, these variables are read when a communicator is
 * created; options that the program sets take precedence.
 *
 *     KOLO_TIMEOUT, KOLO_HEARTBEAT   timeout_ms and heartbeat_ms, in seconds
 *     KOLO_ALGORITHM                 name of the allreduce algorithm, the same on all ranks
 *     KOLO_ENCRYPT=1                 encrypt between hosts, the same on all ranks
 *     KOLO_AUTHENTICATE=1            authenticate between hosts, the same on all ranks
 *     KOLO_CONNECTIONS=all|near|ring which ranks of different hosts connect at once
 *     KOLO_LOG=LEVEL[:FILE]          log on standard error or in a file. warn: failures and
 *                                    rejected connections; info: joining, leaving, bytes
 *                                    exchanged; debug: steps of joining, requests, bytes
 *                                    exchanged with each rank
 *     KOLO_TRACE=PREFIX              writes PREFIX.rankR.json, a trace for Perfetto: begin and end
 *                                    of each collective and message, its bytes and algorithm
 *
 *     kolo_comm *comm;
 *     KOLO_TRY(kolo_comm_create(NULL, &comm));           // RANK, WORLD_SIZE, ... from kolo run
 *     KOLO_TRY(kolo_allreduce(comm, gradient, n, KOLO_DTYPE_F32, KOLO_SUM));
 */

#include "kolo/dtype.h"
#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_comm kolo_comm;
typedef struct kolo_request kolo_request;

/* The list of reduction operations: code, name. Integers wrap around. f16 and bf16 are combined as
 * f32 and rounded to nearest even. MEAN is the sum divided by the number of ranks, or of shards in
 * a reproducible allreduce (integers: towards zero). f16 and bf16 are scaled by a power of two
 * before they are added, so that the sum does not overflow; values of shards are not. AND, OR and
 * XOR combine the bits of integers. */
#define KOLO_REDUCE_OP_LIST(X) \
    X(KOLO_SUM, "sum")         \
    X(KOLO_MIN, "min")         \
    X(KOLO_MAX, "max")         \
    X(KOLO_PROD, "prod")       \
    X(KOLO_MEAN, "mean")       \
    X(KOLO_AND, "and")         \
    X(KOLO_OR, "or")           \
    X(KOLO_XOR, "xor")

typedef enum kolo_reduce_op {
#define KOLO_REDUCE_OP_ENUM(code, name) code,
    KOLO_REDUCE_OP_LIST(KOLO_REDUCE_OP_ENUM)
#undef KOLO_REDUCE_OP_ENUM
        KOLO_REDUCE_OP_COUNT
} kolo_reduce_op;
/* The name of an operation ("sum"), "unknown" for an invalid one; static storage. */
KOLO_API const char *kolo_reduce_op_name(kolo_reduce_op op);

/* An operation of the program, in place of a kolo_reduce_op. It must be associative. An element
 * may be a structure: data is divided between elements only. If the operation is not commutative,
 * the elements of the ranks are combined in the order of the ranks (a reproducible allreduce: of
 * the shards). All ranks pass the same operation. */
typedef struct kolo_user_op {
    const char *name; /* 1 to 24 characters, for errors; ranks whose names differ are refused */
    /* to[i] = to[i] op from[i] for i < count. The vectors do not overlap. Threads of the library
     * may call it, several at once for other requests; it must not use communicators: calls of its
     * own fail with ARG. A failure (kolo_error_set in that thread) breaks the communicator on all
     * ranks. */
    kolo_status (*combine)(void *arg, void *to, const void *from, size_t count);
    void *arg;
    size_t element_bytes; /* 0: those of the request's dtype; otherwise its dtype stays 0. Elements
                             are aligned as in the vectors of the ranks, at most to 16 bytes. */
    bool commutative;
} kolo_user_op;

/* The list of collectives and messages: code, name. */
#define KOLO_COLLECTIVE_LIST(X)                         \
    X(KOLO_COLLECTIVE_ALLREDUCE, "allreduce")           \
    X(KOLO_COLLECTIVE_BROADCAST, "broadcast")           \
    X(KOLO_COLLECTIVE_BARRIER, "barrier")               \
    X(KOLO_COLLECTIVE_REDUCE, "reduce")                 \
    X(KOLO_COLLECTIVE_REDUCE_SCATTER, "reduce-scatter") \
    X(KOLO_COLLECTIVE_ALLGATHER, "allgather")           \
    X(KOLO_COLLECTIVE_GATHER, "gather")                 \
    X(KOLO_COLLECTIVE_SCATTER, "scatter")               \
    X(KOLO_COLLECTIVE_ALLTOALL, "all-to-all")           \
    X(KOLO_COLLECTIVE_SEND, "send")                     \
    X(KOLO_COLLECTIVE_RECV, "receive")

enum { KOLO_ANY_RANK = -1 }; /* the root of a receive: takes a message from any rank */

typedef enum kolo_collective {
#define KOLO_COLLECTIVE_ENUM(code, name) code,
    KOLO_COLLECTIVE_LIST(KOLO_COLLECTIVE_ENUM)
#undef KOLO_COLLECTIVE_ENUM
        KOLO_COLLECTIVE_COUNT
} kolo_collective;

/* The list of allreduce algorithms: code, row, name, description. kolo_allreduce_ROW, defined in
 * src/comm/schedule/alg_*.c, holds the algorithm's schedule writers and default costs. */
#define KOLO_ALGORITHM_LIST(X)                                                                     \
    X(KOLO_ALGORITHM_RING, ring, "ring", "reduce-scatter and allgather around a ring")             \
    X(KOLO_ALGORITHM_DIRECT, direct, "direct",                                                     \
      "each rank reduces its slice in the shared memory of all ranks")                             \
    X(KOLO_ALGORITHM_TREE, tree, "tree", "reduce and broadcast along a binomial tree")             \
    X(KOLO_ALGORITHM_DOUBLE_TREE, double_tree, "double-tree",                                      \
      "reduce and broadcast along two binary trees, half of the vector each")                      \
    X(KOLO_ALGORITHM_HALVING_DOUBLING, halving_doubling, "halving-doubling",                       \
      "recursive vector halving and distance doubling")                                            \
    X(KOLO_ALGORITHM_MESH, mesh, "mesh", "each rank exchanges slices with all others by messages") \
    X(KOLO_ALGORITHM_HIERARCHICAL, hierarchical, "hierarchical",                                   \
      "reduce-scatter within each host, rings between hosts, allgather within each host")

/* How an allreduce moves its data. */
typedef enum kolo_algorithm {
    KOLO_ALGORITHM_AUTO, /* chosen by size, group and transport */
#define KOLO_ALGORITHM_ENUM(code, row, name, description) code,
    KOLO_ALGORITHM_LIST(KOLO_ALGORITHM_ENUM)
#undef KOLO_ALGORITHM_ENUM
        KOLO_ALGORITHM_COUNT
} kolo_algorithm;

/* The algorithm of that name, or "auto". ARG: unknown name; the error suggests one. */
KOLO_API kolo_status kolo_algorithm_parse(const char *name, kolo_algorithm *algorithm);
/* Name and one-line description, "unknown" for no algorithm; static storage. */
KOLO_API const char *kolo_algorithm_name(kolo_algorithm algorithm);
KOLO_API const char *kolo_algorithm_description(kolo_algorithm algorithm);

/* The list of transports: code, whether ranks of a host use shared memory, network between
 * hosts, name, description. The network is kolo_network_NAME, in its folder src/comm/transport/. */
#define KOLO_TRANSPORT_LIST(X)                                                                  \
    X(KOLO_TRANSPORT_AUTO, true, tcp, "auto", "shared memory inside a host, TCP between hosts") \
    X(KOLO_TRANSPORT_SHM, true, none, "shm", "shared memory, for ranks on one host")            \
    X(KOLO_TRANSPORT_TCP, false, tcp, "tcp", "TCP, also inside a host")                         \
    X(KOLO_TRANSPORT_MPI, true, none, "mpi",                                                    \
      "offload collectives to the MPI whose mpirun started the job")                            \
    X(KOLO_TRANSPORT_UCX, false, ucx, "ucx",                                                    \
      "UCX (RDMA if available, else TCP), also inside a host, for trusted networks")            \
    X(KOLO_TRANSPORT_SHM_UCX, true, ucx, "shm+ucx",                                             \
      "shared memory inside a host, UCX between hosts, for trusted networks")

/* How data moves between ranks. For MPI and UCX see kolo_comm_opts. */
typedef enum kolo_transport_choice {
#define KOLO_TRANSPORT_ENUM(code, memory, network, name, description) code,
    KOLO_TRANSPORT_LIST(KOLO_TRANSPORT_ENUM)
#undef KOLO_TRANSPORT_ENUM
        KOLO_TRANSPORT_COUNT
} kolo_transport_choice;

/* The transport of that name. ARG: unknown name; the error suggests one. */
KOLO_API kolo_status kolo_transport_parse(const char *name, kolo_transport_choice *transport);
/* Its name, "unknown" for no transport; static storage. */
KOLO_API const char *kolo_transport_name(kolo_transport_choice transport);

/* Options of kolo_comm_create. A zero field takes its default. Strings are copied. */
typedef struct kolo_comm_opts {
    /* The rank environment. If world is 0, it is read from the environment variables RANK,
     * WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (KOLO_MASTER_PORT takes
     * precedence, where MASTER_PORT belongs to another library). KOLO_SECRET_FILE names the file
     * with the job's secret: at least 16 bytes, readable only by its owner; a memory file or a pipe
     * from the launcher also works. KOLO_LISTEN_FD may give rank 0 a socket that already listens on
     * that address.
     *
     * If none of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE is set, a process started by
     * mpirun, mpiexec or srun gets its environment from them by PMIx or PMI. Rank 0 then generates
     * a secret, unless KOLO_SECRET_FILE is set on all ranks, and listens on KOLO_MASTER_PORT or any
     * free port. Any other process forms a group of one. Ranks of torchrun use the store of its
     * agent likewise, unless KOLO_MASTER_PORT is set.
     *
     * Ranks that share a host are detected; KOLO_HOST_ID overrides the detection. */
    int rank, world, local_rank, local_world;
    const char *master_addr; /* default 127.0.0.1 */
    int master_port;
    const char *secret_file;
    int64_t timeout_ms;       /* deadline of joining and of each wait; default 300000 */
    kolo_algorithm algorithm; /* of requests with algorithm AUTO; the same on all ranks */
    int64_t segment_bytes;    /* address space of a rank's registered memory, the same on all ranks;
                                 at least 1 MiB, default 64 GiB. Pages are allocated when touched.
                                 Collectives use it for working memory: some algorithms up to three
                                 times the vector, others at most a few MiB per rank. */
    kolo_transport_choice transport;
    /* MPI: the ranks of the group are those of MPI_COMM_WORLD; `rank` and `world`, if given, are
     * checked against them. MPI also distributes a generated secret. It is initialized unless the
     * program has done so (with MPI_THREAD_SERIALIZED or higher), and then finalised at process
     * exit. Collectives on any memory run in MPI, in the order of their start; priorities have no
     * effect. Joining, sends and receives, sub-groups, reproducible allreduces and the detection of
     * lost peers remain Kolo's. UNSUPPORTED: f16 and bf16 reductions, slices of more than 2^31 - 1
     * elements in total. ARG: an algorithm other than AUTO. After a failure the MPI part cannot be
     * repaired: MPI is not finalised, the launcher ends the job, and no next generation can form.
     *
     * UCX: uses RDMA if available, else TCP. AUTO never selects it, because it neither
     * authenticates peers nor encrypts: use it on trusted networks. Announcements, heartbeats and
     * failures use Kolo's authenticated connections. UCX_* environment variables take effect;
     * `interface` sets UCX_NET_DEVICES. UNSUPPORTED: UCX is not installed or finds no device. */
    const char *interface; /* network between hosts: an interface name, or a prefix of this host's
                              address ("10.1."); default: the interface that routes to rank 0 */
    int64_t heartbeat_ms;  /* a peer on another host that has been silent this long counts as lost;
                              default 10000, at least 100. While the group forms: a host that does
                              not answer this long, at least 3000 (a slow rank has timeout_ms). */
    bool insecure;         /* no secret: anyone who can reach the port may join */
    /* Encrypt what is sent over TCP (with KOLO_TRANSPORT_TCP also inside a host), with keys from
     * the job's secret; the same on all ranks. Data that was changed on the way breaks the
     * communicator: its sender is lost. Without it and `authenticate`, connections are
     * authenticated only when they are opened. Shared memory is not encrypted. ARG: with
     * `insecure`; UNSUPPORTED: another transport than AUTO and TCP, services between hosts. */
    bool encrypt;
    /* Authenticate what is sent over TCP, without encrypting it: like `encrypt` in all else, and
     * less work. With both, it is encrypted. */
    bool authenticate;
    uint32_t generation; /* of the group. After a failure, the remaining ranks and new processes
                            can form the next generation without a restart: each calls
                            kolo_comm_create again with its new rank, the new world and the next
                            number. A process with another generation is rejected. */
    /* A signal, such as SIGUSR1, that makes this process write the line of kolo_comm_report to the
     * descriptor report_fd (0: standard error): immediately if it is waiting, otherwise at its next
     * wait. The signal is blocked in this thread and in threads created later. report_signal 0: no
     * signal. */
    int report_signal, report_fd;
    int max_in_flight; /* collectives in flight in each communicator, the same on all ranks; default
                          128. Beyond it kolo_request_start makes progress until there is room. */
    /* A thread of the library makes progress while the program computes, also in shared memory, so
     * that this rank does not hold up its peers. Between hosts there always is one. While requests
     * are in flight it wakes every 0.2 ms; each call takes a lock. */
    bool progress_thread;
    /* Asked about every 20 ms by a thread that waits: true breaks the communicator with PEER
     * ("interrupted by the user") on all ranks. NULL: never. */
    bool (*interrupted)(void *arg);
    void *interrupted_arg;
} kolo_comm_opts;

/* Joins the group. Blocks until all ranks have joined, or the deadline. `opts` may be NULL.
 * ARG: contradictory options or environment, no secret, ranks that disagree, or this process has
 * joined the group of its environment already and not destroyed it; UNSUPPORTED: shared
 * memory between hosts, a transport that is not installed; IO: no connection; PEER: a peer died
 * while joining or failed authentication; TIMEOUT: names the missing ranks, also if another rank
 * gave up first, or the rank that cannot be reached, with its address; NOMEM. */
KOLO_API kolo_status kolo_comm_create(const kolo_comm_opts *opts, kolo_comm **comm);

/* Whether a launcher started this process as a rank, so that kolo_comm_create(NULL) joins its group
 * instead of forming a group of one. */
KOLO_API bool kolo_comm_launched(void);
/* Describes the launchers available here; static storage. */
KOLO_API const char *kolo_comm_launchers(void);
/* Whether transport ucx is available: Kolo's module for it and UCX, which this call loads. */
KOLO_API bool kolo_comm_has_ucx(void);

/* Creates a group of `n` ranks that are threads of this process; comms[r] is for the thread of rank
 * r. Only algorithm, timeout_ms, segment_bytes, max_in_flight and progress_thread of `opts` are
 * used. Does not block. Ranks read and write each other's buffers in place: a call that fails, and
 * kolo_comm_destroy with requests in flight, return after the others have ended that. ARG; NOMEM.
 */
KOLO_API kolo_status kolo_comm_create_threads(int n, const kolo_comm_opts *opts, kolo_comm **comms);

/* Leaves the group and frees its requests, sub-groups and registered memory. NULL is allowed. Does
 * not wait for other ranks: the calls of a rank that still needs this one fail with PEER, and with
 * the first error of this rank's communicators, if there was one. */
KOLO_API void kolo_comm_destroy(kolo_comm *comm);

/* This rank's number and the number of ranks: in the group, and on this host. */
KOLO_API int kolo_comm_rank(const kolo_comm *comm);
KOLO_API int kolo_comm_size(const kolo_comm *comm);
KOLO_API int kolo_comm_local_rank(const kolo_comm *comm);
KOLO_API int kolo_comm_local_size(const kolo_comm *comm);
/* Number of processors available to the ranks of this host together. */
KOLO_API int kolo_comm_local_processors(const kolo_comm *comm);
/* Number of hosts in the group, and the index of a rank's host. Hosts are numbered in the order of
 * their lowest ranks. */
KOLO_API int kolo_comm_host_count(const kolo_comm *comm);
KOLO_API int kolo_comm_host(const kolo_comm *comm, int rank);
/* Name of the transport in use ("thread", "shm", "tcp", "shm+tcp", "ucx", "shm+ucx", "mpi",
 * "self"); static storage. */
KOLO_API const char *kolo_comm_transport(const kolo_comm *comm);

/* Splits the group into one sub-group per colour. Ranks in it are ordered by key, then by rank in
 * `comm`. A collective call of all ranks of `comm`; blocks. A rank with a negative colour gets
 * NULL.
 *
 * A sub-group uses shared memory if all its members are on one host (not with ucx), else the
 * connections of `comm`; with transport mpi its collectives are Kolo's. Memory registered with
 * `comm` or the sub-group serves both. Failures of one break others as described above; errors name
 * a sub-group by its colours ("sub-group 2/0") and ranks by their number in the whole group.
 * Destroy it before `comm`; otherwise kolo_comm_destroy(comm) does so. Errors: those of a
 * collective; UNSUPPORTED: the transport has no sub-groups; NOMEM, on all ranks if any has no
 * memory. */
KOLO_API kolo_status kolo_comm_split(kolo_comm *comm, int colour, int key, kolo_comm **sub);

/* Loads the cost constants by which AUTO chooses, from a file written by kolo_bench_calibrate; the
 * defaults are built in. A collective call; rank 0 reads the file and broadcasts it. Blocks. IO;
 * FORMAT. */
KOLO_API kolo_status kolo_comm_load_costs(kolo_comm *comm, const char *path);

/* Writes one line into `text`, truncated to `bytes`: which ranks this one waits for, in which
 * request, and what they and this rank finished last. Does not block. */
KOLO_API void kolo_comm_report(kolo_comm *comm, char *text, size_t bytes);

/* What this rank has exchanged with another one: messages, and what it has read or written in the
 * other's memory. */
typedef struct kolo_peer_traffic {
    uint64_t sent_bytes, received_bytes;
    uint64_t sends, receives;
} kolo_peer_traffic;

/* Gets the traffic with a rank by collectives, sends and receives of this communicator, without its
 * sub-groups and without what MPI moves (transport mpi). Does not block. ARG: no such rank. */
KOLO_API kolo_status kolo_comm_peer_traffic(kolo_comm *comm, int peer, kolo_peer_traffic *traffic);

/* Allocates registered memory: zeroed, 64-byte aligned, accessible to the peers of this host. If
 * the data of all ranks is registered, collectives inside a host copy nothing; otherwise they stage
 * it through registered memory. A local call: other ranks need not make it. Does not block. Freed
 * with the communicator. NOMEM: the segment is full. */
KOLO_API kolo_status kolo_comm_alloc(kolo_comm *comm, size_t bytes, void **memory);

/* A part of a collective's data: `count` elements at `data`. In a reproducible allreduce
 * `tree_node` is its node of the fixed summation tree (see `shards`); elsewhere it identifies the
 * part: parts with the same index and tree_node on all ranks are reduced with each other. */
typedef struct kolo_part {
    uint32_t tree_node;
    void *data;
    size_t count;
} kolo_part;

/* Describes a request. A zero field takes its default. All ranks must pass the same options, except
 * for addresses, priority and prescale. Vectors, in elements:
 *
 *     kind            input                     output                    if input is NULL
 *     allreduce       count                     count                     output holds the input
 *     reduce          count                     count, at the root        likewise, on every rank
 *     reduce-scatter  all slices                this rank's slice         output is all slices; the
 *                                                                         own one is reduced, the
 *                                                                         others are undefined
 *     broadcast       -                         count, from the root's
 *     allgather       this rank's slice         all slices                own slice is in place
 *     gather          this rank's slice         all slices, at the root   the root's is in place
 *     scatter         all slices, at the root   this rank's slice
 *     all-to-all      a slice for each rank     a slice from each rank    output holds the input
 *     send            count
 *     receive                                   count
 *
 * The root of a scatter may pass no output; its slice then stays in the input. Inputs are never
 * modified. Input and output must not overlap, except as in the table. Slices are consecutive, in
 * rank order, of `count` elements each, or counts[rank] if `counts` is given. In an all-to-all,
 * counts[p] elements go to rank p and output_counts[p] come from it (default: counts).
 *
 * Reproducible allreduce (`shards` = L > 0): the input is divided into L logical shards, which are
 * dealt to the ranks in order: counts[r] shards to rank r, or, without `counts`, shards
 * [r L / size, (r + 1) L / size), rounded down. The bits of the
 * result depend only on L and the shards' values, not on the number of ranks, their shards, buckets
 * or timing, because all sums follow one binary tree over the shards. A rank combines its own
 * shards with kolo_combine up to the nodes listed by kolo_tree_nodes, and passes their values as
 * `parts`, each with its tree_node and `count` elements. The root's value goes to `output`, which
 * may be the data of one of the parts.
 *
 * Each rank's input is multiplied by prescale before it is combined, and the result by postscale
 * (reductions of floating point only). */
typedef struct kolo_request_opts {
    kolo_collective kind;
    kolo_dtype dtype;
    kolo_reduce_op op;
    const kolo_user_op
        *user_op; /* of a reduction, copied: combines instead of `op`, which stays 0;
                     no scales; if not commutative, no algorithm but direct and mesh */
    const void *input;
    void *output;
    size_t count;
    const size_t *counts, *output_counts; /* [size], copied */
    const kolo_part *parts;               /* allreduce, broadcast: instead of output and count */
    int n_parts;
    int root; /* send, receive: the other rank; receive: or KOLO_ANY_RANK */
    int tag;  /* 0 or more: messages between two ranks with the same tag match in order */
    double prescale, postscale;
    int shards;               /* reproducible allreduce; see above */
    kolo_algorithm algorithm; /* of an allreduce; default: the communicator's */
    int priority;             /* requests in flight progress by descending priority */
    const char *site;         /* names the request in errors ("bucket 3"); copied */
} kolo_request_opts;

/* Lists the nodes of the fixed tree over `shards` that rank `rank` of `size` contributes, in the
 * order of their shards, and returns their number. `nodes` has room for 62, or is NULL. The root is
 * node 1; node v's children are 2v and 2v + 1; shard s is leaf P + s, where P is the smallest power
 * of two that is not below `shards`. A node's value is kolo_combine(left, right), or the left value
 * if no shard is below the right child. */
KOLO_API int kolo_tree_nodes(int shards, int size, int rank, uint32_t *nodes);
/* The same for a rank that has the shards [first, end). */
KOLO_API int kolo_tree_range_nodes(int shards, int first, int end, uint32_t *nodes);
/* Computes to[i] = to[i] op from[i], bitwise equal to a collective. ARG: invalid type or operation.
 */
KOLO_API kolo_status kolo_combine(void *to, const void *from, size_t count, kolo_dtype dtype,
                                  kolo_reduce_op op);

/* Creates a request, which may be started any number of times. Does not block. The data is borrowed
 * until the request is destroyed, and must not be accessed from start to completion. Sends and
 * receives need no common order with collectives; a send completes when the peer has received. ARG:
 * invalid options, or an algorithm that the transport does not support; UNSUPPORTED; NOMEM. */
KOLO_API kolo_status kolo_request_create(kolo_comm *comm, const kolo_request_opts *opts,
                                         kolo_request **request);

/* Short forms of kolo_request_create. */

/* Allreduce in place over the parts as one long vector. All ranks get bitwise equal results. */
KOLO_API kolo_status kolo_allreduce_create(kolo_comm *comm, const kolo_part *parts, int n_parts,
                                           kolo_dtype dtype, kolo_reduce_op op,
                                           kolo_algorithm algorithm, const char *site,
                                           kolo_request **request);
/* Broadcast of the root's parts to all ranks. */
KOLO_API kolo_status kolo_broadcast_create(kolo_comm *comm, const kolo_part *parts, int n_parts,
                                           kolo_dtype dtype, int root, const char *site,
                                           kolo_request **request);
/* A barrier: completes on no rank before all ranks have started it. */
KOLO_API kolo_status kolo_barrier_create(kolo_comm *comm, const char *site, kolo_request **request);

/* Starts a request. Does not block, unless max_in_flight collectives are in flight: then it waits
 * for the oldest one, with the communicator's deadline. ARG: it is in flight; NOMEM, which breaks
 * the communicator: the segment has no working memory left (segment_bytes). */
KOLO_API kolo_status kolo_request_start(kolo_request *request);
/* Makes progress on all requests in flight and sets `complete` if this one is complete. Does not
 * block. */
KOLO_API kolo_status kolo_request_test(kolo_request *request, bool *complete);
/* Blocks until the request is complete. timeout_ms 0: the communicator's. TIMEOUT: names the ranks
 * that were waited for. */
KOLO_API kolo_status kolo_request_wait(kolo_request *request, int64_t timeout_ms);
/* The algorithm that an allreduce runs. Known at creation, with one exception: `direct` needs the
 * registered memory of all ranks. If some rank's data is private and the ranks can read each
 * other's private memory efficiently, vectors of 64 KiB or more run `mesh` instead. Until the
 * request completes, the result assumes that the data of all ranks is registered or private like
 * this rank's; afterwards it is the algorithm of the latest start. AUTO for a reproducible
 * allreduce, for other collectives, and with transport mpi. */
KOLO_API kolo_algorithm kolo_request_algorithm(const kolo_request *request);
/* The rank from which the latest message of a receive came; KOLO_ANY_RANK: none yet. */
KOLO_API int kolo_request_source(const kolo_request *request);

/* A message that was sent to this rank. */
typedef struct kolo_message {
    int from, tag;
    kolo_dtype dtype;
    size_t count; /* elements */
} kolo_message;

/* Looks for the oldest message with a tag from a rank, or from KOLO_ANY_RANK, that no receive has
 * taken, and leaves it there. Does not block. ARG; PEER: it cannot come any more. */
KOLO_API kolo_status kolo_probe(kolo_comm *comm, int from, int tag, bool *found,
                                kolo_message *message);
/* Frees a request. NULL is allowed. Destroying a request in flight breaks the communicator. */
KOLO_API void kolo_request_destroy(kolo_request *request);
/* Makes progress on all requests in flight. Does not block. Call it between long computations. */
KOLO_API kolo_status kolo_comm_progress(kolo_comm *comm);

/* One-shot collectives: create a request, start it, wait for it, destroy it. All block, and a
 * failure breaks the communicator. */
KOLO_API kolo_status kolo_allreduce(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype,
                                    kolo_reduce_op op);
KOLO_API kolo_status kolo_broadcast(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype,
                                    int root);
KOLO_API kolo_status kolo_barrier(kolo_comm *comm);
/* In place if input is NULL; slices have `count` elements each; see kolo_request_opts. */
KOLO_API kolo_status kolo_reduce(kolo_comm *comm, const void *input, void *output, size_t count,
                                 kolo_dtype dtype, kolo_reduce_op op, int root);
KOLO_API kolo_status kolo_reduce_scatter(kolo_comm *comm, const void *input, void *output,
                                         size_t count, kolo_dtype dtype, kolo_reduce_op op);
KOLO_API kolo_status kolo_allgather(kolo_comm *comm, const void *input, void *output, size_t count,
                                    kolo_dtype dtype);
KOLO_API kolo_status kolo_gather(kolo_comm *comm, const void *input, void *output, size_t count,
                                 kolo_dtype dtype, int root);
KOLO_API kolo_status kolo_scatter(kolo_comm *comm, const void *input, void *output, size_t count,
                                  kolo_dtype dtype, int root);
KOLO_API kolo_status kolo_alltoall(kolo_comm *comm, const void *input, void *output, size_t count,
                                   kolo_dtype dtype);
KOLO_API kolo_status kolo_send(kolo_comm *comm, const void *data, size_t count, kolo_dtype dtype,
                               int to, int tag);
KOLO_API kolo_status kolo_recv(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype,
                               int from, int tag);
/* Sends `count` elements to one rank and receives `output_count` from another, or from any, at the
 * same time, so that ranks may exchange data in pairs or rings. */
KOLO_API kolo_status kolo_sendrecv(kolo_comm *comm, const void *data, size_t count, int to,
                                   void *output, size_t output_count, int from, kolo_dtype dtype,
                                   int tag);
/* Any request; timeout_ms 0: the communicator's. */
KOLO_API kolo_status kolo_request_run(kolo_comm *comm, const kolo_request_opts *opts,
                                      int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
