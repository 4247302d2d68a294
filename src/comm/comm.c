/* Communicators: creation over a transport, breaking, destruction, and the one-time calls. */
#include "base/process.h"
#include "comm/engine.h"

#include <stdio.h>
#include <string.h>

enum { TIMEOUT_MS_DEFAULT = 300000, CHUNK_DEFAULT = 256 << 10, RANKS_MOST = 1024 };

static const int64_t segment_default = (int64_t)64 << 30;

kolo_status kolo_comm_resolve(const kolo_comm_opts *opts, kolo_comm_opts *resolved) {
    kolo_comm_opts o = opts ? *opts : (kolo_comm_opts){0};
    if (o.timeout_ms < 0 || o.segment_bytes < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "negative option of a communicator: timeout_ms %lld, "
                         "segment_bytes %lld",
                         (long long)o.timeout_ms, (long long)o.segment_bytes);
    }
    if ((size_t)o.algorithm > KOLO_ALGORITHM_DIRECT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown algorithm %d", (int)o.algorithm);
    }
    if (o.timeout_ms == 0) o.timeout_ms = TIMEOUT_MS_DEFAULT;
    if (o.segment_bytes == 0) o.segment_bytes = segment_default;
    *resolved = o;
    return KOLO_OK;
}

kolo_status kolo_comm_of_transport(kolo_transport *transport, const kolo_comm_opts *opts,
                                   int local_rank, int local_size, kolo_comm **comm) {
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
        .timeout_ns = opts->timeout_ms * 1000000,
        .reduce = kolo_reduce_best(),
        .crowded = local_size > kolo_processors(),
    };
    c->spins = c->crowded ? 0 : KOLO_SPINS;
    kolo_comm_set_tuning(c, (kolo_comm_tuning){0});
    *comm = c;
    return KOLO_OK;
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
        status = kolo_comm_of_transport(transports[made], &o, made, n, &comms[made]);
        if (status != KOLO_OK) { /* that one's transport is gone; the others are still here */
            for (int r = 0; r < made; r++) kolo_comm_destroy(comms[r]);
            for (int r = made + 1; r < n; r++) transports[r]->ops->destroy(transports[r]);
        }
    }
    kolo_free(transports);
    return status;
}

void kolo_comm_destroy(kolo_comm *comm) {
    if (!comm) return;
    for (int i = 0; i < comm->n_flight; i++) comm->flight[i]->state = REQUEST_IDLE;
    while (comm->requests) kolo_request_destroy(comm->requests);
    comm->transport->ops->destroy(comm->transport);
    kolo_free(comm);
}

int kolo_comm_rank(const kolo_comm *comm) { return comm->rank; }
int kolo_comm_size(const kolo_comm *comm) { return comm->size; }
int kolo_comm_local_rank(const kolo_comm *comm) { return comm->local_rank; }
int kolo_comm_local_size(const kolo_comm *comm) { return comm->local_size; }
const char *kolo_comm_transport(const kolo_comm *comm) { return comm->transport->ops->name; }

kolo_status kolo_comm_alloc(kolo_comm *comm, size_t bytes, void **memory) {
    KOLO_TRY(kolo_comm_check(comm));
    return kolo_segment_alloc(&comm->transport->segment, bytes, memory);
}

void kolo_comm_set_gate(kolo_comm *comm, kolo_comm_gate gate, void *arg) {
    comm->gate = gate;
    comm->gate_arg = arg;
}

void kolo_comm_set_tuning(kolo_comm *comm, kolo_comm_tuning tuning) {
    if (tuning.chunk_bytes == 0) tuning.chunk_bytes = CHUNK_DEFAULT;
    if (tuning.eager_bytes == 0 || tuning.eager_bytes > KOLO_EAGER_BYTES) {
        tuning.eager_bytes = KOLO_EAGER_BYTES;
    }
    comm->tuning = tuning;
}

/* ---- breaking ---- */

kolo_status kolo_comm_check(kolo_comm *comm) {
    return comm->broken == KOLO_OK ? KOLO_OK : KOLO_FAIL(comm->broken, "%s", comm->broken_text);
}

kolo_status kolo_comm_break(kolo_comm *comm, kolo_status status, const char *fmt, ...) {
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
    return kolo_comm_check(comm);
}

/* ---- one-time forms ---- */

static kolo_status run_once(kolo_request *request) {
    kolo_status status = kolo_request_start(request);
    if (status == KOLO_OK) status = kolo_request_wait(request, 0);
    kolo_request_destroy(request);
    return status;
}

kolo_status kolo_allreduce(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype,
                           kolo_reduce_op op) {
    kolo_part part = {.data = data, .count = count};
    kolo_request *request;
    KOLO_TRY(kolo_allreduce_create(comm, &part, 1, dtype, op, KOLO_ALGORITHM_AUTO, NULL, &request));
    return run_once(request);
}

kolo_status kolo_broadcast(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype, int root) {
    kolo_part part = {.data = data, .count = count};
    kolo_request *request;
    KOLO_TRY(kolo_broadcast_create(comm, &part, 1, dtype, root, NULL, &request));
    return run_once(request);
}

kolo_status kolo_barrier(kolo_comm *comm) {
    kolo_request *request;
    KOLO_TRY(kolo_barrier_create(comm, NULL, &request));
    return run_once(request);
}
