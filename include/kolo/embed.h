#pragma once
/* Communicators inside a framework that has a key-value store, threads and a profiler of its own,
 * such as PyTorch: the ranks find each other by the store, several threads use one communicator,
 * and a hook is called for each collective.
 *
 *     kolo_comm *comm;
 *     kolo_comm_opts opts = {.rank = rank, .world = world, .progress_thread = true};
 *     KOLO_TRY(kolo_comm_create_by(&opts, share, store, &comm));
 *     KOLO_TRY(kolo_comm_allow_threads(comm));
 */

#include "kolo/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Broadcasts rank 0's text, which holds the secret of the group: rank 0 publishes the
 * null-terminated `text`; on the other ranks the function waits for it and writes it to `text`, at
 * most `bytes` with the null. On failure it sets an error (kolo_error_set) and returns its status;
 * TIMEOUT: not within timeout_ms. */
typedef kolo_status kolo_share(void *arg, char *text, size_t bytes, int64_t timeout_ms);

/* kolo_comm_create for the ranks opts->rank of opts->world, which exchange the address of rank 0
 * and a secret by `share`. A process may join any number of groups. Without local_world, or with
 * one smaller than world, ranks may be on several hosts; otherwise rank 0 listens on the loopback
 * interface only. master_addr, master_port and secret_file are not used; KOLO_SECRET_FILE,
 * set on all ranks, replaces the secret that is exchanged. ARG: world is 0; the errors of
 * kolo_comm_create and of `share`. */
KOLO_API kolo_status kolo_comm_create_by(const kolo_comm_opts *opts, kolo_share *share, void *arg,
                                         kolo_comm **comm);

/* From now on several threads may create, start, test, wait for and destroy requests of this
 * communicator at the same time, each request in one thread at a time; several threads may wait for
 * one request. Other calls remain for one thread at a time. Requests are started in the order of
 * the calls: threads that start collectives must agree on an order that is the same on all ranks.
 * One waiting thread makes progress for all. A local call, made once before a second thread uses
 * the communicator. `interrupted` is only called in the main thread. kolo_comm_destroy breaks the
 * communicator for threads that are in a call, whose calls fail with PEER, and returns when they
 * have ended; no thread may begin another one, or use requests, after that. In a call of
 * `interrupted` it only breaks the communicator. ARG: a sub-group, or created without
 * progress_thread; NOMEM, IO. */
KOLO_API kolo_status kolo_comm_allow_threads(kolo_comm *comm);

/* Keeps all registered memory of the whole group, on this rank, mapped when the communicator is
 * destroyed: until the process ends, for frameworks in which something else may still use it. A
 * local call. Does not block. */
KOLO_API void kolo_comm_keep_memory(kolo_comm *comm);

/* Breaks the communicator and its family on all ranks with PEER and this reason, also groups that
 * go on after a failure, and while other threads wait in one: their calls then return that error.
 * Where groups may shrink (<kolo/group.h>) the others go on without this rank, whose agreements
 * fail too: to end calls and then shrink together, use kolo_comm_revoke. */
KOLO_API void kolo_comm_abort(kolo_comm *comm, const char *reason);

/* A collective or message that begins or ends on this rank. */
typedef struct kolo_comm_event {
    uint64_t id; /* the same at the begin and at the end; counted from 1 */
    int64_t ns;  /* of CLOCK_MONOTONIC */
    bool ends;   /* else it begins: it has been started */
    bool failed; /* it ends without its result: its communicator has broken, or is destroyed */
    kolo_collective kind;
    int peer;              /* of a message, KOLO_ANY_RANK while any may send it; else -1 */
    size_t bytes;          /* of the vector: of all slices */
    const char *name;      /* `site` of its options, "" without one */
    const char *title;     /* what errors call it: "allreduce 'bucket 3' (1000 x f32, sum, ring)" */
    const char *algorithm; /* at the end of a collective: "ring", "allgather-bruck"; else "" */
} kolo_comm_event;

/* The texts are valid during the call. It may come from any thread that makes progress, also one of
 * the library, never from two at once; it must be brief, and must not use the communicator: calls
 * of its own fail with ARG. */
typedef void kolo_comm_hook(void *arg, const kolo_comm_event *event);

/* Calls `hook` whenever a collective or message of this communicator or of its sub-groups begins
 * and ends, until it is destroyed or another hook is set; NULL: none. Of what is in flight then
 * only the end is seen; of collectives that are in flight when their communicator is destroyed,
 * only the begin. A local call, which does not block. ARG: a sub-group; NOMEM. */
KOLO_API kolo_status kolo_comm_set_hook(kolo_comm *comm, kolo_comm_hook *hook, void *arg);

#ifdef __cplusplus
}
#endif
