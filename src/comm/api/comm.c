/* Communicators: creation over a transport, breaking, destruction, and the one-time calls. */
#include "base/clock.h"
#include "base/process.h"
#include "comm/engine/offload.h"
#include "comm/join/join_mpi.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    TIMEOUT_MS_DEFAULT = 300000,
    HEARTBEAT_MS_DEFAULT = 10000,
    HEARTBEAT_MS_LEAST = 100,
    CHUNK_DEFAULT = 256 << 10,
    CHUNK_NETWORK = 2 << 20, /* between two chunks a link is idle for as long as an answer takes */
    RANKS_MOST = 1024,
};

static const int64_t segment_default = (int64_t)64 << 30;

kolo_status kolo_comm_resolve(const kolo_comm_opts *opts, kolo_comm_opts *resolved) {
    kolo_comm_opts o = opts ? *opts : (kolo_comm_opts){0};
    if (o.timeout_ms < 0 || o.segment_bytes < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "negative option of a communicator: timeout_ms %lld, "
                         "segment_bytes %lld",
                         (long long)o.timeout_ms, (long long)o.segment_bytes);
    }
    if ((size_t)o.algorithm >= KOLO_ALGORITHM_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown algorithm %d", (int)o.algorithm);
    }
    if (o.heartbeat_ms == 0) o.heartbeat_ms = HEARTBEAT_MS_DEFAULT;
    if (o.heartbeat_ms < HEARTBEAT_MS_LEAST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a heartbeat of %lld ms: at least %d is needed",
                         (long long)o.heartbeat_ms, HEARTBEAT_MS_LEAST);
    }
    if ((size_t)o.transport > KOLO_TRANSPORT_SHM_UCX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown transport %d", (int)o.transport);
    }
    if (o.timeout_ms == 0) o.timeout_ms = TIMEOUT_MS_DEFAULT;
    if (o.segment_bytes == 0) o.segment_bytes = segment_default;
    *resolved = o;
    return KOLO_OK;
}

kolo_status kolo_comm_over(kolo_transport *transport, const kolo_comm_opts *opts, int local_rank,
                           int local_size, int processors, kolo_comm **comm) {
    kolo_comm *c = kolo_zalloc(sizeof *c);
    if (!c) {
        transport->ops->destroy(transport);
        return KOLO_NOMEM(sizeof *c);
    }
    *c = (kolo_comm){
        .transport = transport,
        .rank = transport->rank,
        .size = transport->size,
        .local_rank = local_rank,
        .local_size = local_size,
        .algorithm = opts->algorithm,
        .timeout_ns = kolo_ms_to_ns(opts->timeout_ms),
        .reduce = kolo_reduce_best(),
        .report_signal.fd = -1,
        .report_fd = opts->report_fd ? opts->report_fd : STDERR_FILENO,
        .processors = processors,
        .oversubscribed = local_size > processors,
    };
    c->spins = c->oversubscribed ? 0 : KOLO_SPINS;
    kolo_comm_set_tuning(c, (kolo_comm_tuning){0});
    c->costs = kolo_comm_costs_builtin(transport->windows);
    *comm = c;
    return KOLO_OK;
}

kolo_status kolo_comm_of_transport(kolo_transport *transport, const kolo_comm_opts *opts,
                                   int local_rank, int local_size, int processors,
                                   kolo_comm **comm) {
    kolo_comm *c;
    KOLO_TRY(kolo_comm_over(transport, opts, local_rank, local_size, processors, &c));
    kolo_status status = kolo_progress_start(c, opts->heartbeat_ms);
    if (status != KOLO_OK) {
        kolo_comm_destroy(c);
        return status;
    }
    *comm = c;
    return KOLO_OK;
}

kolo_status kolo_comm_create(const kolo_comm_opts *opts, kolo_comm **comm) {
    kolo_joining j = {
        .local_listener = -1, .tcp_listener = -1, .leader.fd = -1, .started_ns = kolo_now_ns()};
    KOLO_TRY(kolo_comm_resolve(opts, &j.opts));
    j.deadline_ns = j.started_ns + kolo_ms_to_ns(j.opts.timeout_ms);
    if (j.opts.transport == KOLO_TRANSPORT_MPI) return kolo_join_mpi(&j, comm);
    KOLO_TRY(kolo_rank_env_read(&j.opts, j.deadline_ns, &j.env, &j.key));
    return kolo_comm_join(&j, comm);
}

kolo_status kolo_comm_create_threads(int n, const kolo_comm_opts *opts, kolo_comm **comms) {
    if (n < 1 || n > RANKS_MOST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a group of %d threads: 1 to %d can be", n, RANKS_MOST);
    }
    kolo_comm_opts o;
    KOLO_TRY(kolo_comm_resolve(opts, &o));
    kolo_transport **transports = kolo_zalloc((size_t)n * sizeof(kolo_transport *));
    if (!transports) return KOLO_NOMEM((size_t)n * sizeof(kolo_transport *));
    kolo_status status = kolo_thread_transports(n, (size_t)o.segment_bytes, transports);
    int made = 0;
    for (; status == KOLO_OK && made < n; made++) {
        status =
            kolo_comm_of_transport(transports[made], &o, made, n, kolo_processors(), &comms[made]);
        if (status != KOLO_OK) { /* that one's transport is gone; the others are still here */
            for (int r = 0; r < made; r++) kolo_comm_destroy(comms[r]);
            for (int r = made + 1; r < n; r++) transports[r]->ops->destroy(transports[r]);
        }
    }
    kolo_free(transports);
    return status;
}

static void destroy(kolo_comm *comm) {
    while (comm->children) kolo_comm_destroy(comm->children);
    kolo_comm_unlink(comm);
    if (!comm->parent) kolo_progress_stop(comm);
    for (int i = 0; i < comm->n_flight; i++) comm->flight[i]->state = REQUEST_IDLE;
    kolo_p2p_drop(comm);
    while (comm->requests) kolo_request_destroy(comm->requests);
    kolo_p2p_close(comm);
    comm->transport->ops->destroy(comm->transport);
    kolo_offload_close(comm);
    kolo_free(comm->host_of);
    kolo_free(comm->whole_rank);
    kolo_signals_close(&comm->report_signal);
    kolo_free(comm);
}

void kolo_comm_destroy(kolo_comm *comm) {
    if (comm && comm->parent) {
        KOLO_COMM_LOCK_SCOPE(comm->parent); /* the family's thread must not meet it half gone */
        destroy(comm);
    } else if (comm) {
        destroy(comm);
    }
}

int kolo_comm_rank(const kolo_comm *comm) { return comm->rank; }
int kolo_comm_size(const kolo_comm *comm) { return comm->size; }
int kolo_comm_local_rank(const kolo_comm *comm) { return comm->local_rank; }
int kolo_comm_local_size(const kolo_comm *comm) { return comm->local_size; }
int kolo_comm_local_processors(const kolo_comm *comm) { return comm->processors; }
int kolo_comm_host_count(const kolo_comm *comm) { return comm->host_of ? comm->n_hosts : 1; }
int kolo_comm_host(const kolo_comm *comm, int rank) {
    return comm->host_of && rank >= 0 && rank < comm->size ? comm->host_of[rank] : 0;
}
const char *kolo_comm_transport(const kolo_comm *comm) {
    return comm->backend ? comm->backend->ops->name : comm->transport->ops->name;
}

kolo_status kolo_comm_alloc(kolo_comm *comm, size_t bytes, void **memory) {
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(kolo_comm_check(comm));
    return kolo_segment_alloc(&comm->transport->segment, bytes, memory);
}

kolo_status kolo_comm_set_hosts(kolo_comm *comm, const int *hosts) {
    int *host_of = kolo_zalloc((size_t)comm->size * sizeof *host_of), n = 0;
    if (!host_of) return KOLO_NOMEM((size_t)comm->size * sizeof *host_of);
    for (int r = 0; r < comm->size; r++) { /* counted in the order of their lowest ranks */
        int same = 0;
        while (hosts[same] != hosts[r]) same++;
        host_of[r] = same < r ? host_of[same] : n++;
    }
    kolo_free(comm->host_of);
    comm->host_of = host_of;
    comm->n_hosts = n;
    return KOLO_OK;
}

/* What rank 0 has read, or why it could not. */
typedef struct read_costs {
    int32_t status;
    kolo_comm_costs costs;
    char error[KOLO_REPORT_BYTES];
} read_costs;

kolo_status kolo_comm_load_costs(kolo_comm *comm, const char *path) {
    read_costs r = {.costs = comm->costs};
    if (comm->rank == 0) {
        r.status = kolo_comm_costs_read(path, kolo_comm_transport(comm), &r.costs);
        if (r.status) snprintf(r.error, sizeof r.error, "%s", kolo_last_error());
    }
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_BROADCAST,
                           .dtype = KOLO_DTYPE_U8,
                           .output = &r,
                           .count = sizeof r,
                           .site = "costs"};
    KOLO_TRY(kolo_request_run(comm, &o, 0));
    r.error[sizeof r.error - 1] = '\0';
    if (r.status) return KOLO_FAIL((kolo_status)r.status, "%s", r.error);
    comm->costs = r.costs;
    return KOLO_OK;
}

void kolo_comm_set_gate(kolo_comm *comm, kolo_comm_gate gate, void *arg) {
    KOLO_COMM_LOCK_SCOPE(comm);
    comm->gate = gate;
    comm->gate_arg = arg;
}

void kolo_comm_set_tuning(kolo_comm *comm, kolo_comm_tuning tuning) {
    KOLO_COMM_LOCK_SCOPE(comm);
    if (tuning.chunk_bytes == 0) {
        tuning.chunk_bytes = comm->transport->events >= 0 ? CHUNK_NETWORK : CHUNK_DEFAULT;
    }
    if (tuning.eager_bytes == 0 || tuning.eager_bytes > KOLO_EAGER_BYTES) {
        tuning.eager_bytes = KOLO_EAGER_BYTES;
    }
    comm->tuning = tuning;
}

int kolo_comm_whole_rank(const kolo_comm *comm, int rank) {
    return comm->whole_rank ? comm->whole_rank[rank] : rank;
}

const char *kolo_comm_rank_text(const kolo_comm *comm, int rank, char *text, size_t bytes) {
    int n = snprintf(text, bytes, "rank %d", kolo_comm_whole_rank(comm, rank));
    if (comm->parent) snprintf(text + n, bytes - (size_t)n, " (%d in %s)", rank, comm->group);
    return text;
}

/* ---- breaking ---- */

kolo_status kolo_comm_check(kolo_comm *comm) {
    return comm->broken == KOLO_OK ? KOLO_OK : KOLO_FAIL(comm->broken, "%s", comm->broken_text);
}

kolo_status kolo_comm_break(kolo_comm *comm, kolo_status status, const char *fmt, ...) {
    KOLO_COMM_LOCK_SCOPE(comm);
    char text[sizeof((kolo_comm){0}.broken_text)]; /* an argument may be the error slot */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (comm->broken != KOLO_OK) return kolo_comm_check(comm);
    memcpy(comm->broken_text, text, sizeof text);
    comm->broken = status;
    comm->transport->ops->report(comm->transport, status, text);
    for (int i = 0; i < comm->n_flight; i++) {
        kolo_request_release(comm->flight[i]);
        comm->flight[i]->state = REQUEST_IDLE;
    }
    comm->n_flight = 0;
    kolo_p2p_drop(comm);
    if (comm->parent) (void)kolo_comm_break(comm->parent, status, "%s", text);
    for (kolo_comm *c = comm->children; c; c = c->sibling) {
        (void)kolo_comm_break(c, status, "%s", text);
    }
    return kolo_comm_check(comm);
}

/* ---- one-time forms ---- */

kolo_status kolo_request_run(kolo_comm *comm, const kolo_request_opts *opts, int64_t timeout_ms) {
    kolo_request *request;
    KOLO_TRY(kolo_request_create(comm, opts, &request));
    kolo_status status = kolo_request_start(request);
    if (status == KOLO_OK) status = kolo_request_wait(request, timeout_ms);
    if (status != KOLO_OK) status = kolo_comm_break(comm, status, "%s", kolo_last_error());
    kolo_request_destroy(request);
    return status;
}

kolo_status kolo_allreduce(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype,
                           kolo_reduce_op op) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                 .output = data,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .op = op},
                            0);
}

kolo_status kolo_broadcast(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype, int root) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_BROADCAST,
                                                 .output = data,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .root = root},
                            0);
}

kolo_status kolo_barrier(kolo_comm *comm) {
    return kolo_request_run(comm, &(kolo_request_opts){.kind = KOLO_COLLECTIVE_BARRIER}, 0);
}

kolo_status kolo_reduce(kolo_comm *comm, const void *input, void *output, size_t count,
                        kolo_dtype dtype, kolo_reduce_op op, int root) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_REDUCE,
                                                 .input = input,
                                                 .output = output,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .op = op,
                                                 .root = root},
                            0);
}

kolo_status kolo_reduce_scatter(kolo_comm *comm, const void *input, void *output, size_t count,
                                kolo_dtype dtype, kolo_reduce_op op) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_REDUCE_SCATTER,
                                                 .input = input,
                                                 .output = output,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .op = op},
                            0);
}

/* The kinds that only move slices. */
static kolo_status run_slices(kolo_comm *comm, kolo_collective kind, const void *input,
                              void *output, size_t count, kolo_dtype dtype, int root) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = kind,
                                                 .input = input,
                                                 .output = output,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .root = root},
                            0);
}

kolo_status kolo_allgather(kolo_comm *comm, const void *input, void *output, size_t count,
                           kolo_dtype dtype) {
    return run_slices(comm, KOLO_COLLECTIVE_ALLGATHER, input, output, count, dtype, 0);
}

kolo_status kolo_gather(kolo_comm *comm, const void *input, void *output, size_t count,
                        kolo_dtype dtype, int root) {
    return run_slices(comm, KOLO_COLLECTIVE_GATHER, input, output, count, dtype, root);
}

kolo_status kolo_scatter(kolo_comm *comm, const void *input, void *output, size_t count,
                         kolo_dtype dtype, int root) {
    return run_slices(comm, KOLO_COLLECTIVE_SCATTER, input, output, count, dtype, root);
}

kolo_status kolo_alltoall(kolo_comm *comm, const void *input, void *output, size_t count,
                          kolo_dtype dtype) {
    return run_slices(comm, KOLO_COLLECTIVE_ALLTOALL, input, output, count, dtype, 0);
}

static kolo_status run_message(kolo_comm *comm, kolo_request_opts o, int peer, int tag) {
    o.root = peer;
    o.tag = tag;
    return kolo_request_run(comm, &o, 0);
}

kolo_status kolo_send(kolo_comm *comm, const void *data, size_t count, kolo_dtype dtype, int to,
                      int tag) {
    kolo_request_opts o = {
        .kind = KOLO_COLLECTIVE_SEND, .input = data, .count = count, .dtype = dtype};
    return run_message(comm, o, to, tag);
}

kolo_status kolo_recv(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype, int from,
                      int tag) {
    kolo_request_opts o = {
        .kind = KOLO_COLLECTIVE_RECV, .output = data, .count = count, .dtype = dtype};
    return run_message(comm, o, from, tag);
}
