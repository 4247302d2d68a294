#pragma once
/* Collective communication between the ranks of a job.
 *
 * A kolo_comm is one rank's view of a group. Collectives are *persistent requests*: created once
 * (their schedule is built then), started any number of times, tested or waited for. Every rank of
 * the group must create its requests in the same order and start them in the same order. Several
 * may be in flight. A communicator and its requests belong to one thread at a time.
 *
 * Failure. Every wait has a deadline. When a peer dies, or a deadline passes, or ranks disagree on
 * what they have started, the communicator is broken on all ranks: all its calls fail at once with
 * the same error, which names the rank. Destroy it then; until that, peers may still write into the
 * data of requests that were in flight.
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
 * f32 and rounded to nearest even. MEAN is the sum divided by the number of ranks (integers:
 * towards zero). */
#define KOLO_REDUCE_OP_LIST(X) \
    X(KOLO_SUM, "sum")         \
    X(KOLO_MIN, "min")         \
    X(KOLO_MAX, "max")         \
    X(KOLO_PROD, "prod")       \
    X(KOLO_MEAN, "mean")

typedef enum kolo_reduce_op {
#define KOLO_REDUCE_OP_ENUM(code, name) code,
    KOLO_REDUCE_OP_LIST(KOLO_REDUCE_OP_ENUM)
#undef KOLO_REDUCE_OP_ENUM
} kolo_reduce_op;
/* "sum" and so on, "unknown" for no operation; static storage. */
KOLO_API const char *kolo_reduce_op_name(kolo_reduce_op op);

/* The one list of what a request can do: code, name. */
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

typedef enum kolo_collective {
#define KOLO_COLLECTIVE_ENUM(code, name) code,
    KOLO_COLLECTIVE_LIST(KOLO_COLLECTIVE_ENUM)
#undef KOLO_COLLECTIVE_ENUM
        KOLO_COLLECTIVE_COUNT
} kolo_collective;

/* The one list of allreduce algorithms: code, row, name, description. Costs and writers of an
 * algorithm are in kolo_allreduce_ROW, in its file src/comm/schedule/alg_*.c. */
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

/* How ranks reach each other. */
typedef enum kolo_transport_choice {
    KOLO_TRANSPORT_AUTO, /* shared memory inside a host, TCP between hosts */
    KOLO_TRANSPORT_SHM,  /* shared memory; an error with several hosts */
    KOLO_TRANSPORT_TCP,  /* TCP, inside a host too */
    KOLO_TRANSPORT_MPI,  /* whole collectives are handed to Open MPI or MPICH; see kolo_comm_opts */
    KOLO_TRANSPORT_UCX,  /* data by UCX, inside a host too; see kolo_comm_opts */
    KOLO_TRANSPORT_SHM_UCX, /* shared memory inside a host, data by UCX between hosts */
} kolo_transport_choice;

/* Zero means the default. */
typedef struct kolo_comm_opts {
    /* This rank's place. When world is 0 all of it is read from the environment contract: RANK,
     * WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (or KOLO_MASTER_PORT,
     * which comes first, where MASTER_PORT is for another library) and the job's secret in
     * the file that KOLO_SECRET_FILE names (at least 16 bytes, readable by nobody else; a memory
     * file or a pipe of the launcher serves as well). KOLO_LISTEN_FD may give rank 0 a socket that
     * listens on that address already. With none of RANK, WORLD_SIZE, LOCAL_RANK and
     * LOCAL_WORLD_SIZE set, a process that mpirun, mpiexec or srun has started learns all of it
     * from them, by PMIx or PMI; rank 0 then draws a secret, unless KOLO_SECRET_FILE names one on
     * all ranks, and listens at KOLO_MASTER_PORT or any port. Any other process is a group alone.
     * Ranks find out by themselves which of them share a host; KOLO_HOST_ID overrules that. */
    int rank, world, local_rank, local_world;
    const char *master_addr; /* default 127.0.0.1 */
    int master_port;
    const char *secret_file;
    int64_t timeout_ms;       /* deadline of joining and of each wait; default 300000 */
    kolo_algorithm algorithm; /* of requests that say AUTO */
    int64_t segment_bytes;    /* address space of a rank's registered memory, the same on all
                                 ranks; at least 1 MiB, default 64 GiB, backed by pages only as they
                                 are touched. Collectives take their working memory there too: for
                                 some algorithms up to three times the vector, at most some MiB for
                                 each rank. */
    kolo_transport_choice transport;
    /* With MPI the job is one of mpirun: MPI says which rank this is (a `rank` and `world` here are
     * checked, if given), and carries a secret of its own drawing to the others. MPI is started
     * unless the program has done so (with MPI_THREAD_SERIALIZED or more), and then ended at the
     * exit of the process. Collectives are MPI's, on memory of any kind, in the order of their
     * start whatever their priority; joining, sends and receives, sub-groups, reproducible
     * allreduces and the watch over the peers remain Kolo's. What MPI lacks is UNSUPPORTED:
     * reductions of f16 and bf16, slices of more than 2^31 - 1 elements in all, algorithms other
     * than AUTO (ARG). After a failure MPI's part cannot be repaired: the process does not wait
     * for MPI's end, the launcher ends the job, and there is no next generation.
     *
     * UCX takes RDMA where it finds it, else TCP; AUTO never takes it, since it neither proves who
     * sends nor encrypts: it is for networks whose members are trusted. Announcements, heartbeats
     * and failures stay on proven connections of Kolo's. The user's UCX_* variables hold;
     * `interface` is UCX_NET_DEVICES. UNSUPPORTED: UCX is not there, or has no device. */
    const char *interface; /* the network between hosts: the name of an interface, or how this
                              host's address begins ("10.1."); default: the one that leads to
                              rank 0 */
    int64_t heartbeat_ms;  /* after so long a silence a peer on another host is lost; default
                              10000, at least 100 */
    bool insecure;         /* there is no secret, and whoever reaches the port may join */
    uint32_t generation;   /* of the group. After a failure the survivors, and newcomers, may form
                              the next one in the same processes: each calls kolo_comm_create again
                              with its new rank, the new world and the next number; who comes with
                              another number is refused, and disturbs nobody */
    /* A signal, such as SIGUSR1, on which this process writes kolo_comm_report's line to the
     * descriptor report_fd (0: standard error), at once while it waits, else when it next does. The
     * signal is blocked in this thread and so in those made later. 0: no signal is touched. */
    int report_signal, report_fd;
} kolo_comm_opts;

/* Joins the group; blocks until all ranks have, or the deadline. `opts` may be NULL.
 * ARG: contradictory options or environment, no secret, ranks that do not fit together;
 * UNSUPPORTED: shared memory between hosts; IO: no connection; PEER: a peer died while joining, or
 * could not prove that it knows the secret; TIMEOUT, which names the ranks that are missing. */
KOLO_API kolo_status kolo_comm_create(const kolo_comm_opts *opts, kolo_comm **comm);

/* Whether a launcher has started this process as a rank: kolo_comm_create(NULL) then joins its
 * group, and does not make one of this process alone. */
KOLO_API bool kolo_comm_launched(void);
/* What can start the ranks of a group here, in words; static storage. */
KOLO_API const char *kolo_comm_launchers(void);
/* Whether transport ucx is there: the library for it, and UCX, which this loads. */
KOLO_API bool kolo_comm_has_ucx(void);

/* `n` communicators of one group whose ranks are threads of this process: comms[r] is for the
 * thread that plays rank r. Only algorithm, timeout and segment_bytes of `opts` are read. The ranks
 * read each other's buffers in place: after an error of one, its buffers must stay until the calls
 * of the others have returned too. */
KOLO_API kolo_status kolo_comm_create_threads(int n, const kolo_comm_opts *opts, kolo_comm **comms);

/* Leaves the group and frees registered memory and requests. NULL is allowed. Never blocks for
 * long: a rank that leaves while others still communicate is a lost peer to them, unless every rank
 * has passed its last collective. */
KOLO_API void kolo_comm_destroy(kolo_comm *comm);

KOLO_API int kolo_comm_rank(const kolo_comm *comm);
KOLO_API int kolo_comm_size(const kolo_comm *comm);
KOLO_API int kolo_comm_local_rank(const kolo_comm *comm);
KOLO_API int kolo_comm_local_size(const kolo_comm *comm);
/* How many processors the ranks of this host may run on together. */
KOLO_API int kolo_comm_local_processors(const kolo_comm *comm);
/* The hosts of the group, and which of them a rank is on: hosts are counted in the order of their
 * lowest ranks. */
KOLO_API int kolo_comm_host_count(const kolo_comm *comm);
KOLO_API int kolo_comm_host(const kolo_comm *comm, int rank);
/* The transport in use ("thread", "shm", "tcp", "shm+tcp", "ucx", "shm+ucx", "mpi",
 * "self"); static storage. */
KOLO_API const char *kolo_comm_transport(const kolo_comm *comm);

/* A sub-group for each colour, of the ranks that give it; in it they are counted by key, and by
 * rank where keys are equal. Every rank of `comm` must call it; one that gives a negative colour
 * gets NULL. It goes through memory where all its members are on one host (but not under ucx),
 * else over the connections of `comm`; where collectives are MPI's, those of sub-groups are Kolo's.
 * Memory registered with either of the two serves both. A communicator and its sub-groups belong to
 * one thread, and a failure in one breaks all of them, on all members; errors call it by the
 * colours that lead to it ("sub-group 2/0"), and a rank by its number in the whole group. Destroy
 * it before `comm`, which otherwise destroys it. The errors of any collective; NOMEM on all ranks
 * when one has no memory for it. */
KOLO_API kolo_status kolo_comm_split(kolo_comm *comm, int colour, int key, kolo_comm **sub);

/* Takes the constants from which AUTO chooses out of a file that kolo_bench_calibrate has written;
 * without it they are built in. All ranks call it; rank 0 reads the file and tells the others.
 * IO; FORMAT. */
KOLO_API kolo_status kolo_comm_load_costs(kolo_comm *comm, const char *path);

/* Writes into `text`, as much as fits, one line that says which ranks this one waits for, in what,
 * and what they and this one finished last. Belongs to the communicator's thread; never blocks. */
KOLO_API void kolo_comm_report(kolo_comm *comm, char *text, size_t bytes);

/* Registered memory: zeroed, 64-byte aligned, visible to the peers of this host, so that
 * collectives on it copy nothing (when the data of all ranks lies in it; else the data is staged
 * through it). A local call: ranks need not call it alike. Freed with the communicator. NOMEM when
 * the segment is full. */
KOLO_API kolo_status kolo_comm_alloc(kolo_comm *comm, size_t bytes, void **memory);

/* A part of a collective's data: `count` elements at `data`. `tree_node` is its node of the fixed
 * summation tree of a reproducible allreduce (see `shards`), and names a part elsewhere: parts with
 * the same name and place on different ranks are reduced with each other. */
typedef struct kolo_part {
    uint32_t tree_node;
    void *data;
    size_t count;
} kolo_part;

/* What a request does. Zero means the default. All ranks of a collective give the same, but for the
 * addresses, the priority and the prescale. The vectors, in elements:
 *
 *     kind            input                     output                    input NULL means
 *     allreduce       count                     count                     output holds the input
 *     reduce          count                     count, at the root        likewise, on every rank
 *     reduce-scatter  all slices                this rank's slice         output is all slices,
 *                                                                         reduced in the own one;
 *                                                                         others are undefined
 *     broadcast       -                         count, from the root's
 *     allgather       this rank's slice         all slices                own slice is in place
 *     gather          this rank's slice         all slices, at the root   the root's is in place
 *     scatter         all slices, at the root   this rank's slice
 *     all-to-all      a slice for each rank     a slice from each rank    output holds the input
 *     send            count
 *     receive                                   count
 *
 * In a scatter the root may give no output: its slice stays where it is. The input is never
 * changed; apart from the cases above, input and output do not overlap. Slices lie one behind the
 * other in the order of ranks: `count` elements each, or counts[rank] if `counts` is given. In an
 * all-to-all counts[p] goes to rank p, and output_counts[p] comes from it (default: counts).
 *
 * Reproducible allreduce (`shards` = L > 0): the input is cut into L logical shards, of which rank
 * r has [r L / size, (r + 1) L / size) (a longer part where that is uneven). The bits of the result
 * depend on L and the shards' values alone, not on the number of ranks, on buckets or on timing:
 * all sums follow one binary tree over the shards. A rank combines its own shards with kolo_combine
 * up to the nodes that kolo_tree_nodes lists, gives their values as `parts`, each with its
 * tree_node and `count` elements, and gets the root's value in `output`, which may be the first
 * part's data.
 *
 * Each rank's input is multiplied by prescale before it is combined, the result by postscale
 * (floating point only; reductions only). */
typedef struct kolo_request_opts {
    kolo_collective kind;
    kolo_dtype dtype;
    kolo_reduce_op op;
    const void *input;
    void *output;
    size_t count;
    const size_t *counts, *output_counts; /* [size], copied */
    const kolo_part *parts;               /* allreduce, broadcast: instead of output and count */
    int n_parts;
    int root; /* send, receive: the other rank, which may not be the own one */
    int tag;  /* send, receive: messages of one pair of ranks with one tag match in order */
    double prescale, postscale;
    int shards;               /* reproducible allreduce; see below */
    kolo_algorithm algorithm; /* of an allreduce; see kolo_comm_opts */
    int priority;             /* of several requests in flight the highest moves first */
    const char *site;         /* names the call in errors ("bucket 3"); copied */
} kolo_request_opts;

/* The nodes of the fixed tree over `shards` that rank `rank` of `size` brings, by their shards;
 * room for 62, or NULL to count them. Node v's children are 2v and 2v + 1, the root is 1; shard s
 * is the leaf P + s, where P is the smallest power of two that is not below `shards`. A node's
 * value is kolo_combine(left, right), or the left one where no shard is below the right one. */
KOLO_API int kolo_tree_nodes(int shards, int size, int rank, uint32_t *nodes);
/* to[i] = to[i] op from[i], with the bits that a collective gives. ARG. */
KOLO_API kolo_status kolo_combine(void *to, const void *from, size_t count, kolo_dtype dtype,
                                  kolo_reduce_op op);

/* Makes a request, which may be started any number of times. The data is borrowed until it is
 * destroyed; between start and completion it belongs to the request. Sends and receives need be in
 * no order with collectives; a send completes when the peer has received. ARG; NOMEM. */
KOLO_API kolo_status kolo_request_create(kolo_comm *comm, const kolo_request_opts *opts,
                                         kolo_request **request);

/* Shorter forms.
 *
 * Allreduce, in place, over the parts taken as one long vector. The data is borrowed until the
 * request is destroyed; between start and completion it belongs to the request. Every rank ends
 * with the same bits. `site` names the call in errors ("bucket 3"); copied. */
KOLO_API kolo_status kolo_allreduce_create(kolo_comm *comm, const kolo_part *parts, int n_parts,
                                           kolo_dtype dtype, kolo_reduce_op op,
                                           kolo_algorithm algorithm, const char *site,
                                           kolo_request **request);
/* Broadcast of root's parts to all. */
KOLO_API kolo_status kolo_broadcast_create(kolo_comm *comm, const kolo_part *parts, int n_parts,
                                           kolo_dtype dtype, int root, const char *site,
                                           kolo_request **request);
/* A barrier: completes on no rank before every rank has started it. */
KOLO_API kolo_status kolo_barrier_create(kolo_comm *comm, const char *site, kolo_request **request);

/* Starts a request; does not block. ARG when it is in flight already; NOMEM, which breaks the
 * communicator, when no registered memory is left to work in (segment_bytes). */
KOLO_API kolo_status kolo_request_start(kolo_request *request);
/* Makes progress on everything in flight and says whether this request is complete. Never blocks.
 */
KOLO_API kolo_status kolo_request_test(kolo_request *request, bool *complete);
/* Blocks until the request is complete. timeout_ms 0: the communicator's. */
KOLO_API kolo_status kolo_request_wait(kolo_request *request, int64_t timeout_ms);
/* The algorithm that an allreduce runs. Known at creation, except where the requested one (or the one
 * that AUTO chose) needs the memory of all ranks and some rank's may be private: direct is then
 * replaced by mesh for vectors of 64 KiB or more, if the ranks can read each other's private memory
 * efficiently. Until such a request has been started this is the choice for this rank's own memory;
 * once it has completed, what the latest start ran. AUTO for a reproducible allreduce, for other
 * collectives, and with transport mpi. */
KOLO_API kolo_algorithm kolo_request_algorithm(const kolo_request *request);
/* Frees a request that is not in flight. NULL is allowed. */
KOLO_API void kolo_request_destroy(kolo_request *request);
/* Makes progress on everything in flight; never blocks. The step loop calls it between kernels. */
KOLO_API kolo_status kolo_comm_progress(kolo_comm *comm);

/* One-time forms: create, start, wait, destroy. */
KOLO_API kolo_status kolo_allreduce(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype,
                                    kolo_reduce_op op);
KOLO_API kolo_status kolo_broadcast(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype,
                                    int root);
KOLO_API kolo_status kolo_barrier(kolo_comm *comm);
/* In place when input is NULL, with slices of `count` elements; see kolo_request_opts. */
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
/* Create, start, wait, destroy, of anything; timeout_ms 0: the communicator's. */
KOLO_API kolo_status kolo_request_run(kolo_comm *comm, const kolo_request_opts *opts,
                                      int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
